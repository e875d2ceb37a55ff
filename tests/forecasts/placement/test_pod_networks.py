"""A daemon of the pod network that does not work keeps pods off its node;
a short pause or another plugin does not.
"""

import pytest

from tests.healthy.parts import ago, deployment, node
from tests.incidents_platform import workloads
from tests.incidents_platform.case import unready
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.drain.vm_outcomes import VmOutcome
from virt_admit.forecasts.placement import pod_networks, virt_handlers
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import NODE, POD
from virt_admit.model.kubernetes.objects import Object

MULTUS = {"app": "multus"}


def cluster(
    labels,
    *,
    since,
    kind="DaemonSet",
    image="multus-cni:v4.2-thick",
    namespace="kube-system",
    **changes,
):
    daemons = deployment("net", namespace, ["n1", "n2"], labels, kind=kind)
    pods = [each for each in daemons if each["kind"] == "Pod"]
    broken = unready(pods[1], since=since)
    broken["metadata"] |= changes
    broken["spec"]["containers"][0]["image"] = image
    found = [node("n1"), node("n2"), pods[0], broken]
    return Snapshot([Object(each) for each in found], ["*"], time=ago())


@pytest.mark.parametrize(
    "labels", [MULTUS, {"k8s-app": "cilium"}, {"app": "ovnkube-node"}, {"app": "kube-ovn-cni"}]
)
def test_a_daemon_that_each_new_pod_needs(labels):
    found = cluster(labels, since=ago(minutes=6))

    assert pod_networks.problem(found, "n1") == ""
    assert "the pod network on n2 does not work, as pod kube-system/net-" in pod_networks.problem(
        found, "n2"
    )
    assert list(virt_handlers.broken(found)) == ["n2"]


@pytest.mark.parametrize(("name", "works"), [("ovs-ovn", False), ("ovs-dpdk", True)])
def test_open_vswitch_of_kube_ovn_is_known_by_its_daemon(name, works):
    owner = {"kind": "DaemonSet", "name": name, "controller": True}
    found = cluster({"app": "ovs"}, since=ago(minutes=6), ownerReferences=[owner])

    assert (pod_networks.problem(found, "n2") == "") is works


def two_nodes_left(*, works="n2", **vmi):
    """Return what a drain of n1 does to its VM: n2 and n3 are left,
    and the pod network works on one of them.
    """
    items = workloads.multus_that_does_not_answer().items
    for each in items:
        if each["kind"] == "Pod" and each["metadata"].get("labels", {}).get("app") == "multus":
            broken = each["spec"]["nodeName"] not in ("n1", works)
            each["status"]["conditions"] = [
                {"type": "Ready", "status": str(not broken), "lastTransitionTime": ago(hours=1)}
            ]
        if each["kind"] == "VirtualMachineInstance":
            each["spec"] |= vmi
            each["status"]["evacuationNodeName"] = None
    (node,) = drain_plan.plan(Snapshot(map(Object, items), ["*"], time=ago()), "n1").nodes
    return node, node.forecasts[0]


def test_kube_scheduler_may_choose_the_node_on_which_no_pod_starts():
    node, row = two_nodes_left()

    assert (node.drainable, row.outcome) == (None, VmOutcome.UNKNOWN)
    assert (
        "kube-scheduler may choose n3, and the pod network on n3 does not work, as pod"
        in row.reason
    )
    assert row.remedy == "cordon it until its pod network works: kubectl cordon n3"


def test_a_vm_that_is_shut_down_leaves_all_the_same():
    node, row = two_nodes_left(evictionStrategy="None")

    assert (node.drainable, row.outcome) == (True, VmOutcome.RESTARTS)
    assert "kube-scheduler may choose n3" in row.reason


def test_a_node_that_the_vm_does_not_accept_is_not_chosen():
    node, row = two_nodes_left(works="n2", nodeSelector={"kubernetes.io/hostname": "n2"})

    assert (node.drainable, row.outcome) == (True, VmOutcome.MIGRATES)


@pytest.mark.parametrize(
    ("labels", "changes"),
    [
        (MULTUS, {"since": ago(minutes=4)}),
        ({"k8s-app": "calico-node"}, {"since": ago(hours=4)}),
        (MULTUS, {"since": ago(hours=4), "image": "multus-cni:v4.2"}),
        ({"app": "shop"}, {"since": ago(hours=4)}),
        (MULTUS, {"since": ago(hours=4), "kind": "Deployment"}),
        (MULTUS, {"since": ago(hours=4), "deletionTimestamp": ago(minutes=1)}),
    ],
    ids=[
        "a pause",
        "a plugin without a server",
        "the thin multus",
        "another pod",
        "no DaemonSet",
        "being replaced",
    ],
)
def test_what_keeps_no_pod_off_a_node(labels, changes):
    assert pod_networks.problem(cluster(labels, **changes), "n2") == ""


def test_the_multus_of_openshift_has_a_server():
    found = cluster(
        MULTUS,
        since=ago(hours=1),
        image="quay.io/openshift-release-dev@sha256:0",
        namespace="openshift-multus",
    )

    assert "as pod openshift-multus/net-" in pod_networks.problem(found, "n2")


CALICO = {"k8s-app": "calico-node"}


def without_routes(*broken):
    """Return what a drain of n1 does to its VM where calico-node of these nodes has no session with
    any other node."""
    items = workloads.multus_that_does_not_answer().items
    for each in items:
        if each["kind"] == "Pod" and each["metadata"].get("labels", {}).get("app") == "multus":
            ready = str(each["spec"]["nodeName"] not in broken)
            each["metadata"]["labels"] = CALICO
            each["status"]["conditions"] = [
                {"type": "Ready", "status": ready, "lastTransitionTime": ago(hours=1)}
            ]
            each["status"]["containerStatuses"] = [{"name": "c", "state": {"running": {}}}]
        if each["kind"] == "VirtualMachineInstance":
            each["status"]["evacuationNodeName"] = None
    (node,) = drain_plan.plan(Snapshot(map(Object, items), ["*"], time=ago()), "n1").nodes
    return node, node.forecasts[0]


def test_a_vm_may_arrive_at_a_node_that_nothing_reaches():
    node, row = without_routes("n2", "n3")

    assert (node.drainable, row.outcome) == (None, VmOutcome.UNKNOWN)
    assert "only n2, n3 can take it, and the pod network on n2 may not work, as pod" in row.reason
    assert row.remedy.startswith("repair pod ")


def test_one_of_two_nodes_is_not_reached():
    _, row = without_routes("n3")

    assert row.outcome is VmOutcome.UNKNOWN
    assert row.remedy == "cordon it until its pod network works: kubectl cordon n3"


def test_a_vm_may_not_leave_a_node_that_reaches_no_other():
    _, row = without_routes("n1")

    assert (row.outcome, "the pod network on n1 may not work" in row.reason) == (
        VmOutcome.UNKNOWN,
        True,
    )


def test_routes_that_work():
    assert without_routes()[1].outcome is VmOutcome.MIGRATES


def test_the_agent_that_each_new_pod_needs_is_named_first():
    found = cluster(MULTUS, since=ago(minutes=6))
    other = unready(
        deployment("routes", "kube-system", ["n2"], CALICO, kind="DaemonSet")[-1],
        since=ago(hours=1),
    )
    both = Snapshot(
        [*map(Object, [other]), *found.known(NODE), *found.known(POD)], ["*"], time=ago()
    )

    assert "pod kube-system/net-" in pod_networks.problem(both, "n2")
    assert pod_networks.doubt(both, "n2") == ""
