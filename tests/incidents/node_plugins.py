"""A volume that does not get into a pod because of its node: its driver is not there,
or Longhorn reports the node.
"""

from typing import Any

from tests.healthy.clusters import plain
from tests.healthy.parts import Object, conditions, deployment, namespaces, obj
from tests.healthy.storage import longhorn_volume

from .component_faults import LONGHORN, with_disk
from .machines import NOT_YES, YES, Incident, event, find, guest, launcher_of
from .starts import starting

ROOK = "rook-ceph.rbd.csi.ceph.com"
TAINTED = "https://github.com/rook/rook/issues/6870"
MULTIPATH = "https://github.com/longhorn/longhorn/issues/1210"
NO_DRIVER = (
    'MapVolume.SetUpDevice failed for volume "pvc-vms-train" : kubernetes.io/csi: '
    f"blockMapper.SetUpDevice failed to get CSI client: driver name {ROOK} not found in the list "
    "of registered CSI drivers"
)
BUSY = (
    'MountVolume.MountDevice failed for volume "pvc-vms-wiki" : rpc error: code = Internal desc = '
    "mount failed: exit status 32 Output: mount: /dev/longhorn/pvc-vms-wiki already mounted or "
    "mount point busy."
)


def on_node(items: list[Object], name: str, node: str, reason: str, message: str) -> list[Object]:
    """Let the pod of a VM that starts wait on a node, with what its kubelet says."""
    launcher = launcher_of(items, name)
    launcher["spec"]["nodeName"] = node
    launcher["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}]
    find(items, "VirtualMachineInstance", name)["status"]["activePods"] = {
        launcher["metadata"]["uid"]: node
    }
    return [*items, event(launcher, reason, message, "kubelet")]


def plugins(on: list[str], **spec: Any) -> list[Object]:
    """Return the DaemonSet of the driver with its pods; each worker's CSINode lists the driver."""
    labels = {"app": "csi-rbdplugin"}
    items = namespaces("rook-ceph") + deployment(
        "csi-rbdplugin", "rook-ceph", on, labels, spec=spec, kind="DaemonSet"
    )
    items += deployment("rook-ceph-operator", "rook-ceph", ["w1"], {"app": "rook-ceph-operator"})
    drivers = {"drivers": [{"name": ROOK, "nodeID": "n"}]}
    return items + [
        obj("CSINode", "storage.k8s.io/v1", name, spec=drivers) for name in ("w1", "w2", "w3")
    ]


def tainted(on: list[str], **spec: Any) -> list[Object]:
    items = plain() + plugins(on, **spec)
    items += on_node(starting("train", "Scheduling"), "train", "w2", "FailedMapVolume", NO_DRIVER)
    find(items, "Node", "w2")["spec"]["taints"] = [
        {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
    ]
    return items


def driver_that_a_taint_keeps_away(*ask: str) -> Incident:
    facts: tuple[str, ...] = (
        r"DaemonSet rook-ceph/csi-rbdplugin does not tolerate taint dedicated=gpu:NoSchedule",
        r"(?s)\A(?!.*[Rr]epair the volume)",
    )
    if ask[:2] == ("explain", "vm/train"):
        facts += (
            r"driver rook-ceph.rbd.csi.ceph.com is not registered on w2 \(no pod there: ",
            (
                r"let DaemonSet rook-ceph/csi-rbdplugin tolerate it by CSI_PLUGIN_TOLERATIONS of "
                r"Rook's operator \(or, as a decision, take the taint off w2\)"
            ),
            r"kubectl edit configmap rook-ceph-operator-config -n rook-ceph",
        )
    elif ask[0] == "explain":
        facts += (
            (
                r"No volume of driver rook-ceph.rbd.csi.ceph.com can be mounted on this node, "
                r"although its CSINode"
            ),
        )
    else:
        facts = (
            (
                r"does not tolerate taint dedicated=gpu:NoSchedule.*\. Let DaemonSet "
                r"rook-ceph/csi-rbdplugin tolerate it"
            ),
        )
    return Incident(
        "-".join(("driver-tainted", *ask)), TAINTED, tainted(["w1", "w3"]), YES, facts, ask
    )


def driver_with_a_selector() -> Incident:
    items = tainted(["w1"], nodeSelector={"storage": "yes"}, tolerations=[{"operator": "Exists"}])
    facts = (
        r"no pod there: DaemonSet rook-ceph/csi-rbdplugin demands label storage=yes",
        r"let it run on w2: change what it demands.*; or label the node",
    )
    return Incident("driver-selector", TAINTED, items, YES, facts, ("explain", "vm/train"))


def driver_that_is_updated() -> Incident:
    """Its pod is only being replaced: no taint keeps it away."""
    items = tainted(["w1", "w3"], tolerations=[{"operator": "Exists"}])
    facts = (r"has none although w2 is one of its nodes", r"(?s)\A(?!.*tolerate)(?!.*No volume of)")
    return Incident("driver-updated", TAINTED, items, YES, facts, ("explain", "vm/train"))


def driver_on_all_workers() -> Incident:
    """Control-plane nodes have no driver, and their CSINodes list none."""
    items = plain() + plugins(["w1", "w2", "w3"]) + guest("web", "w1")
    items += [
        obj("CSINode", "storage.k8s.io/v1", f"cp{index}", spec={"drivers": []})
        for index in (1, 2, 3)
    ]
    facts = (r"(?s)\A(?!.*csi-rbdplugin)(?!.*No volume of)", r"A drain of w1 ends")
    return Incident("driver-everywhere", TAINTED, items, YES, facts, ("drain", "w1"))


def longhorn_node(name: str, **checks: tuple[str, str]) -> Object:
    """Return Longhorn's own Node.

    ``checks``: the conditions that are False, with reason and message.
    """
    good = (
        "Ready",
        "MountPropagation",
        "Multipathd",
        "RequiredPackages",
        "KernelModulesLoaded",
        "NFSClientInstalled",
    )
    state = conditions(**dict.fromkeys(good, True))
    for each in state:
        if each["type"] in checks:
            reason, message = checks[each["type"]]
            each |= {"status": "False", "reason": reason, "message": message}
    status = {"conditions": state}
    return obj(
        "Node", "longhorn.io/v1beta2", name, "longhorn-system", spec={"name": name}, status=status
    )


MULTIPATHD = (
    "MultipathdIsRunning",
    "multipathd is running with a known issue that affects Longhorn. See https://longhorn.io",
)


def busy(*nodes: Object, message: str = BUSY, robustness: str = "healthy") -> list[Object]:
    """Return a VM whose disk in Longhorn cannot be mounted on w2."""
    items = (
        plain() + namespaces("longhorn-system") + longhorn_volume("wiki", "w2", ("w1", "w2", "w3"))
    )
    items += on_node(
        with_disk("wiki", starting("wiki", "Scheduling")), "wiki", "w2", "FailedMount", message
    )
    find(items, "Volume", "pvc-vms-wiki")["status"]["robustness"] = robustness
    labels = {"app": "longhorn-csi-plugin"}
    items += deployment(
        "longhorn-csi-plugin", "longhorn-system", ["w1", "w2", "w3"], labels, kind="DaemonSet"
    )
    drivers = {"drivers": [{"name": LONGHORN, "nodeID": "n"}]}
    items += [
        obj("CSINode", "storage.k8s.io/v1", name, spec=drivers) for name in ("w1", "w2", "w3")
    ]
    return [*items, *nodes]


def devices_that_multipathd_takes(*ask: str) -> Incident:
    facts: tuple[str, ...] = (
        r"reports of w2: Multipathd False \(MultipathdIsRunning\)",
        r"[Ee]xclude Longhorn's devices in /etc/multipath.conf of w2",
        r"(?s)\A(?!.*[Rr]epair the volume)(?!.*busy\.\.)",
    )
    if ask[0] == "explain":
        facts += (
            r"or stop multipathd there",
            r"kubectl describe nodes.longhorn.io w2 -n longhorn-system",
        )
    items = busy(longhorn_node("w1"), longhorn_node("w2", Multipathd=MULTIPATHD))
    return Incident("-".join(("multipathd", *ask)), MULTIPATH, items, YES, facts, ask)


def client_that_is_missing() -> Incident:
    lacks = ("NFSClientIsNotFound", "NFS clients [NFS4] not found. At least one should be enabled")
    message = BUSY.replace(
        "already mounted or mount point busy.", "mount.nfs: bad option; you might need a helper"
    )
    facts = (
        (
            r"Longhorn reports of w2: NFSClientInstalled False \(NFSClientIsNotFound: NFS clients "
            r"\[NFS4\] not found"
        ),
        r"install an NFS client for version 4 on w2",
    )
    items = busy(
        longhorn_node("w2", NFSClientInstalled=lacks, Multipathd=MULTIPATHD), message=message
    )
    return Incident("nfs-client", MULTIPATH, items, YES, facts, ("explain", "vm/wiki"))


def volume_that_is_whole() -> Incident:
    """Longhorn reports nothing of the node, and its volume is attached and healthy."""
    facts = (
        r"see why w2 cannot mount the volume, which is attached and has its data",
        r"kubectl logs longhorn-csi-plugin-x1 -n longhorn-system --all-containers",
        r"(?s)\A(?!.*[Rr]epair the volume)(?!.*Longhorn reports)",
    )
    wrong_fs = BUSY.replace("already mounted or mount point busy.", "wrong fs type, bad superblock")
    items = busy(longhorn_node("w2", Multipathd=MULTIPATHD), message=wrong_fs)
    return Incident("volume-whole", MULTIPATH, items, YES, facts, ("explain", "vm/wiki"))


def multipathd_beside_a_running_vm() -> Incident:
    """Longhorn reports multipathd also where its devices are excluded."""
    items = plain() + with_disk("wiki", guest("wiki", "w2"))
    items.append(longhorn_node("w2", Multipathd=MULTIPATHD))
    facts = (r"(?s)\A(?!.*[Mm]ultipath)",)
    return Incident(
        "multipathd-beside", MULTIPATH, items, YES | NOT_YES, facts, ("explain", "node/w2")
    )


def incidents() -> list[Incident]:
    return [
        driver_that_a_taint_keeps_away("explain", "vm/train"),
        driver_that_a_taint_keeps_away("explain", "node/w2"),
        driver_that_a_taint_keeps_away("scan"),
        driver_with_a_selector(),
        driver_that_is_updated(),
        driver_on_all_workers(),
        devices_that_multipathd_takes("explain", "vm/wiki"),
        devices_that_multipathd_takes("scan"),
        client_that_is_missing(),
        volume_that_is_whole(),
        multipathd_beside_a_running_vm(),
    ]
