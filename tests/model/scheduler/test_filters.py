"""What the random clusters of ``tests/scheduler`` once found, one small cluster each.

They need no Go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from virt_admit.forecasts.placement import candidates
from virt_admit.model.kubernetes import selectors
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.scheduler import pods
from virt_admit.model.scheduler.packing import Item, pack
from virt_admit.model.scheduler.pod_placement import Placement
from virt_admit.model.scheduler.volumes import StorageOffers

ZONE = "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
Manifest = dict[str, Any]


def obj(
    kind: str,
    name: str,
    namespace: str = "",
    /,
    metadata: Mapping[str, Any] | None = None,
    **more: Any,
) -> Object:
    given = {"name": name, **({"namespace": namespace} if namespace else {}), **(metadata or {})}
    version = "storage.k8s.io/v1" if kind.startswith(("StorageClass", "CSI")) else "v1"
    return Object({"apiVersion": version, "kind": kind, "metadata": given, **more})


def node(
    name: str, labels: Mapping[str, str], status: str = "True", taints: Sequence[Manifest] = ()
) -> Object:
    return obj(
        "Node",
        name,
        metadata={"labels": labels},
        spec={"taints": list(taints)},
        status={
            "allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10"},
            "conditions": [{"type": "Ready", "status": status}],
        },
    )


def pod(
    name: str, namespace: str = "blue", labels: Mapping[str, str] | None = None, **spec: Any
) -> Object:
    return obj(
        "Pod",
        name,
        namespace,
        metadata={"labels": dict(labels or {})},
        spec={"containers": [{}], **spec},
    )


def with_claim(name: str, claim: str = "disk", **spec: Any) -> Object:
    return pod(name, volumes=[{"persistentVolumeClaim": {"claimName": claim}}], **spec)


def claim(spec: Manifest, phase: str = "Bound") -> Object:
    return obj("PersistentVolumeClaim", "disk", "blue", spec=spec, status={"phase": phase})


def volume(labels: Mapping[str, str] | None = None, **spec: Any) -> Object:
    return obj("PersistentVolume", "pv", metadata={"labels": dict(labels or {})}, spec=spec)


def place(new: Object, *objects: Object) -> Placement:
    return candidates.scheduler(Snapshot(objects, ["*"])).place(pods.read(new))


def test_a_claim_that_names_its_volume_but_is_not_bound_is_refused() -> None:
    bound, pending = (claim({"volumeName": "pv"}, phase) for phase in ("Bound", "Pending"))

    assert place(with_claim("new"), node("n", {}), bound, volume()).candidates == ("n",)
    assert place(with_claim("new"), node("n", {}), pending, volume()).refusals == {
        "n": "claim disk is not bound"
    }


@pytest.mark.parametrize(("mode", "known"), [("Immediate", True), ("WaitForFirstConsumer", False)])
def test_where_a_claim_is_bound_later_cannot_be_determined(mode: str, known: bool) -> None:
    unbound = claim({"storageClassName": "fast"}, "Pending")

    found = place(
        with_claim("new"),
        node("n", {}),
        unbound,
        obj("StorageClass", "fast", volumeBindingMode=mode),
    )

    assert found.candidates == ()
    assert (found.certain == ()) is known


THIN = obj(
    "StorageClass", "thin", provisioner="lvm.example", volumeBindingMode="WaitForFirstConsumer"
)
TRACKED = obj("CSIDriver", "lvm.example", spec={"storageCapacity": True})
TWENTY = claim(
    {"storageClassName": "thin", "resources": {"requests": {"storage": "20Gi"}}}, "Pending"
)


def capacity(on: str, **fields: Any) -> Object:
    return obj(
        "CSIStorageCapacity",
        on,
        "lvm",
        storageClassName="thin",
        nodeTopology={"matchLabels": {ZONE: on}},
        **fields,
    )


def test_the_capacity_that_a_driver_reports_decides_where_a_claim_can_be_bound() -> None:
    nodes = [node(name, {ZONE: name}) for name in ("a", "b", "c", "d")]
    offers = [
        capacity("a", capacity="10Gi"),
        capacity("b", capacity="10Gi", maximumVolumeSize="20Gi"),
        capacity("c", capacity="30Gi"),
    ]

    found = place(with_claim("new"), *nodes, TWENTY, THIN, TRACKED, *offers)

    assert found.certain == ("b", "c")
    assert found.refusals == {
        "a": "storage for claim disk: lvm.example reports 10Gi there, 20Gi needed",
        "d": "storage for claim disk: lvm.example reports nothing there, 20Gi needed",
    }


def test_an_offer_is_found_by_the_label_of_its_node() -> None:
    """Each node has an offer of its own, and one is for all nodes of a zone."""
    looked = []

    class Counted(dict[str, str]):
        def get(self, key: str, default: Any = None) -> Any:
            looked.append(key)
            return super().get(key, default)

    each = [
        (selectors.parse({"matchLabels": {ZONE: "z", "topology.lvm/node": str(i)}}), i)
        for i in range(100)
    ]
    offers = StorageOffers(
        (*each, (selectors.parse({"matchExpressions": [{"key": ZONE, "operator": "Exists"}]}), 7))
    )

    assert offers.most(Counted({ZONE: "z", "topology.lvm/node": "42"})) == 42
    assert len(looked) < 10
    assert offers.most({ZONE: "y"}) == 7
    assert offers.most({}) is None


def test_free_storage_passes() -> None:
    filters = candidates.scheduler(
        Snapshot([node("a", {ZONE: "a", "vms": ""}), TWENTY, THIN, TRACKED], ["*"])
    )

    assert filters.ever(pods.read(with_claim("new")), "", "vms") is True


def test_topologies_that_a_class_does_not_allow_do_not_pass() -> None:
    terms = [{"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}]
    limited = Object({**THIN.data, "allowedTopologies": terms})
    objects = [
        node("a", {ZONE: "a", "vms": ""}),
        TWENTY,
        limited,
        TRACKED,
        capacity("a", capacity="1Ti"),
    ]
    filters = candidates.scheduler(Snapshot(objects, ["*"]))

    assert place(with_claim("new"), *objects).refusals == {
        "a": "StorageClass thin allows no volume for claim disk there"
    }
    assert filters.ever(pods.read(with_claim("new")), "", "vms") is False


FREE = obj("PersistentVolume", "free", spec={"storageClassName": "thin"})


@pytest.mark.parametrize("more", [[], [TRACKED, FREE], [obj("CSIDriver", "lvm.example", spec={})]])
def test_without_a_capacity_it_cannot_be_determined_where_a_claim_is_bound(
    more: list[Object],
) -> None:
    assert place(with_claim("new"), node("a", {ZONE: "a"}), TWENTY, THIN, *more).certain is None


def test_capacities_that_were_not_read_refuse_nothing() -> None:
    objects = [node("a", {ZONE: "a"}), TWENTY, THIN, TRACKED]
    found = candidates.scheduler(
        Snapshot(objects, ["*"], unreadable=["csistoragecapacities.storage.k8s.io"])
    )

    assert found.place(pods.read(with_claim("new"))).certain is None


def test_match_fields_of_a_volume_are_ignored() -> None:
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["other"]}]}]
    affine = volume(nodeAffinity={"required": {"nodeSelectorTerms": terms}})

    assert place(
        with_claim("new"), node("n", {}), claim({"volumeName": "pv"}), affine
    ).candidates == ("n",)


@pytest.mark.parametrize(
    ("label", "accepting"),
    [
        ({"failure-domain.beta.kubernetes.io/zone": "a"}, ("n",)),
        ({"failure-domain.beta.kubernetes.io/zone": "b"}, ()),
        ({ZONE: "b__a"}, ("n",)),
        ({ZONE: "b__"}, ("n",)),
        ({ZONE: ""}, ("n",)),
    ],
)
def test_zones_of_a_volume(label: Mapping[str, str], accepting: tuple[str, ...]) -> None:
    found = place(
        with_claim("new"), node("n", {ZONE: "a"}), claim({"volumeName": "pv"}), volume(label)
    )

    assert found.candidates == accepting


def test_a_pod_that_tolerates_the_taint_may_go_to_a_node_that_is_not_ready() -> None:
    unready = node("n", {}, "False", [NOT_READY])

    assert place(pod("new", tolerations=[{"operator": "Exists"}]), unready).candidates == ("n",)
    assert "not Ready" in place(pod("new"), unready).refusals["n"]


def test_a_claim_for_one_pod_is_free_when_its_pod_is_on_a_node_that_is_gone() -> None:
    exclusive = claim({"volumeName": "pv", "accessModes": ["ReadWriteOncePod"]})
    base = (node("n", {}), exclusive, volume())

    assert place(with_claim("new"), *base, with_claim("old", nodeName="n")).candidates == ()
    assert place(with_claim("new"), *base, with_claim("old", nodeName="gone")).candidates == ("n",)


def test_an_empty_selector_spreads_nothing() -> None:
    spread = {
        "topologyKey": ZONE,
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {},
    }
    nodes = node("n", {ZONE: "a"}), node("m", {ZONE: "b"})

    found = place(pod("new", topologySpreadConstraints=[spread]), *nodes, pod("old", nodeName="n"))

    assert found.candidates == ("m", "n")


def test_a_namespace_selector_without_positive_requirement_is_read_both_ways() -> None:
    term = {
        "topologyKey": ZONE,
        "labelSelector": {"matchLabels": {"app": "db"}},
        "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
    }
    cluster = (
        node("n", {ZONE: "a"}),
        node("m", {ZONE: "b"}),
        obj("Namespace", "blue", metadata={"labels": {"team": "blue"}}),
        pod("old", "blue", {"app": "db"}, nodeName="n"),
    )

    away = place(pod("new", affinity={"podAntiAffinity": {REQUIRED: [term]}}), *cluster)
    near = place(pod("new", affinity={"podAffinity": {REQUIRED: [term]}}), *cluster)

    assert away.candidates == ("m",)
    assert near.candidates == ()


def test_pods_that_wait_for_each_other_are_packed_in_the_order_that_works() -> None:
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "db"}}}
    follower = pods.read(pod("follower", affinity={"podAffinity": {REQUIRED: [term]}}))
    leader = pods.read(pod("leader", labels={"app": "db"}))
    scheduler = candidates.scheduler(Snapshot([node("n", {ZONE: "a"})], ["*"]))
    items = [Item(each, scheduler.place(each).candidates) for each in (follower, leader)]

    packed = pack(items, scheduler)

    assert items[0].nodes == ()
    assert packed.fits is True
    assert list(packed.placed) == ["blue/leader", "blue/follower"]
    assert pack(items[:1], scheduler).fits is False


def test_a_pod_is_never_packed_onto_the_node_that_it_leaves() -> None:
    term = {"topologyKey": "host", "labelSelector": {"matchLabels": {"app": "db"}}}
    follower = pods.read(pod("follower", affinity={"podAffinity": {REQUIRED: [term]}}))
    nodes = node("left", {"host": "left"}), node("other", {"host": "other"})
    scheduler = candidates.scheduler(
        Snapshot([*nodes, pod("db", labels={"app": "db"}, nodeName="left")], ["*"])
    )

    assert pack([Item(follower, ())], scheduler).placed == {"blue/follower": "left"}
    assert pack([Item(follower, (), source="left")], scheduler).fits is False


def test_two_pods_do_not_share_a_claim_for_one_pod() -> None:
    exclusive = claim({"volumeName": "pv", "accessModes": ["ReadWriteOncePod"]})
    scheduler = candidates.scheduler(
        Snapshot([node("n", {}), node("m", {}), exclusive, volume()], ["*"])
    )
    both = [pods.read(with_claim(name)) for name in ("one", "two")]

    packed = pack([Item(each, scheduler.place(each).candidates) for each in both], scheduler)

    assert packed.fits is False


@pytest.mark.parametrize(
    ("status", "accepting"),
    [
        ({}, ("n",)),
        ({"resources": {"requests": {"cpu": "8"}}}, ()),
        ({"resources": {}, "allocatedResources": {"cpu": "8"}}, ()),
        ({"allocatedResources": {"cpu": "8"}}, ("n",)),
    ],
)
def test_a_container_that_is_resized_holds_the_larger_amount(
    status: Manifest, accepting: tuple[str, ...]
) -> None:
    containers = [{"name": "a", "resources": {"requests": {"cpu": "1"}}}]
    running = obj(
        "Pod",
        "old",
        "blue",
        spec={"nodeName": "n", "containers": containers},
        status={"containerStatuses": [{"name": "a", **status}]},
    )

    assert place(pod("new", containers=containers), node("n", {}), running).candidates == accepting
