"""OpenShift Virtualization: with ODF, with health checks of both kinds, as a hosted cluster,
and on one node.
"""

from collections.abc import Iterable, Mapping

from .case import COVERED, YES, Healthy, all_yes
from .clusters import postgres
from .machines import NON_SHARED, claim, kubevirt, machine, storage_class
from .node_health import health_check, medik8s
from .parts import (
    Object,
    budget,
    conditions,
    deployment,
    namespaces,
    node,
    obj,
    owner,
    pod,
    snapshot,
)
from .storage import rook

MASTERS = ("m0", "m1", "m2")
WORKERS = ("w0", "w1", "w2")
CONFIG = "machineconfiguration.openshift.io"
MASTER_TAINT = [{"key": "node-role.kubernetes.io/master", "effect": "NoSchedule"}]
CNV = "openshift-cnv"


def config_notes(role: str, **notes: str) -> dict[str, str]:
    name = f"rendered-{role}-1"
    at_rest = {
        "currentConfig": name,
        "desiredConfig": name,
        "state": "Done",
        "reason": "",
        "desiredDrain": f"uncordon-{name}",
        "lastAppliedDrain": f"uncordon-{name}",
    }
    return {f"{CONFIG}/{key}": value for key, value in (at_rest | notes).items()}


def pool(
    role: str,
    nodes: Iterable[str],
    target: str = "1",
    updated: int | None = None,
    unavailable: int = 0,
) -> Object:
    count = len(list(nodes))
    done = count if updated is None else updated
    spec: Object = {
        "paused": False,
        "maxUnavailable": 1,
        "configuration": {"name": f"rendered-{role}-{target}"},
    }
    spec |= {"nodeSelector": {"matchLabels": {f"node-role.kubernetes.io/{role}": ""}}}
    status: Object = {
        "machineCount": count,
        "readyMachineCount": done,
        "updatedMachineCount": done,
        "degradedMachineCount": 0,
    }
    status |= {
        "unavailableMachineCount": unavailable,
        "configuration": {"name": f"rendered-{role}-1"},
        "observedGeneration": 1,
    }
    status["conditions"] = conditions(
        Updated=done == count,
        Updating=done < count,
        Degraded=False,
        NodeDegraded=False,
        RenderDegraded=False,
    )
    return obj("MachineConfigPool", f"{CONFIG}/v1", role, spec=spec, status=status)


def openshift_machine(name: str, of: Object | None, role: str) -> Object:
    labels = {
        "machine.openshift.io/cluster-api-machine-role": role,
        "machine.openshift.io/cluster-api-machine-type": role,
    }
    metadata: Object = {"labels": labels}
    if of is not None:
        metadata["ownerReferences"] = owner(of)
        metadata["labels"] = labels | {
            "machine.openshift.io/cluster-api-machineset": of["metadata"]["name"]
        }
    status = {
        "phase": "Running",
        "nodeRef": {"kind": "Node", "name": name},
        "conditions": conditions(InstanceExists=True, Drainable=True),
    }
    space = "openshift-machine-api"
    return obj(
        "Machine",
        "machine.openshift.io/v1beta1",
        name,
        space,
        metadata=metadata,
        spec={"providerID": f"metal3://{name}"},
        status=status,
    )


def machines(workers: Iterable[str]) -> list[Object]:
    names = list(workers)
    selector = {"matchLabels": {"machine.openshift.io/cluster-api-machineset": "workers"}}
    spec = {
        "replicas": len(names),
        "selector": selector,
        "template": {"metadata": {"labels": selector["matchLabels"]}, "spec": {}},
    }
    status = {"replicas": len(names), "readyReplicas": len(names), "availableReplicas": len(names)}
    group = obj(
        "MachineSet",
        "machine.openshift.io/v1beta1",
        "workers",
        "openshift-machine-api",
        spec=spec,
        status=status,
    )
    return [
        group,
        *(openshift_machine(name, group, "worker") for name in names),
        *(openshift_machine(name, None, "master") for name in MASTERS),
    ]


def guards(space: str, component: str) -> list[Object]:
    labels = {"app": "guard"}
    ready = [
        pod(
            f"{component}-guard-{name}",
            space,
            name,
            labels,
            None,
            spec={"tolerations": [{"operator": "Exists"}]},
        )
        for name in MASTERS
    ]
    return [*ready, budget(f"{component}-guard-pdb", space, labels, 3, available=2)]


def hyperconverged(
    masters: Iterable[str], nodes: Iterable[str], release: tuple[int, int], strategy: str
) -> list[Object]:
    state = conditions(
        Available=True, Progressing=False, Degraded=False, Upgradeable=True, ReconcileComplete=True
    )
    limits = {
        "parallelMigrationsPerCluster": 5,
        "parallelOutboundMigrationsPerNode": 2,
        "completionTimeoutPerGiB": 150,
        "progressTimeout": 150,
    }
    spec = {
        "evictionStrategy": strategy,
        "liveMigrationConfig": limits,
        "workloadUpdateStrategy": {"workloadUpdateMethods": ["LiveMigrate"]},
    }
    found = [
        obj(
            "HyperConverged",
            "hco.kubevirt.io/v1beta1",
            "kubevirt-hyperconverged",
            CNV,
            spec=spec,
            status={"conditions": state},
        )
    ]
    migrations = {
        "migrations": limits | {"allowAutoConverge": False, "allowPostCopy": False},
        "evictionStrategy": strategy,
    }
    return found + kubevirt(
        release, masters, nodes, namespace=CNV, configuration=migrations, managed=True
    )


def cluster(
    release: tuple[int, int] = (1, 6),
    worker_notes: Mapping[str, Mapping[str, str]] = {},
    states: Mapping[str, Object] = {},
) -> list[Object]:
    found = namespaces(
        "vms",
        CNV,
        "openshift-etcd",
        "openshift-machine-api",
        "openshift-image-registry",
        "openshift-ingress",
    )
    topology = {
        "controlPlaneTopology": "HighlyAvailable",
        "infrastructureTopology": "HighlyAvailable",
        "platform": "VSphere",
    }
    found.append(obj("Infrastructure", "config.openshift.io/v1", "cluster", status=topology))
    for name in MASTERS:
        notes = config_notes("master") | {
            "machine.openshift.io/machine": f"openshift-machine-api/{name}"
        }
        found.append(
            node(
                name,
                None,
                roles=("control-plane", "master"),
                annotations=notes,
                taints=MASTER_TAINT,
            )
        )
    for name in WORKERS:
        notes = config_notes("worker", **worker_notes.get(name, {})) | {
            "machine.openshift.io/machine": f"openshift-machine-api/{name}"
        }
        found.append(node(name, release, annotations=notes, **states.get(name, {})))
    found += hyperconverged(MASTERS, WORKERS, release, "LiveMigrate") + machines(WORKERS)
    for space, component in (
        ("openshift-etcd", "etcd"),
        ("openshift-kube-apiserver", "kube-apiserver"),
        ("openshift-kube-controller-manager", "kube-controller-manager"),
        ("openshift-kube-scheduler", "openshift-kube-scheduler"),
    ):
        found += guards(space, component)
    registry, router = (
        {"docker-registry": "default"},
        {"ingresscontroller.operator.openshift.io/deployment-ingresscontroller": "default"},
    )
    found += deployment("image-registry", "openshift-image-registry", WORKERS[1:], registry)
    found.append(budget("image-registry", "openshift-image-registry", registry, 2, available=1))
    found += deployment("router-default", "openshift-ingress", WORKERS[1:], router)
    found.append(budget("router-default", "openshift-ingress", router, 2, unavailable="50%"))
    prometheus = {"app.kubernetes.io/name": "prometheus", "prometheus": "k8s"}
    found += deployment(
        "prometheus-k8s", "openshift-monitoring", WORKERS[1:], prometheus, kind="StatefulSet"
    )
    found.append(budget("prometheus-k8s", "openshift-monitoring", prometheus, 2, available=1))
    return [*found, pool("master", MASTERS), *namespaces("openshift-monitoring")]


def guests() -> list[Object]:
    found: list[Object] = []
    for name, place in zip(("web", "db", "queue"), WORKERS, strict=True):
        found += machine(name, place, effective="LiveMigrate", disks=[name]) + claim(
            name, storage_class="block"
        )
    return found


MIGRATE = dict.fromkeys(("web", "db", "queue"), "migrates")


def with_odf() -> Healthy:
    items = [
        *cluster(),
        pool("worker", WORKERS),
        health_check(),
        *guests(),
        *rook(WORKERS, 3, "HEALTH_OK", "openshift-storage"),
    ]
    items += deployment(
        "noobaa-core", "openshift-storage", ["w1"], {"noobaa-core": "noobaa"}, kind="StatefulSet"
    )
    items += postgres("openshift-storage", "postgresql.cnpg.noobaa.io", WORKERS)
    source = (
        "openshift/library-go:pkg/operator/staticpod/controller/guard/guard_controller.go; "
        "rook/rook:…/clusterdisruption/osd.go"
    )
    return Healthy(
        "openshift-odf-mhc",
        source,
        snapshot(items),
        all_yes(MASTERS + WORKERS),
        MIGRATE,
        outage=("w0", YES),
        findings=COVERED,
    )


def with_node_health_check() -> Healthy:
    items = [
        *cluster((1, 8)),
        pool("worker", WORKERS),
        *guests(),
        *medik8s(MASTERS + WORKERS),
        *storage_class("block", "csi.example.com"),
    ]
    source = (
        "medik8s/node-healthcheck-operator:internal/controller/"
        "nodehealthcheck_controller.go#Reconcile"
    )
    return Healthy(
        "openshift-nhc-snr",
        source,
        snapshot(items),
        all_yes(MASTERS + WORKERS),
        MIGRATE,
        outage=("w0", YES),
        findings=COVERED,
        wider=True,
    )


def hosted() -> Healthy:
    names = ("hc-a", "hc-b", "hc-c")
    items = namespaces("vms", CNV) + storage_class("block", "csi.example.com")
    labels = {"hypershift.openshift.io/nodePool": "hc-pool"}
    notes = {
        name: config_notes("worker") | {"cluster.x-k8s.io/machine": f"hc-pool-{name}"}
        for name in names
    }
    items += [node(name, labels=labels, annotations=notes[name]) for name in names]
    topology = {"controlPlaneTopology": "External", "infrastructureTopology": "HighlyAvailable"}
    items.append(obj("Infrastructure", "config.openshift.io/v1", "cluster", status=topology))
    # HCO places the components on workers where the control plane is external.
    workers = {"nodeSelector": {"kubernetes.io/os": "linux"}}
    state = conditions(Available=True, Progressing=False, Degraded=False)
    items.append(
        obj(
            "HyperConverged",
            "hco.kubevirt.io/v1beta1",
            "kubevirt-hyperconverged",
            CNV,
            spec={},
            status={"conditions": state},
        )
    )
    items += kubevirt(
        (1, 6),
        names,
        names,
        namespace=CNV,
        configuration={"evictionStrategy": "LiveMigrate"},
        infra=workers,
    )
    items += machine("web", "hc-a", effective="LiveMigrate", disks=["web"]) + claim("web")
    source = (
        "kubevirt/hyperconverged-cluster-operator:controllers/handlers/kubevirt.go (External "
        "topology); openshift/hypershift:api NodePool"
    )
    return Healthy(
        "hypershift-hosted",
        source,
        snapshot(items),
        all_yes(names),
        {"web": "migrates"},
        findings=COVERED,
        wider=True,
    )


def single_node() -> Healthy:
    roles = ("control-plane", "master", "worker")
    items = namespaces("vms", CNV) + storage_class("topolvm", "topolvm.io")
    items.append(
        node(
            "sno",
            roles=roles,
            annotations=config_notes("master"),
            labels={"topology.topolvm.io/node": "sno"},
        )
    )
    topology = {"controlPlaneTopology": "SingleReplica", "infrastructureTopology": "SingleReplica"}
    items.append(obj("Infrastructure", "config.openshift.io/v1", "cluster", status=topology))
    items += [
        *hyperconverged(["sno"], ["sno"], (1, 6), "None"),
        pool("master", ["sno"]),
        pool("worker", []),
    ]
    local = claim(
        "web",
        modes=("ReadWriteOnce",),
        storage_class="topolvm",
        driver="topolvm.io",
        affinity={"topology.topolvm.io/node": "sno"},
    )
    state = NON_SHARED | {"message": NON_SHARED["message"].format("web")}
    items += machine("web", "sno", effective="None", disks=["web"], migratable=state) + local
    source = (
        "kubevirt/hyperconverged-cluster-operator: evictionStrategy None on SingleReplica; "
        "guard_controller.go#Sync (no guards)"
    )
    return Healthy(
        "openshift-single-node",
        source,
        snapshot(items),
        {"sno": YES},
        {"web": "waits for its node"},
        upgrade=YES,
        findings=COVERED,
    )


def openshifts() -> list[Healthy]:
    return [with_odf(), with_node_health_check(), hosted(), single_node()]
