"""The command that repairs each problem of a drain,
or shows what an administrator has to see first.

No command deletes anything, forces an eviction, or changes a PodDisruptionBudget without its owner:
those are edited by hand. What shuts a guest down is named as such.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from virt_admit.forecasts.drain.budgets.drain_obstacles import Blocker
from virt_admit.forecasts.drain.failed_migrations.pair_remedies import (
    NAMED_MODEL,
    PAIR_REMEDY,
    RESTART_REMEDY,
)
from virt_admit.forecasts.drain.guests import changed_disks, restart_guard
from virt_admit.forecasts.drain.states.vm_states_failures import LOWER_LOAD, VOLUME_REMEDY
from virt_admit.forecasts.drain.vmi_evictions import MIGRATE_BY_HAND
from virt_admit.forecasts.placement import candidates, permanent_constraints
from virt_admit.forecasts.placement.common_model import common_model
from virt_admit.model.commands import about, kubectl, merge_patch, typed, virtctl
from virt_admit.model.evidence.writes import quota_writers
from virt_admit.model.kubernetes import kinds, nodes
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import (
    DEPLOYMENT,
    HCO,
    KUBEVIRT,
    MIGRATION_POLICY,
    NODE,
    PDB,
    RESOURCE_QUOTA,
    VM,
    VMI,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import migration_timeouts, vmis, vms
from virt_admit.model.kubevirt.launcher import left_selectors
from virt_admit.model.kubevirt.settings import configuration, live_updates, versions
from virt_admit.model.lookups import find
from virt_admit.model.messages import command_of
from virt_admit.model.node_updates.rancher import repository_vms
from virt_admit.model.problems import Problem, ProblemCause

UNPIN: Final = "remove the node selector for "
"""How the remedy of a VM begins that names its node."""
SHUT_DOWN: Final = "let drains shut the guest down"
"""The last way of remedies, whose command is that of ``shut_down_by_drains``."""


def with_command(problem: Problem, vmi: Object, cluster: Cluster) -> Problem:
    """Return a problem whose remedy ends with the command, if it has one."""
    found = _with_command(problem, vmi, cluster)
    found = found._replace(remedy=restart_guard.guarded(found.remedy, vmi, cluster))
    other = changed_disks.safe(found.remedy, vmi, cluster)
    return (
        found if other == found.remedy else found._replace(remedy=other, command=command_of(other))
    )


def _with_command(problem: Problem, vmi: Object, cluster: Cluster) -> Problem:
    if any(tool in problem.remedy for tool in ("kubectl ", "virtctl ")):
        lasting = problem.remedy.removesuffix(f", or {SHUT_DOWN}")
        ends = lasting != problem.remedy
        return problem._replace(remedy=_or(lasting, SHUT_DOWN)) if ends else problem
    cause = problem.id.cause if problem.id is not None else problem.cause
    if cause in _MOVES and (stop := repository_vms.stopped(vmi, cluster)):
        return problem._replace(remedy=stop, command=command_of(stop))
    host = left_selectors.host(vmi, cluster) if cause in _PLACES else ""
    if host and left_selectors.aimed_by(vmi, cluster) is None:  # else it goes with that migration
        return _restarted(problem, vmi, host)
    owned = _with_owner(vmi, cluster)
    other = _unpinned(problem, owned, cluster) or stopped(problem, vmi, cluster)
    if other is not None:
        return other
    command = problem.command or _COMMANDS.get(cause, _accept_downtime)(problem, owned, cluster)
    remedy = problem.remedy
    if not command:  # nothing owns the VMI, so that nothing would start it again
        remedy = (
            f"{remedy.removesuffix(SHUT_DOWN)}{vmis.made_durable(vmi)}"
            if remedy.endswith(SHUT_DOWN)
            else remedy
        )
        command = about("get", vmi, VMI, "-o", "yaml")
    return problem._replace(remedy=_placed(remedy, command, owned), command=command)


def _placed(remedy: str, command: str, vmi: Object) -> str:
    """Return a remedy with its command behind the way that it carries out."""
    for ending, words in _STOPS.items():
        if remedy.endswith(ending) and command.startswith("virtctl stop "):
            first = remedy.removesuffix(ending)
            if first.endswith(MIGRATE_BY_HAND):
                by_hand = virtctl("migrate", vmi.name, vms.namespace_of(vmi))
                first = f"{first}: {by_hand}"
            return f"{first}; or{words}{typed('stop it', command)}"
    lasting = remedy.removesuffix(SHUT_DOWN).removesuffix(", or ")
    if not remedy.endswith(SHUT_DOWN):
        return typed(f"{remedy}{_next_start(vmi, command, remedy)}", command)
    if command.startswith(_SHOWING) or "evictionStrategy" not in command:
        further = f"or {SHUT_DOWN}" if lasting else ""
        words = lasting or SHUT_DOWN
        return typed(f"{words}{_next_start(vmi, command, words)}", command, further)
    return _or(lasting, typed(f"{SHUT_DOWN}{_next_start(vmi, command, SHUT_DOWN)}", command))


_STOPS: Final = {", or stop it": " ", ", or, as a decision, stop it": ", as a decision, "}
"""How remedies end whose last way has a command of its own, with the words before it."""
_SHOWING: Final = ("kubectl describe ", "kubectl get ")


def _or(remedy: str, other: str) -> str:
    """Return a remedy with another way, which has a command of its own."""
    return f"{remedy}; or {other}" if remedy else other


_PLACES: Final = (ProblemCause.NO_OTHER_NODE, ProblemCause.NO_ROOM, ProblemCause.NO_TARGET)
_MOVES: Final = (
    *_PLACES,
    *(ProblemCause.MIGRATION_FAILS, ProblemCause.TARGETS_INCOMPATIBLE, ProblemCause.HOST_MODEL),
)
"""The causes for which a VM that may be stopped should be."""


def _restarted(problem: Problem, vmi: Object, host: str) -> Problem:
    """Return a problem with the restart that rids a VM of a host name in its VMI alone."""
    other = (
        ""
        if problem.remedy.startswith(UNPIN)
        else problem.remedy.partition(": kubectl ")[0].rstrip(".")
    )
    why = f"the node selector of its VMI names {host}, which its VM does not"
    command = virtctl("restart", vmi.name, vms.namespace_of(vmi))
    remedy = _or(other, typed(f"restart the VM, as {why}", command))
    return problem._replace(remedy=remedy, command=command)


def _unpinned(problem: Problem, vmi: Object, cluster: Cluster) -> Problem | None:
    """Return a problem with the command that removes the host name of a VM; None:
    it is about something else.

    A VM that is stopped leaves its node at once, while evictionStrategy None counts from its next
    start. Source: kubevirt/kubevirt:pkg/virt-controller/watch/vm/vm.go#handleAffinityChangeRequest.
    """
    what, found, rest = problem.remedy.partition(" from the VM")
    if not found or not what.startswith(UNPIN):
        return None
    vm = vmi if kinds.of(vmi) is VM else vmis.known_vm(vmi, cluster)
    command = permanent_constraints.unpin(vm) if vm is not None else ""
    if vm is None or not command:
        return None
    stop, restart = (virtctl(verb, vm.name, vms.namespace_of(vm)) for verb in ("stop", "restart"))
    live = versions.gate_may_be_on(cluster, versions.Gate.VM_LIVE_UPDATE)
    at_once = ", or at once with vmRolloutStrategy LiveUpdate" if live else ""
    effect = f", which takes effect after its restart ({restart}){at_once}"
    if live_updates.is_live(cluster):
        effect = live_updates.effect(cluster)
    other = rest.removeprefix(", or ").replace(
        SHUT_DOWN, f"stop it until the drain is over ({stop})"
    )
    remedy = typed(f"{what}{found}{effect}", command, f"or {other}" if other else "")
    return problem._replace(remedy=remedy, command=command)


def stopped(problem: Problem, vmi: Object, cluster: Cluster) -> Problem | None:
    """Return a problem with the command that stops a VM for the maintenance of its node; None:
    it is about something else.

    A VM that is restarted to get another eviction strategy would wait if no other node takes it,
    and its own one is cordoned or refuses a new pod of it, as for a taint that came later.
    """
    node = find(cluster, NODE, "", vmi.at("status", "nodeName").text)
    cause = problem.id.cause if problem.id is not None else problem.cause
    if (
        cause not in _PLACES
        or not problem.remedy.endswith(SHUT_DOWN)
        or node is None
        or vmis.owner(vmi, "VirtualMachine") is None
    ):
        return None
    if node.name == cluster.cached(nodes.only_of_harvester):
        stop, start = (virtctl(verb, vmi.name, vms.namespace_of(vmi)) for verb in ("stop", "start"))
        words = (
            "stop it before the maintenance, as an upgrade of Harvester does itself, and start it "
            f"afterwards ({start})"
        )
        return problem._replace(remedy=typed(words, stop), command=stop)
    target = candidates.target(vmi, cluster, moves=False)
    if target.placement.has_candidate or not target.placement.is_certain:
        return None
    if refusal := restart_guard.refusal(node.name, target, cluster):
        return _kept_up(problem, node.name, refusal)
    if node.at("spec", "unschedulable").boolean is not True:
        return None
    stop, start = (virtctl(verb, vmi.name, vms.namespace_of(vmi)) for verb in ("stop", "start"))
    words = (
        f"stop it until {node.name} is uncordoned and start it then ({start}), as a restart now "
        "would leave it Pending"
    )
    lasting = problem.remedy.removesuffix(SHUT_DOWN).removesuffix(", or ")
    return problem._replace(remedy=_or(lasting, typed(words, stop)), command=stop)


def _kept_up(problem: Problem, node: str, refusal: str) -> Problem:
    """Return a problem without the alternative that restarts a VM which its own node would refuse
    too.
    """
    words = problem.remedy.removesuffix(SHUT_DOWN).removesuffix(", or ")
    keep = f"do not restart the VM before, as {node} would refuse it too ({refusal})"
    command = problem.command or kubectl("describe", NODE, node)
    remedy = typed(words, command, keep) if words else typed(keep, command)
    return problem._replace(remedy=remedy, command=command)


def _with_owner(vmi: Object, cluster: Cluster) -> Object:
    """Return the VM of a VMI whose owners are not known, and that has the name of a VM;
    else the VMI.
    """
    if vmi.metadata["ownerReferences"].present:
        return vmi
    return find(cluster, VM, vms.namespace_of(vmi), vmi.name) or vmi


def of_blocker(blocker: Blocker) -> str:
    """Return the remedy of something other than a VM, with the command that shows or repairs it."""
    kind = next((kind for kind in kinds.ALL if kind.kind == blocker.kind), None)
    if kind is None or "kubectl " in blocker.remedy or command_of(blocker.remedy):
        return blocker.remedy
    verb = "edit" if kind is PDB and not blocker.now and "Write" in blocker.remedy else "describe"
    return typed(blocker.remedy, kubectl(verb, kind, blocker.name, blocker.namespace))


def starts_again(vmi: Object) -> str:
    """Return the command with which the VM of a VMI starts again after a drain; empty:
    it has no VM.
    """
    return _patch_vm(vmi, {"spec": {"running": None, "runStrategy": "Always"}})


def started(remedy: str, vmi: Object) -> str:
    """Return a remedy for a VM that stays off after a drain, with the command that starts it again
    unless it has its own."""
    return remedy if not remedy or command_of(remedy) else typed(remedy, starts_again(vmi))


def or_migrates(remedy: str, vmi: Object) -> str:
    """Return a remedy for a VM that stays off after a drain, with how a drain migrates it instead,
    if it can migrate.

    Its VMI keeps the eviction strategy with which it was started; the run strategy of the VM counts
    at once.
    """
    command = command_of(remedy)
    if (
        not command
        or not _has_vm(vmi)
        or vmis.migratable(vmi) is not True
        or "runStrategy" not in command
    ):
        return remedy
    restart, migrate = (
        virtctl(verb, vmi.name, vms.namespace_of(vmi)) for verb in ("restart", "migrate")
    )
    strategy = f"evictionStrategy LiveMigrate, which takes effect after its restart ({restart})"
    return f"{remedy}; or {strategy}; or migrate it before the drain ({migrate})"


def shut_down_by_drains(vmi: Object, strategy: str) -> str:
    """Return the commands with which drains shut the guest of a VM or a VMI down from its next
    start on.

    Empty: nothing owns the VMI.
    """
    data = {"spec": {"template": {"spec": {"evictionStrategy": strategy}}}}
    return _patch_vm(vmi, data)


def _patch_vm(vmi: Object, data: Mapping[str, Any]) -> str:
    """Return the command that changes a VM, the VM of a VMI, or its replica set; empty:
    it has neither.
    """
    namespace, kind = vms.namespace_of(vmi), kinds.of(vmi)
    if kind is kinds.VMIRS:
        return merge_patch(kind, vmi.name, namespace, data)
    if _has_vm(vmi):
        return merge_patch(VM, vmi.name, namespace, data)
    owner = vmis.owner(vmi, "VirtualMachineInstanceReplicaSet")
    return merge_patch(kinds.VMIRS, owner, namespace, data) if owner else ""


def _next_start(vmi: Object, command: str, remedy: str) -> str:
    """Return how a command that changes the template of a VM takes effect; empty:
    it changes something else.
    """
    if '"template"' not in command or not _has_vm(vmi):
        return ""
    restart = virtctl("restart", vmi.name, vms.namespace_of(vmi))
    if remedy.endswith("restart the VM"):
        return f" ({restart})"
    return f", which takes effect after its restart ({restart})"


def _accept_downtime(_problem: Problem, vmi: Object, cluster: Cluster) -> str:
    return shut_down_by_drains(vmi, versions.if_possible(cluster))


def _describe(_problem: Problem, vmi: Object, _cluster: Cluster) -> str:
    return about("describe", vmi, VMI)


def _stop(_problem: Problem, vmi: Object, _cluster: Cluster) -> str:
    return (
        virtctl("stop", vmi.name, vms.namespace_of(vmi))
        if _has_vm(vmi)
        else about("describe", vmi, VMI)
    )


def _migrate(_problem: Problem, vmi: Object, _cluster: Cluster) -> str:
    """Return the command that migrates a VM by hand, where it can migrate."""
    can = _has_vm(vmi) and vmis.migratable(vmi)
    return (
        virtctl("migrate", vmi.name, vms.namespace_of(vmi)) if can else about("describe", vmi, VMI)
    )


def _has_vm(vmi: Object) -> bool:
    return kinds.of(vmi) is VM or vmis.owner(vmi, "VirtualMachine") is not None


def _await_condition(_problem: Problem, vmi: Object, _cluster: Cluster) -> str:
    known = vmis.migratable(vmi) is not None  # a wait for it would end at once
    return about(
        "wait",
        vmi,
        VMI,
        f"--for=condition={'Ready' if known else 'LiveMigratable'}",
        "--timeout=5m",
    )


def _set_model(_problem: Problem, vmi: Object, cluster: Cluster) -> str:
    model = common_model(cluster)
    data = {"spec": {"template": {"spec": {"domain": {"cpu": {"model": model}}}}}}
    patch = _patch_vm(vmi, data) if model else ""
    if patch:
        return patch
    return about("edit", vmi, VM) if _has_vm(vmi) else ""


def _see_budget(problem: Problem, vmi: Object, cluster: Cluster) -> str:
    """Return the command that shows a budget, or edits one whose limit no controller can count."""
    return _of_root("edit" if "minAvailable" in problem.remedy else "describe", PDB)(
        problem, vmi, cluster
    )


def edit_limits(vmi: Object, cluster: Cluster) -> str:
    """Return the command that edits the settings of a VM's migrations:
    those of a MigrationPolicy count first.
    """
    policy = migration_timeouts.policy(vmi, cluster)
    return (
        about("edit", policy, MIGRATION_POLICY)
        if policy is not None
        else edit_configuration(cluster)
    )


def _edit_limits(_problem: Problem, vmi: Object, cluster: Cluster) -> str:
    return edit_limits(vmi, cluster)


def edit_configuration(cluster: Cluster) -> str:
    """Return the command that edits the settings of KubeVirt: HyperConverged, where it exists,
    writes those of KubeVirt.
    """
    for read, kind in ((configuration.hyperconverged, HCO), (configuration.kubevirt, KUBEVIRT)):
        found = configuration.known_or_none(read, cluster)
        if found is not None:
            return about("edit", found, kind)
    return "kubectl edit kubevirt -A"


def _of_root(verb: str, kind: kinds.Kind) -> _Command:
    """Return the command about the root object of a problem."""

    def command(problem: Problem, _vmi: Object, _cluster: Cluster) -> str:
        root = problem.id
        if root is None or (kind.namespaced and not root.namespace):
            return ""
        return kubectl(verb, kind, root.name, root.namespace)

    return command


_Command = Callable[[Problem, Object, Cluster], str]


def _edit_quota(problem: Problem, vmi: Object, cluster: Cluster) -> str:
    """Return the command that edits a quota, or shows it if Rancher or a tool writes it, or all of
    the namespace if the problem is one of the VM.
    """
    root = problem.id
    found = root and find(cluster, RESOURCE_QUOTA, root.namespace, root.name)
    if root is not None and found is not None:
        edit = quota_writers.raising(root.name, root.namespace, found)[1]
        return edit or kubectl("describe", RESOURCE_QUOTA, root.name, root.namespace)
    return kubectl("describe", RESOURCE_QUOTA, "", vms.namespace_of(vmi))


def _failed(problem: Problem, vmi: Object, cluster: Cluster) -> str:
    of_load = is_of_load(problem.remedy)
    return edit_limits(vmi, cluster) if of_load else _elsewhere(problem, vmi, cluster)


def is_of_load(remedy: str) -> bool:
    """Whether a remedy changes the settings of migrations."""
    return LOWER_LOAD in remedy or remedy.startswith(VOLUME_REMEDY)


def _elsewhere(problem: Problem, vmi: Object, cluster: Cluster) -> str:
    words = problem.remedy
    if words == PAIR_REMEDY or words.startswith("set CPU model ") or NAMED_MODEL in words:
        return _set_model(problem, vmi, cluster)
    if words.startswith(RESTART_REMEDY) and _has_vm(vmi):
        return virtctl("restart", vmi.name, vms.namespace_of(vmi))
    ends = words.endswith(SHUT_DOWN)
    return shut_down_by_drains(vmi, "None") if ends else _describe(problem, vmi, cluster)


_COMMANDS: Final[Mapping[str, _Command]] = {
    ProblemCause.EXTERNAL: _stop,
    ProblemCause.MOVER_IDLE: _migrate,
    ProblemCause.NOT_REPORTED: _await_condition,
    ProblemCause.NO_MIGRATION: _edit_limits,
    ProblemCause.BUDGET: _see_budget,
    ProblemCause.SEVERAL_BUDGETS: lambda _problem, vmi, _cluster: kubectl(
        "get", PDB, "", vms.namespace_of(vmi)
    ),
    ProblemCause.QUOTA: _edit_quota,
    ProblemCause.LIMIT_RANGE: lambda _problem, vmi, _cluster: kubectl(
        "edit", kinds.LIMIT_RANGE, "", vms.namespace_of(vmi)
    ),
    ProblemCause.STOP_OVERDUE: _describe,
    ProblemCause.POD_NOT_ENDING: _describe,
    ProblemCause.MIGRATION_FAILS: _failed,
    ProblemCause.MARK_LEFT: _describe,
    ProblemCause.QUEUED: _describe,
    ProblemCause.NO_ROOM: _elsewhere,
    ProblemCause.NO_TARGET: _elsewhere,
    ProblemCause.HOST_MODEL: _elsewhere,
    ProblemCause.CLAIM_BROKEN: _elsewhere,
    ProblemCause.NODE_SILENT: _of_root("describe", NODE),
    ProblemCause.COMPONENT: _of_root("describe", DEPLOYMENT),
}
"""By cause. All others are reasons of KubeVirt's condition: the VM cannot migrate."""
