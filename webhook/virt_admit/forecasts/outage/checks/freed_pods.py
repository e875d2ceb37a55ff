"""How the pods of a lost node go after its remediator begins."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Final

from virt_admit.forecasts.outage import machine_replacement
from virt_admit.forecasts.outage.checks.watching_checks import WatchingCheck
from virt_admit.forecasts.outage.loss import Loss
from virt_admit.forecasts.outage.machine_replacement import FreedPods
from virt_admit.forecasts.outage.time_parts import POD_GONE, Detach, Seconds, seconds
from virt_admit.forecasts.remediation.first_remediator import FirstRemediator
from virt_admit.forecasts.remediation.remediation_steps import Step
from virt_admit.forecasts.remediation.unwatched import lonely_agents
from virt_admit.model import machine_nodes
from virt_admit.model.kubernetes import clock, kinds, node_health
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.units import SECOND
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.lookups import find
from virt_admit.model.node_updates import node_phases
from virt_admit.model.problems import Problem
from virt_admit.model.remediation import remediators

_SINCE_OUT_OF_SERVICE: Final = versions.Version(1, 28)


def deletes(view: WatchingCheck, course: FirstRemediator) -> bool:
    """Return whether the Machine of the node is deleted."""
    if course.stage is None or course.step is None:
        return course.stage is not None and not view.watch.check.external
    return course.step.kind is kinds.MDR_TEMPLATE


def freed(
    view: WatchingCheck, course: FirstRemediator, machine: Object | None, node: str, loss: Loss
) -> FreedPods | str:
    """Return how the pods of a node go after its remediator begins; as text why they never go."""
    stage, step = course.stage, course.step
    if stage is None:
        return course.fails
    if deletes(view, course):
        return machine_replacement.by_deletion(machine, node, loss)
    kind = step.kind if step is not None else None
    if kind is kinds.SNR_TEMPLATE:
        own = view.nodes.get(node)
        measured = [own] if own is not None and view.watch.check.kind is kinds.NHC else None
        takes = remediators.snr_duration(loss.cluster, measured) // SECOND
        return FreedPods(
            Seconds(takes, takes), POD_GONE, _strategy(step, loss.cluster, automatic=True)
        )
    # it fails for good after its tries, or another remediator goes on
    if kind is kinds.FAR_TEMPLATE:
        tries = seconds(stage.takes) if stage is view.stages[-1] else Seconds(0, None)
        return FreedPods(tries, POD_GONE, _strategy(step, loss.cluster, automatic=False))
    return FreedPods(seconds(stage.takes), POD_GONE, Detach.UNKNOWN)


def twice(course: FirstRemediator, node: str, loss: Loss) -> Problem | str | None:
    """Return why the pods of a node may run twice: its remediator counts on a reboot that does not
    happen where the node is only cut off. As text that this is not known; None: nothing shows it.
    """
    if course.step is None or course.step.kind is not kinds.SNR_TEMPLATE:
        return None
    found = lonely_agents.known(loss.cluster)
    if found is None or node not in found.nodes or found.reboots:
        return None
    if found.reboots is None:
        return f"whether {node} reboots where it is cut off: {found.risk}"
    return Problem(found.risk, found.remedy)


def _strategy(step: Step | None, cluster: Cluster, *, automatic: bool) -> Detach:
    """Return how the remediator frees volumes: by the out-of-service taint, or by deleting pods."""
    try:
        template = step.template(cluster) if step is not None else None
    except Unseen:
        return Detach.UNKNOWN
    if template is None:
        return Detach.UNKNOWN
    strategy = template.at("spec", "template", "spec", "remediationStrategy").text
    if strategy == "OutOfServiceTaint":
        return Detach.AT_ONCE
    if strategy in (None, "Automatic") and automatic:
        release = versions.parse_version(cluster.server_version)
        return (
            Detach.AT_ONCE if release is None or release >= _SINCE_OUT_OF_SERVICE else Detach.FORCED
        )
    return Detach.FORCED


def machine_of(view: WatchingCheck, node: str, cluster: Cluster) -> Object | None:
    """Return the Machine of a node; None: it is not known."""
    if view.watch.check.kind is not kinds.NHC:
        return view.nodes.get(node)
    known = cluster.known(kinds.MACHINE)
    return next((each for each in known if machine_nodes.node_name(each, cluster) == node), None)


def overdue(machine: Object | None, check: str, wait: int, node: str, loss: Loss) -> Iterator[str]:
    """Yield that a check should have deleted the Machine of a lost node long ago: what keeps it
    from that is not known.

    ``wait``: the seconds for which the node must be lost before.
    """
    found, now = find(loss.cluster, kinds.NODE, "", node), clock.now(loss.cluster)
    lost = (
        node_phases.unready_since(found)
        if found is not None and node_health.silence_now(node, loss.cluster)
        else None
    )
    limit = datetime.timedelta(seconds=wait) + machine_replacement.SETTLED
    if machine is not None and lost is not None and now is not None and now - lost > limit:
        since = clock.duration(now - lost)
        yield (
            f"why {check} has not deleted Machine {machine.name}, whose node has been lost for "
            f"{since}"
        )
