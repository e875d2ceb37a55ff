"""What repairs a failed migration, by the reason that KubeVirt gives."""

import pytest

from tests import builders
from tests.forecasts.drain.test_vm_states import BLOCKS, LAUNCHER, MIGRATES, UNKNOWN, row
from tests.forecasts.drain.vm_motion import cluster, failed, launcher, node, vmi
from virt_admit.forecasts.drain.failed_migrations import pair_remedies, remedies, small_targets
from virt_admit.forecasts.drain.states.vm_states_failures import load_remedy
from virt_admit.model.kubevirt.instances.migration_timeouts import MigrationSettings

FORBIDDEN = (
    "internal error: unable to execute QEMU command 'migrate-set-capabilities': Postcopy is not "
    "supported: Userfaultfd not available: Operation not permitted"
)


@pytest.mark.parametrize(
    ("reason", "repair"),
    [
        (
            'qemu-kvm: -blockdev {"filename":"/dev/root"}: Failed to lock byte 100',
            "stop the VM for the drain, if its own guest has the lock",
        ),
        (
            "unable to connect to server at 'b:49152': Connection refused",
            "repair the migration network",
        ),
        ("Failed to write to '/var/run/x': No space left on device", "free space"),
        (
            "Cannot access storage file '/var/run/kubevirt-private/x': Permission denied",
            "repair the access",
        ),
        ("cannot set up guest memory 'pc.ram': Cannot allocate memory", "free memory"),
        (
            "argument unsupported: parameter 'x' not supported",
            "install a virt-launcher whose libvirt knows",
        ),
        (
            FORBIDDEN,
            "set the sysctl vm.unprivileged_userfaultfd=1 on all nodes or allowPostCopy: false",
        ),
        (
            "Unsafe migration: Migration without shared storage is unsafe",
            "move its disks to storage",
        ),
        ("target pod shutdown during migration", "repair what ends its target pods"),
        ("target pod is unschedulable", "let kube-scheduler place its target pod"),
        ("words of a later release", "remove the cause that its events name"),
    ],
)
def test_the_remedy_is_about_the_reason(reason, repair):
    assert remedies.of(reason).startswith(repair)


def test_a_claim_that_is_too_small_is_no_matter_of_processors():
    small = "the destination volume is smaller than the source volume"
    lacks = "guest CPU doesn't match specification: missing features: hle"
    assert pair_remedies.of([small, small]) == small_targets.SIZE_REMEDY
    assert pair_remedies.of([small, lacks]) == pair_remedies.PAIR_REMEDY


FAILURES = [failed(number, FORBIDDEN, age=4000 - number * 500) for number in (1, 2, 3)]
OTHER = [vmi("web"), launcher("web")]


@pytest.mark.parametrize(
    ("allowed", "own", "others"), [(True, BLOCKS, UNKNOWN), (False, MIGRATES, MIGRATES)]
)
def test_nodes_that_forbid_post_copy_fail_every_vm_that_may_switch_to_it(allowed, own, others):
    """Source: virt-launcher/virtwrap/live-migration-source.go,
    which asks for the capability before it copies.
    """
    found = cluster(vmi(), LAUNCHER, *OTHER, *FAILURES, allowPostCopy=allowed)

    assert row(found).outcome == own
    assert row(found, "web").outcome == others
    assert ("the migration of shop/db failed" in row(found, "web").reason) is allowed


def test_without_such_a_failure_post_copy_is_no_doubt():
    assert (
        row(cluster(*OTHER, failed(1, "connection reset"), allowPostCopy=True), "web").outcome
        == MIGRATES
    )


@pytest.mark.parametrize("migratable", [True, False])
def test_a_vm_that_a_drain_leaves_off_may_migrate_instead(migratable):
    can = {"type": "LiveMigratable", "status": str(migratable), "reason": "DisksNotLiveMigratable"}
    stays = builders.vm(name="db", runStrategy="RerunOnFailure")
    guest = vmi(reported=False, spec={"evictionStrategy": "None"}, conditions=[can])
    found = row(cluster(guest, LAUNCHER, stays))

    assert found.remedy.startswith("set runStrategy Always: kubectl patch ")
    assert (
        "evictionStrategy LiveMigrate, which takes effect after its restart" in found.remedy
    ) is migratable
    assert ("virtctl migrate db -n shop" in found.remedy) is migratable


@pytest.mark.parametrize(
    ("auto_converge", "post_copy", "bandwidth", "ways"),
    [
        (False, False, 0, "set allowAutoConverge, give migrations more bandwidth"),
        (True, False, 2**26, "raise bandwidthPerMigration, or lower its load"),
        (True, True, 2**26, "raise bandwidthPerMigration, or lower its load"),
    ],
)
def test_a_copy_that_is_too_slow_names_what_is_not_set(auto_converge, post_copy, bandwidth, ways):
    settings = MigrationSettings(
        150, 150, post_copy, disruption=post_copy, bandwidth=bandwidth, auto_converge=auto_converge
    )
    told = load_remedy(vmi(), settings, cluster())
    assert told.startswith(ways)
    assert told.endswith(
        "or lower its load"
        if post_copy
        else "or lower its load, or, as a decision, set allowPostCopy with allowWorkloadDisruption "
        "(the loss of a node then ends the guest)"
    )


def test_post_copy_that_may_not_disrupt_is_not_set():
    settings = MigrationSettings(150, 150, True, disruption=False, bandwidth=0, auto_converge=True)
    assert "as a decision, set allowPostCopy with allowWorkloadDisruption" in load_remedy(
        vmi(), settings, cluster()
    )
    assert "as a decision, set allowPostCopy with allowWorkloadDisruption" in load_remedy(
        vmi(), None, cluster()
    )


@pytest.mark.parametrize(
    ("labels", "says", "remedy"),
    [
        (
            ("b", "c"),
            "b, c: QEMU in its virt-launcher does not give the guest pdcm, which the node has",
            "update KubeVirt to a release whose virt-launcher gives guests pdcm; until then set a "
            "named CPU model",
        ),
        (("b",), "c: it lacks pdcm", pair_remedies.PAIR_REMEDY),
        ((), "b, c: it lacks pdcm", pair_remedies.PAIR_REMEDY),
    ],
    ids=["each node has its label", "one node may lack it", "no node has its label"],
)
def test_a_feature_that_the_nodes_have_is_withheld_by_qemu(labels, says, remedy):
    """harvester/harvester#11358: host-model asks for a feature that QEMU does not give."""
    lacks = "guest CPU doesn't match specification: missing features: pdcm"
    nodes = [node("a", unschedulable=True), node("b"), node("c")]
    for each in nodes:
        if each.name in labels:
            each.data["metadata"]["labels"]["cpu-feature.node.kubevirt.io/pdcm"] = "true"
    tries = [failed(1, lacks), failed(2, lacks, target="c", age=3000)]
    found = row(cluster(vmi(), LAUNCHER, *tries, *nodes, nodes=()))
    assert says in found.reason
    assert found.remedy.startswith(remedy)
