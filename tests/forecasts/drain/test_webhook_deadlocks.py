"""Webhooks that refuse the pods of cluster DNS,
without which their own pods do not become ready.
"""

from tests.builders import complete, manifest, node
from tests.for_each import for_each
from tests.forecasts.drain.test_control_path import VMS, at, component, drained
from tests.forecasts.drain.test_failing_webhooks import ELSEWHERE, OWN, SLICE, webhook
from virt_admit.forecasts.drain.drain_plan import plan
from virt_admit.forecasts.placement.components import webhook_deadlocks
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.reports.drain.text import text

OF_DNS = {"k8s-app": "kube-dns"}
DNS = manifest("v1", "Service", "kube-dns", "kube-system", spec={"selector": OF_DNS})
LEFT_OUT = {"key": "mesh/injection", "operator": "NotIn", "values": ["off"]}
LABELLED = {"namespaceSelector": {"matchExpressions": [LEFT_OUT]}}
HOOK = "ValidatingWebhookConfiguration"
POLICIES = manifest("v1", "Namespace", "policies", metadata={"labels": {"mesh/injection": "off"}})
WEBHOOK = webhook("pods", **LABELLED)


def unready(name, namespace, on, since="2026-01-01T11:00:00Z", component_of=None):
    pod = component(component_of or name, on, ready="False", namespace=namespace)
    pod.data["metadata"]["name"] = name
    pod.data["status"]["conditions"][0]["lastTransitionTime"] = since
    return pod


def kube_system(**labels):
    return manifest("v1", "Namespace", "kube-system", metadata={"labels": labels})


DOWN = (OWN, DNS, POLICIES, kube_system(), WEBHOOK)
NODES = tuple(at(name) for name in ("a", "b", "c"))


def blockers(*objects):
    shop = manifest("v1", "Namespace", "shop")
    return {each.kind: each for each in drained(*VMS, shop, *objects, nodes=NODES).pods.blockers}


def test_the_way_out_lets_the_pods_of_cluster_dns_pass():
    pods = (
        unready("policy-1", "policies", "b", component_of="policy"),
        unready("policy-2", "policies", "c"),
    )
    pods[1].data["metadata"]["labels"] = {"kubevirt.io": "policy"}
    found = blockers(*DOWN, *pods)[HOOK]

    assert (
        "(its 2 pods are not ready, as policy-1 for 60 min), while cluster DNS (Service "
        "kube-system/kube-dns)"
    ) in (found.reason)
    assert (
        "has no pod and it refuses new ones, so neither comes back: migrations fail" in found.reason
    )
    assert found.remedy == (
        "Let ValidatingWebhookConfiguration policy ignore failures until its pods are ready, "
        "exclude namespace kube-system with label mesh/injection=off, then set failurePolicy: Fail "
        "again: kubectl patch validatingwebhookconfiguration policy --type=json -p "
        """'[{"op":"test","path":"/webhooks/0/name","value":"policy.example.com"},{"op":"add","""
        """"path":"/webhooks/0/failurePolicy","value":"Ignore"}]'"""
    )


def test_a_selector_of_names_is_edited():
    found = blockers(OWN, DNS, POLICIES, kube_system(), webhook("pods", **ELSEWHERE))
    assert "exclude namespace kube-system by its namespaceSelector" in found[HOOK].remedy


@for_each(
    "cluster",
    [
        {
            "its pods run": (
                *DOWN,
                manifest("v1", "Pod", "d", "kube-system", metadata={"labels": OF_DNS}),
            )
        },
        {
            "its namespace is left out": (
                OWN,
                DNS,
                POLICIES,
                kube_system(**{"mesh/injection": "off"}),
                WEBHOOK,
            )
        },
        {"no Service of it": (OWN, POLICIES, kube_system(), WEBHOOK)},
        {
            "the webhook only starts": (
                *DOWN,
                unready("policy", "policies", "b", since="2026-01-01T11:58:00Z"),
            )
        },
    ],
)
def test_a_webhook_that_does_not_keep_cluster_dns_down(cluster):
    (objects,) = cluster.values()
    found = blockers(*objects)[HOOK]
    assert "DNS" not in found.reason
    assert 'failurePolicy"' not in found.remedy


def test_a_budget_of_pods_that_wait_for_cluster_dns_has_no_cause_of_its_own():
    budget = manifest(
        "policy/v1",
        "PodDisruptionBudget",
        "identity",
        "mesh",
        spec={"maxUnavailable": 1, "selector": {"matchLabels": {"kubevirt.io": "identity"}}},
        status={
            "currentHealthy": 1,
            "desiredHealthy": 1,
            "disruptionsAllowed": 0,
            "expectedPods": 2,
        },
    )
    pods = (
        component("identity", "a", namespace="mesh"),
        unready("identity-b", "mesh", "b", component_of="identity"),
    )
    found = blockers(*DOWN, budget, *pods)

    held, cause = found["PodDisruptionBudget"], found[HOOK]
    assert (
        "identity-b on b is not ready, while cluster DNS has no pod, as "
        "ValidatingWebhookConfiguration policy"
    ) in (held.reason)
    assert held.remedy == cause.remedy
    alone = blockers(OWN, POLICIES, kube_system(), WEBHOOK, budget, *pods)["PodDisruptionBudget"]
    assert alone.remedy.startswith("Wait until it is ready, or repair it")


def test_a_remedy_of_several_budgets_is_written_once():
    budgets = [
        manifest(
            "policy/v1",
            "PodDisruptionBudget",
            name,
            "mesh",
            spec={"maxUnavailable": 1, "selector": {"matchLabels": {"kubevirt.io": name}}},
            status={"currentHealthy": 1, "desiredHealthy": 1, "disruptionsAllowed": 0},
        )
        for name in ("identity", "proxy")
    ]
    pods = [
        pod
        for name in ("identity", "proxy")
        for pod in (
            component(name, "a", namespace="mesh"),
            unready(f"{name}-b", "mesh", "b", component_of=name),
        )
    ]
    shop = manifest("v1", "Namespace", "shop")
    told = text(plan(complete(*NODES, shop, *DOWN, *budgets, *pods), "a"))

    assert told.count("kubectl patch") == 1
    assert told.count("to do: the same as for PodDisruptionBudget mesh/") == 1


def refused(*objects, labels=None, namespace="shop"):
    everything = [*objects, *map(node, "ab")]
    cluster = Snapshot(everything, ["*"], time="2026-01-01T12:00:00Z")
    return webhook_deadlocks.of_namespace(namespace, labels, cluster)


PODS = webhook("pods")
BOTH = (PODS, Object({**PODS.data, "kind": "MutatingWebhookConfiguration"}))


def test_one_command_patches_each_configuration_that_refuses_a_pod():
    found = refused(OWN, *BOTH)
    assert found.reason.startswith("Service policies/policy has no ready endpoint, so webhooks ")
    words, _, command = found.remedy.partition(": ")
    assert words.startswith("Let MutatingWebhookConfiguration policy and ValidatingWebhookConfig")
    first, second = command.split(" && ")
    assert first.startswith("kubectl patch mutatingwebhookconfiguration policy --type=json")
    assert second.startswith("kubectl patch validatingwebhookconfiguration policy --type=json")


def test_a_webhook_that_lets_its_own_pods_start_is_repaired():
    found = refused(OWN, webhook("pods", **ELSEWHERE))
    assert "(of ValidatingWebhookConfiguration policy) refuses it" in found.reason
    assert found.remedy.startswith("repair the pods of Service policies/policy: kubectl describe")


def test_a_pod_that_no_webhook_refuses_for_long():
    starts = unready("policy", "policies", "b", since="2026-01-01T11:58:00Z")
    assert refused(OWN, PODS, starts) is None
    assert refused(OWN, SLICE, PODS) is None
    assert refused(OWN, webhook("pods/eviction")) is None


def _unplaced(**spec):
    pod = unready("policy-1", "policies", "b", component_of="policy")
    pod.data["spec"] = {"nodeSelector": {"pool": "spot"}} | spec
    said = "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector."
    placed = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}
    pod.data["status"] = {"phase": "Pending", "conditions": [placed]}
    return pod


def _refused(*objects):
    shop = manifest("v1", "Namespace", "shop")
    every = [OWN, POLICIES, kube_system(), shop, WEBHOOK, *NODES, *objects]
    return webhook_deadlocks.of_namespace("shop", None, Snapshot(every, ["*"]))


def test_the_only_pod_behind_a_webhook_finds_no_node():
    found = _refused(_unplaced())
    demand = "it has no node: it demands label pool=spot (nodeSelector), which no node has"
    assert (
        f"has no ready endpoint (pod policy-1 is not ready: {demand}), so webhook" in found.reason
    )
    assert found.remedy.startswith("give a node that label, or ")


def test_a_pod_behind_a_webhook_whose_demand_a_node_meets():
    found = _refused(_unplaced(), node("d", {"pool": "spot"}))
    assert "demands" not in found.reason
    assert "node affinity/selector" in found.reason
    assert found.remedy.startswith("repair pod policy-1: kubectl describe pod")
    assert _refused().remedy.startswith("repair the pods of Service ")
