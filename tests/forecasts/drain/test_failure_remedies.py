"""What repairs a failed migration, by the reason that KubeVirt gives."""

import pytest

from virt_admit.forecasts.drain.states.vm_states_failures import PAIR_REMEDY, SIZE_REMEDY, pair_remedy, remedy


@pytest.mark.parametrize(
    ("reason", "repair"),
    [
        ('qemu-kvm: -blockdev {"filename":"/dev/root"}: Failed to lock byte 100', "end the other process"),
        ("unable to connect to server at 'b:49152': Connection refused", "repair the migration network"),
        ("Failed to write to '/var/run/x': No space left on device", "free space"),
        ("Cannot access storage file '/var/run/kubevirt-private/x': Permission denied", "repair the access"),
        ("cannot set up guest memory 'pc.ram': Cannot allocate memory", "free memory"),
        ("argument unsupported: parameter 'x' not supported", "install a virt-launcher whose libvirt knows"),
        ("Unsafe migration: Migration without shared storage is unsafe", "move its disks to storage"),
        ("target pod shutdown during migration", "repair what ends its target pods"),
        ("target pod is unschedulable", "let kube-scheduler place its target pod"),
        ("words of a later release", "remove the cause that its events name"),
    ],
)
def test_the_remedy_is_about_the_reason(reason, repair):
    assert remedy(reason).startswith(repair)


def test_a_claim_that_is_too_small_is_no_matter_of_processors():
    small = "the destination volume is smaller than the source volume"
    lacks = "guest CPU doesn't match specification: missing features: hle"
    assert pair_remedy([small, small]) == SIZE_REMEDY
    assert pair_remedy([small, lacks]) == PAIR_REMEDY
