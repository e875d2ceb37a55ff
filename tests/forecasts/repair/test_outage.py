"""The plan after which the loss of any one node is survived."""

from __future__ import annotations

from collections.abc import Mapping

from tests.builders import manifest
from tests.forecasts.repair.broken_clusters import (
    ROOM,
    claim,
    cluster,
    disk,
    node,
    storage_class,
    vm,
)
from virt_admit.forecasts.outage.outages import Question, outages
from virt_admit.forecasts.repair.applying import applied
from virt_admit.forecasts.repair.planning import repair
from virt_admit.forecasts.repair.repair_plan import Goal
from virt_admit.model.kubernetes.objects import Object

WORKER = {"node-role.kubernetes.io/worker": ""}
TEMPLATE = manifest(
    "self-node-remediation.medik8s.io/v1alpha1",
    "SelfNodeRemediationTemplate",
    "automatic",
    "medik8s",
    spec={"template": {"spec": {}}},
)


def survives(found):
    return outages(Question(worst=1), found).survives


def plan_for(*objects):
    broken = cluster(*objects, nodes=())
    assert survives(broken) is False
    plan = repair(broken, Goal.OUTAGE)
    assert plan.reaches is survives(applied(plan.steps, broken))
    return plan


def workers(*names: str, room: Mapping[str, str] = ROOM) -> list[Object]:
    return [node(name, WORKER, room) for name in names]


def test_a_health_check_that_is_missing():
    plan = plan_for(*workers("a", "b", "c"), TEMPLATE, vm())
    assert [step.id for step in plan.steps] == ["health-check:virt-admit-workers"]
    assert plan.reaches


def test_without_a_remediator_there_is_no_step():
    plan = plan_for(*workers("a", "b", "c"), vm())
    assert plan.steps == ()
    assert "install an operator" in plan.remaining[0].why


def test_room_for_the_vms_of_a_lost_node():
    small = workers("a", "b", "c", room={**ROOM, "memory": "9Gi"})
    plan = plan_for(*small, TEMPLATE, *(vm(f"v{on}", on=on, memory="7Gi") for on in "abc"))
    assert [step.id for step in plan.steps] == ["health-check:virt-admit-workers", "add-nodes:a"]
    assert plan.reaches


def test_a_disk_that_only_the_lost_node_reaches():
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["a"]}
    local = {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}}
    objects = (vm(spec=disk()), claim("root", "ReadWriteMany", **local), storage_class())
    plan = plan_for(*workers("a", "b", "c"), TEMPLATE, *objects)
    assert {step.id for step in plan.steps} == {"health-check:virt-admit-workers", "copy:shop/db"}
    assert plan.reaches


def health_check(limit: Mapping[str, object], **spec: object) -> Object:
    reference = {
        "apiVersion": TEMPLATE.api_version,
        "kind": TEMPLATE.kind,
        "name": "automatic",
        "namespace": "medik8s",
    }
    return manifest(
        "remediation.medik8s.io/v1alpha1",
        "NodeHealthCheck",
        "workers",
        "",
        spec={
            "selector": {"matchLabels": WORKER},
            "remediationTemplate": reference,
            **limit,
            **spec,
        },
    )


def test_a_health_check_that_is_paused():
    plan = plan_for(
        *workers("a", "b", "c"),
        TEMPLATE,
        health_check({"minHealthy": "51%"}, pauseRequests=["upgrade"]),
        vm(),
    )
    (step,) = plan.steps
    assert (step.id, step.changes[0].edits[0].path) == (
        "health-check:workers",
        ("spec", "pauseRequests"),
    )
    assert plan.reaches


def test_a_health_check_whose_limit_forbids_the_loss_of_one_node():
    plan = plan_for(*workers("a", "b", "c"), TEMPLATE, health_check({"minHealthy": "100%"}), vm())
    (step,) = plan.steps
    assert step.changes[0].edits[0] == (("spec", "minHealthy"), 2)
    assert plan.reaches


def test_a_conflict_of_two_kinds_of_health_checks_is_a_decision():
    other = manifest(
        "machine.openshift.io/v1beta1",
        "MachineHealthCheck",
        "gpu",
        "openshift-machine-api",
        spec={"selector": {}},
    )
    plan = plan_for(
        *workers("a", "b", "c"), TEMPLATE, health_check({"minHealthy": "51%"}), other, vm()
    )
    assert plan.steps == ()
    assert "use one kind of health check" in plan.remaining[0].why
