"""Taints of fencing that are left on a node which reports again, and what keeps the remediator from removing them.

Self Node Remediation removes its taint when no pod of the node is being deleted and no VolumeAttachment names the node;
releases up to 0.11 wait for that without a limit. A taint that an administrator set stays until it is removed. Sources:
medik8s/self-node-remediation:internal/controller/selfnoderemediation_controller.go#isResourceDeletionCompleted;
kubernetes/kubernetes:pkg/controller/podgc/gc_controller.go#gcTerminating.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from virt_admit.model.commands import argument, kubectl, shell
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, entry
from virt_admit.model.kubernetes.kinds import NODE, POD, VOLUME_ATTACHMENT
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.messages import names

OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
_REMEDIATORS: Final = "medik8s.io/"
"""Start of the taints of Self Node Remediation and Fence Agents Remediation."""
_SETTLED: Final = datetime.timedelta(minutes=10)
"""A remediator removes its taint soon after the node is back."""

READS: Final[Reads] = union(
    clock.READS,
    {
        NODE: (
            "spec.taints",
            "status.conditions.type",
            "status.conditions.status",
            "status.conditions.lastTransitionTime",
        ),
        POD: ("spec.nodeName", "metadata.deletionTimestamp"),
        VOLUME_ATTACHMENT: ("spec.nodeName",),
    },
)


def fence(node: str) -> str:
    """Return how an administrator tells Kubernetes that a node has no power, so that it ends its pods at once."""
    return f"confirm that {node} is powered off, then: {fence_command(node)}"


def fence_command(node: str) -> str:
    """Return the command that lets Kubernetes end the pods of a node and detach their volumes without its kubelet."""
    return shell("kubectl", "taint", "nodes", argument(node), f"{OUT_OF_SERVICE}=nodeshutdown:NoExecute")


def is_fenced(node: Object) -> bool:
    """Return whether a node has this taint."""
    return any(taint["key"].text == OUT_OF_SERVICE for taint in node.at("spec", "taints").items())


class LeftTaint(NamedTuple):
    """A taint of fencing on a node that reports."""

    taint: Field
    key: str
    minutes: int
    """Since when the node reports."""
    every: tuple[Field, ...]
    """All such taints of the node: this is the first of them."""

    @property
    def reason(self) -> str:
        """What is wrong, as the end of a sentence about the node."""
        return f"reports since {self.minutes} min, and still has taint {self.key} of its fencing"

    def is_all(self, refusal: str) -> bool:
        """Whether nothing but these taints refuses a pod."""
        return {f"taint {taint['key'].text}" for taint in self.every}.issuperset(refusal.split("; "))


def left(node: Object, cluster: Cluster) -> LeftTaint | None:
    """Return the taint of fencing that ends the pods of a node although it reports; None: there is none."""
    ready = node.condition("Ready")
    every = tuple(filter(_fences, node.at("spec", "taints").items()))
    if ready["status"].text != "True" or not every:
        return None  # before a look at the clock: what reads it is judged again each minute
    back = clock.since(ready["lastTransitionTime"].text, cluster)
    if back is None or back < _SETTLED:
        return None
    return LeftTaint(every[0], every[0]["key"].text or "", int(back.total_seconds() // 60), every)


def _fences(taint: Field) -> bool:
    key = taint["key"].text or ""
    return taint["effect"].text == "NoExecute" and (key == OUT_OF_SERVICE or key.startswith(_REMEDIATORS))


def known(cluster: Cluster) -> Mapping[str, LeftTaint]:
    """Return the known nodes with such a taint."""
    return cluster.cached(_known)


def _known(cluster: Cluster) -> Mapping[str, LeftTaint]:
    found = {node.name: left(node, cluster) for node in cluster.known(NODE)}
    return {name: each for name, each in found.items() if each is not None}


def waits_for(node: str, cluster: Cluster) -> str:
    """Return what the remediator of a node waits for, in words; empty: nothing is known."""
    return names([what for what, _ in _holders(node, cluster)], 120)


def way_out(node: str, found: LeftTaint, cluster: Cluster) -> tuple[str, str]:
    """Return what ends a taint of fencing on a node that reports, and the command about it."""
    holders = _holders(node, cluster)
    if holders:
        return f"let {holders[0][0]} end, after which the remediator of {node} removes the taint", holders[0][1]
    keys = dict.fromkeys(taint["key"].text or "" for taint in found.every)
    untaint = shell("kubectl", "taint", "nodes", argument(node), *(f"{key}:NoExecute-" for key in keys))
    return f"see that the remediation of {node} has ended, then remove its taint{'s' * (len(keys) > 1)}", untaint


def _holders(node: str, cluster: Cluster) -> Sequence[tuple[str, str]]:
    """Return the pods of a node that are being deleted, else its VolumeAttachments, each with a command about it."""
    pods = entry(cluster, _ending, node) or ()
    if pods:
        return [(f"pod {pod.full_name}", kubectl("describe", POD, pod.name, pod.namespace)) for pod in pods]
    attached = [each.name for each in cluster.known(VOLUME_ATTACHMENT) if each.at("spec", "nodeName").text == node]
    return [(f"VolumeAttachment {name}", kubectl("describe", VOLUME_ATTACHMENT, name)) for name in sorted(attached)]


def _ending(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    found: dict[str, list[Object]] = {}
    for pod in sorted((pod for pod in cluster.known(POD) if pod.deleted), key=lambda each: each.full_name):
        found.setdefault(pod.at("spec", "nodeName").text or "", []).append(pod)
    return found
