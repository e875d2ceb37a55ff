"""What is wrong with a node itself, or keeps VMs from it: cordons, resources that it lacks,
virt-handler, fencing, reboots.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from virt_admit.forecasts.placement import virt_handlers
from virt_admit.forecasts.placement.components import driver_daemons, left_taints
from virt_admit.forecasts.placement.components.longhorn import awaited_health
from virt_admit.forecasts.remediation import awaited_return
from virt_admit.model import certificate_requests
from virt_admit.model.commands import typed
from virt_admit.model.kubernetes import clock, node_health
from virt_admit.model.kubernetes.cluster import Cluster, gather, unlisted
from virt_admit.model.kubernetes.kinds import POD
from virt_admit.model.kubernetes.node_health import PRESSURES
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances.vmis import on_node
from virt_admit.model.messages import capital, names, sentence
from virt_admit.model.node_updates import cordoners, kured
from virt_admit.model.node_updates.operators import cordons, left_maintenances
from virt_admit.model.remediation import fence_taints
from virt_admit.model.scheduler import controller_taints

READS: Final[Reads] = union(
    awaited_health.READS,
    awaited_return.READS,
    cordoners.READS,
    left_taints.READS,
    virt_handlers.READS,
)


def faults(node: Object, cluster: Cluster, *, by_hand: bool = False) -> Iterator[str]:
    """Yield in sentences what is wrong with one node, whether that ends, and what ends it.

    ``by_hand``: the node is to be uncordoned by hand, which is not advised against then.
    """
    yield from _pressed(node, cluster)
    yield from _without_certificate(node, cluster)
    yield from _rebooting(node, cluster)
    yield from _cordoned(node, cluster, by_hand=by_hand)
    yield from _takes_no_vm(node, cluster)
    yield from driver_daemons.lost(node, cluster)
    yield from _not_rebooted(node, cluster)
    yield from _still_fenced(node, cluster)


def _pressed(node: Object, cluster: Cluster) -> Iterator[str]:
    """Yield which resource a node lacks. No drain ends it, and its VMs are not safe."""
    for each in PRESSURES:
        found = node.condition(each.condition)
        if found["status"].text == "True":
            remedy = sentence(": ".join(filter(None, (each.remedy, each.what))))
            has = (
                "This node has "
                f"{each.condition}{clock.lasting(found['lastTransitionTime'].text, cluster)}"
            )
            yield (
                f"{has}: no new pod starts on it, and its kubelet may end its pods, VMs among "
                f"them, without a migration and without regard to budgets. {remedy}"
            )


def _without_certificate(node: Object, cluster: Cluster) -> Iterator[str]:
    """Yield that a node which does not report runs, and waits for a certificate."""
    pending = certificate_requests.of_node(node.name, cluster)
    if pending is not None:
        yield f"This node {pending.reason}. That does not end by itself. {capital(pending.remedy)}"


def _rebooting(node: Object, cluster: Cluster) -> Iterator[str]:
    """Yield that a node which does not report is rebooted on purpose, or remediated in its update,
    so that nothing is to be done yet, or that it does not come back from its update.
    """
    silent = node_health.silent_for(node.name, cluster)
    waits = awaited_return.is_planned(node.name, cluster)
    waits = waits or awaited_return.is_remediated_in_update(node.name, cluster)
    waits = waits or awaited_return.fenced(node.name, cluster)
    if silent and waits:
        yield f"This node {silent}. {sentence(awaited_return.return_of(node.name, cluster))}"
    elif (over := awaited_return.overdue(node.name, cluster)) is not None:
        said = f"This node {silent}; a reboot usually takes less. {capital(over.words)}."
        otherwise = awaited_return.repair(node)
        remedy = sentence(awaited_return.advice(node.name, cluster, otherwise))
        told = certificate_requests.of_node(node.name, cluster) is not None
        yield said if told else f"{said} {remedy}"


def _cordoned(node: Object, cluster: Cluster, *, by_hand: bool) -> Iterator[str]:
    """Yield what cordoned a node, for what it waits and what ends it.

    A remediation that is not over has its own note.
    """
    cordon = cordoners.of_node(node, cluster) if fence_taints.left(node, cluster) is None else None
    if cordon is not None and not cordon.quiet:
        cordon = left_maintenances.with_lease(cordon, node, cluster)
        by_hand = by_hand or awaited_health.mutual(node, cluster) is not None
        yield (cordon._replace(by_hand=True) if by_hand else cordon).words


def _takes_no_vm(node: Object, cluster: Cluster) -> Iterator[str]:
    """Yield that no VM starts on an empty node, or arrives there, without virt-handler.

    Where it has VMs they block.
    """
    here, unseen = gather(on_node(cluster, node.name))
    fault = (
        ""
        if here or unseen or node_health.silence(node, cluster)
        else virt_handlers.problem(cluster, node.name)
    )
    excluded = virt_handlers.pod(cluster, node.name) is None and not unlisted(
        cluster, POD
    )  # by KubeVirt's nodePlacement
    if fault and not excluded and not virt_handlers.is_starting(cluster, node.name):
        handler = virt_handlers.pod(cluster, node.name)
        age = node_health.pod_unready_for(handler, node, cluster) if handler is not None else None
        since = clock.lasts(age)
        remedy = capital(virt_handlers.remedy(cluster, node.name))
        yield f"This node takes no VM{since}: {fault}. That does not end by itself. {remedy}"
    elif (
        fault and not excluded and (back := virt_handlers.returned(cluster, node.name)) is not None
    ):
        keys = (taint["key"].text or "" for taint in node.at("spec", "taints").items())
        waits = [
            key
            for key in keys
            if controller_taints.is_of_start(key) and not left_taints.of_key(key, cluster)
        ]
        taints = f" and its agent removes taint {names(waits)}" if waits else ""
        yield (
            f"This node became Ready {clock.duration(back)} ago. It takes VMs once virt-handler "
            f"runs there{taints}, usually within minutes."
        )


def _not_rebooted(node: Object, cluster: Cluster) -> Iterator[str]:
    """Yield why kured does not reboot a node that is to be rebooted, or may be."""
    hold = kured.hold(cluster)
    if hold is not None and (node.name in hold.waiting or not hold.knows_waiting):
        yield f"{capital(hold.reason(cluster))}. {capital(hold.remedy)}"


def _still_fenced(node: Object, cluster: Cluster) -> Iterator[str]:
    """Yield that a healthy node takes no VMs, since its remediation has not finished."""
    left, kept = fence_taints.left(node, cluster), fence_taints.kept(node, cluster)
    if kept:
        yield f"This node takes no VM for now: {kept}. {cordons.KEEP}"
    if left is not None:
        remedy, command = fence_taints.way_out(node.name, left, cluster)
        waits = ""
        if fence_taints.stays(node.name, cluster):
            held = fence_taints.waits_for(node.name, cluster)
            waits = f" Its remediator waits for {held}, which does not end by itself."
        yield (
            f"This node {left.reason}, so that no VM can run on it.{waits} "
            f"{typed(sentence(remedy), command)}"
        )
