"""Why the pod that registers a driver is not on a node, and what is never advised about it."""

import copy

import pytest

from tests.incidents.machines import find
from tests.incidents.node_plugins import ROOK, tainted
from virt_admit.forecasts.placement.components import driver_daemons, node_drivers
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object


@pytest.mark.parametrize(
    ("key", "by_people"),
    [
        ("dedicated", True),
        ("node.kubernetes.io/out-of-service", False),
        ("medik8s.io/remediation", False),
        ("kubevirt.io/drain", False),
    ],
)
def test_a_fence_is_not_undone_for_a_driver(key, by_people):
    items = tainted(["w1", "w3"])
    for item in items:
        for taint in item.get("spec", {}).get("taints", ()):
            taint["key"] = key
    found = driver_daemons.absent(ROOK, "w2", Snapshot(map(Object, items), ["*"]))

    assert f"does not tolerate taint {key}=gpu:NoSchedule" in found.why
    assert (
        ("take the taint off w2" in found.remedy)
        is ("tolerate" in found.remedy)
        is found.lasts
        is by_people
    )


def remedy(change):
    """Return what is advised about the DaemonSet after a change of the objects."""
    items = tainted(["w1", "w3"])
    change(items)
    return driver_daemons.absent(ROOK, "w2", Snapshot(map(Object, items), ["*"])).remedy


def without_rook(items):
    items[:] = [each for each in items if "rook-ceph-operator" not in each["metadata"]["name"]]


def test_rook_is_named_only_where_it_runs():
    assert remedy(lambda items: None).endswith(
        ": kubectl edit configmap rook-ceph-operator-config -n rook-ceph"
    )
    told = remedy(without_rook)
    assert "Rook" not in told
    assert (
        "let DaemonSet rook-ceph/csi-rbdplugin tolerate it, also in its chart or operator (or, "
        "as a decision"
    ) in told
    assert told.endswith(
        """: kubectl patch daemonset csi-rbdplugin -n rook-ceph --type=json -p '[{"op":"add","""
        '"path":"/spec/template/spec/tolerations","value":[{"key":"dedicated","operator":"Exists",'
        """"effect":"NoSchedule"}]}]'"""
    )


def test_tolerations_that_a_daemon_set_has_stay():
    def change(items):
        without_rook(items)
        spec = find(items, "DaemonSet", "csi-rbdplugin")["spec"]["template"]["spec"]
        spec["tolerations"] = [{"key": "other", "operator": "Exists"}]

    assert '"path":"/spec/template/spec/tolerations/-","value":{"key":"dedicated"' in remedy(change)


def test_an_operator_that_owns_the_daemon_set_is_named():
    def change(items):
        without_rook(items)
        owner = {"apiVersion": "csi.ceph.io/v1", "kind": "Driver", "name": ROOK, "controller": True}
        find(items, "DaemonSet", "csi-rbdplugin")["metadata"]["ownerReferences"] = [owner]

    told = remedy(change)
    assert f"tolerate it in Driver {ROOK}, which owns it" in told
    assert told.endswith(f": kubectl edit driver.csi.ceph.io {ROOK} -n rook-ceph")


def test_a_node_whose_entry_is_of_the_past_lacks_the_driver():
    items = tainted(["w1", "w3"])
    assert node_drivers.lacking(Snapshot(map(Object, items), ["*"])) == {"w2": {ROOK}}
    find(items, "Node", "w2")["spec"]["taints"] = []  # its pod may come at any moment
    assert not node_drivers.lacking(Snapshot(map(Object, items), ["*"]))


def test_the_pod_of_another_driver_of_the_same_software_is_not_that_of_this_one():
    items = tainted(["w1", "w3"])
    other = copy.deepcopy(next(each for each in items if is_of_rook(each)))
    other["metadata"] |= {"name": "csi-cephfsplugin-w2", "uid": "cephfs"}
    other["metadata"]["ownerReferences"][0]["name"] = "csi-cephfsplugin"
    other["spec"]["nodeName"] = "w2"
    for each in items:
        if each["kind"] == "CSINode":
            more = {**each["spec"]["drivers"][0], "name": CEPHFS}
            each["spec"]["drivers"].append(more)
    cluster = Snapshot(map(Object, [*items, other]), ["*"])

    assert ROOK in driver_daemons.without_pod(cluster)["w2"]
    assert CEPHFS not in driver_daemons.without_pod(cluster)["w2"]
    assert "csi-rbdplugin does not tolerate" in node_drivers.reasons(cluster)["w2"][ROOK]


def is_of_rook(item):
    owners = item["metadata"].get("ownerReferences", [])
    return item["kind"] == "Pod" and any(each["name"] == "csi-rbdplugin" for each in owners)


CEPHFS = "rook-ceph.cephfs.csi.ceph.com"
