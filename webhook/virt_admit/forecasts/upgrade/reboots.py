"""Which health checks would act on a node that is only being updated.

A node that reboots stops reporting: Ready becomes False when its kubelet ends, or Unknown after the
grace period of the node controller. A health check cannot tell that from a failure. Cluster API
does not reboot nodes: it creates Machines, and a check deletes one whose node does not report
within the startup time (sources: rehearsal/rollouts.py, remediation/obstacles.py#_upgrade for
NodeHealthChecks, which wait while the MachineConfig operator updates a node).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from virt_admit.forecasts.remediation import coverage, inactive_reasons, remediation_steps, timeline
from virt_admit.forecasts.upgrade.pools import replacement_times
from virt_admit.forecasts.upgrade.rollouts import Driver
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.units import SECOND
from virt_admit.model.remediation import check_scope
from virt_admit.model.remediation.check_scope import WatchedNodes
from virt_admit.model.remediation.health_checks import HealthCheck


@dataclass(frozen=True, slots=True)
class RebootCheck:
    """A health check, and whether it would act on a node that is being updated."""

    kind: str
    namespace: str
    name: str
    nodes: tuple[str, ...]
    """The nodes of the upgrade that it watches."""
    after: int | None
    """Seconds of the update after which it acts; None: it never does, or that is unknown."""
    acts: bool | None
    """None: it cannot be determined."""
    reason: str

    @property
    def title(self) -> str:
        if self.namespace:
            return f"{self.kind} {self.namespace}/{self.name}"
        return f"{self.kind} {self.name}".rstrip()


def health_checks(
    cluster: Cluster, driver: Driver, nodes: Iterable[str], node_seconds: int
) -> tuple[RebootCheck, ...]:
    """Return the health checks that watch some of the nodes, those first that would act.

    A check whose Machines could not be read, and a kind that could not be read, cannot be
    determined.
    """
    updated = frozenset(nodes)
    # the start of a Machine does not contain the drain of the old node
    known = replacement_times.start_seconds(cluster) if driver is Driver.CLUSTER_API else None
    node_seconds = node_seconds if known is None else min(known, node_seconds)
    found: list[RebootCheck] = []
    for kind in coverage.CHECKS:
        watches = check_scope.watches(cluster, kind)
        if watches.unseen:
            found.append(
                RebootCheck(kind.kind, "", "", (), None, None, f"not available: {watches.unseen}")
            )
        for watch in (watch for some in watches.by_namespace.values() for watch in some):
            own = updated & set(remediation_steps.nodes_of(watch.check, watch.selection, cluster))
            if (own or watch.selection.unseen) and not watch.check.handler:
                found.append(_judged(watch, cluster, driver, tuple(sorted(own)), node_seconds))
    rank = {True: 0, None: 1, False: 2}
    return tuple(sorted(found, key=lambda one: (rank[one.acts], one.kind, one.namespace, one.name)))


def _judged(
    watch: WatchedNodes, cluster: Cluster, driver: Driver, nodes: tuple[str, ...], node_seconds: int
) -> RebootCheck:
    obj = watch.check.obj
    after = _after(watch.check, cluster, driver)
    acts, reason = _verdict(watch, cluster, driver, after, node_seconds)
    return RebootCheck(obj.kind, obj.namespace, obj.name, nodes, after, acts, reason)


def _verdict(
    watch: WatchedNodes, cluster: Cluster, driver: Driver, after: int | None, node_seconds: int
) -> tuple[bool | None, str]:
    reasons = list(_idle(watch, cluster, driver))
    for reason in reasons:
        if isinstance(reason, str):
            return False, reason
    if after is None:
        return False, "no condition of it applies to a node that is being updated"
    replaced = driver is Driver.CLUSTER_API
    what = "the start of a new Machine" if replaced else "the update and reboot of a node"
    takes = f"it acts after {after} seconds, and {what} takes {node_seconds}"
    if node_seconds <= after:
        return False, takes
    blind = [reason.what for reason in reasons if isinstance(reason, Unseen)]
    blind += [watch.selection.unseen] if watch.selection.unseen else []
    if blind:
        return None, f"not available: {blind[0]}"
    # the node reports in the first part of its update, and for how long it is silent is not known
    return True if replaced else None, f"{takes}. Pause it before."


def _idle(watch: WatchedNodes, cluster: Cluster, driver: Driver) -> Iterator[str | Unseen]:
    """Yield why a check does nothing during the upgrade."""
    check = watch.check
    if check.kind is kinds.NHC and driver is Driver.MACHINE_CONFIG:
        yield "it waits while the MachineConfig operator updates a node"
    yield from inactive_reasons.lasting(check, cluster)
    budget = remediation_steps.budget(check, watch.selection)
    if budget.never:
        yield f"{budget.limit} {budget.limit_text}"


def _after(check: HealthCheck, cluster: Cluster, driver: Driver) -> int | None:
    """Return the seconds after which a check acts on a node that does not report;
    None if it never does.
    """
    if driver is Driver.CLUSTER_API:
        startup = check.known_startup_time() if check.kind is kinds.CAPI_MHC else None
        return startup // SECOND if startup else None
    times = [
        symptom.time + (timeline.grace_period(cluster) if symptom.status == "Unknown" else 0)
        for symptom in remediation_steps.symptoms(check)
        if symptom.type == "Ready"
        and symptom.status in ("False", "Unknown")
        and symptom.time is not None
    ]
    return min(times) // SECOND if times else None
