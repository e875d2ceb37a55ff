"""The words of a failed migration that matter, and whether a repetition helps."""

import pytest

from virt_admit.model.kubevirt.instances import migration_failures

CLOSED = (
    "job 'migration out' failed: internal error: QEMU unexpectedly closed the monitor "
    "(vm=vms_web): "
)
AT = "2026-08-01T22:06:36.625034Z qemu-kvm: "
DEVICE = "error while loading state for instance 0x0 of device '0000:00:02.0:00.0/virtio-net'"


@pytest.mark.parametrize(
    ("reason", "words", "pair"),
    [
        (
            (
                f"{CLOSED}{AT}warning: old machine {AT}Features 0x1c unsupported. Allowed "
                f"features: 0x1 {AT}{DEVICE} {AT}load of migration failed: Invalid argument"
            ),
            f"Features 0x1c unsupported. Allowed features: 0x1, {DEVICE}",
            True,
        ),
        (f'{CLOSED}qemu-system-x86_64: Unknown ramblock "x"', 'Unknown ramblock "x"', True),
        # the network
        (f"{CLOSED}{AT}{DEVICE} {AT}load of migration failed: Input/output error", None, False),
        (
            f"{CLOSED}{AT}load of migration failed: Invalid argument",
            "load of migration failed: Invalid argument",
            False,
        ),
        ("Live migration has been aborted", "Live migration has been aborted", False),
    ],
)
def test_the_lines_of_qemu_stand_alone_and_the_first_one_comes_first(reason, words, pair):
    found = migration_failures.essence(reason)

    assert words in (None, found)
    assert migration_failures.is_of_pair(found) is pair
