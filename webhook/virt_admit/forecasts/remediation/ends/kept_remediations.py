"""Remediations that are being deleted and keep their finalizer, because their node is gone.

The operator of a remediator looks for the node before it takes its finalizer off. Fence Agents
Remediation up to 0.7 ends there, whether the remediation timed out or not. So does Self Node
Remediation; since 0.11 it lets a remediation go that the health check timed out. Sources:
medik8s/fence-agents-remediation:controllers/fenceagentsremediation_controller.go#Reconcile, pull
request 205; medik8s/self-node-remediation:internal/controller/selfnoderemediation_controller.go
#ReconcileManager, pull requests 247 and 249.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.remediation.ends.left_remediations import TIMED_OUT
from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes import clock, events, kinds
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import FAR, NHC, NODE, SNR, Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import NAME, Reads, union
from virt_admit.model.messages import names
from virt_admit.model.remediation.fence_taints import NODE_NAME

KINDS: Final = (FAR, SNR)
"""A MachineDeletionRemediation has no finalizer, and a Metal3Remediation makes its node again."""
READS: Final[Reads] = union(
    clock.READS,
    {NODE: NAME, NHC: ("status.unhealthyNodes",)},
    dict.fromkeys(
        KINDS,
        (
            *(f"metadata.annotations.{key}" for key in (NODE_NAME, TIMED_OUT)),
            *("metadata.deletionTimestamp", "metadata.finalizers"),
        ),
    ),
)
_PATIENCE: Final = timedelta(minutes=10)
"""An operator that restarts has taken its finalizer off by then."""
_OWN: Final[dict[Kind, tuple[str, str, str]]] = {
    FAR: (
        "fence-agents-remediation.medik8s.io/far-finalizer",
        "Fence Agents Remediation up to 0.7",
        "a release with its pull request 205",
    ),
    SNR: (
        "self-node-remediation.medik8s.io/snr-finalizer",
        "Self Node Remediation before 0.11",
        "0.11 or later",
    ),
}
"""The finalizer of each operator, the releases that keep it, and those that do not."""


class KeptRemediation(NamedTuple):
    """A remediation that does not go away."""

    reason: str
    """``it is being deleted for 44 min, but its finalizer X stays: its node n does not exist``."""
    remedy: str


def of(obj: Object, cluster: Cluster) -> KeptRemediation | None:
    """Return why a remediation does not go away; None: it does, or another finding says it.

    Raises:
        Unseen: its node, or what health checks count, could not be read.
    """
    kind = kinds.of(obj)
    held = [text for each in obj.metadata["finalizers"].items() if (text := each.text)]
    lasts = clock.since(obj.metadata["deletionTimestamp"].text, cluster) if obj.deleted else None
    if kind not in _OWN or lasts is None or lasts < _PATIENCE:
        return None
    own, keeping, fixed = _OWN[kind]
    node = obj.annotations.get(NODE_NAME) or obj.name
    if held != [own] or cluster.get(NODE, "", node) is not None or _is_counted(node, cluster):
        return None
    timed_out = TIMED_OUT in obj.annotations
    update = f"update {keeping.partition(' Remediation')[0]} Remediation to {fixed}"
    if kind is SNR and not timed_out:
        keeping, update = "Self Node Remediation", ""
    seen = ", as its Event NodeNotFound says" if _is_told(obj, cluster) else ""
    reason = (
        f"it is being deleted for {clock.duration(lasts)} and keeps its finalizer {names(held)}: "
        f"node {node} does not exist any more{seen}, and {keeping} keeps it then"
    )
    by_hand = "as a decision, take the finalizer off, as no node is left to clean up"
    edit = about("edit", obj, kind)
    return KeptRemediation(reason, typed(by_hand, edit, f"or {update}" if update else ""))


def _is_counted(node: str, cluster: Cluster) -> bool:
    """Return whether a health check counts the node, of which nhc-remediation-left tells it."""
    return any(
        each["name"].text == node
        for check in cluster.list(NHC)
        for each in check.at("status", "unhealthyNodes").items()
    )


def _is_told(obj: Object, cluster: Cluster) -> bool:
    said = events.known(obj.kind, "NodeNotFound", cluster)
    return any(each.at("involvedObject", "name").text == obj.name for each in said)
