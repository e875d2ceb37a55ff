"""An upgrade whose VMs cannot migrate to any node,
although kube-scheduler would place them there.
"""

import pytest

from tests import builders
from tests.forecasts.drain.vm_motion import ROOM, cluster, failed, launcher, node, vmi
from virt_admit.forecasts.upgrade import rehearsal
from virt_admit.forecasts.upgrade.rehearsal import Options

FEATURES = "operation failed: guest CPU doesn't match specification: extra features: ht"


def rehearse(*objects):
    return rehearsal.rehearse(
        cluster(vmi(), launcher(), node("a"), *objects), Options(), forecast_only=True
    )


@pytest.mark.parametrize(("targets", "possible"), [(("b", "c"), False), (("b",), True), ((), True)])
def test_a_vm_whose_migration_fails_on_each_other_node_stops_the_upgrade(targets, possible):
    found = rehearse(
        *(failed(n, FEATURES, target=name, age=4000 - n) for n, name in enumerate(targets, 1))
    )

    assert found.possible is possible
    assert ["migrations fail on every node" in stop.reason for stop in found.stops] == [True] * (
        not possible
    )


DEVICES = "Features 0x1c unsupported. Allowed features: 0x1"


@pytest.mark.parametrize(
    ("reason", "tries", "possible"),
    [
        (DEVICES, ("b", "c"), True),
        (DEVICES, ("b", "c", "b"), False),
        (FEATURES, ("b", "c", "b"), True),
    ],
)
def test_devices_that_no_other_qemu_takes_fail_on_the_next_node_too(reason, tries, possible):
    """Node d was not tried: its processor may be another one, but its QEMU is the same."""
    past = (failed(n, reason, target=name, age=4000 - n) for n, name in enumerate(tries, 1))
    found = rehearse(node("d"), *past)

    assert found.possible is possible


def test_a_node_that_lacks_room_now_may_take_it_later():
    """Node c is cordoned at the moment: the simulation decides, not the failures on b."""
    found = rehearse(failed(1, FEATURES, target="b"), node("c", unschedulable=True))

    assert not any("migrations fail on every node" in stop.reason for stop in found.stops)


def test_the_stop_names_the_nodes_that_run_vms_alone():
    narrow = [builders.node(name, allocatable=ROOM | {"memory": "6Gi"}) for name in ("b", "c")]
    plain = builders.node("master", runs_vms=False, allocatable=ROOM)
    guests = {name: launcher(name, on) for name, on in (("db", "a"), ("web", "b"), ("queue", "c"))}
    for each in guests.values():
        each.data["spec"]["containers"] = [
            {"name": "compute", "resources": {"requests": {"memory": "4Gi"}}}
        ]
    machines = [vmi(), vmi("web", on="b"), vmi("queue", on="c")]
    seen = cluster(
        *machines,
        *guests.values(),
        *narrow,
        plain,
        builders.node("a", allocatable=ROOM | {"memory": "6Gi"}),
    )
    found = rehearsal.rehearse(seen, Options(), forecast_only=True)

    assert found.possible is False
    assert any("no other node can take it: memory" in stop.reason for stop in found.stops)
    assert not any("master" in stop.reason for stop in found.stops)


@pytest.mark.parametrize(("broken", "possible"), [(("b", "c"), False), (("b",), True)])
def test_nodes_whose_virt_handler_is_not_ready_take_no_vm(broken, possible):
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}
    labels = {"labels": {"kubevirt.io": "virt-handler"}}
    handlers = [
        builders.manifest(
            "v1",
            "Pod",
            f"handler-{on}",
            "kubevirt",
            metadata=labels,
            spec={"nodeName": on},
            status=status,
        )
        for on in broken
    ]
    own = launcher()
    own.data["spec"]["nodeSelector"] = {"kubevirt.io/schedulable": "true"}
    found = rehearsal.rehearse(
        cluster(vmi(), own, node("a"), *handlers), Options(), forecast_only=True
    )

    assert found.possible is possible
