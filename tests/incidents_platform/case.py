"""A public incident: the cluster as its objects showed it, a command,
and what an administrator has to be told.
"""

import copy
import dataclasses
from collections.abc import Iterable

from tests.healthy.machines import claim, kubevirt, machine, storage_class
from tests.healthy.parts import Object, ago, namespaces, node, snapshot

NODES = ("n1", "n2", "n3")


@dataclasses.dataclass(frozen=True)
class Incident:
    """One incident.

    Attributes:
        source: its public address.
        command: the words after ``virt-admit``.
        code: the exit code.
        says: parts of the report.
        never: parts that would be wrong.
    """

    source: str
    items: list[Object]
    command: str
    code: int
    says: tuple[str, ...]
    never: tuple[str, ...] = ()

    @property
    def snapshot(self) -> Object:
        return snapshot(self.items)


def cluster(
    *cordoned: str, vms: Iterable[tuple[str, str]] = (("web", "n2"),), **notes: Object
) -> list[Object]:
    """Return three nodes with KubeVirt and VMs that can migrate; ``notes``: annotations by node."""
    found = [
        node(name, unschedulable=name in cordoned, annotations=notes.get(name, {}))
        for name in NODES
    ]
    found += kubevirt((1, 6), [name for name in NODES if name not in cordoned], NODES, infra={})
    found += namespaces("vms") + storage_class("block", "rook-ceph.rbd.csi.ceph.com")
    for name, on in vms:
        found += machine(name, on, strategy="LiveMigrate", disks=[name]) + claim(name)
    return found


def only(items: Iterable[Object], kind: str, name: str) -> Object:
    """Return the object of that kind and name, to be changed in place."""
    return next(each for each in items if (each["kind"], each["metadata"]["name"]) == (kind, name))


def unready(pod: Object, *, since: str | None = None) -> Object:
    """Return the pod after its Ready condition became False."""
    found = copy.deepcopy(pod)
    for condition in found["status"]["conditions"]:
        if condition["type"] in ("Ready", "ContainersReady"):
            condition |= {"status": "False", "lastTransitionTime": since or ago(hours=1)}
    return found


def ending(pod: Object, phase: str, **late: float) -> Object:
    """Return the pod as it is being deleted since then."""
    found = unready(pod)
    found["metadata"] |= {"deletionTimestamp": ago(**late), "deletionGracePeriodSeconds": 30}
    found["status"]["phase"] = phase
    return found


def dead(items: list[Object], name: str) -> list[Object]:
    """Return the cluster after the node has stopped reporting."""
    node = only(items, "Node", name)
    for condition in node["status"]["conditions"]:
        condition |= {
            "status": "Unknown",
            "lastTransitionTime": ago(hours=5),
            "lastHeartbeatTime": ago(hours=5),
        }
    node["metadata"]["annotations"]["kubevirt.io/heartbeat"] = ago(hours=5)
    return items
