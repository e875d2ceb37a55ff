"""Verdicts of a health check of Cluster API that stay on a Machine whose node is healthy again.

With a remediation template, the controller writes that a Machine is healthy only while a request
for its remediation exists. A node that recovers by itself before has none, so that the Machine
keeps ``HealthCheckSucceeded`` False: it is not Ready, and its MachineSet deletes it first. The
check itself counts it as healthy. Without a template the controller writes it at once. The request
has the name of the Machine and the kind of the template without its suffix. Sources:
kubernetes-sigs/cluster-api:core/reconcilers/machinehealthcheck/machinehealthcheck_controller.go
#patchHealthyTargets (also in 1.6 and 1.14) #getExternalRemediationRequest,
core/reconcilers/machineset/machineset_deletion_order.go#isMachineHealthy;
kubernetes-sigs/cluster-api#13822.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.remediation import remediation_steps, unhealthy_objects
from virt_admit.model import machine_nodes
from virt_admit.model.commands import kubectl, typed
from virt_admit.model.kubernetes import clock, kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, unlisted
from virt_admit.model.kubernetes.kinds import (
    CAPI_CLUSTER,
    CAPI_MACHINE,
    CAPI_MACHINE_SET,
    CAPI_MHC,
    METAL3_REMEDIATION,
    NODE,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find, grouped
from virt_admit.model.messages import sentence
from virt_admit.model.remediation import check_scope, machine_drain
from virt_admit.model.remediation.check_scope import WatchedNodes
from virt_admit.model.remediation.health_checks import HealthCheck

_SETTLED: Final = timedelta(minutes=10)
"""The controller looks at a Machine as soon as its Node changes."""

READS: Final[Reads] = union(
    clock.READS,
    machine_nodes.READS,
    {
        CAPI_CLUSTER: (),
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
        return f"{sentence(self.reason)} {sentence(self.remedy)}"


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
    """Return the check that watches a Machine and leaves its verdict; None: not known, or a check
    without a template takes it back.
    """
    every = check_scope.watches(cluster, CAPI_MHC)
    found = [_of(each, machine) for each in every.of(machine.namespace)]
    own = [each for each in found if each.selection.positions]
    leaves = all(each.check.template.present and _leaves(each, machine, cluster) for each in own)
    return own[0].check if own and leaves and not every.unseen else None


def _of(watch: WatchedNodes, machine: Object) -> WatchedNodes:
    """Return what a check watches of one Machine."""
    objects = watch.selection.index.objects
    own = {each for each in watch.selection.positions if objects[each].name == machine.name}
    return WatchedNodes(watch.check, watch.selection.among(frozenset(own)))


def _leaves(watch: WatchedNodes, machine: Object, cluster: Cluster) -> bool:
    """Return whether a check with a template certainly counts a Machine as healthy, and has no
    request for it.
    """
    (step,) = remediation_steps.steps(watch.check)
    group = (step.reference["apiVersion"].text or "").rpartition("/")[0]
    request = kinds.find(group, step.remediator)
    if request is None or request not in READS or unlisted(cluster, request):
        return False
    if find(cluster, request, machine.namespace, machine.name) is not None:
        return False
    # the Machine says itself that a node is Ready which this cluster does not hold
    types = {each.type for each in remediation_steps.symptoms(watch.check)}
    against = unhealthy_objects.unhealthy(watch.check, watch.selection, cluster)
    return all(isinstance(each, Unseen) and types <= {"Ready"} for each in against)


def _told(machine: Object, node: str, check: HealthCheck, lasts: str) -> StaleVerdict:
    verdict = machine_drain.condition(machine, machine_drain.JUDGED)
    why = f" ({verdict['reason'].text})" if verdict["reason"].text else ""
    (step,) = remediation_steps.steps(check)
    written = verdict["lastTransitionTime"].text
    again = f"although its node {node} is healthy again for {lasts}"
    goes = machine.owned_by(CAPI_MACHINE_SET.kind)
    first = ", and its MachineSet deletes it first, with its VMs" if goes else ""
    reason = (
        f"Machine {machine.full_name} keeps {machine_drain.JUDGED} False{why} of {written}, "
        f"{again} (NodeHealthy True): MachineHealthCheck {check.obj.name} takes that back only "
        f"with a request {step.remediator} for the Machine, and the node recovered without one. "
        f"Until then the Machine is not Ready{first}"
    )
    before = ", and neither scale down nor roll out before" if goes else ""
    words = f"set its condition {machine_drain.JUDGED} to True (the node needs no repair){before}"
    edit = kubectl("edit", CAPI_MACHINE, machine.name, machine.namespace, "--subresource=status")
    stays = ", and do not scale down before: this Machine would go first" if goes else ""
    brief = (
        f"{machine_drain.JUDGED} is False{why} {again}: "
        f"MachineHealthCheck {check.obj.name} takes it back only with a request {step.remediator}. "
        f"Set it to True{stays}."
    )
    return StaleVerdict(machine, node, reason, typed(words, edit), brief)


def by_node(cluster: Cluster) -> Mapping[str, Sequence[StaleVerdict]]:
    """Return the stale verdicts by node."""
    every = (of_machine(each, cluster) for each in cluster.known(CAPI_MACHINE))
    return grouped((each for each in every if each is not None), lambda each: each.node)


def notes(node: Object, cluster: Cluster) -> Iterator[str]:
    """Yield the stale verdict on the Machine of a node."""
    yield from (each.note for each in cluster.cached(by_node).get(node.name, ()))
