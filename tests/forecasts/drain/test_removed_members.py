"""Control-plane nodes whose members have left etcd: quorum, guards, and the way out."""

import pytest

from tests.builders import manifest
from tests.forecasts.drain.operator_clusters import node, pod
from virt_admit.forecasts.drain import drain_plan, pod_evictions
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.remediation import control_plane
from virt_admit.reports.drain import text

NOW = "2026-01-01T12:00:00Z"
LONG = "2026-01-01T08:40:00Z"
ETCD, SCHEDULER = "openshift-etcd", "openshift-kube-scheduler"
HOOK = {"preDrain": [{"name": "EtcdQuorumOperator", "owner": "clusteroperator/etcd"}]}
REMOVED = "the member has been permanently removed from the cluster"


def machine(on, *, hook=True, deleted=False):
    metadata = {"labels": {"machine.openshift.io/cluster-api-machine-role": "master"}}
    metadata |= {"deletionTimestamp": LONG, "finalizers": ["machine"]} if deleted else {}
    spec = {"lifecycleHooks": HOOK if hook else {}}
    status = {"nodeRef": {"kind": "Node", "name": on}}
    kind, space = "Machine", "openshift-machine-api"
    return manifest(
        "machine.openshift.io/v1beta1",
        kind,
        f"m-{on}",
        space,
        metadata=metadata,
        spec=spec,
        status=status,
    )


def etcd(on, message=REMOVED, ready="False", state="waiting"):
    metadata = {
        "labels": {"app": "etcd"},
        "annotations": {"kubernetes.io/config.mirror": "x"},
        "ownerReferences": [{"kind": "Node", "name": on, "controller": True}],
    }
    ended = {"terminated": {"exitCode": 1, "message": message}}
    status = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": LONG}],
        "containerStatuses": [{"name": "etcd", "state": {state: {}}, "lastState": ended}],
    }
    spec = {"nodeName": on}
    return manifest("v1", "Pod", f"etcd-{on}", ETCD, metadata=metadata, spec=spec, status=status)


def guards(names, space=ETCD, down=()):
    labels = {"app": "guard"}
    every = [pod(f"guard-{on}", space, labels, on, ready=on not in down) for on in names]
    name = "etcd-guard-pdb" if space == ETCD else "openshift-kube-scheduler-guard-pdb"
    limit = {"selector": {"matchLabels": labels}, "minAvailable": 4}
    status = {"expectedPods": len(names), "desiredHealthy": 4, "disruptionsAllowed": 0}
    status["currentHealthy"] = len(names) - len(down)
    kind = "PodDisruptionBudget"
    return [*every, manifest("policy/v1", kind, name, space, spec=limit, status=status)]


def master(name, *, cordoned):
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": LONG}
    metadata = {"labels": {"node-role.kubernetes.io/control-plane": ""}}
    spec = {"unschedulable": True} if cordoned else {}
    status = {"conditions": [condition]}
    return manifest("v1", "Node", name, metadata=metadata, spec=spec, status=status)


def cluster(*objects, cordoned="bc"):
    nodes = [master(name, cordoned=name in cordoned) for name in "abcde"]
    return Snapshot([*nodes, node("w"), *objects], complete=["*"], time=NOW)


def replaced(**fields):
    gone = [machine(on, hook=False, deleted=True) for on in "bc"]
    members = [machine(on) for on in "ade"]
    return cluster(*gone, *members, etcd("b"), etcd("c"), *guards("abcde", down="bc"), **fields)


def test_a_quorum_counts_members():
    found = replaced()
    assert control_plane.left(found) == {"b", "c"}
    assert set(control_plane.members(found)) == set("ade")
    assert control_plane.reboot_risk("a", found) is None
    lost = cluster(etcd("b"), etcd("c"), etcd("d", message="panic"))
    assert set(control_plane.members(lost)) == set("ade")
    assert "leaves 1 of 3 etcd members" in control_plane.reboot_risk("a", lost).reason


@pytest.mark.parametrize(
    "objects",
    [
        (etcd("b", message="panic: no space left on device"),),
        (etcd("b", ready="True"),),
        (etcd("b", state="running"),),
        (machine("b", deleted=True), machine("a")),
        (machine("b", hook=False, deleted=True), machine("a", hook=False)),
        (machine("b", hook=False), machine("a")),
    ],
    ids=[
        "broken",
        "works again",
        "was added again",
        "hook is there",
        "no hooks at all",
        "not deleted",
    ],
)
def test_members_that_are_not_known_to_have_left(objects):
    found = cluster(*objects)
    assert not control_plane.left(found)
    assert len(control_plane.members(found)) == 5


def three(*objects):
    masters = [master(name, cordoned=False) for name in "abc"]
    return Snapshot([*masters, node("w"), *objects], complete=["*"], time=NOW)


def test_two_members_that_are_left_of_three_must_both_stay_up():
    found = control_plane.reboot_risk("b", three(etcd("a")))
    assert found.certain
    assert "a has left etcd: a reboot of b leaves 1 of 2 etcd members" in found.reason
    assert found.remedy.startswith("Add the member that takes the place of a first")
    assert control_plane.reboot_risk("a", three(etcd("a"))) is None
    assert control_plane.reboot_risk("b", three()) is None
    again = control_plane.reboot_risk("b", three(etcd("a", state="running")))
    assert "leaves 1 of 3 control-plane nodes" in again.reason
    part = Snapshot([*three(etcd("a"))], complete=["pods"], time=NOW)
    assert not control_plane.reboot_risk("b", part).certain


def test_guards_of_removed_members_are_never_ready_again():
    (found,) = pod_evictions.of_node(replaced(), "b").blockers
    assert "guard-b, guard-c are never ready again: their members have been" in found.reason
    assert "3 guards are ready and 4 are wanted" in found.reason
    assert (
        "Check that all other members of etcd are healthy: kubectl describe clusteroperator etcd; "
        "then delete these" in found.remedy
    )
    assert "kubectl delete pod guard-b guard-c -n openshift-etcd" in found.remedy


def test_the_deletion_of_a_guard_does_not_help_the_drain_of_another_node():
    (found,) = pod_evictions.of_node(replaced(), "a").blockers
    assert found.remedy.startswith("Wait until Machines m-b, m-c are gone")
    assert "kubectl delete" not in found.remedy
    told = cluster(etcd("b"), *guards("abcde", down="b"))
    (found,) = pod_evictions.of_node(told, "a").blockers
    assert "Wait until b has left the cluster" in found.remedy
    assert "kubectl delete" not in found.remedy


def test_a_guard_comes_back_where_its_node_is_not_cordoned():
    (found,) = pod_evictions.of_node(replaced(cordoned="b"), "b").blockers
    assert "kubectl delete" not in found.remedy


def test_no_guard_is_deleted_while_a_member_is_down():
    gone = [machine(on, hook=False, deleted=True) for on in "bc"]
    held = cluster(*gone, machine("a"), etcd("b"), etcd("c"), *guards("abcde", down="bcd"))
    (found,) = pod_evictions.of_node(held, "b").blockers
    assert "Repair etcd on d" in found.remedy
    assert "kubectl delete" not in found.remedy


def test_a_node_that_goes_with_its_machine_is_not_uncordoned():
    guarded = guards("acde", space=SCHEDULER)
    going = cluster(machine("b", deleted=True), *guarded, cordoned="b")
    (found,) = pod_evictions.of_node(going, "a").blockers
    assert "m-b is being deleted" in found.reason
    assert found.remedy.startswith("Do not uncordon b")
    (found,) = pod_evictions.of_node(cluster(*guarded, cordoned="b"), "a").blockers
    assert "returns when the node is uncordoned" in found.remedy


def test_one_cause_is_told_once_for_all_nodes():
    said = text.text(drain_plan.plan(replaced()))
    assert said.count("are never ready again") == 2  # b and c are asked for more than a, d, e
    assert said.count("the same as for node") == 3
