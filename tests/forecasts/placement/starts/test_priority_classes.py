"""Pods whose PriorityClass does not exist, which the API server refuses to make again."""

import pytest

from tests.builders import manifest
from tests.forecasts.drain.vm_motion import cluster, launcher, vm, vmi
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.drain.starts import next_starts
from virt_admit.forecasts.drain.vm_outcomes import VmOutcome
from virt_admit.forecasts.placement.starts import priority_classes
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import PRIORITY_CLASS

BUILT_IN = manifest(
    "scheduling.k8s.io/v1", "PriorityClass", "system-node-critical", value=2000001000
)
GOLD = manifest("scheduling.k8s.io/v1", "PriorityClass", "gold", value=1000)
ABSENT = "PriorityClass gold does not exist, so the API server refuses each new pod of it"


def drained(*more, name="gold", strategy="LiveMigrate", unread=False):
    subject = vmi(spec={"priorityClassName": name, "evictionStrategy": strategy})
    known = cluster(subject, launcher(), BUILT_IN, *more)
    if unread:
        known.unreadable = frozenset([PRIORITY_CLASS.resource])
    return drain_plan.plan(known, "a").nodes[0].forecasts[0]


def test_a_migration_needs_a_pod_of_that_class():
    found = drained()
    assert (found.outcome, ABSENT in found.reason) == (VmOutcome.BLOCKS, True)
    assert found.remedy.startswith("create PriorityClass gold, or correct priorityClassName of the")


def test_a_guest_that_is_shut_down_starts_again_only_with_that_class():
    found = drained(strategy="None")
    assert (found.outcome, f"but only later: {ABSENT}" in found.reason) == (
        VmOutcome.RESTARTS,
        True,
    )


@pytest.mark.parametrize(
    ("more", "name"), [([GOLD], "gold"), ([], "system-cluster-critical"), ([], "")]
)
def test_a_class_that_exists(more, name):
    assert drained(*more, name=name).outcome is VmOutcome.MIGRATES


def test_a_snapshot_without_any_class_was_saved_without_them():
    subject = vmi(spec={"priorityClassName": "gold"})
    found = drain_plan.plan(cluster(subject, launcher()), "a").nodes[0].forecasts[0]

    assert found.outcome is VmOutcome.MIGRATES
    assert list(priority_classes.notes("a", Snapshot([pod("web"), maker("web")], ["*"]))) == []


def test_classes_that_cannot_be_read_decide_nothing():
    assert drained(unread=True).outcome is VmOutcome.UNKNOWN
    assert drained(unread=True, name="").outcome is VmOutcome.MIGRATES


def test_a_vm_that_is_off():
    machine = vm()
    template = machine.data["spec"].setdefault("template", {}).setdefault("spec", {})
    template["priorityClassName"] = "gold"
    assert ABSENT in next_starts.problem(machine, Snapshot([machine, BUILT_IN], ["*"])).reason
    assert ABSENT not in str(next_starts.problem(machine, Snapshot([machine, GOLD], ["*"])))


def pod(name, kind="ReplicaSet", priority="gold", on="a"):
    owners = [{"kind": kind, "name": name, "controller": True}]
    spec = {"nodeName": on, "priorityClassName": priority}
    metadata = {"ownerReferences": owners}
    status = {"phase": "Running"}
    return manifest("v1", "Pod", name, "shop", metadata=metadata, spec=spec, status=status)


def maker(name, kind="ReplicaSet", priority="gold"):
    template = {"spec": {"priorityClassName": priority} if priority else {}}
    return manifest("apps/v1", kind, name, "shop", spec={"template": template})


def test_other_pods_that_a_drain_evicts_for_good():
    pods = [
        *(pod("web"), maker("web"), pod("db", "StatefulSet"), maker("db", "StatefulSet")),
        *(pod("agent", "DaemonSet"), maker("agent", "DaemonSet")),
        *(
            pod("old", priority="system-node-critical"),
            maker("old", priority="system-node-critical"),
        ),
        *(pod("far", on="b"), maker("far")),
    ]
    assert list(priority_classes.notes("a", Snapshot([*pods, BUILT_IN], ["*"]))) == [
        "shop/db, shop/web would not be made again once evicted: PriorityClass gold does not "
        "exist. Create it before the drain."
    ]
    assert list(priority_classes.notes("a", Snapshot([*pods, BUILT_IN, GOLD], ["*"]))) == []
    assert list(priority_classes.notes("a", Snapshot(pods, ["pods"]))) == []


@pytest.mark.parametrize(
    "makers",
    [[], [maker("web", priority="")], [maker("web", priority="silver")]],
    ids=["its maker is not known", "the default of then", "another class"],
)
def test_a_class_that_the_api_server_wrote_into_a_pod_is_not_asked_for_again(makers):
    known = Snapshot([pod("web"), *makers, BUILT_IN], ["*"])
    assert list(priority_classes.notes("a", known)) == []
