"""One node runs all VMs, and another one takes pods without a guest."""

from tests.builders import node
from tests.forecasts.drain.test_control_path import NODES, OFF, ROOM, component, drained, running
from tests.forecasts.drain.test_failing_webhooks import OWN, SLICE, webhook
from virt_admit.forecasts.drain.drain_plan import plan
from virt_admit.model.kubernetes.cluster import Snapshot

MIXED = (NODES[0], node("b", allocatable=ROOM, runs_vms=False))


def test_virt_api_can_go_to_another_node():
    found = drained(*OFF, component("virt-api", "a"), running("v1.6.0"), nodes=MIXED)

    assert "kubectl cordon a" in " ".join(found.unseen)
    assert found.notes == ()


def test_a_webhook_can_have_a_replica_on_another_node():
    own = component("policy", "a", namespace="policies")
    objects = (*OFF, OWN, SLICE, webhook("*/*"), own)
    mixed, single = drained(*objects, nodes=MIXED), drained(*objects, nodes=NODES[:1])

    second = "or run a second replica on another node"
    assert any(second in each.remedy for each in mixed.pods.blockers)
    assert second not in " ".join((*single.unseen, *(each.remedy for each in single.pods.blockers)))


def test_nodes_that_were_not_read_may_be_none():
    own = component("policy", "a", namespace="policies")
    objects = (NODES[0], *OFF, OWN, SLICE, webhook("*/*"), own)
    found = plan(Snapshot(objects, ["*"], ["nodes"]), "a").nodes[0]

    assert found.drainable is None
    assert "once it has left, it refuses its own new pod" in " ".join(found.unseen)


def test_virt_api_goes_to_a_node_once_that_is_uncordoned():
    cordoned = node("b", allocatable=ROOM, unschedulable=True)
    found = drained(*OFF, component("virt-api", "a"), running("v1.6.0"), nodes=(NODES[0], cordoned))

    (blocker,) = (each for each in found.pods.blockers if each.name == "virt-api")
    assert blocker.reason.endswith(
        "runs on a alone: no node that could take it is schedulable now: b (cordoned)"
    )
    assert "kubectl uncordon b" in blocker.remedy
