"""VMs of a lost node for which no health check acts: why they stay down, and the remedy."""

from __future__ import annotations

from virt_admit.forecasts.outage.health_actors import NodeCoverage
from virt_admit.forecasts.outage.loss import Loss
from virt_admit.forecasts.outage.room_left import RoomLeft
from virt_admit.forecasts.outage.storage import lost_storage
from virt_admit.forecasts.placement import start_doubts, virt_handlers
from virt_admit.forecasts.remediation import awaited_return
from virt_admit.model.node_updates.operators import orphaned_nodes
from virt_admit.model.remediation.by_hand import hand_fences
from virt_admit.model.scheduler.pods import Pod


def why_and_remedy(
    node: str, pod: Pod, loss: Loss, coverage: NodeCoverage, room: RoomLeft, bound: str
) -> tuple[str, str]:
    """Return why a VM does not restart, and the remedy. What else it lacks is said too.

    Args:
        node: its node.
        pod: the pod that it would have next.
        loss: the loss.
        coverage: the health checks of the node.
        room: the room for all VMs that come again.
        bound: why no other node can ever run it; empty: one can, or that is not known.
    """
    acting = _acting(node, coverage)
    why, way = _unattended(node, coverage), acting
    if not hand_fences.is_said(node, acting):
        lost = virt_handlers.is_lost(loss.cluster, node)
        when = "as a decision" if lost else "after such a loss"
        # a check that does not exist yet is late for a node that is lost
        now = lost and not any(actor.refuses for actor in coverage.actors)
        by_hand = hand_fences.way(node, loss.cluster, when)
        other = hand_fences.otherwise(node, loss.cluster, when)
        way = f"{by_hand}; or {acting}" if now else f"{acting}; {other}"
    if bound:
        why = f"{why}; and no other node can run it: {bound}"
        way = f"{lost_storage.elsewhere(pod, loss)}, and {acting}"
    elif full := room.nowhere.get(pod.full_name, ""):
        why = f"{why}; and no node takes it: {full}"
        way = f"{start_doubts.opens(full, pod.fault, loss.cluster)}, and {acting}"
    elif room.fits is False and pod.full_name not in room.safe:
        why = f"{why}; and not all VMs find a place"
    if (left := orphaned_nodes.of_node(node, loss.cluster)) is not None:
        return why, left.remedy
    return why, awaited_return.of_silent(node, loss.cluster) or way


def _unattended(node: str, coverage: NodeCoverage) -> str:
    refusing = [actor.says for actor in coverage.actors]
    return "; ".join(refusing) if refusing else f"no health check watches {node}"


def _acting(node: str, coverage: NodeCoverage) -> str:
    """Return what makes a health check act: a check that refuses exists already."""
    refusing = next((actor for actor in coverage.actors if actor.refuses), None)
    if refusing is None:
        return f"create a health check that acts for {node}"
    return refusing.remedy or f"change {refusing.check} so that it acts for {node}"
