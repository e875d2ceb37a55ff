"""Harvester with Longhorn, and Rook-Ceph: budgets that make way by themselves."""

from collections.abc import Iterable

from .case import COVERED, NEVER_UPDATED, YES, Healthy, all_yes
from .machines import HOST_DEVICE, INFRA, claim, kubevirt, machine, storage_class
from .parts import (
    Object,
    ago,
    budget,
    conditions,
    deployment,
    namespaces,
    node,
    obj,
    pod,
    service,
    snapshot,
    webhook,
)

LONGHORN = "driver.longhorn.io"
HARVESTER = ("h1", "h2", "h3")


def instance_manager(on: str) -> list[Object]:
    labels = {
        "longhorn.io/component": "instance-manager",
        "longhorn.io/instance-manager-image": "imi-4d41ed3b",
        "longhorn.io/instance-manager-type": "aio",
        "longhorn.io/managed-by": "longhorn-manager",
        "longhorn.io/node": on,
        "longhorn.io/data-engine": "v1",
    }
    name = f"instance-manager-{on}7c2a"
    spec = {
        "nodeID": on,
        "type": "aio",
        "dataEngine": "v1",
        "image": "longhornio/longhorn-instance-manager:v1.7.2",
    }
    status = {
        "currentState": "running",
        "instanceEngines": {},
        "instanceReplicas": {},
        "ownerID": on,
    }
    manager = obj(
        "InstanceManager",
        "longhorn.io/v1beta2",
        name,
        "longhorn-system",
        metadata={"labels": labels},
        spec=spec,
        status=status,
    )
    space = "longhorn-system"
    return [
        manager,
        pod(name, space, on, labels, manager),
        budget(name, space, labels, 1, available=1),
    ]


def longhorn_volume(name: str, on: str | None, replicas: Iterable[str]) -> list[Object]:
    """Return a migratable volume; `on` is the node that it is attached to."""
    volume, state, places = f"pvc-vms-{name}", "running" if on else "stopped", list(replicas)
    spec = {
        "nodeID": on or "",
        "numberOfReplicas": len(places),
        "accessMode": "rwx",
        "migratable": True,
    }
    status = {"state": "attached" if on else "detached", "currentNodeID": on or ""}
    status["robustness"] = "healthy" if on else "unknown"
    engine = {"nodeID": on or "", "volumeName": volume, "desireState": state}
    return [
        _longhorn("Volume", volume, spec, status),
        _longhorn("Engine", f"{volume}-e-0", engine, {"currentState": state}),
        *(_longhorn_replica(volume, place, state) for place in places),
    ]


def _longhorn_replica(volume: str, place: str, state: str) -> Object:
    spec = {
        "nodeID": place,
        "volumeName": volume,
        "healthyAt": ago(days=3),
        "failedAt": "",
        "desireState": state,
    }
    manager = f"instance-manager-{place}7c2a" if state == "running" else ""
    status = {"currentState": state, "instanceManagerName": manager, "ownerID": place}
    made = _longhorn("Replica", f"{volume}-r-{place}", spec | {"active": True}, status)
    made["metadata"]["labels"] = {"longhornvolume": volume, "longhornnode": place}
    return made


def _longhorn(kind: str, name: str, spec: Object, status: Object) -> Object:
    return obj(kind, "longhorn.io/v1beta2", name, "longhorn-system", spec=spec, status=status)


def longhorn(nodes: Iterable[str], policy: str) -> list[Object]:
    places, space = list(nodes), "longhorn-system"
    found = [
        obj(
            "Setting",
            "longhorn.io/v1beta2",
            "node-drain-policy",
            space,
            value=policy,
            status={"applied": True},
        )
    ]
    for place in places:
        found += instance_manager(place)
        ready = {
            "conditions": [{"type": kind, "status": "True"} for kind in ("Ready", "Schedulable")]
        }
        found.append(
            obj(
                "Node",
                "longhorn.io/v1beta2",
                place,
                space,
                spec={"allowScheduling": True},
                status=ready,
            )
        )
    found += deployment(
        "longhorn-manager", space, places, {"app": "longhorn-manager"}, kind="DaemonSet"
    )
    for name in ("csi-attacher", "csi-provisioner"):
        found += deployment(name, space, (places * 3)[:3], {"app": name})
        found.append(budget(name, space, {"app": name}, 3, available=1))
    found += service("longhorn-admission-webhook", space, {"app": "longhorn-manager"}, places)
    rules = {
        "validator.longhorn.io": (
            "longhorn.io",
            ["volumes", "settings", "nodes", "replicas"],
            ["CREATE", "UPDATE", "DELETE"],
        )
    }
    found.append(
        webhook(
            "Validating", "longhorn-webhook-validator", (space, "longhorn-admission-webhook"), rules
        )
    )
    return found + storage_class("harvester-longhorn", LONGHORN)


def harvester(
    release: tuple[int, int],
    names: Iterable[str],
    policy: str,
    webhooks: int = 3,
    drained: Iterable[str] | None = None,
) -> list[Object]:
    """Return nodes, KubeVirt in harvester-system, Longhorn and Harvester's own webhooks."""
    places = list(names)
    workers = list(drained) if drained is not None else places
    space = "harvester-system"
    found = namespaces("vms", space, "longhorn-system")
    reset = '{"enable":true,"period":300}'
    found.append(
        obj("Setting", "harvesterhci.io/v1beta1", "vm-force-reset-policy", default=reset, value="")
    )
    managed = {"harvesterhci.io/managed": "true", "network.harvesterhci.io/mgmt": "true"}
    for place in places:
        witness = place not in workers
        taints = (
            [{"key": "node-role.kubernetes.io/etcd", "value": "true", "effect": "NoExecute"}]
            if witness
            else []
        )
        roles = ("etcd",) if witness else ("control-plane", "etcd", "master")
        found.append(
            node(place, None if witness else release, roles=roles, labels=managed, taints=taints)
        )
    gates = {
        "developerConfiguration": {
            "featureGates": ["LiveMigration", "HotplugVolumes", "HostDevices", "GPU"]
        }
    }
    found += kubevirt(
        release, workers, workers, namespace=space, configuration=gates | {"network": {}}
    )
    return found + longhorn(workers, policy) + _own_parts(workers, webhooks)


def _own_parts(workers: list[str], webhooks: int) -> list[Object]:
    """Return Harvester itself and its webhooks, of which the one that validates fails closed."""
    space, labels = "harvester-system", {"app.kubernetes.io/component": "webhook-server"}
    places, target = (workers * 3)[:3], (space, "harvester-webhook")
    judged = {
        "validator.harvesterhci.io": (
            "kubevirt.io",
            ["virtualmachines"],
            ["CREATE", "UPDATE", "DELETE"],
        ),
        "validator-core.harvesterhci.io": (
            "",
            ["nodes", "persistentvolumeclaims", "namespaces", "secrets"],
            ["UPDATE", "DELETE"],
        ),
    }
    changed = {
        "mutator.harvesterhci.io": ("", ["pods", "persistentvolumeclaims"], ["CREATE"]),
        "mutator-kubevirt.harvesterhci.io": (
            "kubevirt.io",
            ["virtualmachines", "virtualmachineinstances"],
            ["CREATE", "UPDATE"],
        ),
    }
    return [
        *deployment("harvester", space, places, {"app.kubernetes.io/name": "harvester"}),
        *deployment("harvester-webhook", space, places[:webhooks], labels),
        *service("harvester-webhook", space, labels, places[:webhooks]),
        webhook("Validating", "harvester-validator", target, judged),
        webhook("Mutating", "harvester-mutator", target, changed, policy="Ignore"),
    ]


def harvester_vm(
    name: str,
    on: str,
    release: tuple[int, int],
    replicas: Iterable[str] = HARVESTER,
    **fields: object,
) -> list[Object]:
    volume = claim(name, storage_class="harvester-longhorn", driver=LONGHORN)
    options: Object = {
        "strategy": "LiveMigrateIfPossible",
        "run": "RerunOnFailure",
        "disks": [name],
    } | fields
    return machine(name, on, release, **options) + volume + longhorn_volume(name, on, replicas)


MANAGER = (
    "longhorn/longhorn-manager:controller/"
    "instance_manager_controller.go#canDeleteInstanceManagerPDB"
)
REFUSES = "harvester/harvester:pkg/webhook/resources/upgrade/validator.go#checkResources"
STOPPED = "allow-if-replica-is-stopped"


def three_replicas() -> Healthy:
    items = (
        harvester((1, 1), HARVESTER, STOPPED)
        + harvester_vm("web", "h1", (1, 1))
        + harvester_vm("db", "h2", (1, 1))
    )
    source = (
        f"{MANAGER}; harvester/harvester:package/upgrade/upgrade_manifests.sh (nodeDrainPolicy)"
    )
    vms = {"web": "migrates", "db": "migrates"}
    loss = ("h1", YES)
    return Healthy(
        "harvester-1.3",
        source,
        snapshot(items),
        all_yes(HARVESTER),
        vms,
        outage=loss,
        findings=COVERED,
    )


def default_policy() -> Healthy:
    items = harvester((1, 3), HARVESTER, "block-if-contains-last-replica", webhooks=1)
    items += harvester_vm("web", "h1", (1, 3)) + harvester_vm(
        "db", "h2", (1, 3), replicas=("h2", "h3")
    )
    vms = {"web": "migrates", "db": "migrates"}
    return Healthy(
        "harvester-1.4", MANAGER, snapshot(items), all_yes(HARVESTER), vms, findings=COVERED
    )


def with_gpu() -> Healthy:
    """Return a cluster with a VM on a GPU of which another node has one too,
    and a stopped VM with a single replica. Both are steps at the start of an upgrade.
    """
    items = harvester((1, 4), HARVESTER, STOPPED)
    for each in items:
        if (
            each["kind"] == "Node"
            and each["apiVersion"] == "v1"
            and each["metadata"]["name"] != "h3"
        ):
            each["status"]["allocatable"]["nvidia.com/A2"] = each["status"]["capacity"][
                "nvidia.com/A2"
            ] = "1"
    device = {"devices": {"hostDevices": [{"deviceName": "nvidia.com/A2", "name": "gpu"}]}}
    options: Object = {
        "migratable": HOST_DEVICE,
        "domain": device,
        "requests": {"nvidia.com/A2": "1"},
        "run": "Always",
    }
    items += harvester_vm("train", "h1", (1, 4), **options)
    items += longhorn_volume("stopped", None, ["h1"])
    items += claim("stopped", storage_class="harvester-longhorn", driver=LONGHORN)
    release = {"value": "v1.5.2", "default": ""}
    items.append(obj("Setting", "harvesterhci.io/v1beta1", "server-version", **release))
    vms = {"train": "restarts elsewhere"}
    source = f"{MANAGER} (stopped replicas do not count); {REFUSES}"
    return Healthy(
        "harvester-1.5-gpu",
        source,
        snapshot(items),
        all_yes(HARVESTER),
        vms,
        findings=NEVER_UPDATED,
    )


def with_witness() -> Healthy:
    """Return two nodes with VMs and a witness, after an upgrade that succeeded."""
    items = harvester((1, 5), ("h1", "h2", "w1"), STOPPED, drained=("h1", "h2"))
    labels = {"harvesterhci.io/latestUpgrade": "true", "harvesterhci.io/upgradeState": "Succeeded"}
    done = {key: {"state": "Succeeded"} for key in ("h1", "h2", "w1")}
    status = {"nodeStatuses": done, "conditions": conditions(Completed=True)}
    upgrade = obj(
        "Upgrade", "harvesterhci.io/v1beta1", "hvst-upgrade-x", "harvester-system", status=status
    )
    upgrade["metadata"]["labels"] = labels
    items += [
        upgrade | {"spec": {"version": "v1.6.0"}},
        *harvester_vm("web", "h1", (1, 5), replicas=("h1", "h2")),
    ]
    source = f"{MANAGER}; harvester/docs:docs/advanced/witness.md"
    nodes, vms, loss = all_yes(("h1", "h2")), {"web": "migrates"}, ("h1", YES)
    return Healthy(
        "harvester-1.6-witness", source, snapshot(items), nodes, vms, outage=loss, findings=COVERED
    )


def harvesters() -> list[Healthy]:
    return [three_replicas(), default_policy(), with_gpu(), with_witness()]


def rook(hosts: Iterable[str], mons: int, health: str, space: str = "rook-ceph") -> list[Object]:
    places = list(hosts)
    spec = {"mon": {"count": mons}, "disruptionManagement": {"managePodBudgets": True}}
    state = {"phase": "Ready", "state": "Created", "ceph": {"health": health}}
    cluster = obj(
        "CephCluster", "ceph.rook.io/v1", f"{space}-cluster", space, spec=spec, status=state
    )
    found = [cluster, *namespaces(space)]
    for index, place in enumerate(place for place in places for _ in range(2)):
        labels = {
            "app": "rook-ceph-osd",
            "ceph-osd-id": str(index),
            "topology-location-host": place,
        }
        found += pinned(f"rook-ceph-osd-{index}", space, place, labels | {"failure-domain": place})
    osds = 2 * len(places)
    found.append(
        budget("rook-ceph-osd", space, {"app": "rook-ceph-osd"}, osds, unavailable=1, of=cluster)
    )
    for letter, place in zip("abcde"[:mons], places * 2, strict=False):
        found += pinned(
            f"rook-ceph-mon-{letter}", space, place, {"app": "rook-ceph-mon", "mon": letter}
        )
    found.append(
        budget(
            "rook-ceph-mon-pdb",
            space,
            {"app": "rook-ceph-mon"},
            mons,
            unavailable=2 if mons >= 5 else 1,
        )
    )
    found += rook_services(space, places[:2], cluster)
    found += deployment("rook-ceph-operator", space, places[:1], {"app": "rook-ceph-operator"})
    state_map = {"draining-failure-domain": "", "set-no-out": ""}
    found.append(obj("ConfigMap", "v1", "rook-ceph-pdbstatemap", space, data=state_map))
    return found + storage_class("block", "rook-ceph.rbd.csi.ceph.com")


def pinned(name: str, space: str, place: str, labels: dict[str, str]) -> list[Object]:
    return deployment(
        name, space, [place], labels, spec={"nodeSelector": {"kubernetes.io/hostname": place}}
    )


def rook_services(space: str, places: Iterable[str], cluster: Object) -> list[Object]:
    """Return two managers, metadata servers and gateways, each with the budget that Rook writes."""
    ready = {"phase": "Ready"}
    owners = {
        "rook-ceph-mgr": cluster,
        "rook-ceph-mds": obj(
            "CephFilesystem", "ceph.rook.io/v1", "store", space, spec={}, status=ready
        ),
        "rook-ceph-rgw": obj(
            "CephObjectStore", "ceph.rook.io/v1", "store", space, spec={}, status=ready
        ),
    }
    found = [each for each in owners.values() if each is not cluster]
    for app, of in owners.items():
        for letter, place in zip("ab", places, strict=False):
            found += deployment(f"{app}-{letter}", space, [place], {"app": app, "instance": letter})
        name = f"{app}-pdb" if of is cluster else f"{app}-store"
        found.append(budget(name, space, {"app": app}, 2, unavailable=1, of=of))
    return found


def rooks() -> list[Healthy]:
    source = "rook/rook:pkg/operator/ceph/disruption/clusterdisruption/osd.go#reconcilePDBsForOSDs"
    found = []
    for count, mons, health in ((3, 3, "HEALTH_OK"), (5, 5, "HEALTH_WARN")):
        names = [f"w{index}" for index in range(1, count + 1)]
        items = (
            namespaces("vms")
            + [node(name, roles=("control-plane", "worker")) for name in names]
            + kubevirt((1, 6), names, names, infra=INFRA)
        )
        items += rook(names, mons, health)
        for index, name in enumerate(("web", "db", "queue")):
            items += machine(name, names[index], strategy="LiveMigrate", disks=[name]) + claim(name)
        outcomes = dict.fromkeys(("web", "db", "queue"), "migrates")
        found.append(
            Healthy(f"rook-{count}-hosts", source, snapshot(items), all_yes(names), outcomes)
        )
    return found
