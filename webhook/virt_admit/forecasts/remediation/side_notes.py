"""What an explanation says of a check although it does not keep the check from acting."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.remediation import (
    control_plane_deadlocks,
    remediation_steps,
    reported_status,
    unhealthy_objects,
)
from virt_admit.forecasts.remediation.ends import left_remediations, stale_annotations
from virt_admit.forecasts.remediation.unwatched import lonely_agents
from virt_admit.model import machine_nodes
from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes import clock, kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.labels import Selection
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.units import format_duration
from virt_admit.model.lookups import grouped, is_absent
from virt_admit.model.messages import capital, names
from virt_admit.model.remediation import (
    health_checks,
    machine_drain,
    machine_owners,
    machine_starts,
    machines,
)
from virt_admit.model.remediation.health_checks import HealthCheck


def notes(check: HealthCheck, selection: Selection, cluster: Cluster) -> Iterator[str]:
    """Yield what looks like a pause and is none, how long the deletion of a Machine may take,
    and what is left over.
    """
    if check.kind is kinds.NHC:
        yield from left_over(check, cluster)
    yield from _lonely(check, selection, cluster)
    yield from _loop(check, cluster)
    yield from _stuck(selection, cluster)
    yield from _without_node(check, selection, cluster)
    yield from reported_status.refusal(check, selection, cluster)
    if check.kind is not kinds.CAPI_MHC:
        return
    yield from _by_hand(check, selection, cluster)
    yield from _of_machine_pools(check, selection)
    for repair in unhealthy_objects.repair(check, selection, cluster):
        yield typed(repair.words, repair.command)
    owner = unhealthy_objects.capi_cluster(check, cluster)
    if (
        owner is not None
        and owner.annotation(health_checks.PAUSED).present
        and not owner.at("spec", "paused").boolean
    ):
        # util/paused/paused.go reads the annotation of the object itself, and of its Cluster
        # spec.paused alone
        yield (
            f"the annotation {health_checks.PAUSED} of Cluster {owner.full_name} does not pause "
            "this check. To pause it, set spec.paused of the Cluster"
        )
    if machine_owners.decide(check) and _acts_on_a_reporting_node(check):
        endless = [
            each
            for each in selection.objects
            if machines.node_name(each) and not _has_drain_limit(each)
        ]
        if endless:
            which = names(each.name for each in endless)
            why = names(dict.fromkeys(map(machine_drain.no_timeout, endless)))
            yield (
                f"the deletion of {which} waits without a limit for VMs that cannot leave while "
                f"the node still reports: {why}"
            )


def _of_machine_pools(check: HealthCheck, selection: Selection) -> Iterator[str]:
    """Yield of which Machines it is not known whether the mark of a check leads to anything."""
    if not machine_owners.decide(check):
        return
    begin = f"{machine_nodes.MACHINE_POOL} "
    for owner, own in grouped(selection.objects, machine_owners.title).items():
        if owner.startswith(begin):
            which = names([each.name for each in own], 80)
            yield f"whether {owner} replaces {which}: {machine_owners.BY_PROVIDER}"


def _stuck(selection: Selection, cluster: Cluster) -> Iterator[str]:
    """Yield which Machines are being deleted for long, and what that waits for."""
    for machine in selection.objects:
        age = clock.since(machine.metadata["deletionTimestamp"].text, cluster)
        if age is not None and age >= _PROMPT:
            why = _waits(machine) or "its controller does not say why"
            what = f"Machine {machine.full_name} is being deleted for {clock.duration(age)}: {why}"
            yield typed(what, about("describe", machine, kinds.of(machine) or kinds.CAPI_MACHINE))


_PROMPT: Final = timedelta(minutes=10)
"""A deletion that nothing holds takes less than this."""


def _waits(machine: Object) -> str:
    hooks = machine_drain.holding_hooks(machine) or machine_drain.terminating_hooks(machine)
    if hooks:
        return f"its hook {names(hooks, 120)} is set"
    if machine_drain.volume_wait(machine):
        return "volumes of its node are not detached"
    words, _ = machine_drain.reported(machine)
    return f"its drain waits: {machine_drain.brief(words, 200)}" if words else ""


def _without_node(check: HealthCheck, selection: Selection, cluster: Cluster) -> Iterator[str]:
    """Yield which Machines should be nodes by now. Each one uses up the limit of the check."""
    overdue = (
        machine_starts.overdue_of_openshift if check.kind is kinds.MHC else machine_starts.overdue
    )
    own = {each.full_name for each in selection.objects}
    stuck = control_plane_deadlocks.deadlocks(cluster)
    for late in overdue(cluster) if check.kind is not kinds.NHC else ():
        if late.certain and late.machine.full_name in own and late.machine.full_name not in stuck:
            yield late.why


def _loop(check: HealthCheck, cluster: Cluster) -> Iterator[str]:
    """Yield that a check remediates new Machines before they can become nodes."""
    if check.kind is kinds.NHC:
        return
    try:
        short = machine_starts.short_start(check.obj, cluster)
    except Unseen:
        return
    if short is not None:
        yield (
            f"{check.startup.path[-1]} {short.words}. A new machine is remediated before that, and "
            f"so is the next one, in a loop. "
            f"{capital(f'{short.doubt}set at least {format_duration(short.enough)}')}"
        )


def _by_hand(check: HealthCheck, selection: Selection, cluster: Cluster) -> Iterator[str]:
    """Yield how to replace control-plane Machines that their owner does not remediate,
    so that etcd keeps its quorum.

    One without a Node takes no part in etcd (kubernetes-sigs/cluster-api#4472).
    """
    stuck = control_plane_deadlocks.deadlocks(cluster)
    for refusal in reported_status.refusals(check, selection, cluster):
        machine = refusal.machine
        if machine.full_name in stuck:
            found = stuck[machine.full_name]
            yield f"{found.reason}. {capital(found.remedy)}"
        elif held := stale_annotations.of_machine(machine, cluster):
            yield f"{held.reason}. {capital(held.remedy)}"
        elif refusal.owner.startswith(f"{machine_owners.KUBEADM} ") and not machines.node_name(
            machine
        ):
            yield typed(
                f"{machine.name} has no node. If all other members of etcd are healthy, delete it "
                f"by hand, so that {refusal.owner} creates another one",
                about("delete", machine, kinds.CAPI_MACHINE),
            )


def _lonely(check: HealthCheck, selection: Selection, cluster: Cluster) -> Iterator[str]:
    """Yield which nodes Self Node Remediation does not reboot where they are only cut off."""
    found = lonely_agents.known(cluster)
    steps = remediation_steps.steps(check)
    if found is None or found.reboots or all(step.kind is not kinds.SNR_TEMPLATE for step in steps):
        return
    own = {*remediation_steps.nodes_of(check, selection, cluster)}.intersection(found.nodes)
    if own:
        which = names(sorted(own))
        yield (
            f"the VMs of {which} run twice where it is not off but cut off: {found.risk}. "
            f"{capital(found.remedy)}"
        )


def left_over(check: HealthCheck, cluster: Cluster) -> Iterator[str]:
    """Yield the nodes that do not exist, but are being remediated by the status of a
    NodeHealthCheck.

    Its webhook then refuses changes (nodehealthcheck_webhook.go#validateUpdate).
    """
    left = list(left_remediations.left(check.obj, cluster))
    for each in left:
        yield f"{each.reason}. To do: {each.remedy}"
    status = check.obj["status"]
    begun = (each for each in status["unhealthyNodes"].items() if any(each["remediations"].items()))
    listed = {*status["inFlightRemediations"].map, *(each["name"].text for each in begun)} - {
        each.node for each in left
    }
    listed -= left_remediations.may_go_on(check.obj, cluster)
    gone = sorted(name for name in listed if name and is_absent(cluster, kinds.NODE, "", name))
    if gone:
        yield (
            f"its status still lists remediations of {names(gone)}, which do not exist. Until they "
            "are dropped, its selector cannot be changed and it cannot be deleted. Update the "
            "operator, or delete their remediation objects if none of these nodes is to come back"
        )


def _acts_on_a_reporting_node(check: HealthCheck) -> bool:
    """Return whether a Machine can be deleted while its kubelet reports; of other nodes nothing is
    awaited (kubernetes-sigs/cluster-api: machine_controller.go#drainNode).
    """
    symptoms = (*remediation_steps.symptoms(check), *remediation_steps.machine_symptoms(check))
    return any(symptom[:2] != ("Ready", "Unknown") for symptom in symptoms)


def _has_drain_limit(machine: Object) -> bool:
    """Return whether a Machine limits its drain.

    0 means without a limit, in both versions of the API.
    """
    seconds = machine.at("spec", "deletion", "nodeDrainTimeoutSeconds").integer
    text = machine.at("spec", "nodeDrainTimeout").text
    return bool(seconds) or (text is not None and text.strip("0hms.") != "")
