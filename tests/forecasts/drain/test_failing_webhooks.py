"""Webhooks that fail closed, and what of a drain they keep."""

import pytest

from tests.builders import complete, endpoint_slice, manifest, webhook_configuration
from tests.for_each import for_each
from tests.forecasts.drain.test_control_path import NODES, OFF, VMS, component, drained, outcomes
from tests.forecasts.drain.vm_motion import node
from virt_admit.forecasts.drain import vm_events
from virt_admit.forecasts.drain.control import control_path
from virt_admit.forecasts.drain.drain_plan import plan
from virt_admit.forecasts.drain.vm_events import EventEffect, EventForecast, VmEvent
from virt_admit.forecasts.drain.vm_outcomes import VmOutcome
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object

SERVICES = (manifest("v1", "Service", "kubernetes", "default"),)
HOOK = {
    "name": "policy.example.com",
    "clientConfig": {"service": {"name": "policy", "namespace": "policies"}},
}


def webhook(resource, operation="CREATE", group="", **more):
    rules = [
        {
            "apiGroups": [group],
            "apiVersions": ["*"],
            "operations": [operation],
            "resources": [resource],
        }
    ]
    return webhook_configuration("policy", HOOK | {"rules": rules} | more)


EVICTIONS = {"cache": VmOutcome.BLOCKS, "db": VmOutcome.BLOCKS}
MIGRATIONS = {"cache": VmOutcome.RESTARTS, "db": VmOutcome.BLOCKS}
NOTHING = {"cache": VmOutcome.RESTARTS, "db": VmOutcome.MIGRATES}


@for_each(
    "hook, expected, drainable",
    [
        (webhook("pods/eviction"), EVICTIONS, False),
        (webhook("pods"), MIGRATIONS, False),
        (webhook("virtualmachineinstances", "UPDATE", "kubevirt.io"), MIGRATIONS, False),
        (webhook("pods/binding"), MIGRATIONS, False),
        (webhook("pods/status", "UPDATE"), EVICTIONS, False),
        (webhook("pods", "DELETE"), EVICTIONS, False),
        (webhook("pods/*", "*"), EVICTIONS, False),
        (webhook("nodes", "UPDATE"), EVICTIONS, False),
        (webhook("nodes", "UPDATE", failurePolicy="Ignore"), NOTHING, True),
        (webhook("nodes/status", "UPDATE"), NOTHING, True),
        (webhook("pods", "UPDATE"), NOTHING, True),
        (webhook("pods/binding", objectSelector={"matchLabels": {"tier": "db"}}), NOTHING, True),
        (webhook("pods/binding", failurePolicy="Ignore"), NOTHING, True),
        (webhook("virtualmachineinstances", "CREATE", "kubevirt.io"), NOTHING, True),
        (webhook("pods/eviction", failurePolicy="Ignore"), NOTHING, True),
        (webhook("deployments", group="apps"), NOTHING, True),
        (webhook("persistentvolumeclaims"), NOTHING, True),
        (
            webhook(
                "pods/eviction",
                namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "other"}},
            ),
            NOTHING,
            True,
        ),
        (webhook("pods/eviction", namespaceSelector={"matchLabels": {"team": "a"}}), NOTHING, None),
        (
            webhook(
                "pods/eviction",
                matchConditions=[
                    {"expression": "object.metadata.name.startsWith('virt-launcher')"}
                ],
            ),
            EVICTIONS,
            False,
        ),
        (
            webhook(
                "pods/eviction", matchConditions=[{"expression": "request.namespace != 'shop'"}]
            ),
            NOTHING,
            True,
        ),
        (
            webhook(
                "pods/eviction", matchConditions=[{"expression": "object.spec.x.all(y, y > 1)"}]
            ),
            NOTHING,
            None,
        ),
    ],
)
def test_a_webhook_without_a_service(hook, expected, drainable):
    found = drained(*VMS, *OFF, *SERVICES, hook)

    assert outcomes(found) == expected
    assert found.drainable is drainable
    assert len(found.pods.blockers) == (drainable is False)


@pytest.mark.parametrize(
    ("hook", "later"),
    [
        (webhook("virtualmachineinstances", "CREATE", "kubevirt.io"), True),
        (webhook("pods/binding"), True),
        (webhook("virtualmachineinstancemigrations", group="kubevirt.io"), False),
        (webhook("pods", "UPDATE"), False),
    ],
)
def test_a_vm_that_is_shut_down_starts_once_the_webhook_answers(hook, later):
    (row,) = drained(*OFF, *SERVICES, hook).forecasts

    assert row.outcome is VmOutcome.RESTARTS
    assert ("but only later: webhook policy.example.com fails closed" in row.reason) is later
    assert bool(row.remedy) is later


@pytest.mark.parametrize(
    ("hook", "outcome"),
    [
        (webhook("pods"), EventEffect.REFUSED),
        (webhook("pods/binding"), EventEffect.REFUSED),
        (webhook("pods/eviction"), EventEffect.STARTS),
        (webhook("pods", failurePolicy="Ignore"), EventEffect.STARTS),
    ],
)
def test_a_migration_that_is_asked_for_now_needs_the_webhook_too(hook, outcome):
    cluster = complete(*NODES, *VMS, *SERVICES, hook)
    found = plan(cluster, "a").nodes[0]
    loss = EventForecast(VmEvent.LOSS, EventEffect.UNKNOWN, "")
    events = {
        each.event: each for each in vm_events.of_vm(found.forecasts[0], found, loss, cluster)
    }

    assert events[VmEvent.MIGRATION].outcome == outcome
    assert ("policy.example.com" in events[VmEvent.MIGRATION].reason) is (
        outcome is EventEffect.REFUSED
    )


ENDPOINT = {"nodeName": "a", "targetRef": {"kind": "Pod", "name": "policy-a"}}
SLICE = endpoint_slice("policy", "policies", ENDPOINT)
OWN = manifest("v1", "Service", "policy", "policies", spec={"selector": {"kubevirt.io": "policy"}})
ELSEWHERE = {
    "namespaceSelector": {
        "matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["policies"]}
        ]
    }
}
UNKNOWN = {
    "matchConditions": [
        {"expression": "object.spec.x.all(y, y > 1) || request.namespace == 'shop'"}
    ]
}


def test_a_webhook_whose_pod_leaves_with_the_node():
    parts = (OWN, SLICE, webhook("pods", **ELSEWHERE))

    race = drained(*VMS, *parts, component("policy", "a", namespace="policies"))
    assert race.drainable is None
    assert "policy.example.com runs on a alone. Move it first" in " ".join(race.unseen)
    pinned = component(
        "policy", "a", namespace="policies", nodeSelector={"kubernetes.io/hostname": "a"}
    )
    assert drained(*VMS, *parts, pinned).drainable is False


@pytest.mark.parametrize(("resource", "expected"), [("pods/eviction", None), ("pods", False)])
def test_a_webhook_on_the_only_node(resource, expected):
    hook = webhook(resource, "CREATE" if resource == "pods/eviction" else "DELETE", **ELSEWHERE)
    parts = (OWN, SLICE, hook, component("policy", "a", namespace="policies"))
    found = plan(complete(NODES[0], *OFF, *parts), "a").nodes[0]
    assert found.drainable is expected
    assert "Add a node" not in " ".join(f"{each.remedy}" for each in found.pods.blockers)


@pytest.mark.parametrize("fits", [True, False])
def test_a_webhook_whose_other_node_is_not_initialized(fits):
    where = {"dedicated": "policy"}
    pinned = component("policy", "a", namespace="policies", nodeSelector=where)
    key = "node.cloudprovider.kubernetes.io/uninitialized"
    new = node("new", runs_vms=False, taints=[{"key": key, "effect": "NoSchedule"}])
    new.data["metadata"] |= {
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": where if fits else {},
    }
    new.data["status"]["conditions"] = [
        {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T12:00:00Z"}
    ]
    found = drained(*VMS, OWN, SLICE, webhook("pods", **ELSEWHERE), pinned, new)
    assert found.drainable is False
    (entry,) = found.pods.blockers
    assert ("while the cloud controller manager has not removed taint" in entry.reason) is fits
    assert entry.remedy.startswith(
        "See why the cloud controller manager" if fits else "Add a node that its placement allows"
    )


@pytest.mark.parametrize("resource", ["pods", "pods/binding"])
def test_a_webhook_that_refuses_its_own_new_pod(resource):
    pod = component("policy", "a", namespace="policies")
    found = drained(*VMS, OWN, SLICE, webhook(resource), pod)

    assert found.drainable is False
    (entry,) = found.pods.blockers
    assert "runs on a alone, and once it has left, it refuses its own new pod" in entry.reason
    assert (
        "Exclude namespace policies by its namespaceSelector, or run a second replica"
        in entry.remedy
    )
    assert "--pod-selector" not in entry.remedy
    assert not entry.now


def test_a_webhook_that_may_refuse_its_own_new_pod_is_not_moved_first():
    pod = component("policy", "a", namespace="policies")
    found = drained(*VMS, OWN, SLICE, webhook("pods", **UNKNOWN), pod)

    assert found.drainable is None
    assert "Run a second replica on another node first" in " ".join(found.unseen)
    assert "Move it first" not in " ".join(found.unseen)


def test_a_dead_webhook_that_refuses_its_own_new_pods_has_to_leave_them_out():
    (entry,) = drained(*VMS, OWN, webhook("pods")).pods.blockers
    assert "Exclude namespace policies by its namespaceSelector" in entry.remedy
    (entry,) = drained(*VMS, OWN, webhook("pods", **ELSEWHERE)).pods.blockers
    assert entry.remedy.startswith("Repair the pods of Service policies/policy")


def test_services_that_are_not_described_and_those_that_cannot_be_read():
    assert drained(*VMS, webhook("pods/eviction")).drainable is True
    unread = plan(
        Snapshot([*NODES, *VMS, webhook("pods/eviction")], ["*"], ["services"]), "a"
    ).nodes[0]
    assert unread.drainable is None
    assert "services" in " ".join(unread.unseen)
    assert plan(Snapshot([*NODES, *VMS], ["*"], ["services"]), "a").nodes[0].drainable is True


def test_a_refused_cordon_is_one_cause_named_by_its_own_webhook():
    rules = [{"apiGroups": ["*"], "operations": ["*"], "resources": ["*"], "scope": "*"}]
    own = webhook("nodes", "UPDATE").data["webhooks"][0] | {"name": "nodes.example.com"}
    both = webhook("pods").data | {"webhooks": [HOOK | {"rules": rules}, own]}
    found = drained(*VMS, *SERVICES, Object(both))
    reasons = {problem.reason for row in found.forecasts for problem in row.problems}
    assert len(reasons) == 1
    assert "webhook nodes.example.com fails closed" in min(reasons)
    assert min(reasons).endswith(
        "no node can be cordoned or uncordoned, and its drain fails at once"
    )


def test_a_cordoned_node_is_drained_although_no_node_can_be_changed():
    closed = node("a")
    closed.data["spec"]["unschedulable"] = True
    refused = webhook("nodes", "UPDATE")
    assert outcomes(drained(*VMS, *SERVICES, refused)) == {"db": VmOutcome.BLOCKS}
    others = [each for each in NODES if each.name != "a"]
    assert outcomes(drained(*VMS, *SERVICES, refused, nodes=(closed, *others))) == {
        "db": VmOutcome.MIGRATES
    }


def test_a_webhook_for_other_nodes_refuses_no_cordon():
    other = webhook("nodes", "UPDATE", objectSelector={"matchLabels": {"special": "yes"}})
    own = webhook("nodes", "UPDATE", objectSelector={"matchLabels": NODES[0].labels})
    assert NODES[0].labels
    assert outcomes(drained(*VMS, *SERVICES, other)) == {"db": VmOutcome.MIGRATES}
    assert outcomes(drained(*VMS, *SERVICES, own)) == {"db": VmOutcome.BLOCKS}


def test_a_refused_cordon_hides_no_refused_target_pod():
    pods = webhook("pods").data["webhooks"][0] | {"name": "pods.example.com"}
    hooks = [*webhook("nodes", "UPDATE").data["webhooks"], pods]
    both = Object(webhook("nodes").data | {"webhooks": hooks})
    found = control_path.of_migrations(complete(*NODES, *VMS, *SERVICES, both), "a")
    migrations = [each.reason for each in found if not each.starts]
    assert len(migrations) == 1
    assert "webhook pods.example.com" in migrations[0]
    assert migrations[0].endswith("migrations fail")
