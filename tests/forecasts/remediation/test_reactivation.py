"""What makes a health check act that does nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.builders import manifest
from tests.forecasts.repair.broken_clusters import cluster, node
from virt_admit.forecasts.remediation import remediation_steps
from virt_admit.forecasts.remediation.reactivation import FieldChange, Reactivation, reactivation
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.remediation import check_scope, health_checks
from virt_admit.model.remediation.check_scope import WatchedNodes

WORKER = {"node-role.kubernetes.io/worker": ""}
EXCLUDED = {"remediation.medik8s.io/exclude-from-remediation": "true"}
TEMPLATE = {
    "apiVersion": "self-node-remediation.medik8s.io/v1alpha1",
    "kind": "SelfNodeRemediationTemplate",
}
READY_UNKNOWN = [{"type": "Ready", "status": "Unknown", "duration": "300s"}]


def asked(
    spec: Mapping[str, Any], *objects: Object, down: int = 1, **labels: str
) -> Reactivation | None:
    """Ask about node a of three that a NodeHealthCheck selects."""
    check = manifest(
        "remediation.medik8s.io/v1alpha1",
        "NodeHealthCheck",
        "workers",
        "",
        spec={"selector": {"matchLabels": WORKER}, "unhealthyConditions": READY_UNKNOWN, **spec},
    )
    nodes = (node("a", {**WORKER, **labels}), node("b", WORKER), node("c", WORKER))
    found = cluster(check, *nodes, *objects, nodes=())
    view = health_checks.view(check)
    watch = WatchedNodes(view, check_scope.selected_by(view, found))
    return reactivation(watch, remediation_steps.budget(view, watch.selection), "a", down, found)


@pytest.mark.parametrize(
    ("spec", "down", "change"),
    [
        ({"pauseRequests": ["upgrade"]}, 1, FieldChange(("spec", "pauseRequests"), None)),
        ({"minHealthy": "100%"}, 1, FieldChange(("spec", "minHealthy"), 2)),
        ({"minHealthy": 3}, 2, FieldChange(("spec", "minHealthy"), 1)),
        ({"maxUnhealthy": 0}, 1, FieldChange(("spec", "maxUnhealthy"), 1)),
        ({"maxUnhealthy": "33%"}, 2, FieldChange(("spec", "maxUnhealthy"), 2)),
    ],
)
def test_a_field_is_changed(spec, down, change):
    found = asked(spec, down=down)
    assert found is not None
    assert found.changes == (change,)
    assert found.command.startswith("kubectl patch nodehealthcheck workers --type=merge")


def test_a_limit_never_lets_a_check_act_on_all_nodes_at_once():
    found = asked({"minHealthy": "51%"}, down=3)
    assert found is not None
    assert (found.changes, found.words) == (
        (),
        "let NodeHealthCheck workers select more than 3 nodes, with a limit of 3",
    )


@pytest.mark.parametrize(
    ("spec", "labels", "words"),
    [
        (
            {"remediationTemplate": {**TEMPLATE, "name": "x", "namespace": "medik8s"}},
            {},
            "create SelfNodeRemediationTemplate medik8s/x",
        ),
        (
            {"unhealthyConditions": [{"type": "Ready", "status": "False", "duration": "300s"}]},
            {},
            "Ready=Unknown",
        ),
        ({}, EXCLUDED, "remove the label remediation.medik8s.io/exclude-from-remediation from a"),
    ],
)
def test_an_administrator_decides(spec, labels, words):
    found = asked({"minHealthy": 1, **spec}, **labels)
    assert found is not None
    assert words in found.remedy
    assert found.changes == ()


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ((), ""),
        ((("default", "x"),), " as a copy of default/x, which is not in that namespace"),
        ((("medik8s", "y"), ("default", "x")), ", or name y, which exists there"),
    ],
)
def test_only_a_template_of_the_same_namespace_can_be_named_instead(known, words):
    """Remediators look for it in their own namespace (medik8s/fence-agents-remediation#145)."""
    templates = [
        manifest(
            TEMPLATE["apiVersion"], TEMPLATE["kind"], name, space, spec={"template": {"spec": {}}}
        )
        for space, name in known
    ]
    found = asked(
        {"minHealthy": 1, "remediationTemplate": {**TEMPLATE, "name": "x", "namespace": "medik8s"}},
        *templates,
    )
    assert found is not None
    assert found.words == f"create SelfNodeRemediationTemplate medik8s/x{words}"


def test_a_check_that_acts_needs_no_change():
    assert asked({"minHealthy": "51%"}) is None


@pytest.mark.parametrize(
    ("role", "words"),
    [
        (
            "worker",
            (
                "put Machine machines/m-a under a MachineSet whose replicas count it, or use a "
                "remediation template"
            ),
        ),
        (
            "master",
            (
                "put Machine machines/m-a under a ControlPlaneMachineSet, or use a remediation "
                "template"
            ),
        ),
    ],
)
def test_a_machine_without_a_controller(role, words):
    group, labels = (
        "machine.openshift.io/v1beta1",
        {"machine.openshift.io/cluster-api-machine-role": role},
    )
    check = manifest(
        group, "MachineHealthCheck", "own", "machines", spec={"selector": {"matchLabels": labels}}
    )
    owner = [{"apiVersion": group, "kind": "MachineSet", "name": "set", "controller": True}]
    machines = [
        manifest(
            group,
            "Machine",
            f"m-{on}",
            "machines",
            metadata={"labels": labels, "ownerReferences": owner if on == "b" else []},
            status={"nodeRef": {"name": on}},
        )
        for on in "abc"
    ]
    found = cluster(check, node("a"), node("b"), node("c"), *machines, nodes=())
    view = health_checks.view(check)
    watch = WatchedNodes(view, check_scope.selected_by(view, found))
    budget = remediation_steps.budget(view, watch.selection)
    said = {on: reactivation(watch, budget, on, 1, found) for on in "ab"}
    assert said["a"] is not None
    assert said["a"].words == f"{words} in MachineHealthCheck own"
    assert said["b"] is None or "under a" not in said["b"].words


def test_cluster_api_looks_for_a_template_next_to_its_check():
    """The namespace of OpenShift is a rule of NodeHealthCheck alone."""
    group, name = "infrastructure.cluster.x-k8s.io/v1beta1", "Metal3RemediationTemplate"
    template = manifest(group, name, "reboot", "c", spec={"template": {"spec": {}}})
    check = manifest(
        "cluster.x-k8s.io/v1beta1",
        "MachineHealthCheck",
        "workers",
        "c",
        spec={
            "selector": {"matchLabels": {"pool": "w"}},
            "maxUnhealthy": 0,
            "remediationTemplate": {"apiVersion": group, "kind": name, "name": "reboot"},
        },
    )
    found = cluster(check, template, nodes=())
    view = health_checks.view(check)
    watch = WatchedNodes(view, check_scope.selected_by(view, found))
    way = reactivation(watch, remediation_steps.budget(view, watch.selection), "a", 1, found)
    assert way is None or "openshift-machine-api" not in way.words
