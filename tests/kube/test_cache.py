"""Stores answer as a snapshot does, in a fraction of the memory, while others write to them."""

from __future__ import annotations

import gc
import threading
import tracemalloc

import pytest

from virt_admit.kube import cache
from virt_admit.kube.cache import ClusterCache, KindStore, StoreState
from virt_admit.kube.field_filter import IDENTITY, WHOLE, retained_fields
from virt_admit.model.kubernetes import json_codec, kinds
from virt_admit.model.kubernetes.cluster import Snapshot, Unseen
from virt_admit.model.kubernetes.kinds import (
    DEPLOYMENT,
    HCO,
    KUBEVIRT,
    LEASE,
    NODE,
    PVC,
    RESOURCE_QUOTA,
    VM,
    VMI,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.lookups import ReviewCache
from virt_admit.rule import Context, NoParams
from virt_admit.rules import load_rules


def claim(name, namespace="shop", modes=("ReadWriteMany",), **metadata):
    return {
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {"accessModes": list(modes), "storageClassName": "fast", "volumeMode": "Block"},
        "status": {"phase": "Bound"},
    }


def node(name, heartbeat="10:00", **labels):
    return {
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {"kubevirt.io/heartbeat": heartbeat},
        },
        "status": {
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": heartbeat}]
        },
    }


RETAINED = retained_fields(load_rules().at_admission)


def store(kind, *objects, state=StoreState.LISTED, namespace="", whole=False):
    """A store as the webhook has it, or as a scan has it."""
    fields = WHOLE if whole else RETAINED.get(kind, IDENTITY)
    made = KindStore(kind, namespace, fields, packed=whole)
    by_namespace = {}
    for obj in objects:
        made.add(by_namespace, obj)
    made.replace(by_namespace, state)
    return made


def listed(cluster, kind, namespace=None):
    """Names of what a list gives, and what it says may be missing."""
    names = []
    try:
        for obj in cluster.list(kind, namespace):
            names.append(obj.full_name)  # noqa: PERF401 - what came before Unseen counts
    except Unseen as unseen:
        return names, unseen.what
    return names, ""


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("kind", [PVC, VM, HCO, LEASE], ids=str)
def test_an_object_comes_back_as_the_api_server_would_give_it(kind, whole):
    """Lists leave out what kind their items are; some are kept as text and some as they are."""
    spec = {"accessModes": ["ReadWriteOnce"], "runStrategy": "Always", "holderIdentity": "me"}
    obj = {"metadata": {"name": "x", "namespace": "shop", "deletionTimestamp": "now"}, "spec": spec}
    cluster = ClusterCache([store(kind, obj, whole=whole)])

    found = cluster.get(kind, "shop", "x")

    assert (found.api_version, found.kind, found.full_name) == (
        kind.api_version,
        kind.kind,
        "shop/x",
    )
    assert found.deleted
    assert found["spec"].map.items() <= spec.items()
    assert [each.data for each in cluster.list(kind)] == [found.data]


def test_the_version_that_an_object_came_in_stays():
    obj = {
        "apiVersion": "kubevirt.io/v1alpha3",
        "kind": "VirtualMachine",
        "metadata": {"name": "x", "namespace": "y"},
    }
    assert ClusterCache([store(VM, obj)]).get(VM, "y", "x").data == obj


def test_what_nobody_reads_is_not_kept():
    remembered = "kubectl.kubernetes.io/last-applied-configuration"
    metadata = {"managedFields": [{}], "annotations": {remembered: "{}", "mine": "1"}}
    hco = {"metadata": {"name": "x", "namespace": "y", **metadata}, "spec": {}}
    cluster = ClusterCache([store(PVC, claim("a", **metadata)), store(HCO, hco)])

    assert cluster.get(PVC, "shop", "a").data["metadata"] == {
        "name": "a",
        "namespace": "shop",
        "annotations": {},
    }
    assert cluster.get(PVC, "shop", "a").data["spec"] == {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "fast",
    }
    assert cluster.get(HCO, "y", "x").data["metadata"] == {
        "name": "x",
        "namespace": "y",
        "annotations": {"mine": "1"},
    }
    assert "managedFields" in hco["metadata"]


def test_who_wrote_the_limits_of_a_quota_is_kept():
    limits = {"fieldsV1": {"f:spec": {"f:hard": {"f:pods": {}}}}, "manager": "agent", "time": "x"}
    others = {"fieldsV1": {"f:status": {}}, "manager": "kube-controller-manager"}
    metadata = {"name": "q", "namespace": "shop", "managedFields": [limits, others]}
    kept = store(RESOURCE_QUOTA, {"metadata": metadata, "spec": {}}, whole=True)
    cluster = ClusterCache([kept])
    found = cluster.get(RESOURCE_QUOTA, "shop", "q").data["metadata"]
    assert found["managedFields"] == [limits]


@pytest.mark.parametrize("field", ["f:taints", "f:unschedulable"])
def test_who_wrote_the_taints_of_a_node_or_its_cordon_is_kept(field):
    taints = {"fieldsV1": {"f:spec": {field: {}}}, "manager": "harvester", "time": "x"}
    others = {"fieldsV1": {"f:status": {"f:conditions": {}}}, "manager": "kubelet", "time": "y"}
    kept = store(NODE, {"metadata": {"name": "n", "managedFields": [taints, others]}}, whole=True)
    found = ClusterCache([kept]).get(NODE, "", "n").metadata["managedFields"]
    assert found.value == [taints]


def test_the_names_of_what_the_writer_of_taints_owns_besides_are_kept():
    """Their write has the same time, so that the taints may be older."""
    owned = {"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": {"f:taints": {}, "f:podCIDR": {}}}
    entry = {"fieldsV1": owned, "manager": "harvester", "time": "x", "operation": "Update"}
    kept = store(NODE, {"metadata": {"name": "n", "managedFields": [entry]}}, whole=True)
    found = ClusterCache([kept]).get(NODE, "", "n").metadata["managedFields"]
    owned["f:metadata"] = {}
    assert found.value == [{"fieldsV1": owned, "manager": "harvester", "time": "x"}]


def test_who_owns_the_spec_of_what_a_chart_applies_is_kept_without_items_of_lists():
    spec = {"f:a": {"f:b": {'k:{"name":"x"}': {".": {}}}}}
    by = {"manager": "kubectl-patch", "operation": "Update", "time": "x", "fieldsType": "FieldsV1"}
    status = {"manager": "virt-operator", "fieldsV1": {"f:status": {}}}
    entries = [{**by, "fieldsV1": {"f:spec": spec, "f:status": {}}}, status]
    metadata = {"name": "x", "namespace": "y", "managedFields": entries}
    fleet = {"annotations": {"objectset.rio.cattle.io/id": "default-mcc-harvester-cattle-fleet-a"}}
    repository = {"annotations": {"objectset.rio.cattle.io/id": "default-shop-vms"}}
    for marks, kept in ((fleet, True), ({}, False), (repository, False)):
        cluster = ClusterCache([store(HCO, {"metadata": metadata | marks, "spec": {}})])
        found = cluster.get(HCO, "y", "x").metadata["managedFields"]
        assert found.present is kept
        if kept:
            del by["fieldsType"]
            assert found.value == [{**by, "fieldsV1": {"f:spec": {"f:a": {"f:b": {}}}}}]


def test_when_a_vmi_that_fleet_applies_was_marked_for_evacuation_is_kept():
    mark = {"time": "x", "fieldsV1": {"f:status": {"f:evacuationNodeName": {}}}}
    marks = {"annotations": {"objectset.rio.cattle.io/id": "default-shop-vms"}}
    metadata = {"name": "x", "namespace": "y", "managedFields": [mark], **marks}
    cluster = ClusterCache([store(VMI, {"metadata": metadata}, whole=True)])
    assert cluster.get(VMI, "y", "x").metadata["managedFields"].value == [mark]


UNSEEN = (StoreState.WAITING, StoreState.REFUSED)


@pytest.mark.parametrize("state", StoreState)
def test_unseen_is_not_absent(state):
    cluster = ClusterCache([store(PVC, state=state)])

    if state in UNSEEN:
        with pytest.raises(Unseen, match="persistentvolumeclaims shop/a"):
            cluster.get(PVC, "shop", "a")
    else:
        assert cluster.get(PVC, "shop", "a") is None
    assert listed(cluster, PVC) == ([], "persistentvolumeclaims" if state in UNSEEN else "")
    assert list(cluster.known(PVC)) == []


def test_a_kind_that_nobody_reads_is_unseen():
    cluster = ClusterCache([])
    with pytest.raises(Unseen, match="nodes one"):
        cluster.get(NODE, "ignored", "one")
    assert listed(cluster, NODE) == ([], "nodes")
    assert cluster.known(NODE) == ()


def test_only_one_namespace_is_looked_into():
    lease = {
        "metadata": {"name": "node-a", "namespace": "medik8s-leases"},
        "spec": {"holderIdentity": "nhc"},
    }
    cluster = ClusterCache([store(LEASE, lease, namespace="medik8s-leases")])

    assert cluster.get(LEASE, "medik8s-leases", "node-a")["spec"]["holderIdentity"].text == "nhc"
    assert cluster.get(LEASE, "medik8s-leases", "node-b") is None
    assert listed(cluster, LEASE, "medik8s-leases") == (["medik8s-leases/node-a"], "")
    with pytest.raises(Unseen):
        cluster.get(LEASE, "elsewhere", "node-a")
    assert listed(cluster, LEASE, "elsewhere") == ([], "leases.coordination.k8s.io")
    assert listed(cluster, LEASE) == (["medik8s-leases/node-a"], "leases.coordination.k8s.io")


def test_it_answers_as_a_snapshot_does():
    objects = [claim("a", "other"), claim("c", "other"), claim("a"), claim("b")]
    typed = [
        Object({"apiVersion": "v1", "kind": "PersistentVolumeClaim", **each}) for each in objects
    ]
    snapshot, cluster = Snapshot(typed, complete=["*"]), ClusterCache([store(PVC, *objects)])

    for namespace in (None, "shop", "other", "nowhere"):
        assert listed(cluster, PVC, namespace) == listed(snapshot, PVC, namespace)
        assert [o.full_name for o in cluster.known(PVC, namespace)] == listed(
            snapshot, PVC, namespace
        )[0]
    for namespace in ("shop", "other", "nowhere"):
        for name in "abcd":
            there, here = snapshot.get(PVC, namespace, name), cluster.get(PVC, namespace, name)
            assert (there is None, there and there.full_name) == (
                here is None,
                here and here.full_name,
            )


def test_changes():
    kind_store = store(PVC, claim("a"), claim("b"))
    cluster = ClusterCache([kind_store])

    kind_store.upsert(claim("c", "new"))
    kind_store.upsert(claim("a", modes=["ReadWriteOnce"]))
    kind_store.delete(claim("b"))
    kind_store.delete(claim("b"))
    kind_store.delete(claim("x", "nowhere"))

    assert listed(cluster, PVC) == (["shop/a", "new/c"], "")
    assert cluster.get(PVC, "shop", "a").at("spec", "accessModes").value == ["ReadWriteOnce"]
    assert len(kind_store) == 2
    kind_store.delete(claim("c", "new"))
    assert len(kind_store) == 1


def test_derived_values_hold_until_what_they_came_from_changes():
    nodes, claims = store(NODE, node("a")), store(PVC)
    cluster = ClusterCache([nodes, claims, store(KUBEVIRT)], "v1.30.0")
    runs = []

    def count(cluster):
        runs.append("count")
        return len(cluster.known(NODE))

    def twice(cluster):
        runs.append("twice")
        return 2 * cluster.cached(count) + (
            cluster.get(KUBEVIRT, "kubevirt", "kubevirt") is not None
        )

    def ask():
        runs.clear()
        return cluster.cached(twice), cluster.cached(count), list(runs)

    assert ask() == (2, 1, ["twice", "count"])
    assert ask() == (2, 1, [])
    claims.upsert(claim("a"))
    assert ask() == (2, 1, []), "claims were not looked at"
    nodes.upsert(node("a", heartbeat="10:05"))
    assert ask() == (2, 1, []), "a heartbeat is not kept"
    nodes.upsert(node("b"))
    assert ask() == (4, 2, ["twice", "count"])
    nodes.delete(node("b"))
    assert ask() == (2, 1, ["twice", "count"])
    nodes.replace({}, StoreState.REFUSED)
    assert ask() == (0, 0, ["twice", "count"])
    cluster.server_version = "v1.31.0"
    assert ask() == (0, 0, ["twice", "count"])
    cluster.stores[KUBEVIRT].replace({}, StoreState.ABSENT)
    assert ask() == (0, 0, ["twice"])


def test_a_relist_that_brings_nothing_new_changes_nothing():
    kind_store = store(PVC, claim("a"), claim("b"))
    before = kind_store.generation
    by_namespace = {}
    for obj in (claim("b"), claim("a")):
        kind_store.add(by_namespace, obj)
    kind_store.replace(by_namespace, StoreState.LISTED)
    assert kind_store.generation == before


def test_functions_made_on_the_way_do_not_pile_up():
    cluster = ClusterCache([store(NODE)])
    for number in range(3000):
        assert cluster.cached(lambda _, number=number: number) == number
    assert len(cluster._derived) <= 1000


def test_what_could_not_be_derived_is_tried_again():
    nodes = store(NODE, state=StoreState.WAITING)
    cluster = ClusterCache([nodes])

    def first(cluster):
        return cluster.get(NODE, "", "a")

    with pytest.raises(Unseen):
        cluster.cached(first)
    nodes.replace({}, StoreState.LISTED)
    assert cluster.cached(first) is None


def bound(name, number, namespace):
    """A claim as a cluster has it: bound to a volume of its own."""
    volume = f"pvc-7c9e6679-7425-40de-944b-{number:012}"
    return claim(name, namespace, uid=str(number)) | {
        "spec": {"accessModes": ["ReadWriteMany"], "volumeName": volume}
    }


def stored(claims):
    """A store of these claims, and the bytes that it takes.

    Only what the store and this file allocate counts: threads of other tests may be at work
    meanwhile. Nor does garbage count, which Python looks for seldom (tests/conftest.py).
    """
    ours = [
        tracemalloc.Filter(True, file) for file in (__file__, cache.__file__, json_codec.__file__)
    ]
    tracemalloc.start()
    try:
        kind_store = store(PVC, *claims)
        gc.collect()
        taken = sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(ours).traces)
    finally:
        tracemalloc.stop()
    return kind_store, taken


def test_bound_claims_take_little_memory():
    """The texts of these claims differ, so that each is stored on its own."""
    many = 5_000
    kind_store, taken = stored(
        bound(f"data-volume-{i:08}", i, f"team-{i % 300}") for i in range(many)
    )
    assert len(kind_store) == many
    assert taken / many < 300


def test_claims_take_little_memory():
    """At most 250 bytes a claim: a cluster has a hundred thousand."""
    many = 20_000
    kind_store, taken = stored(
        claim(f"data-volume-{i:08}", f"team-{i % 300}", uid=str(i)) for i in range(many)
    )
    assert len(kind_store) == many
    assert taken / many < 250


def test_reading_while_somebody_writes():
    kind_store = store(
        VMI, *({"metadata": {"name": f"stays-{i}", "namespace": f"n{i}"}} for i in range(50))
    )
    cluster = ClusterCache([kind_store])
    done = threading.Event()

    def write():
        number = 0
        while not done.is_set():
            number += 1
            obj = {"metadata": {"name": "comes and goes", "namespace": f"x{number % 97}"}}
            kind_store.upsert(obj)
            if number % 3:
                kind_store.delete(obj)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(300):
            names = [obj.name for obj in cluster.list(VMI) if obj.name.startswith("stays")]
            assert len(names) == 50
            assert cluster.cached(lambda c: len(c.known(VMI))) >= 50
    finally:
        done.set()
        writer.join()


def test_facts_of_looked_up_objects_are_not_mixed_up():
    """Each look-up makes a new object, often where the last one was."""
    cluster = ClusterCache([store(PVC, *(claim(f"{i}") for i in range(50)))])
    context = Context(cluster, NoParams(), ReviewCache(cluster))

    def name(obj, _cluster):
        return obj.name

    for i in range(50):
        assert context.cached(name, cluster.get(PVC, "shop", f"{i}")) == f"{i}"


def test_every_kind_can_be_stored():
    for kind in kinds.ALL:
        namespace = {"namespace": "shop"} if kind.namespaced else {}
        obj = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": "x", **namespace},
        }
        assert ClusterCache([store(kind, obj)]).get(kind, "shop", "x").data == obj


@pytest.mark.parametrize(("labels", "kept"), [({"cluster.x-k8s.io/provider": "x"}, 1), ({}, 0)])
def test_who_scaled_a_provider_of_cluster_api_is_kept(labels, kept):
    scaled = {"fieldsV1": {"f:spec": {"f:replicas": {}}}, "manager": "kubectl", "time": "x"}
    metadata = {"name": "c", "namespace": "n", "labels": labels, "managedFields": [scaled]}
    found = store(DEPLOYMENT, {"metadata": metadata, "spec": {"replicas": 0}}, whole=True)
    entries = ClusterCache([found]).get(DEPLOYMENT, "n", "c").metadata["managedFields"]
    assert [each.value for each in entries.items()] == [scaled] * kept
