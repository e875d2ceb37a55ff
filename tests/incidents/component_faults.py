"""Reports in which a component of another product fails on a node, or refuses writes: its pod is the cause."""

from tests.healthy.clusters import plain
from tests.healthy.machines import claim, storage_class
from tests.healthy.parts import Object, ago, deployment, namespaces, obj

from .machines import NO, UNKNOWN, YES, Incident, find, guest, launcher_of
from .starts import starting

LONGHORN = "driver.longhorn.io"


def crashing(pod: Object, *, minutes: int, ended: Object, limit: str = "") -> None:
    """Let the container of a pod end again and again."""
    for each in pod["status"]["conditions"]:
        if each["type"] in ("Ready", "ContainersReady"):
            each |= {"status": "False", "lastTransitionTime": ago(minutes=minutes)}
    name = pod["spec"]["containers"][0]["name"]
    if limit:
        pod["spec"]["containers"][0]["resources"]["limits"] = {"memory": limit}
    waiting = {"reason": "CrashLoopBackOff", "message": f"back-off 5m0s restarting failed container={name}"}
    status = {"name": name, "ready": False, "restartCount": 18, "image": "x", "imageID": "x"}
    pod["status"]["containerStatuses"] = [status | {"state": {"waiting": waiting}, "lastState": {"terminated": ended}}]


def drivers(*without: str) -> list[Object]:
    """Return Longhorn with the CSINode of each worker. ``without``: the nodes on which its driver is not registered."""
    items = namespaces("longhorn-system") + storage_class("longhorn", LONGHORN)
    items += deployment(
        "longhorn-csi-plugin", "longhorn-system", ["w1", "w2", "w3"], {"app": "longhorn-csi-plugin"}, kind="DaemonSet"
    )
    for name in ("w1", "w2", "w3"):
        registered = [] if name in without else [{"name": LONGHORN, "nodeID": name, "topologyKeys": None}]
        items.append(obj("CSINode", "storage.k8s.io/v1", name, spec={"drivers": registered}))
    for pod in items:
        if pod["kind"] == "Pod" and pod["spec"]["nodeName"] in without:
            crashing(pod, minutes=69, ended={"exitCode": 1, "reason": "Error", "finishedAt": ago(minutes=4)})
    return items


def with_disk(name: str, items: list[Object]) -> list[Object]:
    """Return the objects of a VM, with its disk in Longhorn."""
    kept = [each for each in items if not each["kind"].startswith("PersistentVolume")]
    return kept + claim(name, driver=LONGHORN, storage_class="longhorn")


def not_attached(name: str, on: str) -> list[Object]:
    """Return a VM whose pod waits for a volume, as the node has no driver for it."""
    items = with_disk(name, starting(name, "Scheduling"))
    launcher = launcher_of(items, name)
    launcher["spec"]["nodeName"] = on
    launcher["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}]
    find(items, "VirtualMachineInstance", name)["status"]["activePods"] = {launcher["metadata"]["uid"]: on}
    source = {"persistentVolumeName": f"pvc-vms-{name}"}
    error = {"message": f"CSINode {on} does not contain driver {LONGHORN}", "time": ago(minutes=1)}
    spec = {"attacher": LONGHORN, "nodeName": on, "source": source}
    items.append(
        obj(
            "VolumeAttachment",
            "storage.k8s.io/v1",
            "csi-1",
            spec=spec,
            status={"attached": False, "attachError": error},
        )
    )
    return items


SOURCE = "https://github.com/longhorn/longhorn/issues/6435"


def driver_not_registered() -> Incident:
    items = plain() + drivers("w2") + not_attached("db", "w2")
    facts = (
        r"CSINode w2 does not contain driver driver.longhorn.io \(pod longhorn-csi-plugin-\S+ is not ready since 69 min: "
        r"CrashLoopBackOff, it ends with exit code 1\)",
        r"could start on +w1, w3\n",
        r"to run it before that, cordon w2, then stop and start the VM: kubectl logs longhorn-csi-plugin-\S+ -n "
        r"longhorn-system --previous",
    )
    return Incident("driver-not-registered", SOURCE, items, YES, facts, ("explain", "vm/db"))


def target_without_driver() -> Incident:
    items = plain() + drivers("w2") + with_disk("mail", guest("mail", "w1"))
    facts = (
        r"unknown +vms/mail +LiveMigrate, but kube-scheduler may choose w2, and CSI driver driver.longhorn.io is not "
        r"registered on w2",
        r"repair pod longhorn-csi-plugin-\S+ on w2; or cordon w2 until then: kubectl cordon w2",
    )
    return Incident("target-without-driver", SOURCE, items, UNKNOWN, facts)


def no_target_with_driver() -> Incident:
    items = plain() + drivers("w2", "w3") + with_disk("mail", guest("mail", "w1"))
    facts = (
        r"no node that could take it is ready: w2, w3 \(CSI driver driver.longhorn.io is not registered on w2",
        r"to do: repair pod longhorn-csi-plugin-x1, whose last log says why it ends: kubectl logs",
    )
    return Incident("no-target-with-driver", SOURCE, items, NO, facts)


def drivers_everywhere() -> Incident:
    items = plain() + drivers() + with_disk("mail", guest("mail", "w1"))
    return Incident("drivers-everywhere", SOURCE, items, YES, (r"A drain of w1 ends",))


def incidents() -> list[Incident]:
    return [driver_not_registered(), target_without_driver(), no_target_with_driver(), drivers_everywhere()]
