"""Virtual machines in trouble: migrations, target pods and events as the controllers write them."""

import copy
import dataclasses
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from tests.healthy.clusters import plain
from tests.healthy.machines import claim, machine
from tests.healthy.parts import Object, ago, conditions, obj, snapshot

NO = frozenset({False})
NOT_YES = frozenset({False, None})
UNKNOWN = frozenset({None})
YES = frozenset({True})


@dataclasses.dataclass(frozen=True)
class Incident:
    """A public incident.

    Attributes:
        url: where it was reported.
        items: the cluster at that moment.
        verdict: what `drain` may answer for the node.
        facts: regular expressions; the text has to match each of them.
        ask: the verb and its arguments; a node's name alone is a drain of it.
    """

    name: str
    url: str
    items: list[Object]
    verdict: frozenset[bool | None]
    facts: tuple[str, ...]
    ask: tuple[str, ...] = ("drain", "w1")

    def snapshot(self) -> Object:
        return snapshot(self.items)


def find(items: Iterable[Object], kind: str, name: str) -> Object:
    return next(each for each in items if each["kind"] == kind and each["metadata"]["name"] == name)


def guest(
    name: str, on: str = "w1", release: tuple[int, int] = (1, 6), **fields: Any
) -> list[Object]:
    """Return a VM with the strategy LiveMigrate and one shared disk; fields: see Guest."""
    options: Object = {"strategy": "LiveMigrate", "disks": [name]} | fields
    return machine(name, on, release, **options) + claim(name)


def launcher_of(items: Iterable[Object], name: str) -> Object:
    return find(items, "Pod", f"virt-launcher-{name}-k2x7q")


def cordoned(items: list[Object], node: str = "w1", **since: float) -> None:
    found = find(items, "Node", node)
    taint = {
        "key": "node.kubernetes.io/unschedulable",
        "effect": "NoSchedule",
        "timeAdded": ago(**since),
    }
    found["spec"] |= {"unschedulable": True, "taints": [*found["spec"].get("taints", ()), taint]}


def marked(items: list[Object], name: str, node: str = "w1", **since: float) -> None:
    """Ask for the eviction of a VM on a node that is being drained."""
    vmi = find(items, "VirtualMachineInstance", name)
    vmi["status"]["evacuationNodeName"] = node
    asked = {"type": "EvictionRequested", "status": "True", "lastTransitionTime": ago(**since)}
    vmi["status"]["conditions"].append(asked)


def migration(
    vmi: str,
    phases: Mapping[str, float],
    *,
    name: str = "",
    source: str = "w1",
    state: Object | None = None,
    notes: Mapping[str, str] | None = None,
    spec: Mapping[str, Any] = {},
) -> Object:
    """Return a migration; phases: how many seconds ago each one began,
    the last one is the present one.
    """
    name = name or f"kubevirt-evacuation-{vmi}"
    annotations = {"kubevirt.io/evacuationMigration": source} if notes is None else dict(notes)
    times = [
        {"phase": phase, "phaseTransitionTimestamp": ago(seconds=late)}
        for phase, late in phases.items()
    ]
    metadata = {
        "annotations": annotations,
        "labels": {"kubevirt.io/vmi-name": vmi},
        "creationTimestamp": ago(seconds=next(iter(phases.values()))),
    }
    found = obj("VirtualMachineInstanceMigration", "kubevirt.io/v1", name, "vms", metadata=metadata)
    status: Object = {"phase": list(phases)[-1], "phaseTransitionTimestamps": times}
    if state is not None:
        status["migrationState"] = {
            "migrationUid": found["metadata"]["uid"],
            "sourceNode": source,
        } | state
    return found | {"spec": {"vmiName": vmi, **spec}, "status": status}


def failed(
    items: list[Object], vmi: str, text: str, targets: Iterable[str], *, lasted: float = 20
) -> None:
    """Add failed evacuations, the newest last, and the state that the VMI keeps of it."""
    chosen = list(targets)
    for index, target in enumerate(chosen):
        late = 400.0 * (len(chosen) - index)
        state = {
            "targetNode": target,
            "completed": True,
            "failed": True,
            "failureReason": text,
            "mode": "PreCopy",
        }
        state |= {"startTimestamp": ago(seconds=late + lasted), "endTimestamp": ago(seconds=late)}
        state["targetPod"] = f"virt-launcher-{vmi}-try{index}"
        phases = {
            "Pending": 40,
            "Scheduling": 38,
            "Scheduled": 30,
            "PreparingTarget": 28,
            "TargetReady": 25,
        }
        times = {phase: late + lasted + more for phase, more in phases.items()}
        times |= {"Running": late + lasted, "Failed": late}
        move = migration(vmi, times, name=f"kubevirt-evacuation-{vmi}-{index}", state=state)
        items.append(move)
        find(items, "VirtualMachineInstance", vmi)["status"]["migrationState"] = move["status"][
            "migrationState"
        ]


def target_pod(
    items: list[Object],
    vmi: str,
    on: str | None,
    move: Object,
    age: float,
    *,
    ready: bool,
    waiting: Object | None = None,
) -> Object:
    """Add the target pod of a migration.

    Args:
        on: its node, if the scheduler has found one.
        age: seconds.
        waiting: the state of its container, if it cannot start.
    """
    made = copy.deepcopy(launcher_of(items, vmi))
    name = f"virt-launcher-{vmi}-tgt9z"
    made["metadata"] |= {"name": name, "uid": f"uid-{name}", "creationTimestamp": ago(seconds=age)}
    made["metadata"]["labels"]["kubevirt.io/migrationJobUID"] = move["metadata"]["uid"]
    made["metadata"]["annotations"]["kubevirt.io/migrationJobName"] = move["metadata"]["name"]
    state = conditions(
        Initialized=True, Ready=ready, ContainersReady=ready, PodScheduled=on is not None
    )
    made["status"] = {
        "phase": "Running" if ready else "Pending",
        "conditions": state,
        "qosClass": "Burstable",
    }
    container = {"name": "compute", "ready": ready, "restartCount": 0, "image": "virt-launcher:v1"}
    running = {"running": {"startedAt": ago(seconds=age - 5)}}
    made["status"]["containerStatuses"] = [container | {"state": waiting or running}]
    if on is None:
        del made["spec"]["nodeName"]
    else:
        made["spec"]["nodeName"] = on
    items.append(made)
    find(items, "VirtualMachineInstance", vmi)["status"]["activePods"][made["metadata"]["uid"]] = (
        on or ""
    )
    return made


def event(
    of: Object, reason: str, message: str, source: str, *, count: int = 20, late: float = 15
) -> Object:
    meta = of["metadata"]
    about = {
        "kind": of["kind"],
        "apiVersion": of["apiVersion"],
        "name": meta["name"],
        "uid": meta["uid"],
    }
    found = obj(
        "Event", "v1", f"{meta['name']}.{zlib.crc32(message.encode()):x}", meta.get("namespace")
    )
    found |= {
        "involvedObject": about | {"namespace": meta.get("namespace")},
        "reason": reason,
        "message": message,
    }
    found |= {"type": "Warning", "count": count, "source": {"component": source}}
    return found | {"firstTimestamp": ago(minutes=10), "lastTimestamp": ago(seconds=late)}


def draining(release: tuple[int, int] = (1, 6), name: str = "web", **fields: Any) -> list[Object]:
    """Return a cluster whose node w1 is drained since ten minutes,
    with one VM that is asked to leave it.
    """
    items = plain(release) + guest(name, "w1", release, **fields)
    cordoned(items, minutes=10)
    marked(items, name, minutes=10)
    return items
