"""What ``kubectl drain`` does with the pods of a node that are not VMs: flags that it needs,
budgets that refuse.

The drain is judged as ``kubectl drain --ignore-daemonsets --delete-emptydir-data --force``.
Sources: k8s.io/kubectl pkg/drain/filters.go; k8s.io/kubernetes
pkg/registry/core/pod/storage/eviction.go; pkg/controller/disruption/disruption.go;
kubevirt/kubevirt pkg/virt-api/webhooks/validating-webhook/admitters/ pod-eviction-admitter.go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from virt_admit.forecasts.drain import launcher_pods
from virt_admit.forecasts.drain.budgets import (
    drain_cleaner,
    evicted_pods,
    eviction_policy,
    operator_budgets,
    pod_budgets,
    role_budgets,
    unhealthy_pods,
)
from virt_admit.forecasts.drain.budgets.operator_eviction import OperatorAnswer, Way
from virt_admit.forecasts.drain.states import dying_pods, ending_pods, pod_finalizers, stuck_starts
from virt_admit.forecasts.remediation import awaited_return
from virt_admit.model.commands import kubectl, typed
from virt_admit.model.kubernetes import clock, node_health
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, entry
from virt_admit.model.kubernetes.kinds import NODE, PDB, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.kubevirt.instances import expand, vmis
from virt_admit.model.lookups import find
from virt_admit.model.messages import names, sentence
from virt_admit.model.problems import ProblemCause, ProblemId

READS: Final = union(
    launcher_pods.READS,
    operator_budgets.READS,
    unhealthy_pods.READS,
    stuck_starts.READS,
    pod_finalizers.READS,
    ending_pods.READS,
    dying_pods.READS,
    {
        POD: (
            "metadata.finalizers",
            "metadata.annotations.kubernetes.io/config.mirror",
            "spec.volumes.emptyDir",
        )
    },
)
"""The fields that decide whether a pod can be evicted."""

FORCE: Final = "--force"
DELETE_DATA: Final = "--delete-emptydir-data"
_REMEDY_WITHOUT_SCALE: Final = "Write an integer minAvailable below the number of its pods"


@dataclass(frozen=True, slots=True)
class _Obstacle:
    """Something for which a drain waits."""

    kind: str
    namespace: str
    name: str
    reason: str

    @property
    def subject(self) -> str:
        """Its kind and full name."""
        return (
            f"{self.kind} {self.namespace}/{self.name}"
            if self.namespace
            else f"{self.kind} {self.name}"
        )


@dataclass(frozen=True, slots=True)
class Blocker(_Obstacle):
    """Something other than a VM that keeps a node from becoming empty."""

    remedy: str
    now: bool
    """Whether it is a state of the moment; otherwise it never passes by itself."""
    cause: str = ProblemCause.BLOCKED
    repeatable: bool = False
    """Whether a further drain passes: ``kubectl drain`` ends with an error,
    what updates nodes drains again.
    """
    awaits: tuple[str, ...] = ()
    """The nodes whose return ends it."""
    passes: bool = False
    """Whether these nodes are being rebooted and come back within minutes."""
    since: str | None = None
    """RFC 3339: since when a budget allows no disruption. None: not known."""

    @property
    def id(self) -> ProblemId:
        """The id of the problem. Its root is this object."""
        return ProblemId(self.cause, self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class Wait(_Obstacle):
    """Something that a drain waits for, and that passes by itself."""

    since: str | None = None
    """RFC 3339. None: not known."""
    until: str | None = None
    """RFC 3339. None: not known."""


@dataclass(frozen=True, slots=True)
class Need:
    """A flag without which ``kubectl drain`` refuses, the pods that demand it,
    and what it costs.
    """

    flag: str
    pods: tuple[str, ...]
    """``namespace/name``, sorted."""
    cost: str


@dataclass(frozen=True, slots=True)
class PodEvictions:
    """What a drain does with the pods of one node that are not VMs."""

    blockers: tuple[Blocker, ...]
    needs: tuple[Need, ...]
    waits: tuple[Wait, ...] = ()
    unseen: tuple[str, ...] = ()
    """What could not be determined about budgets of operators and webhooks."""
    passing: tuple[Blocker, ...] = ()
    """What would block, but ends with the return of other nodes: they are being rebooted, or a
    roll-out brings them back.
    """

    @property
    def lasting(self) -> tuple[Blocker, ...]:
        """The blockers that a repeated drain, as by what updates nodes, meets again."""
        return tuple(blocker for blocker in self.blockers if not blocker.repeatable)


def of_node(
    cluster: Cluster, node: str, *, has_vms: bool = False, spared: Collection[str] = frozenset()
) -> PodEvictions:
    """Return what a drain does with the pods of a node, as far as pods and budgets are known.

    Args:
        cluster: the cluster.
        node: the node.
        has_vms: whether VMs run there, also where their pods are not known.
        spared: the pods that it does not evict, as ``namespace/name``.
    """
    here = [
        pod
        for pod in entry(cluster, evicted_pods.by_node, node) or ()
        if pod.full_name not in spared
    ]
    pods, ended = (
        [pod for pod in here if evicted_pods.is_evicted(pod)],
        list(filter(evicted_pods.lingers, here)),
    )
    blockers: list[Blocker] = []
    waits: list[Wait] = []
    passing: list[Blocker] = []
    unseen: list[str] = []
    ending = sum(map(evicted_pods.only_ends, (*pods, *ended)))
    silent = _silent_node(node, ending, cluster) if pods or ended or has_vms else None
    for pod in (*pods, *ended):
        if (
            silent is not None
            and silent.cause == ProblemCause.NODE_SILENT
            and evicted_pods.only_ends(pod)
        ):
            continue  # the node is the cause, once for all of them
        try:
            found = obstacle(pod, cluster)
        except Unseen as error:
            unseen.append(error.what)
            continue
        if isinstance(found, Wait):
            waits.append(found)
        elif found is not None and found.passes:
            waits.append(Wait(found.kind, found.namespace, found.name, found.reason))
            passing.append(found)
        elif found is not None:
            blockers.append(found)
    if silent is not None and (by := awaited_return.awaited(node, cluster)):
        waits.append(Wait(NODE.kind, "", node, f"{silent.reason}; it waits for {by}"))
        unseen.append(f"when node {node} reports again, or is freed")
    elif silent is not None:
        blockers.append(silent)
    found_waits = tuple(
        reversed(
            {(each.kind, each.namespace, each.name): each for each in reversed(waits)}.values()
        )
    )
    return PodEvictions(
        tuple(_silent_last(tuple(_once(blockers)))),
        tuple(_needs(pods)),
        found_waits,
        tuple(dict.fromkeys(unseen)),
        tuple(_once(passing)),
    )


def _silent_last(blockers: Sequence[Blocker]) -> Iterator[Blocker]:
    """Yield the silence of a node after what refuses an eviction for good,
    which a drain by Cluster API meets alone.
    """
    refuses = any(each.kind == PDB.kind and not each.now for each in blockers)
    yield from sorted(blockers, key=lambda each: refuses and each.cause == ProblemCause.NODE_SILENT)


def _silent_node(name: str, ending: int, cluster: Cluster) -> Blocker | None:
    """Return why no pod of a node ends: its kubelet does not report, so evicted pods stay there."""
    if (node := find(cluster, NODE, "", name)) is not None and node_health.silence_now(
        name, cluster
    ):
        already = f" ({ending} already)" if ending else ""
        reason = (
            f"its kubelet does not report, so evicted pods{already} are not seen to end and VMs "
            "cannot migrate"
        )
        remedy = sentence(awaited_return.advice(name, cluster, _FENCE))
        return Blocker(
            NODE.kind, "", name, reason, remedy, now=True, cause=ProblemCause.NODE_SILENT
        )
    if node is not None and node_health.cannot_end_pods(node):
        reason = (
            f"its kubelet cannot end pods ({node_health.unready(node)}): {node_health.UNANSWERED}"
        )
        way, cause = sentence(node_health.RESTART_RUNTIME), ProblemCause.NODE_CANNOT_END_PODS
        return Blocker(NODE.kind, "", name, reason, way, now=True, cause=cause)
    return None


_FENCE: Final = "repair or fence the node"


def _needs(pods: Sequence[Object]) -> Iterator[Need]:
    bare = sorted(pod.full_name for pod in pods if pod.controller is None)
    if bare:
        yield Need(
            FORCE, tuple(bare), "Pods without a controller are deleted and do not come back."
        )
    keeping = [
        pod
        for pod in pods
        if any(volume["emptyDir"].is_map for volume in pod.at("spec", "volumes").items())
    ]
    if keeping:
        own = sorted(pod.full_name for pod in keeping if not evicted_pods.keeps_no_data(pod))
        of = f" of {names(own)}" if len(own) < len(keeping) else ""
        none = "pods of KubeVirt keep no data there."
        cost = (
            f"Data in emptyDir volumes{of} is lost{f'; {none}' if of else '.'}"
            if own
            else f"No data is lost: {none}"
        )
        yield Need(DELETE_DATA, tuple(sorted(pod.full_name for pod in keeping)), cost)


# --- budgets and pods that do not end -------------------------------------------------------------


def obstacle(pod: Object, cluster: Cluster) -> Blocker | Wait | None:
    """Return what keeps a pod from being evicted at once; None if nothing does.

    Raises:
        Unseen: it depends on an operator, and what that does cannot be determined.
    """
    if pod.deleted:
        return _stuck(pod, cluster)
    if evicted_pods.is_of_vm(pod):
        if not launcher_pods.lost_its_vmi(pod, cluster):
            if (starting := _starting(pod, cluster)) is not None:
                return starting
            if not launcher_pods.goes_before_its_guest(pod, cluster):
                launcher_pods.require_known_guest(pod, cluster)
            return None
        vmi = pod.annotations[launcher_pods.DOMAIN]
        reason = f"its VMI {vmi} does not exist, and KubeVirt refuses to evict the pod without it"
        remedy = "Repair virt-controller and virt-handler, which end such a pod."
        return Blocker(
            POD.kind,
            pod.namespace,
            pod.name,
            reason,
            remedy,
            now=False,
            cause=ProblemCause.POD_WITHOUT_VMI,
        )
    if pod.at("status", "phase").text == "Pending":  # eviction.go#canIgnorePDB
        return None
    budgets = pod_budgets.selecting(pod, cluster)
    if len(budgets) > 1:
        if (replacing := _replacing(budgets)) is not None:
            return replacing
        place, cause = (PDB.kind, pod.namespace, budgets[0].name), ProblemCause.SEVERAL_BUDGETS
        which = ", ".join(budget.name for budget in budgets[1:])
        reason = (
            f"it and {which} select the same pods, and the Eviction API refuses such pods, "
            "whatever they allow"
        )
        remedy = typed(
            "Let one budget alone select each pod", kubectl("describe", PDB, "", pod.namespace)
        )
        return Blocker(*place, reason, remedy, now=False, cause=cause)
    refused = (_refusal(pod, budgets[0], cluster) if budgets else None) or _rolled_by_strimzi(
        pod, cluster
    )
    last = "" if refused else ending_pods.may_last(pod)
    return Wait(POD.kind, pod.namespace, pod.name, last) if last else refused


def _starting(pod: Object, cluster: Cluster) -> Blocker | None:
    """Return why the pod of a VMI that KubeVirt has not handed over to its node yet stays:
    its start does not end.

    The webhook refuses its eviction until the VMI can migrate, if it has to
    (pod-eviction-admitter.go#admitLauncherPod).
    """
    vmi = launcher_pods.starting_guest(pod, cluster)
    stuck = stuck_starts.problem(vmi, cluster) if vmi is not None else None
    if (
        vmi is None
        or stuck is None
        or vmis.migratable(vmi)
        or expand.strategy(vmi, cluster).value != "LiveMigrate"
    ):
        return None
    reason = (
        f"VM {vmi.full_name} starts here, and KubeVirt refuses to evict its pod before it can "
        f"migrate; {stuck.reason}"
    )
    return Blocker(
        POD.kind, pod.namespace, pod.name, reason, stuck.remedy, now=True, cause=stuck.cause
    )


def _rolled_by_strimzi(pod: Object, cluster: Cluster) -> Blocker | None:
    if not drain_cleaner.refuses(pod, cluster):
        return None
    reason = (
        "Strimzi's Drain Cleaner refuses its eviction with an error, on which kubectl drain gives "
        "up, and rolls it"
    )
    remedy, cause = "Drain again once Strimzi has moved the pod.", ProblemCause.EVICTION_REFUSED
    return Blocker(
        POD.kind, pod.namespace, pod.name, reason, remedy, now=True, cause=cause, repeatable=True
    )


def _stuck(pod: Object, cluster: Cluster) -> Blocker | Wait | None:
    """Return why a pod that is being deleted does not go away;
    None while that may still be a matter of seconds.

    ``deletionTimestamp`` is the end of the grace period, and a kubelet kills the pod then. So a pod
    that is still there waits for a finalizer, or for a kubelet that does not answer.
    """
    late = clock.since(pod.metadata["deletionTimestamp"].text, cluster)
    silent = _is_silent(pod, cluster)
    if not silent and (late is None or late < dying_pods.STUCK_AFTER):
        return _ending(pod, cluster)
    since = f"it should have ended {clock.duration(late)} ago" if late else "it is being deleted"
    if (held := pod_finalizers.held(pod, cluster)) is not None:
        why, remedy = f"{held.title} still set" + (f": {held.why}" if held.why else ""), held.remedy
    elif silent:
        node = pod.at("spec", "nodeName").text or ""
        why = "the kubelet of its node does not report"
        remedy = sentence(awaited_return.advice(node, cluster, _FENCE))
    else:
        dying = dying_pods.of_pod(pod, cluster)
        why, remedy = f"{dying.why}{dying.keeps}", sentence(dying.remedy)
    reason, cause = f"{since}, but {why}", ProblemCause.POD_NOT_ENDING
    return Blocker(POD.kind, pod.namespace, pod.name, reason, remedy, now=True, cause=cause)


def _ending(pod: Object, cluster: Cluster) -> Blocker | Wait | None:
    """Return until when a pod may stay whose grace period is not over.

    The guest of a VM has a line of its own.
    """
    end = None if evicted_pods.is_of_vm(pod) else ending_pods.of_deleted(pod, cluster)
    if end is None or not end.holds:  # an ordinary roll-out ends long before its grace period does
        return end and Wait(POD.kind, pod.namespace, pod.name, end.reason, until=end.until)
    place, cause, brief = (
        (pod.namespace, pod.name),
        ProblemCause.POD_NOT_ENDING,
        end.left < ending_pods.LONG,
    )
    return Blocker(
        POD.kind, *place, end.reason, end.remedy, now=True, cause=cause, repeatable=brief
    )


def _is_silent(pod: Object, cluster: Cluster) -> bool:
    """Return whether the node of a pod is known not to be Ready:
    nothing there can report that the pod has ended.
    """
    node = find(cluster, NODE, "", pod.at("spec", "nodeName").text or "")
    return node is not None and node.condition("Ready")["status"].text in ("False", "Unknown")


def _replacing(budgets: Sequence[Object]) -> Blocker | None:
    """Return that an operator replaces its budget by another one,
    during which two select the same pod.
    """
    operators = {operator_budgets.operator(budget) for budget in budgets}
    if len(operators) > 1 or None in operators:
        return None
    reason = (
        f"{next(iter(operators)).name} is replacing it by {budgets[1].name}, and both select the "  # type: ignore[union-attr]
        "same pod"
    )
    remedy = "Wait until one of them is left, or repair the operator."
    first = budgets[0]
    return Blocker(
        PDB.kind,
        first.namespace,
        first.name,
        reason,
        remedy,
        now=True,
        cause=ProblemCause.SEVERAL_BUDGETS,
    )


def _refusal(pod: Object, budget: Object, cluster: Cluster) -> Blocker | Wait | None:
    """Return why the Eviction API refuses to evict the pod because of a budget;
    None if it evicts it.

    Raises:
        Unseen: an operator owns the budget, and what it does about it cannot be determined.
    """
    if eviction_policy.lets_go(pod, budget):
        return None
    kind, namespace, name = PDB.kind, budget.namespace, budget.name
    never = pod_budgets.never_allows(budget, cluster)
    answer = operator_budgets.judge(pod, budget, never, cluster)
    if answer is not None:
        if answer.way is Way.GOES:
            return None
        if answer.way is Way.WAITS:
            return Wait(kind, namespace, name, answer.reason)
        return _refused(budget, unhealthy_pods.explained(answer, pod, budget, cluster), cluster)
    choice, silent = eviction_policy.choice(pod, budget, cluster), _is_silent(pod, cluster)
    if never:
        role = role_budgets.of_budget(pod, budget, cluster)
        scaled = (
            ""
            if pod_budgets.lacks_scale(budget)
            else role_budgets.advice(pod, budget, choice, cluster)
        )
        remedy = scaled or f"{_REMEDY_WITHOUT_SCALE}{choice}."
        stays = (
            f"; pod {pod.name} cannot become ready there, as its node does not report"
            if choice and silent
            else ""
        )
        so = "so no pod can ever be evicted" if role is None else f"and {role.words}"
        return Blocker(
            kind,
            namespace,
            name,
            f"{never}, {so}{stays}",
            remedy,
            now=False,
            cause=ProblemCause.BUDGET,
        )
    if (budget.at("status", "disruptionsAllowed").integer or 0) > 0:
        return None
    if starting := unhealthy_pods.starting(pod, budget, cluster):
        return Wait(
            kind, namespace, name, f"it lets pod {pod.name} go once others are ready: {starting}"
        )
    reason = f"it allows no disruption now, so pod {pod.name} cannot be evicted"
    remedy = f"Wait until its pods are healthy, or repair them{choice}."
    answer = OperatorAnswer(Way.NOW, reason, remedy, of_pods=True)
    return _refused(budget, unhealthy_pods.explained(answer, pod, budget, cluster, choice), cluster)


def _refused(budget: Object, answer: OperatorAnswer, cluster: Cluster) -> Blocker:
    now, since = answer.way is Way.NOW, pod_budgets.refuses_since(budget)
    reason = (
        f"{answer.reason}{pod_budgets.lasting(since, cluster)}"
        if now and not answer.awaits
        else answer.reason
    )
    found = Blocker(
        PDB.kind, budget.namespace, budget.name, reason, answer.remedy, now, ProblemCause.BUDGET
    )
    return replace(found, awaits=answer.awaits, passes=answer.passes, since=since)


def _once(blockers: Iterable[Blocker]) -> Iterator[Blocker]:
    """Yield each cause at a budget once, however many pods of the node it protects."""
    # named by the first one, whichever the others of a pod are
    several = ProblemCause.SEVERAL_BUDGETS
    found = {
        (each.kind, each.id, each.cause == several and each.reason): each
        for each in reversed(list(blockers))
    }
    yield from found.values()
