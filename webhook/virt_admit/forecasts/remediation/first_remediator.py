"""The first remediator of a health check that has enough time and acts on a given node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from virt_admit.forecasts.remediation import remediation_steps, timeline
from virt_admit.forecasts.remediation.remediation_steps import Step
from virt_admit.forecasts.remediation.timeline import Stage
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.remediation.health_checks import HealthCheck


class FirstRemediator(NamedTuple):
    """The remediator that acts, and what passes before it."""

    stage: Stage | None
    """None: no remediator acts."""
    step: Step | None = None
    """None: the check deletes the Machine itself, or the bare metal operator acts."""
    wasted: int = 0
    """Nanoseconds of remediators before it."""
    unseen: tuple[str, ...] = ()
    """What could not be read, so that it may do nothing."""
    fails: str = ""
    """Why no remediator acts."""


def stages(check: HealthCheck, cluster: Cluster) -> tuple[Stage, ...]:
    """Return the runs of the remediators of a check, as far as they can be determined."""
    return tuple(stage for stage in timeline.stages(check, cluster) if isinstance(stage, Stage))


def first_remediator(
    check: HealthCheck, found: Sequence[Stage], node: Object | None, cluster: Cluster
) -> FirstRemediator:
    """Return the first remediator that acts on a node.

    Args:
        check: the health check.
        found: the runs of its remediators.
        node: the Node, if a NodeHealthCheck watches it. A MachineHealthCheck names the Machine in
            its request.
        cluster: the cluster with the Machines.
    """
    steps = remediation_steps.steps(check)
    wasted, fails = 0, ""
    for number, stage in enumerate(found):
        step = steps[number] if number < len(steps) else None
        kept, unseen = _refusal(node, step, cluster)
        if not stage.cut_off and not kept:
            return FirstRemediator(stage, step, wasted, unseen)
        fails = fails or kept
        if stage.timeout is None:
            break  # the next one is never called
        wasted += stage.timeout
    return FirstRemediator(None, wasted=wasted, fails=fails or _without(found))


def _without(found: Sequence[Stage]) -> str:
    return "no step has enough time" if found else "no remediator is set"


def _refusal(
    node: Object | None, step: Step | None, cluster: Cluster
) -> tuple[str, tuple[str, ...]]:
    """Return why a remediator leaves a node alone, and what could not be read of that."""
    if node is None or step is None:
        return "", ()
    try:
        return remediation_steps.refusal(step, node, cluster), ()
    except Unseen as unseen:
        return "", (unseen.what,)
