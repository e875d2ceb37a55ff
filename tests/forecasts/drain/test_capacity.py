"""Whether a drain would find room, as rules at admission ask: a shortage needs facts,
and missing rights are silent.
"""

import json

import pytest

from tests import builders
from tests.builders import kubevirt, manifest, node, vmi
from tests.kube.lookups import in_webhook
from virt_admit.forecasts.drain import capacity, drain_plan
from virt_admit.forecasts.outage import check_restarts
from virt_admit.kube.cache import StoreState
from virt_admit.kube.stores import lookup_stores
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import CSI_NODE, NODE, POD, PV, PVC, RESOURCE_QUOTA, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.rules import load_rules

LABELS = {"kubernetes.io/arch": "amd64"}
ROOM = {"cpu": "64", "memory": "512Gi", "pods": "250"}
HOSTS = [node("n2", LABELS, allocatable=ROOM), node("n3", LABELS, allocatable=ROOM)]
FULL = [
    node("n2", LABELS, allocatable=ROOM),
    node("n3", LABELS, allocatable=ROOM | {"memory": "8Gi"}),
]
MIGRATABLE = {
    "phase": "Running",
    "nodeName": "n2",
    "conditions": [{"type": "LiveMigratable", "status": "True"}],
}
CLAIM = {"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}
BIG = vmi(
    metadata={"uid": "u1"},
    status=MIGRATABLE,
    evictionStrategy="LiveMigrate",
    architecture="amd64",
    domain={"cpu": {"model": "host-passthrough"}, "devices": {}},
    volumes=[CLAIM],
)
LAUNCHER = manifest(
    "v1",
    "Pod",
    "virt-launcher-db-x",
    "shop",
    metadata={
        "labels": {
            "kubevirt.io": "virt-launcher",
            "kubevirt.io/created-by": "u1",
            "vm.kubevirt.io/name": "db",
        },
        "ownerReferences": [{"kind": "VirtualMachineInstance", "name": "db", "uid": "u1"}],
    },
    spec={
        "nodeName": "n2",
        "containers": [{"name": "compute", "resources": {"requests": {"memory": "200Gi"}}}],
        "volumes": [CLAIM],
    },
    status={"phase": "Running"},
)
DISK = manifest(
    "v1",
    "PersistentVolumeClaim",
    "disk",
    "shop",
    spec={"accessModes": ["ReadWriteMany"], "volumeName": "pv", "storageClassName": ""},
    status={"phase": "Bound"},
)
TERMS = [
    {
        "matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": ["elsewhere"]}
        ]
    }
]
PINNED = manifest(
    "v1",
    "PersistentVolume",
    "pv",
    spec={"nodeAffinity": {"required": {"nodeSelectorTerms": TERMS}}},
)
ATTACHED = manifest(
    "v1", "PersistentVolume", "pv", spec={"csi": {"driver": "d", "volumeHandle": "h"}}
)
VOLUME = manifest("v1", "PersistentVolume", "pv", spec={})
LIMITS = manifest(
    "storage.k8s.io/v1",
    "CSINode",
    "n3",
    spec={"drivers": [{"name": "d", "allocatable": {"count": 0}}]},
)
QUOTA = manifest(
    "v1",
    "ResourceQuota",
    "team",
    "shop",
    spec={"hard": {"requests.memory": "300Gi"}},
    status={"hard": {"requests.memory": "300Gi"}, "used": {"requests.memory": "200Gi"}},
)
NS = manifest("v1", "Namespace", "shop")

WORLDS = {
    POD: ([*FULL, BIG, LAUNCHER, DISK, VOLUME], "memory: 192Gi missing"),
    RESOURCE_QUOTA: ([*HOSTS, BIG, LAUNCHER, DISK, VOLUME, QUOTA], "team"),
    PV: ([*HOSTS, BIG, LAUNCHER, DISK, PINNED], "n3"),
    PVC: ([*HOSTS, BIG, LAUNCHER, DISK, PINNED], "n3"),
    CSI_NODE: ([*HOSTS, BIG, LAUNCHER, DISK, ATTACHED, LIMITS], "volumes of d"),
    NODE: ([*FULL, BIG, LAUNCHER, DISK, VOLUME], "memory: 192Gi missing"),
    VMI: ([*FULL, BIG, LAUNCHER, DISK, VOLUME], "memory: 192Gi missing"),
}


def shortage(objects, without=None):
    given = [*objects, NS, kubevirt()]
    everything = {*capacity.READS, *map(kinds.of, given)}
    read = [obj for obj in given if kinds.of(obj) is not without]
    found = capacity.shortage(
        Snapshot(read, complete=[kind.resource for kind in everything - {without}]), "n2"
    )
    return found.reason if found is not None else ""


@pytest.mark.parametrize("kind", WORLDS, ids=str)
def test_without_the_right_to_read_a_kind_nothing_is_said(kind):
    objects, says = WORLDS[kind]

    assert says in shortage(objects)
    assert shortage(objects, without=kind) == ""


def test_the_vm_and_the_node_are_named():
    assert shortage(WORLDS[POD][0]) == "room for shop/db: on n3 memory: 192Gi missing"
    assert shortage([*HOSTS, BIG, LAUNCHER, DISK, VOLUME]) == ""


def test_the_devices_of_resource_claims_are_not_read():
    """kube-scheduler looks for them in ResourceSlices;
    a node that seems to have room may have none.
    """
    claiming = Object(
        {**BIG.data, "spec": BIG.data["spec"] | {"resourceClaims": [{"name": "gpu"}]}}
    )

    def drainable(subject):
        objects = [*HOSTS, subject, LAUNCHER, DISK, VOLUME, NS, kubevirt()]
        return drain_plan.plan(builders.complete(*objects), "n2")

    assert drainable(BIG).drainable is True
    assert drainable(claiming).drainable is None
    assert drainable(claiming).unseen == ("the nodes with devices for resource claim gpu",)


@pytest.mark.parametrize("limit", ["MOST_PODS", "MOST_PAIRS"])
def test_a_request_does_not_read_too_much(monkeypatch, limit):
    assert shortage(WORLDS[POD][0])
    monkeypatch.setattr(capacity, limit, 0)
    assert shortage(WORLDS[POD][0]) == ""


def test_a_request_tries_few_vms_that_other_pods_keep_off(monkeypatch):
    """Each pair of such a VM and a node costs a hundred times as much."""
    objects = WORLDS[POD][0]
    spread = [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]
    linked = [
        Object({**BIG.data, "spec": BIG.data["spec"] | {"topologySpreadConstraints": spread}}),
        *objects,
    ]
    linked.remove(BIG)
    assert shortage(linked)
    monkeypatch.setattr(capacity, "MOST_LINKED_PAIRS", 1)
    assert shortage(linked) == ""
    assert shortage(objects)


def test_a_vm_that_is_pinned_lacks_a_node_and_not_room():
    pinned = Object(json.loads(json.dumps(BIG.data)))
    pinned.data["spec"]["nodeSelector"] = {"zone": "x"}
    found = capacity.shortage(Snapshot([*HOSTS, pinned, NS, kubevirt()], ["*"]), "n2")
    assert (found.reason.startswith("node for shop/db: on n3 "), found.remedy) == (
        True,
        "Let n3 take it first",
    )


def test_the_cache_of_the_webhook_gives_the_same_answer():
    for objects, _ in WORLDS.values():
        given = [*objects, NS, kubevirt()]
        found = capacity.shortage(in_webhook(given), "n2")
        assert (found.reason if found is not None else "") == shortage(objects)


def test_the_vms_of_a_lost_node_are_placed_as_of_now():
    vm = builders.vm(runStrategy="Always")
    lost = vmi(
        metadata={"uid": "u1", "ownerReferences": builders.owned_by("VirtualMachine")},
        status=MIGRATABLE,
        architecture="amd64",
        domain={"cpu": {"model": "host-passthrough"}, "devices": {}},
    )
    cordoned = node("n3", LABELS, allocatable=ROOM, unschedulable=True)

    def why(*nodes):
        (fate,) = check_restarts.fates(
            ["n2"], builders.complete(*nodes, vm, lost, LAUNCHER, NS, kubevirt())
        )
        assert fate.comes
        return fate.why

    assert "but only later" not in why(*HOSTS)
    assert why(*FULL).endswith(
        "but only later: no other node can run it: on n3 memory: 192Gi missing"
    )
    assert why(HOSTS[0], cordoned).endswith("but only later: no node takes it: n3 is cordoned")


# --- pods in the cache of the webhook


def test_finished_pods_are_not_kept():
    store = next(store for store in lookup_stores(load_rules().at_admission) if store.kind is POD)
    store.replace({}, StoreState.LISTED)

    store.upsert(LAUNCHER.data)
    assert len(store) == 1
    store.upsert(LAUNCHER.data | {"status": {"phase": "Succeeded"}})
    assert len(store) == 0
    by_namespace = {}
    store.add(by_namespace, LAUNCHER.data | {"status": {"phase": "Failed"}})
    assert by_namespace == {}


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        ({"unschedulable": True}, "Uncordon or repair n3 first"),
        (
            {"taints": [{"key": "example.com/own", "effect": "NoSchedule"}]},
            "Remove taint example.com/own",
        ),
    ],
)
def test_what_keeps_a_node_from_taking_a_vm_is_the_remedy(change, remedy):
    other = Object({**HOSTS[-1].data, "spec": change})
    found = capacity.shortage(Snapshot([*HOSTS[:-1], other, BIG, NS, kubevirt()], ["*"]), "n2")
    assert found.remedy.startswith(remedy)
