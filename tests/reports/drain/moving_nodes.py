"""Recorded sequences: nodes, their updaters,
KubeVirt itself and the budgets of operators during a drain.
"""

from __future__ import annotations

from typing import Any

from tests import builders
from tests.builders import EVERY_NODE, manifest
from tests.forecasts.drain import operator_clusters as operators
from tests.forecasts.drain.test_control_path import component, deployment
from tests.forecasts.drain.vm_motion import launcher, migration, node, vmi
from tests.reports.drain.moving_vms import bound, copying, left, marked, old_pod
from tests.reports.drain.recording import Recording, Step, at
from virt_admit.model.kubernetes.objects import Object


def reporting(name: str = "a", status: str = "True", heartbeat: float = 0, **spec: Any) -> Object:
    """Return a node whose kubelet reported at a time."""
    found = node(name, **({"unschedulable": True} if name == "a" else {}) | spec)
    condition = {"type": "Ready", "status": status, "lastHeartbeatTime": at(heartbeat)}
    return Object({**found.data, "status": {**found.data["status"], "conditions": [condition]}})


NODE_LOST = Recording(
    (
        Step(0, (reporting(), reporting("b"), marked(), launcher())),
        Step(10, copying("db", 5)),
        Step(70, (reporting(status="Unknown", heartbeat=15), reporting("b", heartbeat=70))),
        Step(400, (reporting("b", heartbeat=400),)),
    )
)

CONTROLLERS = ("virt-api", "virt-controller")


def controllers(on: str) -> tuple[Object, ...]:
    return tuple(component(name, on) for name in CONTROLLERS)


CONTROLLER_LEAVES = Recording(
    (
        Step(
            0,
            (
                *map(deployment, CONTROLLERS),
                component("virt-api", "b"),
                component("virt-controller", "a"),
                marked(),
                launcher(),
            ),
        ),
        Step(30, gone=("virt-controller-a",)),
        Step(300),
        Step(330, (component("virt-controller", "c"),)),
        Step(400, left("db", 390), gone=(old_pod("db"),)),
    )
)

MCO = "machineconfiguration.openshift.io/"


def of_pool(
    name: str, current: str, state: str = "Done", *, cordoned: bool = False, drain: str = ""
) -> Object:
    """Return a node of the MachineConfigPool worker, whose target is rendered-worker-2."""
    found = node(name, unschedulable=cordoned)
    annotations = {
        f"{MCO}currentConfig": f"rendered-worker-{current}",
        f"{MCO}desiredConfig": "rendered-worker-2"
        if drain or current == "2"
        else f"rendered-worker-{current}",
        f"{MCO}state": state,
        f"{MCO}desiredDrain": drain,
        f"{MCO}lastAppliedDrain": "" if drain else "uncordon-rendered-worker-2",
    }
    return Object(
        {**found.data, "metadata": {**found.data["metadata"], "annotations": annotations}}
    )


DRAIN = "drain-rendered-worker-2"
POOL = manifest(
    f"{MCO}v1",
    "MachineConfigPool",
    "worker",
    spec={"nodeSelector": EVERY_NODE, "configuration": {"name": "rendered-worker-2"}},
)
POOL_HALF_DONE = Recording(
    (
        Step(
            0,
            (
                POOL,
                of_pool("a", "1"),
                of_pool("b", "2"),
                of_pool("c", "1", cordoned=True),
                vmi(),
                launcher(),
            ),
        ),
        Step(30, (of_pool("a", "1", drain=DRAIN, cordoned=True),)),
        Step(40, (marked(),)),
        Step(60, copying("db", 55)),
        Step(130, left("db", 125), gone=(old_pod("db"),)),
    )
)


def machine(drained: str = "", **status: Any) -> Object:
    deletion = {"deletion": {"nodeDrainStartTime": drained}} if drained else {}
    metadata = {"deletionTimestamp": at(0), "annotations": {}}
    spec = {"deletion": {"nodeDrainTimeoutSeconds": 600}}
    return manifest(
        "cluster.x-k8s.io/v1beta2",
        "Machine",
        "worker-a",
        "machines",
        metadata=metadata,
        spec=spec,
        status={"nodeRef": {"name": "a"}, **deletion, **status},
    )


def refused() -> Object:
    found = vmi()
    found.data["status"]["conditions"][0] |= {
        "status": "False",
        "reason": "HostDeviceNotLiveMigratable",
    }
    return found


MACHINE_TIMES_OUT = Recording(
    (
        Step(0, (machine(at(0)), refused(), launcher())),
        Step(300),
        Step(
            620,
            (
                machine(
                    at(0),
                    conditions=[
                        {"type": "Deleting", "status": "True", "reason": "WaitingForVolumeDetach"}
                    ],
                ),
            ),
        ),
        Step(900, gone=("a", "worker-a", "db", old_pod("db"))),
    )
)


def hooked(*hooks: str) -> Object:
    found = machine()
    key = "pre-drain.delete.hook.machine.cluster.x-k8s.io/"
    found.data["metadata"]["annotations"] = {f"{key}{hook}": "storage-team" for hook in hooks}
    return found


MACHINE_HOOK = Recording(
    (
        Step(0, (hooked("move-data"), vmi(), launcher())),
        Step(3000),
        Step(3010, (hooked(),)),
        Step(3060, left("db", 3055), gone=(old_pod("db"),)),
    )
)


def roomy(*objects: Object) -> tuple[Object, ...]:
    """Return the objects with nodes that can run VMs, of which a is cordoned."""
    return tuple(
        node(obj.name, unschedulable=obj.name == "a") if obj.kind == "Node" else obj
        for obj in objects
    )


ENGINE = operators.volume("v1", 2, on="a")
LONGHORN = Recording(
    (
        Step(
            0,
            (
                *roomy(
                    *operators.longhorn(
                        operators.replica("v1", "a"), operators.replica("v1", "b"), ENGINE
                    )
                ),
                marked(),
                launcher(),
            ),
        ),
        Step(60, (*left("db", 55), operators.volume("v1", 2, on="b")), gone=(old_pod("db"),)),
        Step(90, gone=("instance-manager-a",)),
    )
)
LONGHORN_LAST = Recording(
    (
        Step(
            0,
            (
                *roomy(
                    *operators.longhorn(
                        operators.replica("v1", "a"),
                        operators.replica("v1", "b", failed=True),
                        operators.policy("block-if-contains-last-replica"),
                    )
                ),
                vmi(on="b"),
                launcher(on="b"),
            ),
        ),
        Step(600, (operators.replica("v1", "c"),)),
    )
)
ROOK = Recording(
    (
        Step(0, roomy(*operators.rook())),
        Step(20, gone=("rook-ceph-osd-0", "rook-ceph-mon-a", "rook-ceph-mgr-a")),
        Step(60, gone=("rook-ceph-osd-1",)),
    )
)
ROOK_BUSY = Recording(
    (
        Step(0, tuple(obj for obj in roomy(*operators.rook()) if obj.name != "rook-ceph-osd")),
        Step(
            10,
            (
                operators.blocking_budget("a"),
                operators.blocking_budget("c"),
                manifest(
                    "v1",
                    "ConfigMap",
                    "rook-ceph-pdbstatemap",
                    "rook-ceph",
                    data={"draining-failure-domain": "b", "set-no-out": ""},
                ),
                operators.osd(2, "b", ready=False),
            ),
        ),
        Step(600),
    )
)

CNPG = "postgresql.cnpg.io/v1"


def postgres(instances: int, on: str = "a") -> tuple[Object, ...]:
    """Return a cluster of CloudNativePG with its primary on a node,
    and the budget of its primary.
    """
    labels = {"cnpg.io/cluster": "pg", "cnpg.io/instanceRole": "primary"}
    managed = {"app.kubernetes.io/managed-by": "cloudnative-pg"}
    return (
        manifest(
            CNPG,
            "Cluster",
            "pg",
            "shop",
            spec={"instances": instances},
            status={"readyInstances": instances},
        ),
        operators.pod("pg-1", "shop", labels, on, owner="Cluster"),
        operators.budget(
            "pg-primary",
            "shop",
            labels,
            allowed=0,
            own_labels=managed,
            owner=(CNPG, "Cluster", "pg"),
            minAvailable=1,
        ),
    )


def replica_of(role: str = "replica") -> Object:
    return operators.pod(
        "pg-2",
        "shop",
        {"cnpg.io/cluster": "pg", "cnpg.io/instanceRole": role},
        "b",
        owner="Cluster",
    )


POSTGRES = Recording(
    (Step(0, (*postgres(2), replica_of())), Step(40, (replica_of("primary"),), gone=("pg-1",)))
)
POSTGRES_ALONE = Recording((Step(0, postgres(1)), Step(1200)))


def harvester(status: str = "", **spec: Any) -> Object:
    found = node("a", unschedulable=True, **spec)
    annotations = {"harvesterhci.io/drain-requested": "true"} | (
        {"harvesterhci.io/maintain-status": status} if status else {}
    )
    taints = [{"key": "kubevirt.io/drain", "effect": "NoSchedule", "value": "scheduling"}]
    data = {**found.data, "metadata": {**found.data["metadata"], "annotations": annotations}}
    return Object({**data, "spec": {**data["spec"], "taints": taints}})


HARVESTER = Recording(
    (
        Step(0, (harvester("running"), vmi(), launcher(), vmi("web"), launcher("web"))),
        Step(30, (*copying("db", 25), migration("m-web", of="web", age=-20))),
        Step(
            90,
            (
                *left("db", 85),
                migration(
                    "m-web",
                    "Failed",
                    of="web",
                    age=-20,
                    since={"Failed": -80},
                    failed=True,
                    sourceNode="a",
                    targetNode="b",
                    failureReason="Target pod is down",
                ),
            ),
            gone=(old_pod("db"),),
        ),
        Step(
            150,
            (
                builders.vm(name="web", runStrategy="Halted"),
                vmi("web", metadata={"deletionTimestamp": at(140)}),
            ),
        ),
        Step(200, gone=("web", old_pod("web"))),
    )
)


def updating(done: bool) -> Object:
    conditions = [
        {"type": "Available", "status": "True"},
        {"type": "Progressing", "status": str(not done)},
        {"type": "Degraded", "status": str(not done), "reason": "UpdateInProgress"},
    ]
    status = {
        "phase": "Deployed",
        "observedKubeVirtVersion": "v1.9.0",
        "targetKubeVirtVersion": "v1.9.0" if done else "v1.10.0",
        "conditions": conditions,
    }
    return builders.kubevirt({"migrations": {}}, status=status)


def handlerless(name: str) -> Object:
    found = node(name)
    found.data["metadata"]["labels"] = {
        **found.data["metadata"]["labels"],
        "kubevirt.io/schedulable": "false",
    }
    return found


UPDATE = Recording(
    (
        Step(
            0,
            (
                *map(deployment, CONTROLLERS),
                *controllers("b"),
                updating(True),
                marked(),
                launcher(),
            ),
        ),
        Step(30, (updating(False), handlerless("b"))),
        Step(60, (handlerless("c"),)),
        Step(120, (node("b"), node("c"), updating(True))),
        Step(130, copying("db", 125)),
        Step(200, left("db", 195), gone=(old_pod("db"),)),
    )
)

LOCAL = {
    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "local"}}],
    "evictionStrategy": "None",
}


def local_disk() -> tuple[Object, ...]:
    """Return a claim that is bound to a volume of the node a."""
    terms = [
        {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["a"]}]}
    ]
    affinity = {"required": {"nodeSelectorTerms": terms}}
    return bound("local", "ReadWriteOnce", local={"path": "/disk"}, nodeAffinity=affinity)


def named(name: str, **spec: Any) -> Object:
    found = node(name, **spec)
    labels = {**found.data["metadata"].get("labels", {}), "kubernetes.io/hostname": name}
    return Object({**found.data, "metadata": {**found.data["metadata"], "labels": labels}})


NODE_LOCAL = Recording(
    (
        Step(
            0,
            (
                named("a", unschedulable=True),
                named("b"),
                named("c"),
                *local_disk(),
                vmi(spec=LOCAL),
                launcher(),
            ),
        ),
        Step(20, (vmi(spec=LOCAL, metadata={"deletionTimestamp": at(15)}),)),
        Step(60, gone=("db", old_pod("db"))),
    )
)

NODE_RETURNS = Recording(
    (
        Step(
            20,
            (
                *map(named, "abc"),
                *local_disk(),
                vmi(spec=LOCAL, phase="Scheduled", reported=False),
                launcher(age=-10, ready=False),
            ),
        ),
        Step(60, (vmi(spec=LOCAL), launcher(age=-10))),
    )
)

RECORDINGS = {
    "the node becomes Unknown": NODE_LOST,
    "the only virt-controller leaves with the node": CONTROLLER_LEAVES,
    "pool half done, one node cordoned by hand": POOL_HALF_DONE,
    "a Machine whose drain time-out passes": MACHINE_TIMES_OUT,
    "a Machine whose pre-drain hook stays": MACHINE_HOOK,
    "Longhorn with an engine": LONGHORN,
    "Longhorn with the last replica": LONGHORN_LAST,
    "Rook, this node first": ROOK,
    "Rook while another node drains": ROOK_BUSY,
    "CloudNativePG primary with a replica": POSTGRES,
    "CloudNativePG primary alone": POSTGRES_ALONE,
    "Harvester with one failed evacuation": HARVESTER,
    "update of KubeVirt itself": UPDATE,
    "node-local disk": NODE_LOCAL,
    "node-local disk, the node is back": NODE_RETURNS,
}
