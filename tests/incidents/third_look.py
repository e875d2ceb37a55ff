"""Reports about components of KubeVirt that are half updated, pods that stay,
and settings with side effects.
"""

from tests.healthy.clusters import plain
from tests.healthy.machines import claim, machine
from tests.healthy.parts import ago, conditions

from .machines import (
    NO,
    NOT_YES,
    YES,
    Incident,
    cordoned,
    draining,
    event,
    failed,
    find,
    guest,
    migration,
)

KUBEVIRT = "https://github.com/kubevirt/kubevirt"


def stale_source() -> Incident:
    """The source pod of a migration that succeeded still runs, so the next migration waits."""
    release = (1, 8)
    items = plain(release) + guest("web", "w2", release)
    old = machine("web", "w1", release, disks=["web"])[2]
    old["metadata"] |= {
        "name": "virt-launcher-web-grlxf",
        "uid": "uid-old",
        "creationTimestamp": ago(days=9),
    }
    vmi = find(items, "VirtualMachineInstance", "web")
    vmi["status"]["activePods"]["uid-old"] = "w1"
    cordoned(items, "w2", minutes=10)
    vmi["status"]["evacuationNodeName"] = "w2"
    done = {
        "completed": True,
        "startTimestamp": ago(minutes=13),
        "endTimestamp": ago(minutes=12),
        "targetNode": "w2",
    }
    items += [
        old,
        migration("web", {"Running": 780, "Succeeded": 720}, name="update", state=done, notes={}),
    ]
    items.append(migration("web", {"Pending": 560}, source="w2"))
    facts = (r"virt-launcher-web-grlxf",)
    return Incident(
        "stale-source", f"{KUBEVIRT}/issues/18320", items, NOT_YES, facts, ("drain", "w2")
    )


def registry_away() -> Incident:
    """An update of KubeVirt cannot pull virt-handler; its nodes are still marked as schedulable."""
    release = (1, 8)
    items = plain(release) + guest("web", "w1", release)
    for each in list(items):
        place = each.get("spec", {}).get("nodeName")
        if (
            each["kind"] == "Pod"
            and each["metadata"]["name"].startswith("virt-handler")
            and place in ("w2", "w3")
        ):
            text = 'Back-off pulling image "quay.io/kubevirt/virt-handler:v1.8.0"'
            state = {"waiting": {"reason": "ImagePullBackOff", "message": text}}
            each["status"] = {
                "phase": "Pending",
                "conditions": conditions(PodScheduled=True, Ready=False),
            }
            each["status"]["containerStatuses"] = [
                {"name": "virt-handler", "ready": False, "state": state}
            ]
            items.append(event(each, "Failed", "Error: ImagePullBackOff", "kubelet"))
    facts = (r"to do: .*(image|registry|virt-handler)", r"ImagePullBackOff")
    return Incident("registry-away", f"{KUBEVIRT}/issues/2397", items, NOT_YES, facts)


def crashing_handlers() -> Incident:
    release = (1, 6)
    items = plain(release) + guest("web", "w1", release)
    for each in items:
        if each["kind"] == "Pod" and each["metadata"]["name"].startswith("virt-handler"):
            state = {
                "waiting": {
                    "reason": "CrashLoopBackOff",
                    "message": "back-off 5m0s restarting failed container",
                }
            }
            each["status"] = {
                "phase": "Pending",
                "conditions": conditions(PodScheduled=True, Ready=False),
            }
            each["status"]["initContainerStatuses"] = [
                {"name": "virt-launcher", "ready": False, "state": state}
            ]
        if each["kind"] == "Node" and each["metadata"]["name"].startswith("w"):
            each["metadata"]["labels"]["kubevirt.io/schedulable"] = "false"
            each["metadata"]["annotations"]["kubevirt.io/heartbeat"] = ago(minutes=30)
    facts = (r"virt-handler", r"CrashLoopBackOff")
    return Incident("crashing-handlers", f"{KUBEVIRT}/issues/9458", items, NOT_YES, facts)


def misscheduled() -> Incident:
    """A taint on a node makes KubeVirt not Available, although all of its parts work."""
    release = (1, 3)
    items = plain(release) + guest("web", "w1", release)
    find(items, "Node", "w3")["spec"]["taints"] = [
        {"key": "dedicated", "value": "db", "effect": "NoSchedule"}
    ]
    state = find(items, "KubeVirt", "kubevirt")["status"]
    state["conditions"] = conditions(
        Created=True, Available=False, Progressing=False, Degraded=False
    )
    return Incident("misscheduled", f"{KUBEVIRT}/pull/10254", items, YES, (r"migrates  vms/web",))


def unsafe_storage() -> Incident:
    items = draining((1, 6), disks=["nfs"]) + claim("nfs", volume_mode="Filesystem")
    text = (
        "Live migration failed error encountered during MigrateToURI3 libvirt api call: "
        "virError(Code=81, Domain=10, Message='Unsafe migration: Migration without shared storage "
        "is unsafe')"
    )
    failed(items, "web", text, ("w2", "w3", "w2"), lasted=2)
    facts = (
        r"Migration without shared storage is unsafe",
        r"claim nfs \(volumeMode Filesystem",
        r"volumeMode Block",
    )
    return Incident("unsafe-storage", f"{KUBEVIRT}/issues/9643", items, NO, facts)


def cordon_moves() -> Incident:
    release = (1, 6)
    items = plain(release) + guest("web", "w1", release)
    settings = {"nodeDrainTaintKey": "node.kubernetes.io/unschedulable"}
    find(items, "KubeVirt", "kubevirt")["spec"]["configuration"]["migrations"] = settings
    source = "https://github.com/kubevirt/hyperconverged-cluster-operator/pull/823"
    return Incident(
        "cordon-moves", source, items, YES, (r"nodeDrainTaintKey", r"cordon"), ("scan",)
    )


def incidents() -> list[Incident]:
    return [
        stale_source(),
        registry_away(),
        crashing_handlers(),
        misscheduled(),
        unsafe_storage(),
        cordon_moves(),
    ]
