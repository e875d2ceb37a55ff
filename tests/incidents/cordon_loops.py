"""Nodes that Harvester cordons again after each uncordon: a maintenance was asked for,
and its drain does not end.
"""

from tests.healthy.parts import Object, ago
from tests.healthy.storage import harvester, harvester_vm, longhorn_volume

from .machines import NO, YES, Incident, cordoned, event, find, launcher_of

URL = "https://github.com/harvester/harvester/issues/5598"
HOSTS = ("h1", "h2", "h3")
REQUESTED = "harvesterhci.io/drain-requested"


def requested(*nodes: str, minutes: float, times: int = 0) -> list[Object]:
    """Return a cluster of Harvester.

    ``times``: how often each of these nodes was uncordoned and is cordoned again.
    """
    items = harvester((1, 4), HOSTS, "allow-if-replica-is-stopped") + harvester_vm(
        "web", "h1", (1, 4)
    )
    for name in nodes:
        cordoned(items, name, minutes=minutes)
        node = find(items, "Node", name)
        node["metadata"].setdefault("annotations", {})[REQUESTED] = "true"
        if times:
            seen = event(
                node,
                "NodeSchedulable",
                f"Node {name} status is now: NodeSchedulable",
                "kubelet",
                count=times,
            )
            items.append(seen | {"type": "Normal"})
    return items


def waiting(items: list[Object]) -> list[Object]:
    """Let the VM wait for a node."""
    vm, vmi = find(items, "VirtualMachine", "web"), find(items, "VirtualMachineInstance", "web")
    pod = launcher_of(items, "web")
    vm["status"] |= {"ready": False, "printableStatus": "Starting"}
    vmi["metadata"]["creationTimestamp"] = pod["metadata"]["creationTimestamp"] = ago(minutes=30)
    vmi["status"] = {"phase": "Scheduling", "activePods": {pod["metadata"]["uid"]: ""}}
    pod["spec"].pop("nodeName")
    unschedulable = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes",
    }
    pod["status"] = {"phase": "Pending", "conditions": [unschedulable]}
    volumes = ("Volume", "Engine", "Replica", "VolumeAttachment")
    return [each for each in items if each["kind"] not in volumes] + longhorn_volume(
        "web", None, HOSTS
    )


LOOP = r"h1 was uncordoned 8 times and cordoned again \(harvesterhci.io/drain-requested\)"


def every_node(*ask: str) -> Incident:
    items = requested(*HOSTS, minutes=4, times=8)
    facts: tuple[str, ...] = (
        LOOP,
        r"(?s)\A(?!.*in Harvester, which an uncordon)(?!.*: kubectl uncordon)",
    )
    if ask[:2] == ("explain", "vm/web"):
        items = waiting(items)
        facts += (
            r"h1, h2, h3 \(all cordoned by an unfinished maintenance request of Harvester\)",
            r"kubectl annotate node h1 h2 h3 harvesterhci.io/drain-requested-",
        )
    elif ask[0] == "explain":
        facts += (
            r"kubectl annotate node h1 harvesterhci.io/drain-requested-",
            r"(?s)as it has not recorded the end of the drain(?!.*its drain does not end)",
        )
    else:
        facts += (r"Node/h1: warn: .*cordoned by an unfinished maintenance request of Harvester",)
    return Incident(
        "-".join(("cordon-loop", *ask)),
        URL,
        items,
        NO if ask[-1] != "vm/web" else NO | YES,
        facts,
        ask,
    )


def failing_drain() -> Incident:
    """Newer releases say in a condition why the drain does not end."""
    items = requested("h1", minutes=20)
    said = {
        "type": "MaintenanceMode",
        "status": "False",
        "reason": "Error",
        "message": "error draining node h1: timed out",
    }
    find(items, "Node", "h1")["status"]["conditions"].append(said)
    facts = (r"its drain for the maintenance of h1 fails: error draining node h1: timed out",)
    return Incident("cordon-error", URL, items, YES | NO, facts, ("explain", "node/h1"))


def maintenance_that_has_just_begun(*ask: str) -> Incident:
    """Harvester empties the node, as an administrator has asked for."""
    facts: tuple[str, ...] = (r"(?s)\A(?!.*again and again)(?!.*node-cordon-stays)",)
    if ask[0] == "explain":
        facts += (r"This node is cordoned since Harvester was asked for its maintenance",)
    items = requested("h1", minutes=4, times=1)
    return Incident("-".join(("maintenance-begun", *ask)), URL, items, YES | NO, facts, ask)


def incidents() -> list[Incident]:
    return [
        every_node("explain", "vm/web"),
        every_node("explain", "node/h1"),
        every_node("scan"),
        failing_drain(),
        maintenance_that_has_just_begun("explain", "node/h1"),
        maintenance_that_has_just_begun("scan"),
    ]
