"""Budgets that HyperShift writes for the single pods of a hosted control plane."""

from tests.builders import manifest
from tests.for_each import for_each
from tests.forecasts.drain.operator_clusters import node, pod
from tests.forecasts.drain.test_operator_budgets import blocker, drained

API = "hypershift.openshift.io/v1beta1"
LABEL = "hypershift.openshift.io/hosted-control-plane"


def hosted(kind="HostedControlPlane", **spec):
    """Return an etcd with one pod, and its budget."""
    owner = {"apiVersion": API, "kind": kind, "name": "qa", "controller": True}
    labels = {"app": "etcd", LABEL: "clusters-qa"}
    budget = manifest(
        *("policy/v1", "PodDisruptionBudget", "etcd", "clusters-qa"),
        metadata={"ownerReferences": [owner]},
        spec={"selector": {"matchLabels": {"app": "etcd"}}, **spec},
        status={
            **{"expectedPods": 1, "currentHealthy": 1, "desiredHealthy": 1},
            "disruptionsAllowed": 0,
        },
    )
    return [node("a"), node("b"), pod("etcd-0", "clusters-qa", labels, "a"), budget]


PLANE = manifest(
    *(API, "HostedControlPlane", "qa", "clusters-qa"),
    metadata={"annotations": {"hypershift.openshift.io/cluster": "clusters/qa"}},
    spec={"controllerAvailabilityPolicy": "SingleReplica"},
)


@for_each(
    "more, names",
    [([PLANE], "HostedCluster clusters/qa"), ([], "the HostedCluster of HostedControlPlane qa")],
)
def test_no_field_of_the_control_plane_helps(more, names):
    found = blocker([*hosted(minAvailable=1), *more])

    assert f"controllerAvailabilityPolicy of {names} is SingleReplica" in found["reason"]
    assert "policy is immutable" in found["reason"]
    assert "kubectl edit" not in found["remedy"]
    assert "as a decision, once a is cordoned, delete the pods" in found["remedy"]
    assert f"-l {LABEL}=clusters-qa --field-selector spec.nodeName=a" in found["remedy"]
    assert found["now"] is False


@for_each(
    "objects",
    [hosted(maxUnavailable=0), hosted(minAvailable="100%"), hosted("NodePool", minAvailable=1)],
)
def test_other_budgets_are_not_known(objects):
    assert drained([*objects, PLANE])["blockers"] == []
