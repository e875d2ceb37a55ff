"""Nodes that something cordoned or empties without an order of an administrator: by what,
and whether it ends.
"""

import copy

from tests.healthy.clusters import plain
from tests.healthy.machines import NON_SHARED
from tests.healthy.parts import ago, conditions, deployment, node, obj

from .machines import (
    NO,
    YES,
    Incident,
    cordoned,
    draining,
    event,
    find,
    guest,
    launcher_of,
    marked,
    migration,
)
from .starts import starting

NVIDIA = "https://github.com/NVIDIA/gpu-operator"
SRIOV = "https://github.com/k8snetworkplumbingwg/sriov-network-operator"


def refused_since_the_cordon() -> Incident:
    """KubeVirt has known for two days that the VM cannot migrate;
    its eviction is refused since the node is drained.
    """
    items = draining(
        (1, 6),
        disks=["web"],
        migratable=NON_SHARED | {"message": NON_SHARED["message"].format("web")},
    )
    return Incident(
        "refused-since",
        f"{SRIOV}/issues/306",
        items,
        NO,
        (r"state: its eviction is refused since 11:50 UTC",),
    )


def descheduler(*profiles: str) -> list[dict]:
    """Return a cluster whose descheduler has evicted both VMs of w1."""
    items = plain((1, 6)) + guest("web", "w1") + guest("db", "w1")
    for name in ("web", "db"):
        marked(items, name, minutes=1)
        items.append(migration(name, {"Pending": 50}))
        text = "pod eviction from w1 node by sigs.k8s.io/descheduler"
        evicted = event(
            launcher_of(items, name), "LowNodeUtilization", text, "sigs.k8s.io/descheduler", count=1
        )
        items.append(evicted | {"type": "Normal"})
    spec = {"mode": "Automatic", "deschedulingIntervalSeconds": 300, "profiles": list(profiles)}
    return [
        *items,
        obj("KubeDescheduler", "operator.openshift.io/v1", "cluster", "descheduler", spec=spec),
    ]


def eviction_storm(*ask: str) -> Incident:
    facts = (
        r"(?s)\A(?!.*Nothing drains)",
        r"(?s)\A(?!.*if it is to stay)(?!.*uncordoning)",
        r"descheduler.*\(LowNodeUtilization\)",
        r"does not stop by itself: it begins again every 300 s",
        r"kubectl patch kubedescheduler cluster -n descheduler .*devEnableEvictionsInBackground",
    )
    source = "https://github.com/kubevirt/monitoring/pull/266"
    return Incident(
        "-".join(("eviction-storm", *ask)), source, descheduler("LongLifecycle"), YES, facts, ask
    )


def descheduler_in_the_background() -> Incident:
    """The profile for VMs evicts in the background: few VMs move."""
    facts = (r"(?s)\A(?!.*begins again)", r"evicted by a descheduler \(LowNodeUtilization\)")
    source = "https://github.com/openshift/runbooks/pull/360"
    return Incident("background", source, descheduler("KubeVirtRelieveAndMigrate"), YES, facts)


def gpu(state: str, *, waiting: bool = False, kept: bool = True) -> list[dict]:
    """Return a cluster whose node w1 the GPU operator has cordoned;
    a pod with a GPU keeps data in an emptyDir there.
    """
    items = plain((1, 6)) + guest("web", "w1")
    cordoned(items, minutes=540)
    find(items, "Node", "w1")["metadata"]["labels"]["nvidia.com/gpu-driver-upgrade-state"] = state
    find(items, "Node", "w2")["metadata"]["labels"]["nvidia.com/gpu-driver-upgrade-state"] = (
        "upgrade-required"
    )
    if kept:
        training = deployment("train", "ml", ["w1"], {"app": "train"}, kind="StatefulSet")
        training[-1]["spec"]["volumes"] = [{"name": "shm", "emptyDir": {}}]
        training[-1]["spec"]["containers"][0]["resources"] = {"requests": {"nvidia.com/gpu": "4"}}
        items += training
        settings = {"driver": {"upgradePolicy": {"podDeletion": {"deleteEmptyDir": False}}}}
        items.append(obj("ClusterPolicy", "nvidia.com/v1", "cluster-policy", spec=settings))
    return items + (waiting_vm(items) if waiting else [])


def waiting_vm(items: list[dict]) -> list[dict]:
    """Return a VM that only w1 has room for."""
    for name in ("w2", "w3"):
        find(items, "Node", name)["status"]["allocatable"]["memory"] = "4Gi"
    found = guest("erp", "w1", requests={"memory": "32Gi"})
    vmi, pod = find(found, "VirtualMachineInstance", "erp"), launcher_of(found, "erp")
    vmi["status"] = {"phase": "Scheduling", "conditions": conditions(Ready=False)}
    vmi["metadata"]["creationTimestamp"] = pod["metadata"]["creationTimestamp"] = ago(minutes=38)
    find(found, "VirtualMachine", "erp")["status"] = {
        "printableStatus": "Unschedulable",
        "created": True,
    }
    del pod["spec"]["nodeName"]
    pod["status"] = {"phase": "Pending", "conditions": conditions(PodScheduled=False)}
    return found


def failed_driver(*ask: str) -> Incident:
    facts = (
        r"cordoned by the NVIDIA GPU operator for its driver upgrade",
        (
            r"The upgrade has failed, and the operator does not begin it again: pod ml/train-0 "
            r"uses a GPU and keeps an emptyDir"
        ),
        r"w2 waits behind it\. That does not end by itself",
        r"[Ss]cale StatefulSet ml/train to 0",
        r"kubectl label node w1 nvidia.com/gpu-driver-upgrade-state=upgrade-required --overwrite",
        r"(?s)\A(?!.*kubectl drain w1 )",
    )
    name = "-".join(("failed-driver", *ask))
    return Incident(name, f"{NVIDIA}/issues/2549", gpu("upgrade-failed"), YES, facts, ask)


def vm_behind_a_failed_driver() -> Incident:
    facts = (
        r"no node that could take it is schedulable now: w1 \(cordoned by the NVIDIA GPU operator",
        r"That does not end by itself",
        r"(?s)\A(?!.*starts by itself)",
        r"uncordon w1 to let the VM start now: kubectl uncordon w1; to end what keeps it cordoned",
        r"upgrade-state=upgrade-required",
    )
    items = gpu("upgrade-failed", waiting=True)
    return Incident(
        "vm-behind-driver", f"{NVIDIA}/issues/2549", items, YES, facts, ("explain", "vm/erp")
    )


def vm_behind_a_node_that_is_drained() -> Incident:
    """An administrator drains w1, which alone has room for a VM that waits:
    an uncordon would end that drain.
    """
    items = [each for each in gpu("upgrade-done", waiting=True) if each["kind"] != "ClusterPolicy"]
    marked(items, "web", minutes=5)
    facts = (
        r"uncordon w1 once its drain and its maintenance are over: kubectl uncordon w1",
        r"(?s)\A(?!.*or repair one of them)",
    )
    return Incident(
        "vm-behind-drain", f"{NVIDIA}/issues/2549", items, YES, facts, ("explain", "vm/erp")
    )


def vm_behind_two_orders() -> Incident:
    """The driver of w1 has failed, and a maintenance of w1 is ordered too."""
    items = gpu("upgrade-failed", waiting=True)
    spec = {"nodeName": "w1", "reason": "disks"}
    items.append(
        obj("NodeMaintenance", "nodemaintenance.medik8s.io/v1beta1", "disks", spec=spec)
        | {"status": {"phase": "Running"}}
    )
    facts = (r"upgrade-state=upgrade-required", r"(?s)\A(?!.*to let the VM start now)")
    return Incident(
        "vm-behind-two-orders", f"{NVIDIA}/issues/2549", items, YES, facts, ("explain", "vm/erp")
    )


def reason_of_an_upgrade() -> Incident:
    """The simulation names nodes in the order of its moves;
    what stops the drain now is the cause of both parts.
    """
    facts = (
        (
            r"blocks the drain  vms/web  LiveMigrate, but no other node can take it: memory: \S+ "
            r"missing on w2"
        ),
        r"\n  stops here +vms/web: .*: see above\n",
        r"(?s)\A(?!.*memory missing on w2)",
    )
    items = gpu("upgrade-done", waiting=True)
    return Incident(
        "reason-of-an-upgrade", f"{NVIDIA}/issues/2549", items, NO, facts, ("explain", "node/w1")
    )


def driver_in_progress() -> Incident:
    facts = (
        r"by the NVIDIA GPU operator.*uncordons the node itself when the new driver works",
        r"Do not uncordon it by hand",
        r"(?s)\A(?!.*does not end by itself)",
    )
    items = gpu("pod-restart-required", kept=False)
    return Incident("driver-in-progress", f"{NVIDIA}/issues/2509", items, YES, facts)


def sriov(*, migrates: bool) -> list[dict]:
    device = {"openshift.io/dpdk": "1"}
    fields = (
        {}
        if migrates
        else {"migratable": NON_SHARED | {"message": NON_SHARED["message"].format("fw")}}
    )
    items = plain((1, 6)) + guest("fw", "w1", requests=device, **fields) + guest("web", "w1")
    cordoned(items, minutes=172)
    for name in ("w1", "w2", "w3"):
        node = find(items, "Node", name)
        node["metadata"]["annotations"]["sriovnetwork.openshift.io/state"] = (
            "Idle" if name == "w3" else "Drain_Required"
        )
        node["status"]["allocatable"] |= device
    return items


def drained_for_devices() -> Incident:
    facts = (
        r"cordoned by the SR-IOV network operator",
        r"only the pods with SR-IOV devices away \(VM vms/fw\)\. vms/fw cannot migrate",
        r"w2 waits behind it\. That does not end by itself\. Do not uncordon it by hand",
        r"virtctl stop fw -n vms",
    )
    return Incident("sriov", f"{SRIOV}/issues/537", sriov(migrates=False), NO, facts)


def vm_that_holds_devices() -> Incident:
    facts = (
        r"its node w1 is cordoned by the SR-IOV network operator",
        (
            r"That does not end by itself\. Shut vms/fw down for this time, and start it again "
            r"afterwards: virtctl stop fw -n vms"
        ),
    )
    return Incident(
        "sriov-vm", f"{SRIOV}/issues/537", sriov(migrates=False), NO, facts, ("explain", "vm/fw")
    )


def devices_that_leave() -> Incident:
    facts = (
        r"\(VM vms/fw\), then uncordons the node itself",
        r"(?s)\A(?!.*does not end by itself)",
    )
    return Incident("sriov-leaves", f"{SRIOV}/issues/429", sriov(migrates=True), YES, facts)


def marked_by(name: str, source: str, fact: str, **marks: dict) -> Incident:
    """Return that the drain of a healthy node names what cordoned it; marks:
    labels or annotations of the node.
    """
    items = plain((1, 6)) + guest("web", "w1")
    cordoned(items, minutes=5)
    for part, values in marks.items():
        find(items, "Node", "w1")["metadata"][part] |= values
    return Incident(name, source, items, YES, (fact,))


def marks() -> list[Incident]:
    talos = marked_by(
        "talos",
        "https://github.com/siderolabs/talos/issues/8357",
        r"cordoned by Talos, which upgrades or reboots it",
        annotations={"talos.dev/cordoned": "true"},
    )
    kured = marked_by(
        "kured",
        "https://github.com/kubereboot/kured/issues/63",
        r"cordoned by kured, which drains and reboots it",
        annotations={"weave.works/kured-reboot-in-progress": ago(minutes=5)},
    )
    return [talos, kured]


def new_node(*ask: str, stale: bool = True) -> Incident:
    """A node was added for a VM, but virt-handler gets no address of the migration network
    there.
    """
    items = plain((1, 6)) + guest("web", "w1", requests={"memory": "32Gi"})
    for name in ("w2", "w3"):
        find(items, "Node", name)["status"]["allocatable"]["memory"] = "4Gi"
    items.append(node("w4", None))
    handler = copy.deepcopy(find(items, "Pod", "virt-handler-x0"))
    handler["metadata"] |= {
        "name": "virt-handler-w4",
        "uid": "uid-handler-w4",
        "creationTimestamp": ago(minutes=196),
    }
    handler["spec"]["nodeName"] = "w4"
    handler["status"] = {
        "phase": "Pending",
        "conditions": conditions(Ready=False, PodScheduled=True),
    }
    text = (
        'Failed to create pod sandbox: plugin type="multus" name="multus-cni-network" failed '
        '(add): error adding container to network "migration-net": error at storage engine: Could '
        "not allocate IP in range: ip: 10.200.5.10 / - 10.200.5.13"
    )
    items += [handler, event(handler, "FailedCreatePodSandBox", text, "kubelet")]
    namespace = handler["metadata"]["namespace"]
    held = {
        "10": {
            "id": "c2",
            "podref": f"{namespace}/virt-handler-x9k2p"
            if stale
            else f"{namespace}/virt-handler-w4",
        }
    }
    spec = {"range": "10.200.5.0/24", "allocations": held}
    items.append(
        obj("IPPool", "whereabouts.cni.cncf.io/v1alpha1", "10.200.5.0-24", "kube-system", spec=spec)
    )
    facts = (
        r"w4 takes no VM|This node takes no VM",
        (
            r"virt-handler on w4 is not ready: whereabouts has no address left in 10.200.5.10 - "
            r"10.200.5.13"
        ),
        r'entry "10" of pod \w+/virt-handler-x9k2p, which no longer exists'
        if stale
        else r"the only entry .* belongs to a pod",
        r"kubectl (?:edit|get) ippools.whereabouts.cni.cncf.io 10.200.5.0-24 -n kube-system",
        r"(?s)\A(?!.*[Aa]dd a node)",
    )
    source = "https://github.com/k8snetworkplumbingwg/whereabouts/issues/291"
    verdict = YES if ask[-1] == "node/w4" else NO
    return Incident(
        "-".join(("new-node", *ask, *["full"] * (not stale))), source, items, verdict, facts, ask
    )


def new_node_for_two() -> Incident:
    """The new node has room for one VM: for that which waits, or for that which the drain moves."""
    found = new_node("drain", "w1")
    items = [*found.items, *starting("erp", "Scheduling", requests={"memory": "32Gi"})]
    for name in ("w1", "w4"):
        find(items, "Node", name)["status"]["allocatable"]["memory"] = "40Gi"
    facts = (
        (
            r"no longer exists, and the node has no room for it besides vms/erp, which waits for a "
            r"node \(memory: \S+ missing\)"
        ),
        r": kubectl edit ippools.*; as vms/erp may start there first, also free room or add a node",
    )
    return Incident("new-node-for-two", found.url, items, NO, facts, ("drain", "w1"))


def node_that_just_came() -> Incident:
    """virt-handler starts on a new node: nothing is wrong there."""
    found = new_node("drain", "w1")
    items = [each for each in found.items if each["kind"] not in ("Event", "IPPool")]
    handler = find(items, "Pod", "virt-handler-w4")
    handler["metadata"]["creationTimestamp"] = ago(minutes=1)
    facts = (
        r"virt-handler starts on w4, which can take it then",
        r"wait until virt-handler runs on w4",
    )
    return Incident("node-just-came", found.url, items, NO, facts)


def incidents() -> list[Incident]:
    return [
        refused_since_the_cordon(),
        eviction_storm("drain", "w1"),
        eviction_storm("explain", "node/w1"),
        eviction_storm("explain", "vm/web"),
        descheduler_in_the_background(),
        failed_driver("drain", "w1"),
        failed_driver("explain", "node/w1"),
        vm_behind_a_failed_driver(),
        vm_behind_a_node_that_is_drained(),
        vm_behind_two_orders(),
        reason_of_an_upgrade(),
        driver_in_progress(),
        drained_for_devices(),
        vm_that_holds_devices(),
        devices_that_leave(),
        *marks(),
        new_node("drain", "w1"),
        new_node("drain", "w1", stale=False),
        new_node_for_two(),
        new_node("explain", "node/w4"),
        node_that_just_came(),
    ]
