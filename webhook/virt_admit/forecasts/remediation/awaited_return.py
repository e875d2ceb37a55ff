"""What is about to bring a node back that does not report: an update, a maintenance, or a
remediation that has begun.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.placement import virt_handlers
from virt_admit.forecasts.remediation import (
    awaited_checks,
    exclusions,
    failed_remediations,
    hand_reboots,
)
from virt_admit.forecasts.remediation.ends import deprovisioned_hosts
from virt_admit.model import certificate_requests
from virt_admit.model.kubernetes import clock, node_health
from virt_admit.model.kubernetes.clock import duration
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import MACHINE_CONFIG_POOL, NHC, NODE, SNR
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import command_of, names
from virt_admit.model.node_updates import node_phases, updaters
from virt_admit.model.node_updates.node_phases import EMPTIED, Phase
from virt_admit.model.node_updates.operators import node_removals
from virt_admit.model.remediation import fence_taints

_ASSUMED: Final = "timeAssumedRebooted"
READS: Final[Reads] = union(
    updaters.READS,
    awaited_checks.READS,
    virt_handlers.HEARTBEAT_READS,
    exclusions.READS,
    hand_reboots.READS,
    certificate_requests.READS,
    node_removals.READS,
    deprovisioned_hosts.READS,
    {NODE: ("spec.taints",), SNR: (f"status.{_ASSUMED}",)},
)

_IN_MAINTENANCE: Final = "during which it has not reported"
_REMEDIATION: Final = timedelta(minutes=15)
"""Longer than a remediation of Self Node Remediation or Fence Agents Remediation takes with its
default times.
"""

_FENCED: Final = "fenced it"
PATIENCE: Final = timedelta(minutes=30)
"""After this time a node that its update has rebooted counts as not coming back by itself, also on
bare metal.
"""


class OverdueReturn(NamedTuple):
    """A node that its update has rebooted and that does not come back."""

    by: str
    """What updates it, as kind and name."""
    lasts: timedelta
    """How long it has not reported."""
    behind: tuple[str, ...]
    """The nodes that are updated only after it."""

    @property
    def words(self) -> str:
        """Who waits for it, as a clause."""
        only = f", and updates {names(self.behind, 80)} only after it" if self.behind else ""
        return f"{self.by}, whose update rebooted it, waits for it{only}"


def overdue(name: str, cluster: Cluster, patience: timedelta = PATIENCE) -> OverdueReturn | None:
    """Return that a node does not report for longer than the reboot of its update takes; None: it
    reports, something else keeps it away or is about to bring it back, or that cannot be read.

    A maintenance lasts as long as its administrator wants.
    """
    update, node = updaters.of_nodes(cluster).get(name), find(cluster, NODE, "", name)
    if update is None or node is None or update.phase not in EMPTIED:
        return None
    silent = node_health.silence_now(name, cluster) and name not in updaters.maintenances(cluster)
    lasts = clock.since(clock.stamp(node_phases.unready_since(node)), cluster)
    late = silent and lasts is not None and lasts > max(patience, PATIENCE)
    if lasts is None or not late or awaited(name, cluster) or unread(name, cluster):
        return None
    return OverdueReturn(f"{update.kind} {update.name}", lasts, _behind(name, cluster))


def _behind(name: str, cluster: Cluster) -> tuple[str, ...]:
    """Return the nodes of the same MachineConfigPool that begin only after one comes back."""
    for pool in updaters.config_pools(cluster):
        phases = [update.phase for update in pool.nodes.values()]
        if name in pool.nodes and Phase.NEXT not in phases:
            found = pool.nodes.items()
            return tuple(each for each, update in found if update.phase is Phase.WAITING)
    return ()


def _update(node: str, cluster: Cluster) -> str:
    """Return which update or maintenance a silent node is in, and since when; empty: none, or
    longer than a reboot takes.

    An administrator may do anything during a maintenance, so a reboot is named only where the
    updater itself does it.
    """
    found, own = updaters.of_nodes(cluster).get(node), find(cluster, NODE, "", node)
    if found is None or own is None or found.phase not in EMPTIED:
        return ""
    lasts = clock.since(own.condition("Ready")["lastTransitionTime"].text, cluster)
    if lasts is None or lasts > hand_reboots.LONGEST:
        return ""
    reboots = found.phase is Phase.REBOOTING or found.kind == MACHINE_CONFIG_POOL.kind
    if reboots:
        return (
            f"{found.kind} {found.name}, whose update has been rebooting it for {duration(lasts)}"
        )
    if node not in updaters.maintenances(cluster):
        return (
            f"{found.kind} {found.name}, which updates it (it has not reported for "
            f"{duration(lasts)})"
        )
    title = (
        f"the maintenance of {node}" if found.kind == NODE.kind else f"{found.kind} {found.name}"
    )
    return f"{title}, {_IN_MAINTENANCE} for {duration(lasts)}"


def awaited(node: str, cluster: Cluster) -> str:
    """Return what is about to bring a node back that does not report, and since when; empty:
    nothing known is.
    """
    by_hand = hand_reboots.of_node(node, cluster)
    known = _update(node, cluster) or next(_remediations(node, cluster), "")
    return known or (by_hand.words(cluster) if by_hand is not None else "")


def unread(node: str, cluster: Cluster) -> str:
    """Return what could not be read, so that something may be about to bring a node back that does
    not report although nothing known is; empty: all was read, or the node is away for too long.
    """
    own = find(cluster, NODE, "", node)
    if own is None:
        return unlisted(cluster, NODE)
    lasts = clock.since(own.condition("Ready")["lastTransitionTime"].text, cluster)
    soon = lasts is not None and lasts <= hand_reboots.LONGEST
    updated = updaters.unread(own, cluster) or hand_reboots.unread(own, cluster) if soon else ""
    return updated or unread_remediation(node, cluster)


def unread_boot(node: str, cluster: Cluster) -> str:
    """Return what could not be read, so that a node that does not report may boot again, or be
    rebooted on purpose; empty: it reports, is known to boot again, or all was read.
    """
    if not node_health.silence_now(node, cluster) or fenced(node, cluster):
        return ""
    known = awaited(node, cluster)
    return unread_remediation(node, cluster) if known else unread(node, cluster)


def unread_remediation(node: str, cluster: Cluster) -> str:
    """Return what could not be read, so that a remediation of a node may be under way, or may have
    fenced it a moment ago; empty: all was read, or a known one has failed.
    """
    if failed_remediations.of_any(node, cluster) is not None:
        return ""
    checks = cluster.known(NHC)
    unread = (what for each in checks for what in failed_remediations.unread(each, node, cluster))
    own = find(cluster, NODE, "", node)
    since = clock.stamp(node_phases.unready_since(own)) if own is not None else None
    old = clock.has_lasted(since, _ACTED_WITHIN, cluster)
    return next(unread, "") or ("" if old else unlisted(cluster, NHC))


_ACTED_WITHIN: Final = timedelta(hours=1)
"""A health check that watches a node, and is not read, has acted on its silence by then."""


def is_planned(node: str, cluster: Cluster) -> bool:
    """Return whether a node that does not report is rebooted on purpose, by its update or by hand,
    for no longer than usual.
    """
    return bool(_update(node, cluster)) or hand_reboots.of_node(node, cluster) is not None


def is_remediated_in_update(node: str, cluster: Cluster) -> bool:
    """Return whether a node that its update has emptied does not report and is remediated now."""
    update = updaters.of_nodes(cluster).get(node)
    emptied = update is not None and update.phase in EMPTIED
    return emptied and next(_remediations(node, cluster), "") != ""


def return_of(node: str, cluster: Cluster) -> str:
    """Return what brings a node back that does not report, so that nothing may fence it now; empty:
    nothing known does.
    """
    if pending := certificate_requests.of_node(node, cluster):
        return pending.remedy
    by, by_hand = awaited(node, cluster), hand_reboots.of_node(node, cluster)
    if by_hand is not None and by == by_hand.words(cluster):
        return f"wait for {by}; {by_hand.advice}"
    own = (
        "repair the node" if _IN_MAINTENANCE in by else "repair or fence it"
    )  # a node that people work on is not fenced
    if _FENCED in by:
        own = "repair the node"
    return f"wait for {by}; {own} if it does not come back" if by else ""


def of_silent(node: str, cluster: Cluster) -> str:
    """Return the same of a node only while it does not report; empty also for one that does."""
    return return_of(node, cluster) if node_health.silence_now(node, cluster) else ""


def advice(node: str, cluster: Cluster, otherwise: str = "repair or fence its node") -> str:
    """Return what to do about a node that does not report: wait for what brings it back,
    else what is given. A node that is being deleted is not to come back.
    """
    if gone := node_removals.instead_of_return(node, cluster):
        return gone
    if wiped := deprovisioned_hosts.advice(node, cluster):
        return wiped
    if back := return_of(node, cluster):
        return back
    if virt_handlers.outlives_kubelet(cluster, node):
        return "repair its kubelet: virt-handler there reports, so guests probably run on"
    failed = failed_remediations.of_any(node, cluster)
    if failed is not None:
        return failed.remedy
    known = exclusions.repair(node, cluster) or awaited_checks.advice(node, cluster)
    also = certificate_requests.other_name(node, cluster) if otherwise else ""
    plain = known or not also or command_of(otherwise)  # a command ends what is said
    return known or (otherwise if plain else f"{otherwise}; {also}")


def repair(node: Object) -> str:
    """Return what to do about a node that does not report, if nothing else is known of it: one with
    the taint out-of-service is fenced already.
    """
    return "repair the node" if fence_taints.is_fenced(node) else "repair the node, or fence it"


def _remediations(node: str, cluster: Cluster) -> Iterator[str]:
    """Yield which NodeHealthCheck remediates a node now (medik8s/node-healthcheck-operator:
    api/v1alpha1 Remediation).
    """
    if failed_remediations.of_any(node, cluster) is not None:
        return
    for check in cluster.known(NHC):
        for begun in check.at("status", "unhealthyNodes").named(node)["remediations"].items():
            if boots := _boots(begun, cluster):
                yield f"NodeHealthCheck {check.name}, {boots}"
                return
            lasts = clock.since(begun["started"].text, cluster)
            if lasts is not None and lasts <= _REMEDIATION and not begun["timedOut"].present:
                yield (
                    f"NodeHealthCheck {check.name}, which has been remediating it for "
                    f"{duration(lasts)}{_time_left(begun['resource'], cluster)}"
                )


def _boots(begun: Field, cluster: Cluster) -> str:
    """Return that a remediation has fenced its node a moment ago, as a clause; empty: it has not,
    or longer ago than a boot takes.
    """
    fence = failed_remediations.completed(begun, cluster)
    if fence is None:
        return ""
    ago = clock.since(fence.condition("Succeeded")["lastTransitionTime"].text, cluster)
    if ago is None or ago > _REMEDIATION:
        return ""
    return f"whose {fence.kind} {fence.name} {_FENCED} {duration(ago)} ago, so that it boots again"


def fenced(node: str, cluster: Cluster) -> bool:
    """Return whether a node that does not report boots again, as a remediation has fenced it a
    moment ago.
    """
    return _FENCED in awaited(node, cluster)


def all_fenced(cluster: Cluster) -> Iterator[str]:
    """Yield which nodes boot so, each as a sentence without its end."""
    for name in (node.name for node in cluster.known(NODE)):
        if node_health.silence_now(name, cluster) and fenced(name, cluster):
            yield f"{name} does not report yet: it waits for {awaited(name, cluster)}"


def _time_left(made: Field, cluster: Cluster) -> str:
    """Return when a SelfNodeRemediation assumes that the node has rebooted, and so frees its pods,
    as an insertion; empty: another kind, it does not say, or the time has passed
    (medik8s/self-node-remediation:api/v1alpha1/selfnoderemediation_types.go).
    """
    if made["kind"].text != SNR.kind:
        return ""
    obj = find(cluster, SNR, made["namespace"].text or "", made["name"].text or "")
    ago = clock.since(obj.at("status", _ASSUMED).text, cluster) if obj is not None else None
    if obj is None or ago is None or ago >= timedelta():
        return ""
    return f" and assumes its reboot in {duration(-ago)} ({SNR.kind} {obj.name})"
