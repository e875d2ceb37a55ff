"""What is noted of a VM besides its forecasts: operations under way, failed starts,
conditions that wait for a person.

Sources: kubevirt/kubevirt:staging/src/kubevirt.io/api/core/v1/types.go#VirtualMachineStatus,
#VirtualMachineInstanceStatus; pkg/virt-controller/watch/vm/vm.go#startVMI;
kubevirt/containerized-data-importer:staging/src/kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1/types.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from virt_admit.forecasts.drain.changes import pending_changes
from virt_admit.forecasts.drain.control import (
    component_states,
    failed_plans,
    held_copies,
    px_updates,
    stuck_deletions,
    vm_writes,
)
from virt_admit.forecasts.drain.guests import (
    changed_disks,
    failing_probes,
    frozen_guests,
    paused_guests,
    refused_devices,
    restart_guard,
)
from virt_admit.forecasts.drain.starts import (
    evicted_launchers,
    hotplug_phases,
    unattached_volumes,
    waiting_disks,
)
from virt_admit.forecasts.drain.starts.devices import missing_devices
from virt_admit.forecasts.drain.states import lost_launchers, stuck_starts
from virt_admit.forecasts.drain.states.vm_states import STARTING_PHASES
from virt_admit.forecasts.outage.storage import lost_storage
from virt_admit.forecasts.placement import running_launchers, virt_handlers
from virt_admit.forecasts.placement.agents import standing_agents
from virt_admit.forecasts.placement.components.drivers import refusing_storage
from virt_admit.model import certificate_requests, deschedulers
from virt_admit.model.commands import argument, kubectl, shell, virtctl
from virt_admit.model.kubernetes import clock, node_health
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import DATA_VOLUME, NODE, PDB, POD, VM, VM_SNAPSHOT, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import down_vms, migrations, vmis, vms
from virt_admit.model.kubevirt.instances.vm_lookup import FoundVm
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.lookups import find
from virt_admit.model.messages import capital, cut_middle, names, scheduler_words
from virt_admit.model.node_updates import cordoners
from virt_admit.model.node_updates.operators import etcd_leftovers
from virt_admit.reports.explain.vm import resting

_LONGEST: Final = 200
NO_NODE: Final = "kube-scheduler finds no node for its pod"
"""How the note begins that has the words of kube-scheduler."""

PAUSED: Final = "its guest is paused"
FAILS: Final = "kube-scheduler fails with its pod"
"""The same where it fails with the node that it chose
(kubernetes/api:core/v1/types.go#PodReasonSchedulerError).
"""


def notes(found: FoundVm, cluster: Cluster, *, migrates: bool) -> Iterator[str]:
    """Yield what the statuses of a VM, its VMI, their pod and their data volumes say, each with the
    command that shows more.

    Args:
        migrates: whether a migration that is asked for now starts, by its forecast.
    """
    if found.vm is not None:
        stuck = stuck_deletions.of_vm(found.vm, cluster) if found.vmi is not None else None
        yield from (stuck.words,) if stuck is not None else ()
        yield from _operations(found.vm, cluster)
        copies = (held_copies.about_vm, failed_plans.about_vm)
        yield from (held_copies.words(*each) for of in copies for each in of(found.vm, cluster))
        yield from _starts(found.vm, cluster)
        refuses = vm_writes.refused_start if found.vmi is None else vm_writes.refused_change
        refused = refuses(found.vm, cluster)
        yield from (refused.reason,) if refused is not None else ()
    if found.vmi is not None:
        yield from _paused(found.vmi, cluster)
        unready = failing_probes.problem(found.vmi, cluster)
        yield from (f"{unready.reason}. {capital(unready.remedy)}",) if unready is not None else ()
        yield from _storage(found.vmi, cluster)
        yield from px_updates.of_vmi(found.vmi, cluster)
        left = etcd_leftovers.of_vmi(found.vmi, cluster)
        yield from (f"{left.reason}. {capital(left.remedy)}",) if left is not None else ()
        yield from _instance(found.vmi, cluster, migrates=migrates)
        if migrates:
            yield from (each.note for each in component_states.held(cluster) if each.refused)
        if vmis.migratable(found.vmi) is not False or not vmis.running(found.vmi):
            yield from standing_agents.of_vmi(found.vmi, cluster)
        yield from _pod(found.vmi, cluster)
        yield from _evicted(found, cluster)
        yield from _moving(found.vmi, cluster)
        if found.vmi.at("status", "phase").text == "Running":
            yield from filter(None, (missing_devices.note(found.obj, cluster),))
        yield from _unplugged(found.vmi, cluster)
        yield from _lost_node(found.vmi, cluster)
        yield from _descheduled(found.vmi, cluster)
        yield from _cordoned(found.vmi, cluster)
    yield from _data_volumes(found, cluster)


def _storage(vmi: Object, cluster: Cluster) -> Iterator[str]:
    """Yield that the storage of a guest that runs takes no writes:
    its VMI reports nothing of it.
    """
    if vmi.at("status", "phase").text != "Running" or paused_guests.reason(vmi):
        return
    claims = launcher_pod.claims(vmi["spec"])
    fault = refusing_storage.first(vms.namespace_of(vmi), tuple(claims), cluster)
    if fault is not None:
        waits = "its guest may wait for reads or writes without an error"
        yield f"{waits}, as {fault.reason}. {capital(fault.remedy)}"


def _operations(vm: Object, cluster: Cluster) -> Iterator[str]:
    """Yield the snapshot and the restore that lock a VM."""
    namespace = vms.namespace_of(vm)
    snapshot = vm.at("status", "snapshotInProgress").text
    found = find(cluster, VM_SNAPSHOT, namespace, snapshot)
    if found is not None and held_copies.quietly(found, cluster) is not None:
        yield f"snapshot {snapshot} locks the VM until it ends"
    elif snapshot:
        command = kubectl("describe", VM_SNAPSHOT, snapshot, namespace)
        yield (
            f"snapshot {snapshot} is in progress{_error(snapshot, namespace, cluster)}, and locks "
            f"the VM: {command}"
        )
    restore = vm.at("status", "restoreInProgress").text
    if restore:
        command = shell("kubectl", "describe", "vmrestore", argument(restore), "-n", namespace)
        blocks = "KubeVirt does not start the VM before it ends"
        yield f"restore {restore} is in progress: {blocks}: {command}"


def _error(snapshot: str, namespace: str, cluster: Cluster) -> str:
    """Return since when a snapshot is under way and what failed last,
    as far as that can be read.
    """
    try:
        obj = cluster.get(VM_SNAPSHOT, namespace, snapshot)
    except Unseen:
        return ""
    if obj is None:
        return ", but does not exist any more"
    since = obj.condition("Progressing")["lastTransitionTime"].text
    failed = obj.at("status", "error", "message").text
    why = f" ({cut_middle(failed, _LONGEST)})" if failed else ""
    return f"{f' since {since}' if since else ''}{why}"


def _starts(vm: Object, cluster: Cluster) -> Iterator[str]:
    changed = changed_disks.of_either(vm, cluster)
    failed = vm.at("status", "startFailure", "consecutiveFailCount").integer
    if failed:
        again = resting.next_start(vm, cluster)
        why = vm.condition("Failure")["message"].text
        words = f": {cut_middle(why, _LONGEST)}" if why else ""
        following = f", the next is at {again}" if again else ""
        yield f"its last {failed} starts failed{following}{words}"
    elif (failure := vm.condition("Failure"))["status"].text == "True" and failure["message"].text:
        yield (
            f"virt-controller fails with it ({failure['reason'].text or 'Failure'}): "
            f"{cut_middle(failure['message'].text, _LONGEST)}"
        )
    required = vm.is_true("RestartRequired")
    if changed:
        refused = changed_disks.refusal(vm, cluster) if required else ""
        yield (
            f"{changed_disks.words(changed)}"
            f"{f', because nothing is copied: {refused}' if refused else ''}: do not restart it"
        )
    elif required:
        yield "changes of its VM wait for a restart (RestartRequired)"


def _paused(vmi: Object, cluster: Cluster) -> Iterator[str]:
    """Yield why the guest of a VMI is paused, and what ends that."""
    if stopped := paused_guests.problem(vmi, cluster):
        yield f"{stopped.reason}. {capital(stopped.remedy)}"
    elif paused_guests.reason(vmi) == paused_guests.BY_USER:
        paused = f"its guest is {paused_guests.words(vmi, cluster)}"
        yield f"{paused}, until a user resumes it: {paused_guests.resume(vmi)}"
    elif paused_guests.reason(vmi):
        yield f"its guest is {paused_guests.words(vmi, cluster)}"


def _instance(vmi: Object, cluster: Cluster, *, migrates: bool) -> Iterator[str]:
    namespace = vms.namespace_of(vmi)
    yield from (
        f"volume {name}: {apart.reason.removeprefix('it ')}"
        for _, name, apart in unattached_volumes.hotplugged(vmi, cluster)
    )
    if (said := stuck_starts.unsynchronized(vmi)) and not any(
        unattached_volumes.hotplugged(vmi, cluster)
    ):
        device = refused_devices.of(vmi, said, cluster)
        why = device.reason if device is not None else cut_middle(said, _LONGEST)
        yield f"{stuck_starts.synchronizer(vmi)}: {why}"
    if frozen := frozen_guests.words(vmi, cluster):
        yield frozen
    if waits := pending_changes.problem(vmi, cluster):
        yield f"{waits.reason}. {capital(waits.remedy)}"
    elif change := pending_changes.pending(vmi):
        yield f"{change} is pending, which a migration brings"
    if vmis.OUTDATED in vmi.labels:
        restart = "" if changed_disks.brief(vmi, cluster) else " or a restart"
        move = shell("virtctl", "migrate", argument(vmi.name), "-n", namespace)
        way = f"a migration that completes{restart} replaces it"
        if migrates:
            way = f"a migration replaces it: {move}"
        yield f"its launcher is older than KubeVirt; {way}"


def _pod(vmi: Object, cluster: Cluster) -> Iterator[str]:
    """Yield why the pod of a VMI that starts has no node yet."""
    starts = vmi.at("status", "phase").text in STARTING_PHASES
    pod = stuck_starts.starting_pod(vmi, cluster) if starts else None
    if pod is None:
        return
    node, placed = pod.at("spec", "nodeName").text, pod.condition("PodScheduled")
    described = kubectl("describe", POD, pod.name, pod.namespace)
    if not node and placed["status"].text == "False":
        why = scheduler_words(placed["message"].text or "?", _LONGEST)
        begin = FAILS if placed["reason"].text == "SchedulerError" else NO_NODE
        yield f"{begin}: {why}: {described}"


def _evicted(found: FoundVm, cluster: Cluster) -> Iterator[str]:
    """Yield that kubelets evicted earlier pods of a VM that runs again:
    its guest may end in the same way.
    """
    if found.vmi is None or found.vmi.at("status", "phase").text != "Running":
        return
    if ended := evicted_launchers.problem(found.vm or found.vmi, None, cluster):
        yield f"{ended.reason}. It runs again and may end in the same way. {capital(ended.remedy)}"


def _moving(vmi: Object, cluster: Cluster) -> Iterator[str]:
    """Yield what a migration under way looks like, because it resembles a fault."""
    state = vmi.at("status", "migrationState")
    target = state["targetNode"].text
    ended = state["completed"].boolean or state["endTimestamp"].present
    elsewhere = target != vmi.at("status", "nodeName").text
    if (
        target
        and elsewhere
        and state["targetPod"].text
        and not ended
        and vmi.at("status", "phase").text == "Running"
    ):
        known = cluster.known(PDB, vms.namespace_of(vmi))
        own = next((each.name for each in known if _counts_both(each, vmi)), "")
        budget = f", and its PodDisruptionBudget {own} demands both pods" if own else ""
        copies = migrations.copies(vmi)
        left = {*launcher_pod.claims(vmi["spec"])} - {each.destination for each in copies}
        shared = f"claim {names(sorted(left))} is" if copies else "its volumes are"
        volumes = f", {shared} attached to both nodes" if left else ""
        what = f" and copies {migrations.copy_words(vmi)}" if copies else ""
        yield (
            f"it migrates to {target}{what}: until that ends it has two launcher "
            f"pods{volumes}{budget}"
        )
        if copies:
            said = _UNFINISHED if lost_storage.recovers(cluster) else _UNFINISHED_BEFORE
            yield said.format(claims=names(each.source for each in copies))


_UNFINISHED: Final = (
    "until its copy is complete the guest runs on {claims}, although its spec names the copy. If "
    "the guest ends before, KubeVirt does not start it (ManualRecoveryRequired) until the VM names "
    "{claims} again; keep {claims} until then"
)
_UNFINISHED_BEFORE: Final = (
    "until its copy is complete the guest runs on {claims}, although its spec names the copy. If "
    "the guest ends before, KubeVirt before 1.4.1 starts it from the copy, which lacks data; "
    "name {claims} in the VM again before that, and keep {claims}"
)


def _counts_both(budget: Object, vmi: Object) -> bool:
    """Return whether KubeVirt demands both pods of a migration by a budget.

    Later releases write none (kubevirt#13764).
    """
    both = budget.at("spec", "minAvailable").integer == _BOTH
    return both and vmis.owner(budget, VMI.kind) == vmi.name


_BOTH: Final = 2


def _unplugged(vmi: Object, cluster: Cluster) -> Iterator[str]:
    """Yield which volumes that are unplugged do not leave the node."""
    volumes = (*vmi["spec"]["volumes"].items(), *vmi["spec"]["utilityVolumes"].items())
    here = {volume["name"].text for volume in volumes}
    stuck = {each.name: each.problem for each in hotplug_phases.stuck(vmi, cluster)}
    for status in vmi.at("status", "volumeStatus").items():
        name, phase = status["name"].text or "", status["phase"].text or "?"
        if name in here or not status["hotplugVolume"].is_map:
            continue
        if found := stuck.get(name):
            yield f"volume {name}: {found.reason}. {capital(found.remedy)}"
        else:
            restart = f", else restart the VM{restart_guard.later(vmi, cluster)}"
            last = "" if changed_disks.brief(vmi, cluster) else restart
            lasts = f"If that lasts, unmount it in the guest{last}"
            yield f"volume {name} is unplugged and not detached yet (phase {phase}). {lasts}"


def _descheduled(vmi: Object, cluster: Cluster) -> Iterator[str]:
    """Yield that a descheduler has evicted a VM, and why it does so again."""
    pod = running_launchers.launchers(cluster).on_node(vmi)
    strategy = deschedulers.evicted(pod, cluster) if pod is not None else ""
    why = deschedulers.remedy(cluster)
    if strategy and why and vmi.at("status", "evacuationNodeName").text:
        yield f"a descheduler evicted it ({strategy}). {why}"


def _cordoned(vmi: Object, cluster: Cluster) -> Iterator[str]:
    """Yield what has cordoned the node of a VM, which may be why it is to leave."""
    node = find(cluster, NODE, "", vmi.at("status", "nodeName").text)
    cordon = cordoners.of_node(node, cluster) if node is not None else None
    if cordon is not None:
        node_name = vmi.at("status", "nodeName").text
        said = filter(None, (cordon.reason, capital(cordon.remedy)))
        yield " ".join((f"its node {node_name} is {cordon.closed}.", *said))


def _lost_node(vmi: Object, cluster: Cluster) -> Iterator[str]:
    """Yield that the node of a VMI does not report: whether the guest runs is not known, and it
    starts nowhere else.

    Without its kubelet a guest runs on, and virt-handler reports it (kubevirt/kubevirt#8104).
    """
    node = vmi.at("status", "nodeName").text or ""
    if not node_health.silence_now(node, cluster) or vmi.ended:
        return
    if pending := certificate_requests.of_node(node, cluster):
        yield f"its node {node} {pending.reason}"
        return
    if virt_handlers.outlives_kubelet(cluster, node):
        gone = "; its pod no longer exists" if lost_launchers.has_no_pod(vmi, cluster) else ""
        decision = ""
        if owner := vmis.owner(vmi, VM.kind):
            stop, start = (virtctl(verb, owner, vmi.namespace) for verb in ("stop", "start"))
            decision = f". Or, as a decision, let virt-handler stop the guest ({stop}), and start "
            decision += f"the VM elsewhere once its VMI is gone: {start}"
        yield (
            f"the kubelet of {node} does not report, but virt-handler there does, so its guest "
            f"probably runs on{gone}. A second guest would destroy its data, so KubeVirt starts "
            "none while the first one is reported. Repair the kubelet: "
            f"{kubectl('describe', NODE, node)}{decision}"
        )
        return
    pod = running_launchers.launchers(cluster).on_node(vmi)
    ends = pod.metadata["deletionTimestamp"].text if pod is not None else None
    late = f". {_end_of(pod, ends, cluster)}" if pod is not None and ends else ""
    yield (
        f"its node {node} does not report, so whether its guest still runs is not known, and it "
        f"starts nowhere else before the end of its pod is certain{late}: "
        f"{kubectl('describe', NODE, node)}"
    )


def _end_of(pod: Object, ends: str, cluster: Cluster) -> str:
    """Say when a pod on a silent node was to end, or still has time for that."""
    moment, now = clock.instant(ends), clock.now(cluster)
    if moment is not None and now is not None and moment > now:
        late = "no kubelet would confirm that it has"
        return f"Its pod {pod.name} has until {ends} to end, and {late}"
    return f"Its pod {pod.name} should have ended at {ends}, which no kubelet confirms"


def _data_volumes(found: FoundVm, cluster: Cluster) -> Iterator[str]:
    """Yield the data volumes that are not finished: KubeVirt does not start a VM before."""
    for volume in vms.vmi_spec(found.obj)["volumes"].items():
        name = volume.at("dataVolume", "name").text
        obj = find(cluster, DATA_VOLUME, found.namespace, name)
        phase = obj.at("status", "phase").text if obj is not None else None
        if obj is None or phase in (None, "Succeeded"):
            continue
        said = (obj.condition(kind) for kind in ("Running", "Bound", "Ready"))
        why = next((each["message"].text or "" for each in said if each["message"].text), "")
        if phase in waiting_disks.FIRST_START and not _starts_now(found):
            yield (
                f"data volume {name} waits for the first start of the VM ({phase}), because its "
                "storage class binds then. That is as designed"
            )
            continue
        if filling := waiting_disks.being_filled(obj, cluster):
            yield f"data volume {name} {filling}"
            continue
        copied = waiting_disks.source(obj, cluster)
        waits = _copied(copied) if copied is not None and waiting_disks.waits(obj, cluster) else ""
        command = kubectl("describe", DATA_VOLUME, name or "", found.namespace)
        because = f" ({cut_middle(why, _LONGEST)})" if why else ""
        yield f"data volume {name} is {phase}{waits}{because}: {command}"


def _starts_now(found: FoundVm) -> bool:
    """Whether a VM is to run now, as far as is known: then its disks are to be filled."""
    return found.vmi is not None or found.vm is None or down_vms.should_run(found.vm)


def _copied(source: waiting_disks.CopySource) -> str:
    """Return which claim a data volume copies, and who uses it:
    CDI waits until nothing does (CloneSourceInUse).
    """
    users = f": stop {names(source.who)}, else it never begins" if source.users else ""
    return f", a copy of claim {source.words}, which waits while a pod uses that claim{users}"
