"""Reports of a third blind round: what an object's own status shows,
and the remedy that a person can carry out.
"""

import copy
import json

from tests.healthy.clusters import plain
from tests.healthy.machines import claim
from tests.healthy.parts import Object, ago, conditions, obj, webhook

from .machines import NO, UNKNOWN, Incident, draining, event, find, guest, launcher_of, migration

KUBEVIRT = "https://github.com/kubevirt/kubevirt"


def two_pods(*, guest_ended: bool = True) -> list[Object]:
    """Return a VM that migrated from w2 to w1 two hours ago, and whose source pod still runs,
    with a sidecar.
    """
    items = plain((1, 6)) + guest("web", "w1", (1, 6))
    vmi, own = find(items, "VirtualMachineInstance", "web"), launcher_of(items, "web")
    done = migration(
        "web", {"Running": 7300, "Succeeded": 7200}, name="first", source="w2", notes={}
    )
    moved = {
        "migrationUid": done["metadata"]["uid"],
        "sourceNode": "w2",
        "targetNode": "w1",
        "completed": True,
    }
    vmi["status"]["migrationState"] = moved | {
        "startTimestamp": ago(hours=2, minutes=1),
        "endTimestamp": ago(hours=2),
    }
    vmi["metadata"]["creationTimestamp"] = ago(days=9)
    own["metadata"]["creationTimestamp"] = ago(hours=2, minutes=2)
    old = copy.deepcopy(own)
    old["metadata"] |= {
        "name": "virt-launcher-web-old",
        "uid": "uid-old",
        "creationTimestamp": ago(days=9),
    }
    old["spec"]["nodeName"] = "w2"
    ended = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": ago(hours=2)}}
    running = {"running": {"startedAt": ago(days=9)}}
    old["status"]["containerStatuses"] = [
        {"name": "compute", "ready": not guest_ended, "state": ended if guest_ended else running},
        {"name": "hook-sidecar-0", "ready": True, "state": running},
    ]
    vmi["status"]["activePods"] |= {"uid-old": "w2"}
    return [*items, done, old, migration("web", {"Pending": 1800}, name="second", notes={})]


def sidecar_that_stays() -> Incident:
    facts = (
        (
            r"blocks the drain +vms/web +migration second waits, as source pod "
            r"virt-launcher-web-old on w2 of the finished migration first still runs: its "
            r"container hook-sidecar-0 has not ended, while compute ended with exit code 0"
        ),
        (
            r"the guest runs on w1, so delete that pod .*: kubectl delete pod "
            r"virt-launcher-web-old -n vms"
        ),
    )
    return Incident("sidecar-that-stays", f"{KUBEVIRT}/issues/9838", two_pods(), NO, facts)


def old_container_that_runs() -> Incident:
    """The same with a guest's own container that runs: the guest is elsewhere,
    but the container may use its disk.
    """
    facts = (
        r"Avoid\n +do not delete the pod on w1: the guest runs in it",
        (
            r"its source pod virt-launcher-web-old on w2 still runs 2 h after migration first "
            r"succeeded; the guest runs on w1"
        ),
        (
            r"lists no guest any more, then delete that pod .*: kubectl exec virt-launcher-web-old "
            r"-n vms -c compute -- virsh list"
        ),
    )
    items = two_pods(guest_ended=False)
    return Incident(
        "old-container-that-runs",
        f"{KUBEVIRT}/issues/8395",
        items,
        NO,
        facts,
        ("explain", "vm/web", "-n", "vms"),
    )


def container_that_is_not_killed(*ask: str) -> Incident:
    """The same with a pod that is being deleted:
    its kubelet says why the container does not end.
    """
    items = two_pods(guest_ended=False)
    old = next(each for each in items if each["metadata"]["name"] == "virt-launcher-web-old")
    old["metadata"] |= {"deletionTimestamp": ago(hours=2), "deletionGracePeriodSeconds": 60}
    error = "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
    said = (
        'error killing pod: failed to "KillContainer" for "compute" with KillContainerError: '
        f'"{error}"'
    )
    facts = (
        (
            r"cannot kill it \(FailedKillPod: DeadlineExceeded: context deadline exceeded\); its "
            r"guest runs on w1"
        ),
        r"estart the container runtime of w2, or reboot w2",
    )
    facts += (
        (r"cluster upgrade +this VM stops it: Pod vms/virt-launcher-web-old",)
        if ask[0] == "explain"
        else ()
    )
    items += [event(old, "FailedKillPod", said, "kubelet")]
    return Incident(
        f"container-not-killed-{ask[0]}", f"{KUBEVIRT}/issues/8395", items, NO, facts, ask
    )


def tenant(**since: float) -> list[Object]:
    """Return the drain of a node with a VM that Cluster API provider KubeVirt of another cluster
    has to move.
    """
    items = draining((1, 6), strategy="External")
    vmi = find(items, "VirtualMachineInstance", "web")
    vmi["metadata"]["labels"] |= {
        "cluster.x-k8s.io/role": "worker",
        "capk.cluster.x-k8s.io/kubevirt-machine-name": "blue-md-0",
        "capk.cluster.x-k8s.io/kubevirt-machine-namespace": "tenant-blue",
    }
    asked = next(
        each for each in vmi["status"]["conditions"] if each["type"] == "EvictionRequested"
    )
    asked["lastTransitionTime"] = ago(**since)
    return items


def controller_that_does_not_act() -> Incident:
    facts = (
        (
            r"blocks the drain +vms/web +External: Cluster API provider KubeVirt \(CAPK\), "
            r"KubevirtMachine tenant-blue/blue-md-0 has to move it, and has not done so although "
            r"its eviction was asked for 3 days 2 h"
        ),
        r"It has no pod in this cluster",
        r"migrate the VM by hand.*: virtctl migrate web -n vms",
    )
    source = "https://github.com/kubernetes-sigs/cluster-api-provider-kubevirt/issues/403"
    return Incident("controller-that-does-not-act", source, tenant(hours=74), NO, facts)


def controller_that_has_time_left() -> Incident:
    """It drains the node of the guest for up to ten minutes."""
    facts = (
        (
            r"unknown +vms/web +External: Cluster API provider KubeVirt .* whether that runs is "
            r"not known"
        ),
    )
    source = "https://github.com/kubernetes-sigs/cluster-api-provider-kubevirt/pull/404"
    return Incident("controller-that-has-time-left", source, tenant(minutes=9), UNKNOWN, facts)


def hotplug(ratio: str) -> list[Object]:
    """Return a VM whose hotplugged volume is not attached,
    and a LimitRange with that ratio of memory.
    """
    items = plain((1, 6)) + guest("web", "w1", (1, 6), disks=["web", "scratch"]) + claim("scratch")
    for kind, steps in (("VirtualMachine", ("template", "spec")), ("VirtualMachineInstance", ())):
        spec = find(items, kind, "web")["spec"]
        for step in steps:
            spec = spec[step]
        volume = next(each for each in spec["volumes"] if "scratch" in json.dumps(each))
        next(source for source in volume.values() if isinstance(source, dict))["hotpluggable"] = (
            True
        )
    vmi = find(items, "VirtualMachineInstance", "web")
    status = [{"name": each["name"]} for each in vmi["spec"]["volumes"]]
    status[-1] |= {"phase": "Bound", "reason": "PVCNotReady", "hotplugVolume": {}}
    vmi["status"]["volumeStatus"] = status
    words = (
        'Error creating attachment pod pods "hp-volume-lx8jd" is forbidden: memory max limit to '
        f"request ratio per Container is {ratio}, but provided ratio is 40.000000"
    )
    said = {"type": "Synchronized", "status": "False", "reason": "FailedCreate", "message": words}
    vmi["status"]["conditions"].append(said | {"lastTransitionTime": ago(minutes=22)})
    limits = {"limits": [{"type": "Container", "maxLimitRequestRatio": {"memory": ratio}}]}
    return [*items, obj("LimitRange", "v1", "example", "vms", spec=limits)]


def pod_of_a_volume_refused() -> Incident:
    facts = (
        (
            r"is not attached for 22 min: LimitRange vms/example \(memory: the limit is more than "
            r"2 times the request\)"
        ),
        (
            r"raise that limit in the LimitRange, or set the resources of type hotplug-disk in "
            r"supportContainerResources of KubeVirt: kubectl edit limitrange"
        ),
    )
    source = f"{KUBEVIRT}/issues/9302"
    return Incident(
        "pod-of-a-volume-refused",
        source,
        hotplug("2"),
        NO,
        facts,
        ("explain", "vm/web", "-n", "vms"),
    )


def volume_of_a_webhook(*, named: bool = False) -> list[Object]:
    """Return a VM that starts, whose pod has a volume from a Secret that its namespace lacks;
    named: the VM asks for it.
    """
    items = starting()
    vmi, own = find(items, "VirtualMachineInstance", "web"), launcher_of(items, "web")
    own["metadata"]["labels"]["app"] = "rancher"
    own["spec"].setdefault("volumes", []).append(
        {"name": "ca", "secret": {"secretName": "harvester-additional-ca"}}
    )
    if named:
        for spec in (vmi["spec"], find(items, "VirtualMachine", "web")["spec"]["template"]["spec"]):
            spec["volumes"].append(
                {"name": "ca", "secret": {"secretName": "harvester-additional-ca"}}
            )
    said = 'MountVolume.SetUp failed for volume "ca" : secret "harvester-additional-ca" not found'
    items.append(event(own, "FailedMount", said, "kubelet"))
    rules = {"mutator.harvesterhci.io": ("", ["pods"], ["CREATE"])}
    target = ("harvester-system", "harvester-webhook")
    return [*items, webhook("Mutating", "harvester-mutator", target, rules, policy="Ignore")]


def starting() -> list[Object]:
    items = plain((1, 6)) + guest("web", "w1", (1, 6))
    vmi, own = find(items, "VirtualMachineInstance", "web"), launcher_of(items, "web")
    vmi["status"] |= {"phase": "Scheduling", "conditions": conditions(Ready=False)}
    vmi["metadata"]["creationTimestamp"] = ago(minutes=14)
    own["metadata"]["creationTimestamp"] = ago(minutes=14)
    own["status"] |= {"phase": "Pending", "conditions": conditions(PodScheduled=True, Ready=False)}
    return items


def volume_that_the_vm_does_not_have() -> Incident:
    facts = (
        (
            r"webhook harvester-mutator adds volume ca, whose Secret vms/harvester-additional-ca "
            r"does not exist"
        ),
        r"rename the label app: rancher in the VM and restart it.*: kubectl edit vm web -n vms",
    )
    source = "https://github.com/harvester/harvester/issues/8962"
    items = volume_of_a_webhook()
    return Incident(
        "volume-that-the-vm-does-not-have",
        source,
        items,
        NO,
        facts,
        ("explain", "vm/web", "-n", "vms"),
    )


def secret_that_the_vm_names() -> Incident:
    facts = (
        r"Secret vms/harvester-additional-ca, which the VM names, does not exist",
        r"correct the name in the VM",
    )
    source = "https://github.com/harvester/harvester/pull/8973"
    items = volume_of_a_webhook(named=True)
    return Incident(
        "secret-that-the-vm-names", source, items, NO, facts, ("explain", "vm/web", "-n", "vms")
    )


def features(*others: str) -> list[Object]:
    """Return a drain of a VM that keeps the CPU features of its last migration; others:
    nodes that have their labels.
    """
    items = draining((1, 8))
    selector = {f"cpu-feature.node.kubevirt.io/{name}": "true" for name in ("fbsdp-no", "psdp-no")}
    vmi = find(items, "VirtualMachineInstance", "web")
    vmi["spec"]["domain"]["cpu"] = {"model": "host-model"}
    vmi["status"]["nodeName"] = "w1"
    own = launcher_of(items, "web")
    own["spec"]["nodeSelector"] = own["spec"].get("nodeSelector", {}) | selector
    for name in others:
        find(items, "Node", name)["metadata"]["labels"] |= selector
    return items


def features_that_no_node_has() -> Incident:
    facts = (
        (
            r"no other node can take it: its pod's nodeSelector asks for "
            r"cpu-feature.node.kubevirt.io/fbsdp-no, cpu-feature.node.kubevirt.io/psdp-no, which "
            r"no node has, its own neither"
        ),
        r"virtctl restart web -n vms",
    )
    return Incident("features-that-no-node-has", f"{KUBEVIRT}/pull/17812", features(), NO, facts)


def features_of_its_node_alone() -> Incident:
    facts = (r"no other node can take it: CPU feature fbsdp-no, CPU feature psdp-no",)
    return Incident(
        "features-of-its-node-alone", f"{KUBEVIRT}/pull/17947", features("w1"), NO, facts
    )


def incidents() -> list[Incident]:
    return [
        sidecar_that_stays(),
        old_container_that_runs(),
        container_that_is_not_killed("explain", "vm/web", "-n", "vms"),
        container_that_is_not_killed("drain", "w2"),
        controller_that_does_not_act(),
        controller_that_has_time_left(),
        pod_of_a_volume_refused(),
        volume_that_the_vm_does_not_have(),
        secret_that_the_vm_names(),
        features_that_no_node_has(),
        features_of_its_node_alone(),
    ]
