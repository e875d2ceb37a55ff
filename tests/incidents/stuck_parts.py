"""Reports about parts that stand still: evicted launchers, hotplugged volumes, APIs of products
that are gone, copies.
"""

import copy
from typing import Any

from tests.healthy.clusters import plain
from tests.healthy.machines import claim
from tests.healthy.parts import Object, ago, api_service, namespaces, obj

from .held_nodes import powered_on, request
from .machines import YES, Incident, event, find, guest, launcher_of
from .starts import KUBEVIRT, importing, starting

CDI = "https://github.com/kubevirt/containerized-data-importer"
OVER = "Pod ephemeral local storage usage exceeds the total limit of containers 4Gi. "
"""Of its two containers together, guest-console-log and compute, each of which may store 2Gi."""
SCRATCH: Object = {"name": "scratch", "emptyDisk": {"capacity": "20Gi"}}


def limits(**default: str) -> Object:
    spec = {"limits": [{"type": "Container", "default": default}]}
    return obj("LimitRange", "v1", "usual", "vms", spec=spec)


def evicted(message: str = OVER, run: str = "Always", times: int = 3) -> list[Object]:
    """Return a VM whose pod the kubelet of w2 has evicted, as it did with those before."""
    items = plain((1, 6)) + guest("worker", "w2", run=run)
    vmi, launcher = find(items, "VirtualMachineInstance", "worker"), launcher_of(items, "worker")
    for volumes in (
        vmi["spec"]["volumes"],
        find(items, "VirtualMachine", "worker")["spec"]["template"]["spec"]["volumes"],
    ):
        volumes.append(copy.deepcopy(SCRATCH))
    find(items, "VirtualMachine", "worker")["status"] |= {
        "printableStatus": "Stopped",
        "ready": False,
    }
    vmi["metadata"]["creationTimestamp"] = ago(minutes=12)
    vmi["status"]["phase"] = "Failed"
    target = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "TerminationByKubelet",
        "message": message,
    }
    launcher["status"] |= {"phase": "Failed", "reason": "Evicted", "message": message}
    launcher["status"]["conditions"] = [target | {"lastTransitionTime": ago(seconds=25)}]
    for index in range(1, times):
        former = copy.deepcopy(launcher)
        former["metadata"]["name"] = f"virt-launcher-worker-old{index}a"
        items.append(event(former, "Evicted", message, "kubelet", count=1, late=720 * index))
    return items


def evicted_launcher(*ask: str) -> Incident:
    items = [*evicted(), limits(**{"ephemeral-storage": "2Gi"})]
    facts: tuple[str, ...] = (
        (
            r"the kubelet of w2 evicted its pod 25 s ago \(3 times within 23 min\): ephemeral "
            r"storage above the limit of 4Gi"
        ),
        r"[Ss]et resources\.limits\.ephemeral-storage of the VM above 20Gi",
    )
    if ask[0] == "explain":
        facts += (
            (
                r"LimitRange usual sets this limit for each new pod, and emptyDisk scratch "
                r"\(20Gi\) of the VM counts"
            ),
            r"state +does not run, KubeVirt starts it again",
            r": kubectl edit vm worker -n vms; or raise the default of LimitRange usual\n",
            r"(?s)\A(?!.*(could go to|migration queue|pressure|lack of memory))",
        )
    else:
        facts += (r"the empty disks may grow to 20Gi, but LimitRange usual limits the pod to 4Gi",)
    return Incident("-".join(("evicted", *ask)), f"{KUBEVIRT}/issues/1663", items, YES, facts, ask)


def launcher_of_a_node_without_memory() -> Incident:
    said = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 60Mi."
    facts = (
        (
            r"its VMI is Failed, because the kubelet of w2 evicted its pod 25 s ago: The node was "
            r"low on resource"
        ),
        r"free memory on w2: see what runs there .*; or let the VM request as much as it uses",
        r"(?s)\A(?!.*(?:LimitRange|ephemeral-storage))",
    )
    items = evicted(said, run="Manual", times=1)
    return Incident(
        "evicted-node", f"{KUBEVIRT}/issues/1663", items, YES, facts, ("explain", "vm/worker")
    )


def hotplugged(phase: str, age: float = 33, **more: Any) -> list[Object]:
    """Return a VM with a hotplugged volume in a phase, whose pod runs since so many minutes."""
    items = plain((1, 6)) + guest("db", "w2", hotplugged=["data"]) + claim("data")
    helper = find(items, "Pod", "hp-volume-db")
    helper["metadata"]["creationTimestamp"] = ago(minutes=age)
    attached = {"attachPodName": "hp-volume-db", "attachPodUID": helper["metadata"]["uid"]}
    status = {
        "name": "data",
        "target": "",
        "phase": phase,
        "message": "",
        "hotplugVolume": attached,
    } | more
    find(items, "VirtualMachineInstance", "db")["status"]["volumeStatus"] = [
        {"name": "db", "target": "vda"},
        status,
    ]
    return items


def volume_plugged_again_at_once(*ask: str) -> Incident:
    facts: tuple[str, ...] = (
        (
            r"the guest lacks it: its phase is Detaching, as of an earlier unplug, although its "
            r"pod hp-volume-db has run for 33 min"
        ),
        r"[Uu]nplug it, wait until its pod is gone, and plug it again",
    )
    if ask[0] == "explain":
        facts += (
            r"KubeVirt does not leave this phase by itself",
            (
                r": virtctl removevolume db --volume-name=data .*; or restart the VM; KubeVirt "
                r"1\.8\.2 and later do that themselves"
            ),
            r"(?s)\A(?!.*may detach disks of the running guest)",
        )
    items = hotplugged("Detaching")
    return Incident("-".join(("hotplug", *ask)), f"{KUBEVIRT}/pull/16159", items, YES, facts, ask)


def volume_that_virt_handler_does_not_mount() -> Incident:
    facts = (
        (
            r"the guest lacks it: its pod hp-volume-db has run for 33 min, but virt-handler on w2 "
            r"does not mount it"
        ),
        r"see what virt-handler logs about it: kubectl logs virt-handler",
    )
    items = hotplugged("AttachedToNode")
    return Incident(
        "hotplug-mount", f"{KUBEVIRT}/pull/16159", items, YES, facts, ("explain", "vm/db")
    )


def ending(name: str, api: str = "upload.cdi.kubevirt.io/v1beta1") -> Object:
    words = (
        "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of "
        f"server APIs: {api}: stale"
    )
    failed = {"type": "NamespaceDeletionDiscoveryFailure", "status": "True", "message": words}
    metadata = {"deletionTimestamp": ago(hours=26)}
    return obj(
        "Namespace",
        "v1",
        name,
        metadata=metadata,
        status={"phase": "Terminating", "conditions": [failed]},
    )


def api_of_a_product_that_was_removed() -> Incident:
    items = [
        *plain((1, 6)),
        ending("gone"),
        ending("ci-1"),
        ending("other", "metrics.example.com/v1"),
    ]
    items.append(api_service("v1beta1", "upload.cdi.kubevirt.io", ("gone", "cdi-api")))
    facts = (
        (
            r"Service gone/cdi-api does not exist, so discovery fails and namespaces ci-1, gone "
            r"stay Terminating"
        ),
        r"Its product was removed: delete this APIService, or install the product again",
        r"kubectl delete apiservice v1beta1\.upload\.cdi\.kubevirt\.io",
        r"(?s)\A(?!.*finalizer)",
    )
    source = "https://github.com/kubevirt/hyperconverged-cluster-operator/issues/593"
    return Incident("stale-api", source, items, YES, facts, ("scan",))


def kubelets_without_certificates(*ask: str) -> Incident:
    """Two of the nodes do not report, and both run:
    nothing advises to fence them or to plan without them.
    """
    items = powered_on(request("csr-a", "w1", 50)) + guest("mail", "w1")
    facts = (
        r"csr-a",
        r"[Dd]o not fence",
        r"(?s)\A(?!.*(?:create a health check that acts for w1|out-of-service|lost already))",
        r"(?s)\A(?!.*Node/w1: warn: no health check)",
    )
    if ask[0] == "explain" and "vm" in ask[1]:
        facts += (r"its node w1 runs, but its kubelet has no valid certificate and cannot report",)
    source = "https://github.com/okd-project/okd/issues/285"
    return Incident("-".join(("no-certificate", *ask)), source, items, YES, facts, ask)


def copying(phase: str = "CSICloneInProgress", *, told: bool = True, **status: str) -> list[Object]:
    """Return a VM that waits for a copy of the disk of a VM that runs; told:
    CDI says that this one uses it.
    """
    items = plain((1, 6)) + guest("golden", "w1") + starting("app", "Pending")
    fresh = {each["kind"]: each for each in importing("app", phase)}
    disk = fresh["DataVolume"]
    disk["spec"] = {"source": {"pvc": {"name": "golden", "namespace": "vms"}}}
    disk["status"] |= {"progress": "N/A"} | status
    volumes = [{"name": "app", "dataVolume": {"name": "app"}}]
    find(items, "VirtualMachine", "app")["spec"]["template"]["spec"]["volumes"] = volumes
    find(items, "VirtualMachineInstance", "app")["spec"]["volumes"] = volumes
    said = "pod vms/virt-launcher-golden-k2x7q using PersistentVolumeClaim golden"
    warned = (
        [event(fresh["PersistentVolumeClaim"], "CloneSourceInUse", said, "clone-populator")]
        if told
        else []
    )
    return [*items, disk, *warned]


def copy_of_a_claim_in_use(*ask: str) -> Incident:
    facts = (
        (
            r"its disk app is not filled \(CSICloneInProgress\): CDI does not copy claim "
            r"vms/golden while VM vms/golden uses it"
        ),
        r"[Ss]top VM vms/golden until the copy is done",
    )
    if ask[0] == "explain":
        no_snapshot = r"copy a claim that nothing uses \(\S+ has no VolumeSnapshotClass\)"
        facts += (rf"or {no_snapshot}: virtctl stop golden -n vms",)
    return Incident("-".join(("copy", *ask)), f"{CDI}/issues/3719", copying(), YES, facts, ask)


def first_start() -> list[Object]:
    items = plain((1, 6)) + importing("lab", "PendingPopulation")
    find(items, "VirtualMachine", "lab")["spec"]["runStrategy"] = "Halted"
    return items


def disk_that_waits_for_the_first_start() -> Incident:
    facts = (
        (
            r"data volume lab waits for the first start of the VM \(PendingPopulation\).*That is "
            r"as designed"
        ),
    )
    source = f"{CDI}/blob/main/doc/waitforfirstconsumer-storage-handling.md"
    return Incident("first-start", source, first_start(), YES, facts, ("explain", "vm/lab"))


def node_in_maintenance() -> Incident:
    items = plain((1, 6)) + namespaces("harvester-system")
    node = find(items, "Node", "w1")
    node["metadata"]["annotations"]["harvesterhci.io/maintain-status"] = "completed"
    node["spec"]["unschedulable"] = True
    facts = (
        r"in maintenance mode of Harvester, whose drain is completed",
        r"disable the maintenance mode in Harvester: VMs may run there again",
        r"loss of w1: no VM runs there",
    )
    source = "https://github.com/harvester/docs/pull/687"
    return Incident("in-maintenance", source, items, YES, facts, ("explain", "node/w1"))


def incidents() -> list[Incident]:
    return [
        evicted_launcher("explain", "vm/worker"),
        evicted_launcher("scan"),
        launcher_of_a_node_without_memory(),
        volume_plugged_again_at_once("explain", "vm/db"),
        volume_plugged_again_at_once("scan"),
        volume_that_virt_handler_does_not_mount(),
        api_of_a_product_that_was_removed(),
        kubelets_without_certificates("explain", "vm/mail"),
        kubelets_without_certificates("explain", "node/w1"),
        kubelets_without_certificates("scan"),
        copy_of_a_claim_in_use("explain", "vm/app"),
        copy_of_a_claim_in_use("scan"),
        disk_that_waits_for_the_first_start(),
        node_in_maintenance(),
    ]
