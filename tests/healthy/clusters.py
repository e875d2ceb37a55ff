"""Small, hosted and Cluster API clusters, and operators that own budgets."""

from collections.abc import Iterable

from .case import COVERED, UNKNOWN, YES, Healthy, all_yes
from .machines import NON_SHARED, claim, kubevirt, machine, storage_class
from .parts import (
    Object,
    budget,
    conditions,
    deployment,
    namespaces,
    node,
    obj,
    owner,
    service,
    snapshot,
    webhook,
)
from .releases import MASTERS, TAINT, WORKERS

CAPI = "cluster.x-k8s.io/v1beta1"


def plain(release: tuple[int, int] = (1, 6), **fields: object) -> list[Object]:
    """Return three control-plane nodes, three workers and KubeVirt."""
    items = namespaces("vms", "kubevirt") + storage_class("block", "rook-ceph.rbd.csi.ceph.com")
    items += [node(name, None, roles=("control-plane",), taints=TAINT) for name in MASTERS]
    options: Object = {"cpu_manager": True} | fields
    items += [node(name, release, **options) for name in WORKERS]
    return items + kubevirt(release, MASTERS, WORKERS)


def k3s() -> Healthy:
    items = [*namespaces("vms", "kubevirt"), node("edge", roles=("control-plane", "master"))]
    items += kubevirt((1, 6), ["edge"], ["edge"]) + storage_class(
        "local-path", "rancher.io/local-path"
    )
    items += deployment(
        "local-path-provisioner", "kube-system", ["edge"], {"app": "local-path-provisioner"}
    )
    local = claim(
        "app",
        modes=("ReadWriteOnce",),
        volume_mode="Filesystem",
        storage_class="local-path",
        affinity={"kubernetes.io/hostname": "edge"},
    )
    state = NON_SHARED | {"message": NON_SHARED["message"].format("app")}
    items += machine("app", "edge", strategy="None", disks=["app"], migratable=state) + local
    source = (
        "kubevirt/kubevirt:pkg/virt-operator/resource/apply/"
        "apps.go#syncPodDisruptionBudgetForDeployment (none with one replica)"
    )
    return Healthy(
        "k3s-single-node",
        source,
        snapshot(items),
        {"edge": YES},
        {"app": "waits for its node"},
        upgrade=YES,
        findings=COVERED,
    )


def capi_machine(name: str, of: Object, cluster: str, *, control_plane: bool) -> list[Object]:
    labels = {"cluster.x-k8s.io/cluster-name": cluster}
    labels |= (
        {"cluster.x-k8s.io/control-plane": ""}
        if control_plane
        else {"cluster.x-k8s.io/deployment-name": "workers"}
    )
    spec = {
        "clusterName": cluster,
        "version": "v1.33.4",
        "providerID": f"metal3://{name}",
        "nodeDrainTimeout": "0s",
    }
    status = {"phase": "Running", "nodeRef": {"kind": "Node", "name": name, "apiVersion": "v1"}}
    status["conditions"] = conditions(
        Ready=True,
        BootstrapReady=True,
        InfrastructureReady=True,
        NodeHealthy=True,
        HealthCheckSucceeded=True,
    )
    return [
        obj(
            "Machine",
            CAPI,
            name,
            "capi",
            metadata={"labels": labels, "ownerReferences": owner(of)},
            spec=spec,
            status=status,
        )
    ]


def capi_check(name: str, labels: dict[str, str], limit: str) -> Object:
    bad = [
        {"type": "Ready", "status": status, "timeout": "300s"} for status in ("Unknown", "False")
    ]
    spec = {
        "clusterName": "c1",
        "selector": {"matchLabels": labels},
        "unhealthyConditions": bad,
        "maxUnhealthy": limit,
        "nodeStartupTimeout": "10m",
    }
    status = {
        "expectedMachines": 3,
        "currentHealthy": 3,
        "remediationsAllowed": 1,
        "conditions": conditions(RemediationAllowed=True),
    }
    return obj("MachineHealthCheck", CAPI, name, "capi", spec=spec, status=status)


def control_plane(talos: bool) -> list[Object]:
    """Return a Cluster and the object that owns its control-plane machines."""
    group = "controlplane.cluster.x-k8s.io"
    kind, version = (
        ("TalosControlPlane", "v1alpha3") if talos else ("KubeadmControlPlane", "v1beta1")
    )
    reference = {
        "apiVersion": f"{group}/{version}",
        "kind": kind,
        "name": "c1-cp",
        "namespace": "capi",
    }
    state = dict.fromkeys(
        ("Ready", "ControlPlaneInitialized", "ControlPlaneReady", "InfrastructureReady"), True
    )
    status: Object = {
        "phase": "Provisioned",
        "infrastructureReady": True,
        "controlPlaneReady": True,
    }
    status["conditions"] = conditions(**state)
    ready: Object = dict.fromkeys(("replicas", "readyReplicas", "updatedReplicas"), 3)
    ready |= {
        "initialized": True,
        "ready": True,
        "conditions": conditions(Ready=True, Available=True),
    }
    spec = {"replicas": 3, "version": "v1.33.4"}
    return [
        obj(kind, f"{group}/{version}", "c1-cp", "capi", spec=spec, status=ready),
        obj("Cluster", CAPI, "c1", "capi", spec={"controlPlaneRef": reference}, status=status),
    ]


def worker_machines() -> list[Object]:
    """Return the MachineSet of the workers, and its MachineDeployment."""
    selector = {
        "cluster.x-k8s.io/cluster-name": "c1",
        "cluster.x-k8s.io/deployment-name": "workers",
    }
    inner = {"clusterName": "c1", "version": "v1.33.4", "nodeDrainTimeout": "0s"}
    spec: Object = {"clusterName": "c1", "replicas": 3, "selector": {"matchLabels": selector}}
    spec["template"] = {"metadata": {"labels": selector}, "spec": inner}
    spec["strategy"] = {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
    }
    status: Object = dict.fromkeys(
        ("replicas", "readyReplicas", "updatedReplicas", "availableReplicas"), 3
    )
    status |= {"phase": "Running", "conditions": conditions(Ready=True, Available=True)}
    top = obj("MachineDeployment", CAPI, "workers", "capi", spec=spec, status=status)
    metadata: Object = {"labels": selector, "ownerReferences": owner(top)}
    metadata["annotations"] = {"machinedeployment.clusters.x-k8s.io/revision": "1"}
    return [
        obj("MachineSet", CAPI, "workers-x7", "capi", metadata=metadata, spec=spec, status=status),
        top,
    ]


def cluster_api(talos: bool) -> Healthy:
    control, workers = control_plane(talos), worker_machines()
    items = plain() + namespaces("capi")
    for each in items:
        if each["kind"] == "Node":
            name = each["metadata"]["name"]
            each["metadata"]["annotations"] |= {
                "cluster.x-k8s.io/machine": name,
                "cluster.x-k8s.io/cluster-name": "c1",
            }
    items += control + workers
    items += [
        each
        for name in MASTERS
        for each in capi_machine(name, control[0], "c1", control_plane=True)
    ]
    items += [
        each
        for name in WORKERS
        for each in capi_machine(name, workers[0], "c1", control_plane=False)
    ]
    items.append(capi_check("workers", {"cluster.x-k8s.io/deployment-name": "workers"}, "40%"))
    if not talos:
        items.append(capi_check("control-plane", {"cluster.x-k8s.io/control-plane": ""}, "40%"))
    for vm, place in (("web", "w1"), ("db", "w2")):
        items += machine(vm, place, strategy="LiveMigrate", disks=[vm]) + claim(vm)
    return Healthy(
        "capi-talos" if talos else "capi-kubeadm",
        "kubernetes-sigs/cluster-api:core/reconcilers/machine/machine_controller.go#drainNode",
        snapshot(items),
        all_yes(MASTERS + WORKERS),
        {"web": "migrates", "db": "migrates"},
        outage=("w1", YES),
        findings=COVERED,
        wider=True,
    )


def _node_pool() -> Object:
    pool = {
        "clusterName": "guest",
        "replicas": 2,
        "platform": {"type": "KubeVirt"},
        "management": {"upgradeType": "Replace", "autoRepair": True},
    }
    state = {
        "replicas": 2,
        "conditions": conditions(Ready=True, AllNodesHealthy=True, AllMachinesReady=True),
    }
    version = "hypershift.openshift.io/v1beta1"
    return obj("NodePool", version, "guest", "clusters", spec=pool, status=state)


def hypershift_management() -> Healthy:
    """Return a cluster that hosts another one:
    its nodes are VMs that Cluster API's provider evacuates.
    """
    items = plain((1, 6)) + namespaces("clusters-guest")
    items.append(_node_pool())
    for name, place in (("guest-a", "w1"), ("guest-b", "w2")):
        worker = obj(
            "KubevirtMachine",
            "infrastructure.cluster.x-k8s.io/v1alpha1",
            name,
            "clusters-guest",
            spec={},
            status={"ready": True},
        )
        labels = {
            "capk.cluster.x-k8s.io/kubevirt-machine-name": name,
            "capk.cluster.x-k8s.io/kubevirt-machine-namespace": "clusters-guest",
        }
        labels |= {
            "cluster.x-k8s.io/cluster-name": "guest",
            "hypershift.openshift.io/nodePool": "guest",
        }
        disks = claim(f"{name}-rhcos", "clusters-guest")
        items += [worker, *disks]
        items += machine(
            name,
            place,
            namespace="clusters-guest",
            strategy="External",
            disks=[f"{name}-rhcos"],
            labels=labels,
            of=worker,
        )
    source = (
        "kubernetes-sigs/cluster-api-provider-kubevirt:pkg/kubevirt/machine.go#DrainNodeIfNeeded"
    )
    nodes = all_yes((*MASTERS, "w3")) | {"w1": UNKNOWN, "w2": UNKNOWN}
    return Healthy(
        "hypershift-management",
        source,
        snapshot(items),
        nodes,
        {"guest-a": "unknown", "guest-b": "unknown"},
        upgrade=UNKNOWN,
    )


def postgres(
    space: str, group: str = "postgresql.cnpg.io", on: Iterable[str] = WORKERS
) -> list[Object]:
    status = {
        "readyInstances": 3,
        "instances": 3,
        "currentPrimary": "pg-1",
        "targetPrimary": "pg-1",
        "phase": "Cluster in healthy state",
    }
    top = obj(
        "Cluster",
        f"{group}/v1",
        "pg",
        space,
        spec={"instances": 3, "enablePDB": True},
        status=status,
    )
    found = [top]
    for index, place in enumerate(on, start=1):
        role = "primary" if index == 1 else "replica"
        labels = {
            "cnpg.io/cluster": "pg",
            "cnpg.io/instanceRole": role,
            "cnpg.io/instanceName": f"pg-{index}",
        }
        found.append(deployment("x", space, [place], labels)[2])
        found[-1]["metadata"] |= {
            "name": f"pg-{index}",
            "uid": f"uid-pg-{index}",
            "ownerReferences": owner(top),
        }
    managed = {"app.kubernetes.io/managed-by": "cloudnative-pg", "cnpg.io/cluster": "pg"}
    primary, replica = (
        {"cnpg.io/cluster": "pg", "cnpg.io/instanceRole": role} for role in ("primary", "replica")
    )
    found.append(budget("pg-primary", space, primary, 1, available=1, of=top, labels=managed))
    return [*found, budget("pg", space, replica, 2, available=1, of=top, labels=managed)]


def kafka(space: str) -> list[Object]:
    top = obj(
        "Kafka",
        "kafka.strimzi.io/v1beta2",
        "events",
        space,
        spec={},
        status={"conditions": conditions(Ready=True)},
    )
    brokers = obj(
        "StrimziPodSet",
        "core.strimzi.io/v1beta2",
        "events-broker",
        space,
        metadata={"ownerReferences": owner(top)},
        spec={},
        status={"pods": 3, "readyPods": 3},
    )
    labels = {
        "strimzi.io/cluster": "events",
        "strimzi.io/name": "events-kafka",
        "strimzi.io/kind": "Kafka",
    }
    found = [top, brokers]
    for index, place in enumerate(WORKERS):
        found.append(deployment("x", space, [place], labels)[2])
        found[-1]["metadata"] |= {
            "name": f"events-broker-{index}",
            "uid": f"uid-events-{index}",
            "ownerReferences": owner(brokers),
        }
    chosen = {
        "strimzi.io/cluster": "events",
        "strimzi.io/kind": "Kafka",
        "strimzi.io/name": "events-kafka",
    }
    found.append(
        budget(
            "events-kafka",
            space,
            chosen,
            3,
            unavailable=0,
            of=top,
            labels={"strimzi.io/cluster": "events"},
        )
    )
    cleaner = "strimzi-drain-cleaner"
    found += deployment(cleaner, cleaner, ["w1", "w2"], {"app": cleaner}) + service(
        cleaner, cleaner, {"app": cleaner}, ["w1", "w2"]
    )
    rules = {f"{cleaner}.strimzi.io": ("", ["pods/eviction"], ["CREATE"])}
    return [
        *found,
        webhook("Validating", cleaner, (cleaner, cleaner), rules, policy="Ignore"),
        *namespaces(cleaner),
    ]


def elastic(space: str) -> list[Object]:
    spec = {"version": "8.15.0", "nodeSets": [{"name": "default", "count": 3}]}
    top = obj(
        "Elasticsearch",
        "elasticsearch.k8s.elastic.co/v1",
        "logs",
        space,
        spec=spec,
        status={"health": "green", "phase": "Ready", "availableNodes": 3},
    )
    labels = {
        "elasticsearch.k8s.elastic.co/cluster-name": "logs",
        "common.k8s.elastic.co/type": "elasticsearch",
    }
    roles = {
        f"elasticsearch.k8s.elastic.co/node-{role}": "true" for role in ("master", "data", "ingest")
    }
    found = [
        top,
        *deployment("logs-es-default", space, WORKERS, labels | roles, kind="StatefulSet"),
    ]
    return [
        *found,
        budget(
            "logs-es-default",
            space,
            {"elasticsearch.k8s.elastic.co/cluster-name": "logs"},
            3,
            available=2,
            of=top,
            labels=labels,
        ),
    ]


def operators() -> Healthy:
    items = plain() + namespaces("data", "istio-system", "cert-manager")
    items += postgres("data") + kafka("data") + elastic("data")
    items += deployment("istiod", "istio-system", ["w1", "w2"], {"app": "istiod"})
    items.append(
        budget("istiod", "istio-system", {"app": "istiod", "istio": "pilot"}, 2, available=1)
    )
    items[-1]["spec"]["selector"]["matchLabels"].pop("istio")
    items += service("istiod", "istio-system", {"app": "istiod"}, ["w1", "w2"])
    sidecar = {"namespaceSelector": {"matchLabels": {"istio-injection": "enabled"}}}
    items.append(
        webhook(
            "Mutating",
            "istio-sidecar-injector",
            ("istio-system", "istiod"),
            {"rev.namespace.sidecar-injector.istio.io": ("", ["pods"], ["CREATE"])},
            **sidecar,
        )
    )
    for name in ("cert-manager", "cert-manager-webhook", "cert-manager-cainjector"):
        items += deployment(name, "cert-manager", ["w3"], {"app": name})
    items += service(
        "cert-manager-webhook", "cert-manager", {"app": "cert-manager-webhook"}, ["w3"]
    )
    rules = {"webhook.cert-manager.io": ("cert-manager.io", ["*"], ["CREATE", "UPDATE"])}
    items.append(
        webhook(
            "Validating", "cert-manager-webhook", ("cert-manager", "cert-manager-webhook"), rules
        )
    )
    for name, on, policy in (("bindings", ["w1", "w2"], "Fail"), ("audit", [], "Ignore")):
        items += (
            deployment(name, name, on, {"app": name})
            + service(name, name, {"app": name}, on)
            + namespaces(name)
        )
        entry = {f"{name}.example.com": ("", ["pods/binding", "pods"], ["CREATE", "DELETE"])}
        items.append(webhook("Validating", name, (name, name), entry, policy=policy))
    items += machine("web", "w1", strategy="LiveMigrate", disks=["web"]) + claim("web")
    source = (
        "cloudnative-pg:pkg/specs/poddisruptionbudget.go; strimzi/drain-cleaner:README.md; elastic/"
        "cloud-on-k8s:pkg/controller/elasticsearch/pdb"
    )
    return Healthy(
        "operators", source, snapshot(items), all_yes(MASTERS + WORKERS), {"web": "migrates"}
    )


def clusters() -> list[Healthy]:
    return [
        k3s(),
        cluster_api(talos=False),
        cluster_api(talos=True),
        hypershift_management(),
        operators(),
    ]
