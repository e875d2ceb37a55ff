"""Who makes the pods of a node again, and what removes them meanwhile:
a deleted pod would come back.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from virt_admit.model.commands import kubectl, merge_patch, typed, virtctl
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import (
    DEPLOYMENT,
    JOB,
    POD,
    REPLICA_SET,
    STATEFUL_SET,
    VM,
    VMI,
    Kind,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find, maker_of

READS: Final[Reads] = dict.fromkeys((POD, REPLICA_SET, VMI), ("metadata.ownerReferences",))

SCALED_READS: Final[Reads] = union(
    dict.fromkeys((DEPLOYMENT, POD, REPLICA_SET, STATEFUL_SET), ("metadata.ownerReferences",)),
    {STATEFUL_SET: ("spec.replicas",)},
)

_SCALED: Final = {kind.kind: kind for kind in (DEPLOYMENT, REPLICA_SET, STATEFUL_SET)}


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
    words = f"scale {kind} {pod.namespace}/{name} to 0 for this time"
    return typed(words, _to_zero(_SCALED[kind], name, pod.namespace))


def _to_zero(kind: Kind, name: str, namespace: str) -> str:
    return kubectl("scale", kind, name, namespace, "--replicas=0")


class ScaledOwner(NamedTuple):
    """The Deployment or StatefulSet that makes a pod again, and that nothing owns."""

    title: str
    """``Deployment shop/export``."""
    command: str

    @property
    def remedy(self) -> str:
        """What ends the use of a volume by its pods: a pod that is deleted comes back."""
        words = f"scale {self.title} to 0 as long as its volume is needed here, and it is down then"
        return typed(words, self.command)


def scaled(pod: Object, cluster: Cluster) -> ScaledOwner | None:
    """Return what is scaled to end the use of a claim by a pod; None: something else makes the pod,
    an operator would scale that again, or that is not known.

    A StatefulSet has a claim for each of its pods: to end one, it would have to end the others, and
    the claims of those are not concerned.
    """
    owner = maker_of(pod, cluster)
    kind = _SCALED.get(owner["kind"].text or "") if owner is not None else None
    if owner is None or kind is None or kind is REPLICA_SET:
        return None
    found = find(cluster, kind, pod.namespace, owner["name"].text or "")
    if found is None or found.controller is not None:
        return None
    replicas = found.at("spec", "replicas")
    if kind is STATEFUL_SET and replicas.present and replicas.integer not in (0, 1):
        return None
    command = _to_zero(kind, found.name, pod.namespace)
    return ScaledOwner(f"{kind.kind} {found.full_name}", command)


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
