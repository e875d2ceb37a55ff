"""Verdicts of a health check of Cluster API that stay on a Machine whose node is healthy again.

With a remediation template, the controller writes that a Machine is healthy only while a request
for its remediation exists. A node that recovers by itself before has none, so that the Machine
keeps ``HealthCheckSucceeded`` False: it is not Ready, and its MachineSet deletes it first. The
check itself counts it as healthy. Without a template the controller writes it at once. Sources:
kubernetes-sigs/cluster-api:core/reconcilers/machinehealthcheck/machinehealthcheck_controller.go
#patchHealthyTargets (also in 1.6 and 1.14), core/reconcilers/machineset/
machineset_deletion_order.go#isMachineHealthy; kubernetes-sigs/cluster-api#13822.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.remediation import remediation_steps
from virt_admit.model import machine_nodes
from virt_admit.model.commands import kubectl, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, CAPI_MHC, METAL3_REMEDIATION, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find, grouped
from virt_admit.model.messages import capital, ended
from virt_admit.model.remediation import check_scope, health_checks, machine_drain
from virt_admit.model.remediation.health_checks import HealthCheck

_SETTLED: Final = timedelta(minutes=10)
"""The controller looks at a Machine as soon as its Node changes."""

READS: Final[Reads] = union(
    clock.READS,
    machine_nodes.READS,
    {
        CAPI_MHC: (),
        CAPI_MACHINE: (),
        METAL3_REMEDIATION: ("metadata.name",),
        NODE: ("status.conditions",),
    },
)


class StaleVerdict(NamedTuple):
    """A Machine that counts as unhealthy although its node is healthy again."""

    machine: Object
    node: str
    reason: str
    remedy: str
    """What takes the verdict back, with a command."""
    brief: str
    """Reason and remedy in as few words as a finding about the Machine has."""

    @property
    def note(self) -> str:
        """What is said of it beside a drain of its node."""
        return ended(f"{ended(capital(self.reason))} {capital(self.remedy)}")


def of_machine(machine: Object, cluster: Cluster) -> StaleVerdict | None:
    """Return the stale verdict on a Machine; None: it has none, or that is not known."""
    lasts = clock.elapsed(machine_drain.recovered(machine), cluster)
    if lasts is None or lasts < _SETTLED or machine.deleted:
        return None
    name = machine_nodes.node_name(machine, cluster)
    node = find(cluster, NODE, "", name)
    if not name or (node is not None and not node.is_true("Ready")):
        return None
    check = _check(machine, cluster)
    return _told(machine, name, check, clock.duration(lasts)) if check is not None else None


def _check(machine: Object, cluster: Cluster) -> HealthCheck | None:
    """Return the check with a template that watches a Machine, and has no request for it."""
    for obj in cluster.known(CAPI_MHC, machine.namespace):
        check = health_checks.view(obj)
        if not check.template.present:
            continue
        selected = check_scope.selected_by(check, cluster).objects
        if not any(each.name == machine.name for each in selected):
            continue
        (step,) = remediation_steps.steps(check)
        asked = find(cluster, METAL3_REMEDIATION, machine.namespace, machine.name)
        is_metal3 = step.remediator == METAL3_REMEDIATION.kind
        hidden = is_metal3 and bool(unlisted(cluster, METAL3_REMEDIATION))
        return None if asked is not None or hidden else check
    return None


def _told(machine: Object, node: str, check: HealthCheck, lasts: str) -> StaleVerdict:
    verdict = machine_drain.condition(machine, machine_drain.JUDGED)
    why = f" ({verdict['reason'].text})" if verdict["reason"].text else ""
    (step,) = remediation_steps.steps(check)
    written = verdict["lastTransitionTime"].text
    again = f"although its node {node} is healthy again for {lasts}"
    reason = (
        f"Machine {machine.full_name} keeps {machine_drain.JUDGED} False{why} of {written}, "
        f"{again} (NodeHealthy True): MachineHealthCheck {check.obj.name} takes that back only "
        f"with a request {step.remediator} for the Machine, and the node recovered without one. "
        "Until then the Machine is not Ready, and its MachineSet deletes it first, with its VMs"
    )
    words = (
        f"set its condition {machine_drain.JUDGED} to True (the node needs no repair), and neither "
        "scale down nor roll out before"
    )
    edit = kubectl("edit", CAPI_MACHINE, machine.name, machine.namespace, "--subresource=status")
    brief = (
        f"{machine_drain.JUDGED} is False{why} {again}: "
        f"MachineHealthCheck {check.obj.name} takes it back only with a request {step.remediator}. "
        "Set it to True, and do not scale down before: this Machine would go first."
    )
    return StaleVerdict(machine, node, reason, typed(words, edit), brief)


def by_node(cluster: Cluster) -> Mapping[str, Sequence[StaleVerdict]]:
    """Return the stale verdicts by node."""
    every = (of_machine(each, cluster) for each in cluster.known(CAPI_MACHINE))
    return grouped((each for each in every if each is not None), lambda each: each.node)


def notes(node: Object, cluster: Cluster) -> Iterator[str]:
    """Yield the stale verdict on the Machine of a node."""
    yield from (each.note for each in cluster.cached(by_node).get(node.name, ()))
