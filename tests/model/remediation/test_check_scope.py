"""The objects that health checks watch, and overlapping checks."""

import pytest

from tests.health_checks import capi, machine, mhc, nhc, node
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Snapshot, Unseen, gather
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.remediation import check_scope, health_checks

ALL_POOLS = {"matchExpressions": [{"key": "pool", "operator": "Exists"}]}
CAPI = "cluster.x-k8s.io/v1beta1"


def watched(check, *objects, complete=("*",)):
    return check_scope.selected(check, Snapshot(objects, complete=complete))


def rivals(check, *objects, complete=("*",)):
    """Return the objects shared with each rival by its name, and the unseen kinds."""
    cluster = Snapshot(objects, complete=complete)
    selection = check_scope.selected(check, cluster)
    found, unseen = gather(check_scope.rivals(health_checks.view(check), cluster))
    names = {
        watch.check.obj.name: [
            obj.name for obj in selection.among(watch.selection.positions).objects
        ]
        for watch in found
    }
    return names, unseen


@pytest.mark.parametrize(
    ("check", "expected"),
    [(nhc(), ["n0"]), (mhc(), ["m0"]), (capi(), ["c0"]), (capi(clusterName="d"), [])],
)
def test_objects_watched_by_each_kind(check, expected):
    objects = [
        node("n0"),
        node("n1", pool="b"),
        machine("m0"),
        machine("m1", pool="b"),
        machine("c0", CAPI, "c"),
    ]
    assert [obj.name for obj in watched(check, *objects).objects] == expected


@pytest.mark.parametrize("check", [nhc(), mhc(), capi()])
def test_incomplete_selections_are_marked(check):
    watched(check).demand_all()
    with pytest.raises(Unseen):
        watched(check, complete=()).demand_all()


def test_watches_are_grouped_by_namespace_and_cached():
    elsewhere = Object({**mhc("far").data, "metadata": {"name": "far", "namespace": "other"}})
    cluster = Snapshot([mhc(), elsewhere, nhc(), machine("m0")], complete=["*"])
    all_watches = check_scope.watches(cluster, kinds.MHC)
    assert [
        watch.selection.objects[0].name for watch in all_watches.of("openshift-machine-api")
    ] == ["m0"]
    assert [len(watch.selection) for watch in all_watches.of("other")] == [0]
    assert all_watches.of("nowhere") == ()
    assert len(check_scope.watches(cluster, kinds.NHC).of("")) == 1
    assert check_scope.watches(cluster, kinds.MHC) is all_watches
    all_watches.demand_all()
    with pytest.raises(Unseen):
        check_scope.watches(Snapshot([mhc()]), kinds.MHC).demand_all()


def test_rivals_of_node_health_checks():
    others = [
        nhc("everyone", selector=ALL_POOLS),
        nhc("again"),
        nhc("elsewhere", selector={"matchLabels": {"pool": "b"}}),
    ]
    found = rivals(nhc(), node("n0"), node("n1", "b"), nhc(), *others)
    assert found == ({"everyone": ["n0"], "again": ["n0"]}, "")


HANDLER = mhc(
    "handler", unhealthyConditions=[{"type": "Terminating", "status": "True", "timeout": "0s"}]
)


def test_termination_handlers_are_not_rivals():
    objects = [machine("m0"), machine("m1"), mhc(), mhc("other"), HANDLER]
    assert rivals(mhc(), *objects) == ({"other": ["m0", "m1"]}, "")
    assert rivals(HANDLER, *objects) == ({}, "")


def test_checks_of_other_clusters_are_not_rivals():
    other = Object({**capi(clusterName="d").data, "metadata": {"name": "other", "namespace": "c"}})
    unnamed = {
        "apiVersion": CAPI,
        "kind": "Machine",
        "metadata": {"name": "c0", "namespace": "c", "labels": {"pool": "a"}},
    }
    assert rivals(capi(), Object(unnamed), other) == ({}, "")


def test_known_rivals_precede_unseen():
    assert rivals(nhc(), node("n0"), nhc("again"), complete=()) == ({"again": ["n0"]}, "nodes")
    everything_else = rivals(nhc(), node("n0"), nhc("again"), complete=["nodes"])
    assert everything_else == ({"again": ["n0"]}, "nodehealthchecks.remediation.medik8s.io")


def test_equal_selectors_overlap_if_machines_are_unseen():
    seen = ["machinehealthchecks.machine.openshift.io", "nodehealthchecks.remediation.medik8s.io"]
    others = [mhc("again"), mhc("wider", selector=ALL_POOLS)]
    assert rivals(mhc(), *others, complete=seen) == ({"again": []}, "machines.machine.openshift.io")
    broken = {"matchLabels": {"pool": "<a>"}}
    assert rivals(mhc(selector=broken), mhc("again", selector=broken), complete=seen)[0] == {}
    assert rivals(nhc(), nhc("again"), complete=seen) == ({}, "nodes")
