"""What makes a health check act that does nothing: a change of its own fields where one does it,
else words.

Sources:
medik8s/node-healthcheck-operator:internal/controller/nodehealthcheck_controller.go#Reconcile;
openshift/machine-api-operator:pkg/controller/machinehealthcheck/machinehealthcheck_controller.go#Reconcile.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from virt_admit.forecasts.placement.components import remediation_agents
from virt_admit.forecasts.remediation import (
    exclusions,
    inactive_reasons,
    remediation_steps,
    timeline,
    unhealthy_objects,
)
from virt_admit.forecasts.remediation.remediation_steps import Budget
from virt_admit.model.commands import about, kubectl, merge_patch, typed
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, gather
from virt_admit.model.kubernetes.int_or_percent import LimitKind
from virt_admit.model.messages import command_of, names, without_command
from virt_admit.model.node_updates import updaters
from virt_admit.model.remediation import fence_agents, health_checks, machine_owners, machines
from virt_admit.model.remediation.check_scope import WatchedNodes
from virt_admit.model.remediation.health_checks import HealthCheck


class FieldChange(NamedTuple):
    """A new value of a field of the health check; None removes the field."""

    path: tuple[str, ...]
    value: int | None


class Reactivation(NamedTuple):
    """What makes a health check act."""

    check: HealthCheck
    words: str
    """An imperative, without the command."""
    command: str = ""
    changes: tuple[FieldChange, ...] = ()
    """Empty: an administrator decides what to change."""
    risk: str = ""

    @property
    def remedy(self) -> str:
        """The imperative, with the command that does it."""
        return typed(self.words, self.command)


def reactivation(
    watch: WatchedNodes, budget: Budget, node: str, down: int, cluster: Cluster
) -> Reactivation | None:
    """Return what makes a check act on a node while ``down`` of its objects are unhealthy.

    None: nothing that is known.

    The reasons come in the order in which the forecast names them, so the answer belongs to the
    first of them.
    """
    found = (
        *_lasting(watch, cluster),
        *_unowned(watch, node),
        *_unfenced(watch, node, cluster),
        *_without_agent(watch, node, cluster),
        *_failed(watch, budget, down, cluster),
        *_limited(watch, budget, down),
        *_unwatched(watch, node, cluster),
    )
    return next(iter(found), None)


def _lasting(watch: WatchedNodes, cluster: Cluster) -> Iterator[Reactivation]:
    check, title = watch.check, _title(watch)
    if check.selector.errors:
        yield Reactivation(
            check, f"repair the selector of {title}", about("edit", check.obj, check.kind)
        )
    if check.kind is not kinds.NHC and check.paused.present:
        yield _changed(
            watch, f"let {title} act again", (*_ANNOTATIONS, health_checks.PAUSED), None, _PAUSED
        )
    if check.kind is kinds.NHC:
        if any(True for _ in check.obj.at("spec", "pauseRequests").items()):
            yield _changed(
                watch, f"let {title} act again", ("spec", "pauseRequests"), None, _PAUSED
            )
        yield from _conflict(check, cluster)
    for step in remediation_steps.steps(check):
        yield from _template(step, check, cluster)
    stops = inactive_reasons.stopped_cluster(check, cluster) if check.kind is kinds.CAPI_MHC else ()
    if any(isinstance(each, str) for each in stops):
        describe = kubectl(
            "describe", kinds.CAPI_CLUSTER, check.cluster_name or "", check.obj.namespace
        )
        yield Reactivation(check, "repair or unpause its Cluster", describe)


_ANNOTATIONS: Final = ("metadata", "annotations")
_PAUSED: Final = "it was paused for a reason: ask who did it"


def _conflict(check: HealthCheck, cluster: Cluster) -> Iterator[Reactivation]:
    """Yield how to end the conflict of the two kinds of checks.

    Which of them goes is a decision.
    """
    try:
        conflicts = remediation_steps.conflicting(cluster)
    except Unseen:
        return
    if conflicts:
        first = conflicts[0]
        others = f"MachineHealthCheck {names(mhc.full_name for mhc in conflicts)}"
        yield Reactivation(
            check,
            f"use one kind of health check: let a NodeHealthCheck select the nodes of {others} as "
            "well, then remove the latter",
            about("get", first, kinds.MHC, "-o", "yaml"),
        )


def _template(
    step: remediation_steps.Step, check: HealthCheck, cluster: Cluster
) -> Iterator[Reactivation]:
    try:
        template = step.template(cluster)
    except Unseen:
        return
    if template is None:
        yield Reactivation(check, f"create {step.title}{_instead(step, cluster)}")
    elif not template.at("spec", "template").is_map:
        yield Reactivation(check, f"give {step.title} a spec.template")
    elif (
        check.kind is kinds.NHC  # a MachineHealthCheck looks in its own namespace
        and step.kind is kinds.METAL3_TEMPLATE
        and step.namespace != inactive_reasons.METAL3_NAMESPACE
    ):
        yield Reactivation(
            check, f"move {step.title} to the namespace {inactive_reasons.METAL3_NAMESPACE}"
        )


def _instead(step: remediation_steps.Step, cluster: Cluster) -> str:
    """Return which template could be named instead, or copied:
    remediators look in their own namespace alone.
    """
    known = (
        sorted(gather(step.templates(cluster))[0], key=lambda each: each.full_name)
        if step.kind is not None
        else []
    )
    near = [each for each in known if each.namespace == step.namespace]
    if near:
        return f", or name {near[0].name}, which exists there"
    return f" as a copy of {known[0].full_name}, which is not in that namespace" if known else ""


def _unowned(watch: WatchedNodes, node: str) -> Iterator[Reactivation]:
    """Yield what has the Machine of a node replaced that has no controller: a MachineSet adopts it,
    or nothing deletes it.

    A MachineSet with more Machines than its replicas deletes one of them.
    """
    for machine in machine_owners.kept(watch.check, watch.selection).get(
        machine_owners.UNOWNED, ()
    ):
        if machines.node_name(machine) == node:
            is_master = any(
                machine.labels.get(label) == machines.MASTER for label in machines.ROLE_LABELS
            )
            owner = "ControlPlaneMachineSet" if is_master else "MachineSet whose replicas count it"
            words = (
                f"put Machine {machine.full_name} under a {owner}, or use a remediation template "
                f"in {_title(watch)}"
            )
            yield Reactivation(watch.check, words)


def _unfenced(watch: WatchedNodes, node: str, cluster: Cluster) -> Iterator[Reactivation]:
    """Yield what lets a fence agent find the machine of a node."""
    fences = [
        step for step in remediation_steps.steps(watch.check) if step.kind is kinds.FAR_TEMPLATE
    ]
    for step in fences if watch.check.kind is kinds.NHC else ():
        try:
            template = step.template(cluster)
            if template is None or not fence_agents.refusal(template, node):
                continue
        except Unseen:
            continue
        words = fence_agents.remedy(template, node)
        yield Reactivation(watch.check, words, about("edit", template, kinds.FAR_TEMPLATE))


def _without_agent(watch: WatchedNodes, node: str, cluster: Cluster) -> Iterator[Reactivation]:
    """Yield what lets the agent of Self Node Remediation run on a node."""
    is_nhc, steps = watch.check.kind is kinds.NHC, remediation_steps.steps(watch.check)
    if is_nhc and any(step.kind is kinds.SNR_TEMPLATE for step in steps):
        gone = remediation_agents.missing(node, cluster)
        if gone is not None and gone.lasts:
            remedy = gone.remedy
            yield Reactivation(watch.check, without_command(remedy), command_of(remedy))


def _failed(
    watch: WatchedNodes, budget: Budget, down: int, cluster: Cluster
) -> Iterator[Reactivation]:
    """Yield how Machines no longer count as unhealthy that have failed although their nodes are
    Ready.
    """
    if budget.refuses(down):
        repair = unhealthy_objects.repair(watch.check, watch.selection, cluster)
        yield from (Reactivation(watch.check, *each) for each in repair)


def _limited(watch: WatchedNodes, budget: Budget, down: int) -> Iterator[Reactivation]:
    """Yield the limit that lets the check act.

    One that lets it act on all objects at once is none.
    """
    check = watch.check
    if not budget.refuses(down):
        return
    if check.range.present or down < budget.least:
        yield Reactivation(
            check,
            f"widen {budget.limit} of {_title(watch)} to include {down}",
            about("edit", check.obj, check.kind),
        )
    elif budget.total is None:
        yield Reactivation(
            check, f"raise the limit of {_title(watch)}", about("edit", check.obj, check.kind)
        )
    elif down < budget.total:
        healthy = check.limit_of is LimitKind.NODE_MIN_HEALTHY
        value = budget.total - down if healthy else down
        words = (
            f"set {check.limit.path[-1]} of {_title(watch)} to {value}, so that it acts when "
            f"{down} are unhealthy"
        )
        risk = f"a fault that only makes {down} nodes look lost remediates all of them"
        yield _changed(watch, words, tuple(map(str, check.limit.path)), value, risk)
    else:
        yield Reactivation(
            check, f"let {_title(watch)} select more than {down} nodes, with a limit of {down}"
        )


def _unwatched(watch: WatchedNodes, node: str, cluster: Cluster) -> Iterator[Reactivation]:
    """Yield how a check notices a node that stops reporting."""
    check = watch.check
    if timeline.patience(check) is None:
        words = (
            f"list the condition Ready=Unknown in {_title(watch)}, with {check.time_key} "
            f"{check.usual_time}"
        )
        yield Reactivation(check, words, about("edit", check.obj, check.kind))
    own = next((each for each in watch.selection.objects if each.name == node), None)
    if check.kind is not kinds.NHC or own is None or not exclusions.is_excluded(own, cluster):
        return
    if maintained := updaters.maintenances(cluster).get(node):
        yield Reactivation(
            check,
            f"end {maintained.kind} {maintained.name} when its work is done: it excludes {node}",
        )
    else:
        words = f"remove the label {exclusions.EXCLUDED} from {node}"
        yield Reactivation(check, words, exclusions.without_label(node))


def _changed(
    watch: WatchedNodes, words: str, path: tuple[str, ...], value: int | None, risk: str
) -> Reactivation:
    obj = watch.check.obj
    data: Any = value
    for step in reversed(path):
        data = {step: data}
    command = merge_patch(watch.check.kind, obj.name, obj.namespace, data)
    return Reactivation(watch.check, words, command, (FieldChange(path, value),), risk)


def _title(watch: WatchedNodes) -> str:
    return f"{watch.check.obj.kind} {watch.check.obj.name}"
