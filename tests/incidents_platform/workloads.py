"""Pods, quotas, labels and devices that decide what a drain does to VMs."""

from tests.healthy.clusters import kafka
from tests.healthy.machines import claim, machine, unmigratable
from tests.healthy.parts import Object, deployment, namespaces, obj, pod, service, webhook

from .case import NODES, Incident, cluster, ending, only, unready


def launcher_of_a_node_that_was_off() -> Incident:
    items = cluster(vms=[("web", "n1")])
    launcher = only(items, "Pod", "virt-launcher-web-k2x7q")
    items[items.index(launcher)] = ending(launcher, "Failed", hours=7)
    vmi = only(items, "VirtualMachineInstance", "web")
    vmi["status"]["phase"] = "Failed"
    vmi["metadata"]["deletionTimestamp"] = launcher["metadata"]["creationTimestamp"]
    says = ("Pod vms/virt-launcher-web-k2x7q", "should have ended 7 h ago", "the storage of n1")
    return Incident(
        "https://github.com/kubernetes/kubernetes/issues/122960", items, "drain n1", 1, says
    )


def finalizer_of_an_ended_pod() -> Incident:
    held = ending(pod("debug", "ci", "n1", {}, None), "Succeeded", days=7)
    held["metadata"]["finalizers"] = ["prow.x-k8s.io/gcsk8sreporter"]
    says = ("finalizer prow.x-k8s.io/gcsk8sreporter is still set",)
    items = [*cluster("n1", vms=[("web", "n1")]), held, *namespaces("ci")]
    return Incident(
        "https://github.com/kubernetes/test-infra/issues/26611", items, "drain n1", 1, says
    )


def drain_cleaner() -> Incident:
    items = [*cluster(vms=[("web", "n1")]), *namespaces("streams")]
    brokers = kafka("streams")
    for each in brokers:
        if "nodeName" in each.get("spec", {}):
            each["spec"]["nodeName"] = each["spec"]["nodeName"].replace("w", "n")
    only(brokers, "PodDisruptionBudget", "events-kafka")["spec"]["maxUnavailable"] = 1
    only(brokers, "PodDisruptionBudget", "events-kafka")["status"]["disruptionsAllowed"] = 1
    cleaner = only(brokers, "Deployment", "strimzi-drain-cleaner")
    cleaner["spec"]["template"]["spec"]["containers"][0]["image"] = (
        "quay.io/strimzi/drain-cleaner:1.3.0"
    )
    says = ("Drain Cleaner refuses its eviction with an error", "Drain again")
    return Incident(
        "https://github.com/kubereboot/kured/issues/1269", items + brokers, "drain n1", 1, says
    )


def drain_cleaner_that_does_not_answer() -> Incident:
    """Its webhook is ignored then, so that the evictions meet a budget of 0 and nothing rolls the
    broker.
    """
    items = [*cluster(vms=[("web", "n1")]), *namespaces("streams")]
    brokers = kafka("streams")
    for each in brokers:
        if "nodeName" in each.get("spec", {}):
            each["spec"]["nodeName"] = each["spec"]["nodeName"].replace("w", "n")
    for endpoint in only(brokers, "EndpointSlice", "strimzi-drain-cleaner-abc")["endpoints"]:
        endpoint["conditions"] |= {"ready": False, "serving": False}
    says = ("Strimzi's Drain Cleaner does not answer", "so nothing moves the pods of Kafka events")
    source = "https://github.com/strimzi/drain-cleaner/issues/58"
    return Incident(
        source,
        items + brokers,
        "drain n1",
        1,
        says,
        ("at its next reconciliation", "A drain of n1 ends"),
    )


def admission(name: str, resource: str, on: str, *, ready: bool) -> list[Object]:
    """Return an operator with one replica and its webhook on requests for pods,
    which leaves out no namespace.
    """
    chosen = {"app": name}
    found = deployment(name, name, [on], chosen) + namespaces(name)
    answering = service(name, name, chosen, [on] if ready else [])
    for endpoint in only(answering, "EndpointSlice", f"{name}-abc")["endpoints"]:
        endpoint["targetRef"] = {"kind": "Pod", "namespace": name, "name": f"{name}-5d8f-x0"}
    return [
        *found,
        *answering,
        webhook(
            "Validating", name, (name, name), {f"{name}.example.com": ("", [resource], ["CREATE"])}
        ),
    ]


def webhook_on_bindings() -> Incident:
    """kube-scheduler cannot bind any pod, that of the webhook included,
    so no migration gets a target.
    """
    items = cluster(vms=[("web", "n1")]) + admission(
        "slurm-operator", "pods/binding", "n2", ready=False
    )
    says = (
        (
            "webhook slurm-operator.example.com fails closed, and Service "
            "slurm-operator/slurm-operator has no ready endpoint: migrations fail"
        ),
        "Exclude namespace slurm-operator by its namespaceSelector",
    )
    source = "https://github.com/SlinkyProject/slurm-operator/issues/189"
    return Incident(source, items, "drain n1", 1, says, ("1 migrates", "A drain of n1 ends"))


def webhook_on_its_own_pod() -> Incident:
    items = cluster(vms=[("web", "n1")]) + admission("peer-pods", "pods", "n1", ready=True)
    says = (
        (
            "webhook peer-pods.example.com runs on n1 alone, and once it has left, it refuses its "
            "own new pod"
        ),
        (
            "Exclude namespace peer-pods by its namespaceSelector, or run a second replica on "
            "another node"
        ),
    )
    source = "https://github.com/confidential-containers/cloud-api-adaptor/issues/305"
    return Incident(source, items, "drain n1", 1, says, ("Move it first", "A drain of n1 ends"))


def quota() -> Incident:
    used = {"limits.memory": "52216983555"}
    spec = {"hard": {"limits.memory": "64Gi"}}
    held = obj(
        "ResourceQuota", "v1", "default-gmp6p", "vms", spec=spec, status=spec | {"used": used}
    )
    items = cluster(vms=[("pool1-0", "n1")])
    for each in items:
        if each["kind"] in ("VirtualMachine", "VirtualMachineInstance"):
            inner = each["spec"].get("template", {}).get("spec", each["spec"])
            inner["domain"]["resources"] = {"limits": {"memory": "16Gi"}}
    launcher = only(items, "Pod", "virt-launcher-pool1-0-k2x7q")
    launcher["spec"]["containers"][0]["resources"] |= {"limits": {"memory": "17405661185"}}
    says = ("ResourceQuota default-gmp6p leaves no room for a second pod: limits.memory",)
    return Incident(
        "https://github.com/harvester/harvester/issues/3124", [*items, held], "drain n1", 1, says
    )


def multus_that_does_not_answer() -> Incident:
    """The server of the thick plugin lacks memory, so no pod starts on the other nodes,
    which are Ready.
    """
    items = cluster(vms=[("web", "n1")]) + namespaces("kube-system")
    daemons = deployment(
        "kube-multus-ds",
        "kube-system",
        NODES,
        {"app": "multus", "name": "multus"},
        kind="DaemonSet",
    )
    for each in daemons:
        if each["kind"] == "Pod" and each["spec"]["nodeName"] != "n1":
            each.update(unready(each))
            state = {
                "waiting": {
                    "reason": "CrashLoopBackOff",
                    "message": "back-off 5m0s restarting failed container",
                }
            }
            each["spec"]["containers"][0]["image"] = (
                "ghcr.io/k8snetworkplumbingwg/multus-cni:v4.1.0-thick"
            )
            each["status"]["containerStatuses"] = [{"name": "main", "state": state}]
    says = (
        "no node that could take it is schedulable now: n2, n3 (the pod network on n2 does not "
        "work",
        "CrashLoopBackOff",
    )
    return Incident(
        "https://github.com/k8snetworkplumbingwg/multus-cni/issues/1366",
        items + daemons,
        "drain n1",
        1,
        says,
    )


def pinned() -> Incident:
    items = cluster("n1", vms=[])
    pin = {"nodeSelector": {"kubernetes.io/hostname": "n1"}}
    items += machine(
        "vm1", "n1", strategy="LiveMigrate", disks=["vm1"], spec=pin, selector=pin["nodeSelector"]
    )
    says = ("no other node can take it", "kubernetes.io/hostname=n1")
    source = "https://github.com/harvester/harvester/issues/5306"
    return Incident(source, items + claim("vm1"), "drain n1", 1, says)


def stale_features() -> Incident:
    items = cluster(vms=[])
    moved = {"completed": True, "sourceNode": "n2", "targetNode": "n1", "migrationUid": "uid-old"}
    chosen = {
        f"cpu-feature.node.kubevirt.io/{name}": "true"
        for name in ("avx2", "vmx-activity-wait-sipi")
    }
    options: Object = {"selector": chosen, "status": {"migrationState": moved}}
    items += machine("erp", "n1", strategy="LiveMigrate", disks=["erp"], **options) + claim("erp")
    says = ("no other node can take it", "vmx-activity-wait-sipi")
    return Incident("https://github.com/kubevirt/kubevirt/pull/17812", items, "drain n1", 1, says)


def shared_gpu() -> Incident:
    items = cluster(vms=[("web", "n1")])
    device = "nvidia.com/NVIDIA_A2-4Q"
    for each in ("allocatable", "capacity"):
        only(items, "Node", "n1")["status"][each][device] = "2"
    options: Object = {
        "strategy": "LiveMigrateIfPossible",
        "migratable": unmigratable("HostDeviceNotLiveMigratable", "VMI uses a GPU host devices"),
        "domain": {"devices": {"gpus": [{"name": "gpu1", "deviceName": device}]}},
        "requests": {device: "1"},
        "disks": ["vgpu"],
    }
    items += machine("vgpu", "n1", **options) + claim("vgpu")
    says = ("waits for its node", "HostDeviceNotLiveMigratable", "A drain of n1 ends")
    return Incident(
        "https://github.com/harvester/harvester/issues/10388", items, "drain n1", 0, says
    )


def incidents() -> list[Incident]:
    return [
        launcher_of_a_node_that_was_off(),
        finalizer_of_an_ended_pod(),
        drain_cleaner(),
        drain_cleaner_that_does_not_answer(),
        webhook_on_bindings(),
        webhook_on_its_own_pod(),
        quota(),
        multus_that_does_not_answer(),
        pinned(),
        stale_features(),
        shared_gpu(),
    ]
