"""Webhooks that fail closed and whose pods are all on lost nodes."""

import pytest

from tests.forecasts.outage import test_reads
from tests.forecasts.outage.losses import (
    KUBEVIRT,
    NAMESPACES,
    deployed,
    flat,
    lose,
    manifest,
    nhc,
    node,
    pod,
    snapshot,
    vm,
)
from virt_admit.forecasts.repair.planning import repair
from virt_admit.forecasts.repair.repair_plan import Goal
from virt_admit.reports.outage import text

NODES = [node("n1"), node("n2"), node("n3")]
OTHERS = [
    manifest("v1", "Service", "kubernetes", "default"),
    manifest("v1", "Namespace", "kube-system"),
]
OUTSIDE = {"matchExpressions": [{"key": "policy", "operator": "DoesNotExist"}]}
SHOP = {"matchLabels": {"kubernetes.io/metadata.name": "shop"}}


def rule(resource, operation="CREATE", group="", **more):
    return {
        "apiGroups": [group],
        "apiVersions": ["*"],
        "operations": [operation],
        "resources": [resource],
    } | more


def policy(*rules, nodes=("n1",), endpoints=None, kind="ReplicaSet", **fields):
    """Return a webhook that fails closed, with its pods;
    its own namespace has the label ``policy``.
    """
    pods = []
    for on in nodes:
        found = (
            deployed(f"policy-{on}", on, "1Gi", kind) if kind else pod(f"policy-{on}-1", on, "1Gi")
        )
        found["metadata"] |= {"namespace": "policies", "labels": {"app": "policy"}}
        pods.append(found)
    ready = [
        {
            "conditions": {"ready": True},
            "nodeName": on,
            "targetRef": {"kind": "Pod", "name": f"policy-{on}-1"},
        }
        for on in (nodes if endpoints is None else endpoints)
    ]
    labels = {"labels": {"kubernetes.io/service-name": "policy"}}
    hook = {
        "name": "policy.example.com",
        "clientConfig": {"service": {"name": "policy", "namespace": "policies"}},
    }
    configuration = "admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "policy"
    return [
        manifest("v1", "Namespace", "policies", metadata={"labels": {"policy": "none"}}),
        manifest("v1", "Service", "policy", "policies", spec={"selector": {"app": "policy"}}),
        manifest(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            "policy-1",
            "policies",
            metadata=labels,
            endpoints=ready,
        ),
        manifest(*configuration, webhooks=[hook | {"rules": list(rules)} | fields]),
        *pods,
    ]


PODS, VMIS = rule("pods"), rule("virtualmachineinstances", "CREATE", "kubevirt.io")
EVERYTHING = rule("*/*", "*", "*")
LEASES, STATUS = (
    rule("leases", "UPDATE", "coordination.k8s.io"),
    rule("nodes/status", "UPDATE", scope="Cluster"),
)
UNCLEAR = [{"expression": "object.spec.x.all(y, y > 1)"}]
ITSELF, NOTICE = "and it refuses its own new pod", "by which Kubernetes notices that a node is lost"


@pytest.mark.parametrize(
    ("parts", "survives", "says"),
    [
        (policy(EVERYTHING), False, NOTICE),
        (policy(EVERYTHING, namespaceSelector=OUTSIDE), False, NOTICE),
        (policy(EVERYTHING, namespaceSelector=SHOP), False, NOTICE),  # nodes are in no namespace
        (policy(LEASES), False, NOTICE),
        (policy(STATUS), False, NOTICE),
        (policy(rule("nodes/status", "UPDATE", scope="Namespaced")), True, ""),
        (policy(EVERYTHING, matchConditions=UNCLEAR), None, NOTICE),
        (policy(EVERYTHING, failurePolicy="Ignore"), True, ""),
        (policy(EVERYTHING, nodes=("n1", "n2")), True, ""),
        (policy(EVERYTHING, nodes=("n2",)), True, ""),
        (policy(PODS), False, ITSELF),
        (policy(rule("pods/binding")), False, ITSELF),
        (policy(PODS, matchConditions=UNCLEAR), None, ITSELF),
        (policy(PODS, namespaceSelector=OUTSIDE), True, ""),
        (policy(PODS, namespaceSelector=OUTSIDE, kind="StatefulSet"), True, ""),
        (
            policy(PODS, namespaceSelector=OUTSIDE, kind=""),
            False,
            "and no node that is left runs its pod",
        ),
        (
            policy(PODS, namespaceSelector=OUTSIDE, kind="DaemonSet"),
            False,
            "and no node that is left runs its pod",
        ),
        (policy(VMIS), True, ""),
        (
            policy(VMIS, endpoints=()),
            False,
            "fails closed, and Service policies/policy has no ready endpoint",
        ),
        (policy(rule("deployments", group="apps")), True, ""),
    ],
)
def test_a_webhook_on_the_lost_node(parts, survives, says):
    answer = lose(snapshot(NODES, OTHERS, vm("db", "n1", "20Gi"), nhc(), parts), "n1")
    (row,) = answer.outages[0].vms

    assert answer.survives is survives
    assert row.outcome == {True: "restarts", False: "never restarts", None: "unknown"}[survives]
    if survives is not True:
        assert says in row.reason
        assert "kubectl describe" in row.remedy


@pytest.mark.parametrize(
    ("parts", "waits"), [(policy(VMIS), True), (policy(VMIS, nodes=("n1", "n2")), False)]
)
def test_the_start_waits_until_the_webhook_runs_elsewhere(parts, waits):
    answer = lose(
        snapshot(NODES, OTHERS, vm("db", "n1", "20Gi"), nhc("FenceAgentsRemediation"), parts), "n1"
    )
    says = "webhook policy.example.com started elsewhere"
    assert (says in {part.what for part in answer.outages[0].vms[0].parts}) is waits
    assert (f"{says} 5-120 s (its Deployment)" in text.text(answer)) is waits


def test_webhooks_that_cannot_be_read():
    hidden = ("validatingwebhookconfigurations.admissionregistration.k8s.io",)
    answer = lose(snapshot(NODES, OTHERS, vm("db", "n1", "20Gi"), nhc(), unreadable=hidden), "n1")
    assert answer.survives is None
    assert "not all admission webhooks could be read" in answer.because[0]


def test_endpoints_that_cannot_be_read():
    for rules, survives in ((VMIS, None), (rule("deployments", group="apps"), True)):
        parts = NODES, OTHERS, vm("db", "n1", "20Gi"), nhc(), policy(rules, endpoints=())
        answer = lose(snapshot(*parts, unreadable=("endpointslices.discovery.k8s.io",)), "n1")
        assert answer.survives is survives
        assert all(
            "whether webhook policy.example.com still answers is not known" in why
            for why in answer.because
        )


def test_the_plan_names_the_webhook():
    parts = NODES, OTHERS, vm("db", "n1", "20Gi"), nhc(), policy(PODS)
    (left,) = repair(snapshot(*parts), Goal.OUTAGE).remaining
    assert left.problem.cause == "WebhookLost"
    assert (
        "exclude namespace policies by its namespaceSelector, or run a second replica" in left.why
    )


def test_what_a_live_cluster_keeps():
    parts = [NAMESPACES, KUBEVIRT, NODES, OTHERS, vm("db", "n1", "20Gi"), nhc(), policy(PODS)]
    whole, kept = test_reads.answers([*flat(parts)])
    assert whole == kept
    assert ITSELF in whole[0]["because"][0]
