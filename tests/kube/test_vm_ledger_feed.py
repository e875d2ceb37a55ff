"""The ledger that informers keep equals the ledger of the same objects at once,
after any sequence of events.
"""

from __future__ import annotations

import os
import random

import pytest

from virt_admit.forecasts.outage import failover_room
from virt_admit.forecasts.outage.tolerance import Tolerance
from virt_admit.kube import vm_ledger_feed
from virt_admit.kube.cache import ClusterCache, StoreState
from virt_admit.kube.stores import lookup_stores
from virt_admit.model.kubernetes.cluster import Snapshot, Unseen
from virt_admit.model.kubernetes.kinds import NODE, POD, VM, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.launcher import vm_ledger
from virt_admit.model.scheduler.ledger import Role
from virt_admit.model.scheduler.room_totals import RoomView
from virt_admit.rules import load_rules

pytestmark = pytest.mark.slow

SEQUENCES = int(os.environ.get("LEDGER_SEQUENCES", "300"))
EVENTS = 25
NODES = ("n1", "n2", "n3", "n4")
VMS = ("db", "web", "mail", "ci")
SIZES = ("1Gi", "2Gi", "8Gi", "1536Mi", "500M")
KINDS = (NODE, POD, VMI, VM)


def node(rng):
    name = rng.choice(NODES)
    labels = {"topology.kubernetes.io/zone": rng.choice("ab")}
    if rng.random() < 0.9:
        labels["kubevirt.io/schedulable"] = rng.choice(("true", "false"))
    spec = {"unschedulable": True} if rng.random() < 0.1 else {}
    if rng.random() < 0.2:
        spec["taints"] = [
            {
                "key": rng.choice(("dedicated", "node.kubernetes.io/not-ready")),
                "effect": "NoSchedule",
            }
        ]
    status = {"conditions": [{"type": "Ready", "status": rng.choice(("True", "True", "Unknown"))}]}
    if rng.random() < 0.95:
        status["allocatable"] = {"memory": rng.choice(("32Gi", "64Gi")), "cpu": "16", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": status,
    }


def pod(rng):
    containers = [
        {
            "name": f"c{number}",
            "resources": {
                "requests": {"memory": rng.choice(SIZES), "cpu": rng.choice(("100m", "2"))}
            },
        }
        for number in range(rng.choice((1, 1, 2)))
    ]
    spec = {"nodeName": rng.choice((*NODES, "")), "containers": containers}
    if rng.random() < 0.3:
        spec["priority"] = rng.choice((0, 1000, -5))
    if rng.random() < 0.2:
        spec["tolerations"] = [
            {"key": rng.choice(("dedicated", "node.kubernetes.io/not-ready")), "operator": "Exists"}
        ]
    metadata = {"name": f"pod-{rng.randrange(8)}", "namespace": rng.choice(("shop", "lab"))}
    if rng.random() < 0.6:
        name = rng.choice(VMS)
        metadata["labels"] = {
            "kubevirt.io": "virt-launcher",
            "vm.kubevirt.io/name": rng.choice((name, "other")),
        }
        metadata["ownerReferences"] = [
            {"kind": "VirtualMachineInstance", "name": name, "controller": True}
        ]
    elif rng.random() < 0.7:
        metadata["ownerReferences"] = [
            {
                "kind": rng.choice(("ReplicaSet", "DaemonSet", "StatefulSet")),
                "name": "app",
                "controller": True,
            }
        ]
    phase = rng.choice(("Running", "Running", "Pending", "Succeeded"))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": spec,
        "status": {"phase": phase},
    }


def vmi(rng):
    name = rng.choice(VMS)
    owner = rng.choice(("VirtualMachine", "VirtualMachine", "VirtualMachineInstanceReplicaSet", ""))
    metadata = {"name": name, "namespace": rng.choice(("shop", "lab"))}
    if owner:
        metadata["ownerReferences"] = [{"kind": owner, "name": name, "controller": True}]
    status = {"phase": rng.choice(("Running", "Running", "Scheduling", "Failed"))}
    if rng.random() < 0.8:
        status["nodeName"] = rng.choice(NODES)
    spec = {"domain": {"resources": {"requests": {"memory": "1Gi"}}}}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }


def vm(rng):
    metadata = {"name": rng.choice(VMS), "namespace": rng.choice(("shop", "lab"))}
    if rng.random() < 0.1:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    spec = rng.choice(
        (
            {"running": True},
            {"running": False},
            {"runStrategy": "Always"},
            {"runStrategy": "Manual"},
        )
    )
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": metadata,
        "spec": spec,
    }


MAKE = dict(zip(KINDS, (node, pod, vmi, vm), strict=True))


def key(obj):
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


class World:
    """Objects, and stores that learn of each change as informers do."""

    def __init__(self, rng):
        self.rng = rng
        self.objects = {kind: {} for kind in KINDS}
        self.cache = ClusterCache(lookup_stores(load_rules().at_admission))
        vm_ledger_feed.follow(self.cache)
        for store in self.cache.stores.values():
            store.replace({}, StoreState.LISTED)

    def happen(self):
        """One event: mostly an object that is added or changed."""
        kind = self.rng.choice((NODE, POD, POD, POD, VMI, VMI, VM))
        known, store = self.objects[kind], self.cache.stores[kind]
        chance = self.rng.random()
        if chance < 0.1:
            self.relist(kind)
        elif chance < 0.25 and known:
            gone = known.pop(self.rng.choice(sorted(known)))
            store.delete(gone)
        else:
            obj = MAKE[kind](self.rng)
            known[key(obj)] = obj
            store.upsert(obj)

    def relist(self, kind):
        """Events were missed: some objects are gone and others are new.

        The first list may fail half-way.
        """
        known, store = self.objects[kind], self.cache.stores[kind]
        failed = {}
        for _ in known:
            store.add(failed, MAKE[kind](self.rng))
            if self.rng.random() < 0.5:
                break
        for each in [each for each in sorted(known) if self.rng.random() < 0.3]:
            del known[each]
        for _ in range(2):
            obj = MAKE[kind](self.rng)
            known[key(obj)] = obj
        by_namespace = {}
        for obj in known.values():
            store.add(by_namespace, obj)
        store.replace(by_namespace, StoreState.LISTED)

    @property
    def snapshot(self):
        return Snapshot(
            [Object(obj) for known in self.objects.values() for obj in known.values()], ["*"]
        )


def room_of(cluster):
    """Everything that a review could ask of the room, or why it cannot be known."""
    try:
        room = failover_room.room(cluster)
        return [
            (
                room.free(resource, view),
                room.pending.get(resource, 0),
                room.reserve(resource, Tolerance(reserve=25), view),
                list(room.losses(resource, tolerance, view)),
            )
            for resource in ("memory", "cpu", "pods")
            for view in (
                RoomView(),
                RoomView(everything=True),
                RoomView(tolerant=True, highest=500),
            )
            for tolerance in (Tolerance(), Tolerance(nodes=2), Tolerance(nodes=0, zones=1))
        ]
    except Unseen as unseen:
        return unseen.what


def wrong_shortcuts(cluster):
    """What the sums promise without a look at single nodes, and single nodes refute."""
    try:
        room = failover_room.room(cluster)
        for view in (RoomView(), RoomView(everything=True), RoomView(tolerant=True, highest=500)):
            assert room.number(view) == len(room.by_node(view))
            for resource in ("memory", "cpu", "pods"):
                weights = [weight for weight, _ in room.losses(resource, Tolerance(), view)]
                most = room.free(resource, view) - max(weights, default=0)
                if weights and not room.tight({resource: most + 1}, Tolerance(), view):
                    yield f"{resource}: {most} is left"
            memory = room.amounts("memory", view)
            for size in (2**28, 2**30, 2**32):
                places = {name: each.free // size for name, each in memory.items()}
                vms = {
                    name: sum(map(needs_place, room.ledger.held(name).items())) for name in places
                }
                short = any(sum(places.values()) - places[name] <= vms[name] for name in places)
                if (
                    room.has_other_places(size, view)
                    and short
                    and all(map(can_be_lost(room), places))
                ):
                    yield f"{size}: {places} for {vms}"
    except Unseen:
        return


def needs_place(held):
    shape, number = held
    return number * (shape.role is Role.RETURNS)


def can_be_lost(room):
    return lambda name: room.ledger.nodes[name].can_be_lost


@pytest.mark.parametrize("part", range(10))
def test_the_ledger_of_events_equals_the_ledger_of_the_objects(part):
    for seed in range(part, SEQUENCES, 10):
        world = World(random.Random(seed))
        for _ in range(EVENTS):
            world.happen()
            if world.rng.random() < 0.3:
                assert room_of(world.cache) == room_of(world.snapshot), seed
                assert not list(wrong_shortcuts(world.cache)), seed
        snapshot = world.snapshot
        assert vm_ledger.of(world.cache) == vm_ledger.of(snapshot), seed
        assert room_of(world.cache) == room_of(snapshot), seed


def test_most_sequences_end_with_a_room_that_is_known():
    worlds = [World(random.Random(seed)) for seed in range(100)]
    for world in worlds:
        for _ in range(EVENTS):
            world.happen()

    known = [room for world in worlds if not isinstance(room := room_of(world.cache), str)]
    assert len(known) > 50
    assert sum(bool(room[0][3]) for room in known) > 20  # some node can be lost


def test_a_kind_that_is_not_listed_is_unseen():
    world = World(random.Random(0))
    world.cache.stores[VMI].replace({}, StoreState.REFUSED)

    with pytest.raises(Unseen, match="virtualmachineinstances"):
        vm_ledger.of(world.cache)


def test_a_value_that_rests_on_the_ledger_follows_it():
    world = World(random.Random(0))
    store = world.cache.stores[NODE]
    before = failover_room.room(world.cache).free("memory")
    labels = {"kubevirt.io/schedulable": "true"}
    store.upsert(
        {"metadata": {"name": "n1", "labels": labels}, "status": {"allocatable": {"memory": "4Gi"}}}
    )

    assert before == 0
    assert failover_room.room(world.cache).free("memory") == 4 * 2**30
