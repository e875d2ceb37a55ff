"""Who makes the pods of a node again, and what removes them meanwhile:
a deleted pod would come back.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from virt_admit.model.commands import argument, kubectl, merge_patch, shell, typed, virtctl
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import (
    DEPLOYMENT,
    JOB,
    POD,
    REPLICA_SET,
    STATEFUL_SET,
    VM,
    VMI,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.lookups import find, maker_of

READS: Final[Reads] = dict.fromkeys((POD, REPLICA_SET, VMI), ("metadata.ownerReferences",))

SCALED_READS: Final[Reads] = dict.fromkeys(
    (DEPLOYMENT, POD, REPLICA_SET, STATEFUL_SET), ("metadata.ownerReferences",)
)

_SCALABLE: Final = {kind.kind: kind for kind in (DEPLOYMENT, STATEFUL_SET)}
_SCALED: Final = frozenset(("Deployment", "ReplicaSet", "StatefulSet"))


def taken_away(pod: Object, cluster: Cluster) -> str:
    """Return what takes a pod away from its node until it is wanted again, with a command."""
    owner, described = maker_of(pod, cluster), kubectl("describe", POD, pod.name, pod.namespace)
    if owner is None:
        return typed(f"end pod {pod.full_name}", described)
    kind, name = owner["kind"].text or "", owner["name"].text or ""
    if kind == VMI.kind:
        return _shut_down(pod.namespace, name, cluster)
    if kind == JOB.kind:  # its pods end, and it can be resumed
        suspend = merge_patch(JOB, name, pod.namespace, {"spec": {"suspend": True}})
        job = find(cluster, JOB, pod.namespace, name)
        by = job.controller if job is not None else None
        again = (
            f"; {by['kind'].text} {by['name'].text} may start it again" if by is not None else ""
        )
        lost = f"whose pods lose their work{again}"
        return typed(f"suspend Job {pod.namespace}/{name} for this time ({lost})", suspend)
    if kind not in _SCALED:
        return typed(f"keep {kind} {pod.namespace}/{name} off this node", described)
    command = shell(
        "kubectl", "scale", kind.lower(), argument(name), "-n", pod.namespace, "--replicas=0"
    )
    return typed(f"scale {kind} {pod.namespace}/{name} to 0 for this time", command)


class ScaledOwner(NamedTuple):
    """The Deployment or StatefulSet that makes a pod again, and that nothing known owns."""

    title: str
    """``Deployment shop/export``."""
    command: str

    @property
    def remedy(self) -> str:
        """What ends the use of a volume by its pods: a pod that is deleted comes back."""
        return typed(f"scale {self.title} to 0 as long as its volume is needed here", self.command)


def scaled(pod: Object, cluster: Cluster) -> ScaledOwner | None:
    """Return what is scaled to end a pod; None: something else makes it, or an operator would scale
    that again.
    """
    owner = maker_of(pod, cluster)
    kind = _SCALABLE.get(owner["kind"].text or "") if owner is not None else None
    if owner is None or kind is None:
        return None
    name = owner["name"].text or ""
    found = find(cluster, kind, pod.namespace, name)
    if found is not None and found.controller is not None:
        return None
    command = kubectl("scale", kind, name, pod.namespace, "--replicas=0")
    return ScaledOwner(f"{kind.kind} {pod.namespace}/{name}", command)


def _shut_down(namespace: str, name: str, cluster: Cluster) -> str:
    """Return what takes the pod of a VMI away: a deleted one comes back with its VM,
    and a device does not migrate.
    """
    vmi = find(cluster, VMI, namespace, name)
    vm = vmi.controller if vmi is not None else None
    if vm is not None and vm["kind"].text == VM.kind:
        stop = virtctl("stop", vm["name"].text or "", namespace)
        return typed(
            f"shut VM {namespace}/{name} down for this time, and start it again afterwards", stop
        )
    return typed(
        f"shut VMI {namespace}/{name} down for this time", kubectl("describe", VMI, name, namespace)
    )
