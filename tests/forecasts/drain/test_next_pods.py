"""The pod for which a VM needs a place may differ from the one that runs,
and may follow another.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import manifest
from tests.forecasts.repair.broken_clusters import cluster, kubevirt, node, vm
from virt_admit.forecasts.drain.drain_plan import plan
from virt_admit.forecasts.drain.vm_outcomes import VmOutcome
from virt_admit.forecasts.outage.outages import outage


def hotplug() -> dict[str, Any]:
    """Return the status of a VMI whose memory grows."""
    return {
        "conditions": [
            {"type": "LiveMigratable", "status": "True"},
            {"type": "HotMemoryChange", "status": "True"},
        ]
    }


def affinity(app: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def outcomes(*objects: Any) -> dict[str, tuple[VmOutcome, str]]:
    """Return what a drain of node a does to each of its VMs."""
    found = plan(cluster(*objects, kubevirt(), nodes=()))
    (drained,) = (each for each in found.nodes if each.name == "a")
    return {row.vmi.name: (row.outcome, row.reason) for row in drained.forecasts}


def nodes(room: str = "32Gi") -> list[Any]:
    sizes = {"cpu": "16", "memory": room, "pods": "100", "ephemeral-storage": "10Gi"} | {
        f"devices.kubevirt.io/{device}": "1k"
        for device in ("kvm", "tun", "vhost-net", "vhost-vsock")
    }
    return [node(name, room=sizes) for name in ("a", "b", "c")]


def test_a_hotplug_makes_the_next_pod_larger() -> None:
    grown = vm("grown", memory="4Gi", vmi_status=hotplug())
    grown[1].data["spec"]["domain"]["memory"]["guest"] = "40Gi"
    outcome, reason = outcomes(*nodes(), *grown)["grown"]
    assert outcome is VmOutcome.BLOCKS
    assert "its next pod has the CPUs and memory that were hotplugged" in reason
    # the guest has the memory already, so the running pod says it all
    del grown[1].data["status"]["conditions"][1]
    assert outcomes(*nodes(), *grown)["grown"][0] is VmOutcome.MIGRATES


def test_a_hotplug_that_fits_is_no_obstacle() -> None:
    grown = vm("grown", memory="4Gi", vmi_status=hotplug())
    grown[1].data["spec"]["domain"]["memory"]["guest"] = "8Gi"
    assert outcomes(*nodes(), *grown)["grown"][0] is VmOutcome.MIGRATES


def test_a_vm_can_follow_the_one_that_it_must_be_with() -> None:
    found = outcomes(*nodes(), *vm("leader"), *vm("follower", spec=affinity("leader")))
    assert found["leader"][0] is VmOutcome.MIGRATES
    outcome, reason = found["follower"]
    assert (
        outcome,
        "demands pod shop/virt-launcher-leader-x, which leaves a as well" in reason,
    ) == (VmOutcome.UNKNOWN, True)


def test_two_that_must_be_with_each_other_both_stay() -> None:
    found = outcomes(*nodes(), *vm("one", spec=affinity("two")), *vm("two", spec=affinity("one")))
    assert {outcome for outcome, _ in found.values()} == {VmOutcome.BLOCKS}


def test_one_that_no_node_has_room_for_does_not_follow() -> None:
    large = vm("follower", memory="60Gi", spec=affinity("leader"))
    assert outcomes(*nodes(), *vm("leader"), *large)["follower"][0] is VmOutcome.BLOCKS


def namespace(level: str) -> Any:
    return manifest(
        "v1",
        "Namespace",
        "shop",
        metadata={"labels": {"pod-security.kubernetes.io/enforce": level}},
    )


def test_a_namespace_that_enforces_pod_security_may_refuse_the_next_pod() -> None:
    outcome, reason = outcomes(*nodes(), namespace("restricted"), *vm())["db"]
    assert (outcome, "enforces Pod Security restricted" in reason) == (VmOutcome.UNKNOWN, True)


def test_a_pod_that_was_admitted_under_the_level_is_admitted_again() -> None:
    admitted = vm()
    admitted[2].data["spec"]["securityContext"] = {"seccompProfile": {"type": "RuntimeDefault"}}
    assert outcomes(*nodes(), namespace("restricted"), *admitted)["db"][0] is VmOutcome.MIGRATES
    assert outcomes(*nodes(), namespace("baseline"), *vm())["db"][0] is VmOutcome.MIGRATES


@pytest.mark.parametrize("level", ["restricted", "baseline"])
def test_it_may_refuse_the_pod_of_a_vm_that_is_shut_down_or_lost(level: str) -> None:
    shut_down = vm(spec={"evictionStrategy": "None"})
    outcome, reason = outcomes(*nodes(), namespace(level), *shut_down)["db"]
    refused = level == "restricted"
    assert outcome is VmOutcome.RESTARTS
    assert ("enforces Pod Security restricted" in reason) is refused
    objects = (*nodes(), namespace(level), *vm())
    seen = cluster(*objects, nodes=())
    seen.server_version = "v1.31.0"
    (lost,) = outage(("a",), seen).vms
    assert (lost.by_hand is None) is refused


@pytest.mark.parametrize(("most", "refused"), [("1Gi", True), ("64Gi", False)])
def test_a_limit_range_refuses_the_next_pod_of_a_vm_that_is_shut_down(
    most: str, refused: bool
) -> None:
    limits = {"limits": [{"type": "Container", "max": {"memory": most}}]}
    found = manifest("v1", "LimitRange", "lr", "shop", spec=limits)
    shut_down = vm(spec={"evictionStrategy": "None"})
    outcome, reason = outcomes(*nodes(), found, *shut_down)["db"]
    assert outcome is VmOutcome.RESTARTS
    assert ("but only later: LimitRange lr" in reason) is refused


def test_kubevirt_sets_a_seccomp_profile() -> None:
    settings = {
        "seccompConfiguration": {
            "virtualMachineInstanceProfile": {"customProfile": {"runtimeDefaultProfile": True}}
        }
    }
    found = cluster(*nodes(), namespace("restricted"), *vm(), kubevirt(settings), nodes=())
    assert plan(found).nodes[0].forecasts[0].outcome is VmOutcome.MIGRATES
