"""What ``kubectl drain`` does with the pods of a node that are not VMs: flags that it needs,
budgets that refuse.

The drain is judged as ``kubectl drain --ignore-daemonsets --delete-emptydir-data --force``.
Sources: k8s.io/kubectl pkg/drain/filters.go; k8s.io/kubernetes
pkg/registry/core/pod/storage/eviction.go; pkg/controller/disruption/disruption.go;
kubevirt/kubevirt pkg/virt-api/webhooks/validating-webhook/admitters/ pod-eviction-admitter.go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from virt_admit.forecasts.drain import launcher_pods
from virt_admit.forecasts.drain.budgets import (
    budget_refusals,
    drain_cleaner,
    evicted_pods,
    guard_budgets,
    operator_budgets,
    unhealthy_pods,
)
from virt_admit.forecasts.drain.budgets.drain_obstacles import Blocker, ForeignWait, Wait
from virt_admit.forecasts.drain.endless import returning_pods
from virt_admit.forecasts.drain.starting import starting_guests
from virt_admit.forecasts.drain.states import dying_pods, ending_pods, pod_finalizers, stuck_starts
from virt_admit.forecasts.placement import unserved_volumes
from virt_admit.forecasts.remediation import awaited_return
from virt_admit.model.kubernetes import clock, node_health
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, entry
from virt_admit.model.kubernetes.kinds import NODE, PDB, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.kubevirt.instances import expand, vmis
from virt_admit.model.lookups import find
from virt_admit.model.messages import names, sentence
from virt_admit.model.problems import ProblemCause
from virt_admit.model.remediation import etcd_guard

READS: Final = union(
    launcher_pods.READS,
    starting_guests.READS,
    operator_budgets.READS,
    unhealthy_pods.READS,
    stuck_starts.READS,
    pod_finalizers.READS,
    ending_pods.READS,
    dying_pods.READS,
    returning_pods.READS,
    unserved_volumes.READS,
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
    known = entry(cluster, evicted_pods.by_node, node) or ()
    here = [pod for pod in known if pod.full_name not in spared]
    pods = [pod for pod in here if evicted_pods.is_evicted(pod)]
    leaving = [*pods, *filter(evicted_pods.lingers, here)]
    ending = sum(map(evicted_pods.only_ends, leaving))
    silent = _silent_node(node, ending, cluster) if leaving or has_vms else None
    if silent is not None and silent.cause == ProblemCause.NODE_SILENT:
        # the node is the cause, once for all of them
        leaving = [pod for pod in leaving if not evicted_pods.only_ends(pod)]
    found = list(_obstacles(leaving, cluster))
    every = [each for each in found if isinstance(each, Blocker)]
    blockers = [each for each in every if not each.passes]
    passing = [each for each in every if each.passes]
    waits = [wait for each in found if (wait := _wait(each)) is not None]
    unseen = [each.what for each in found if isinstance(each, Unseen)]
    if silent is not None and (by := awaited_return.awaited(node, cluster)):
        waits.append(Wait(NODE.kind, "", node, f"{silent.reason}; it waits for {by}"))
        unseen.append(f"when node {node} reports again, or is freed")
    elif silent is not None and (unread := awaited_return.unread(node, cluster)):
        unseen.append(f"whether anything brings node {node} back ({unread})")
    elif silent is not None:
        blockers.append(silent)
    else:
        blockers += _unserved(node, leaving, cluster)
    once = {(each.kind, each.namespace, each.name): each for each in reversed(waits)}
    return PodEvictions(
        tuple(_silent_last(tuple(_once(blockers)))),
        tuple(_needs(pods)),
        tuple(reversed(once.values())),
        tuple(dict.fromkeys(unseen)),
        tuple(_once(passing)),
    )


def _unserved(node: str, leaving: Sequence[Object], cluster: Cluster) -> Iterator[Blocker]:
    for pod, found in unserved_volumes.problems(node, leaving, cluster):
        yield Blocker.at(pod, POD, found.reason, found.remedy, now=True, cause=found.cause)


def _obstacles(pods: Iterable[Object], cluster: Cluster) -> Iterator[Blocker | Wait | Unseen]:
    for pod in pods:
        try:
            found = obstacle(pod, cluster)
        except Unseen as unseen:
            yield unseen
        else:
            yield from () if found is None else (found,)


def _wait(found: Blocker | Wait | Unseen) -> Wait | None:
    """Return an obstacle that passes by itself; None: it does not."""
    if isinstance(found, Blocker) and found.passes:
        return ForeignWait(found.kind, found.namespace, found.name, found.reason)
    return found if isinstance(found, Wait) else None


def _silent_last(blockers: Sequence[Blocker]) -> Iterator[Blocker]:
    """Yield the silence of a node after what refuses an eviction for good,
    which a drain by Cluster API meets alone; and etcd first: what holds a member holds its Machine,
    for which the budgets of other guards wait.
    """
    refuses = any(each.kind == PDB.kind and not each.now for each in blockers)
    yield from sorted(
        blockers,
        key=lambda each: (
            refuses and each.cause == ProblemCause.NODE_SILENT,
            each.namespace != etcd_guard.ETCD,
        ),
    )


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


_CATALOG: Final = "CatalogSource"
"""The owner, but not the controller, of a pod that OLM makes again
(operator-framework/operator-lifecycle-manager:pkg/controller/registry/reconciler/grpc.go)."""


def _is_of_catalog(pod: Object) -> bool:
    return any(each["kind"].text == _CATALOG for each in pod.metadata["ownerReferences"].items())


def _needs(pods: Sequence[Object]) -> Iterator[Need]:
    bare = [pod for pod in pods if pod.controller is None]
    if bare:
        guards = [pod for pod in bare if guard_budgets.is_guard_pod(pod)]
        catalogs = [pod for pod in bare if _is_of_catalog(pod)]
        gone = sorted(pod.full_name for pod in bare if pod not in (*guards, *catalogs))
        of = f" ({names(gone)})" if len(gone) < len(bare) else ""
        told = {
            f"Pods without a controller{of} are deleted and do not come back.": gone,
            "OLM makes the pods of its CatalogSources again.": catalogs and not gone,
            "Operators of OpenShift make their guard pods again, once the node is uncordoned.": (
                guards and not gone
            ),
        }
        cost = " ".join(text for text, some in told.items() if some)
        yield Need(FORCE, tuple(sorted(pod.full_name for pod in bare)), cost)
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


# --- pods that are refused, or that do not end ----------------------------------------------------


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
            goes = launcher_pods.goes_before_its_guest(pod, cluster)
            if not goes and starting_guests.of_pod(pod, cluster) is None:
                launcher_pods.require_known_guest(pod, cluster)
            return None
        vmi = pod.annotations[launcher_pods.DOMAIN]
        reason = f"its VMI {vmi} does not exist, and KubeVirt refuses to evict the pod without it"
        remedy = "Repair virt-controller and virt-handler, which end such a pod."
        cause = ProblemCause.POD_WITHOUT_VMI
        return Blocker.at(pod, POD, reason, remedy, now=False, cause=cause)
    if pod.at("status", "phase").text == "Pending":  # eviction.go#canIgnorePDB
        return None
    refused = budget_refusals.refusal(pod, cluster) or _rolled_by_strimzi(pod, cluster)
    last = "" if refused else ending_pods.may_last(pod)
    return Wait.at(pod, POD, last) if last else refused or returning_pods.blocker(pod, cluster)


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
    return Blocker.at(pod, POD, reason, stuck.remedy, now=True, cause=stuck.cause)


def _rolled_by_strimzi(pod: Object, cluster: Cluster) -> Blocker | None:
    if not drain_cleaner.refuses(pod, cluster):
        return None
    reason = (
        "Strimzi's Drain Cleaner refuses its eviction with an error, on which kubectl drain gives "
        "up, and rolls it"
    )
    remedy, cause = "Drain again once Strimzi has moved the pod.", ProblemCause.EVICTION_REFUSED
    return Blocker.at(pod, POD, reason, remedy, now=True, cause=cause, repeatable=True)


def _stuck(pod: Object, cluster: Cluster) -> Blocker | Wait | None:
    """Return why a pod that is being deleted does not go away;
    None while that may still be a matter of seconds.

    ``deletionTimestamp`` is the end of the grace period, and a kubelet kills the pod then. So a pod
    that is still there waits for a finalizer, or for a kubelet that does not answer.
    """
    late = clock.since(pod.metadata["deletionTimestamp"].text, cluster)
    silent = evicted_pods.is_on_silent_node(pod, cluster)
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
    return Blocker.at(pod, POD, reason, remedy, now=True, cause=cause)


def _ending(pod: Object, cluster: Cluster) -> Blocker | Wait | None:
    """Return until when a pod may stay whose grace period is not over.

    The guest of a VM has a line of its own.
    """
    end = None if evicted_pods.is_of_vm(pod) else ending_pods.of_deleted(pod, cluster)
    if end is None or not end.holds:  # an ordinary roll-out ends long before its grace period does
        return end and Wait.at(pod, POD, end.reason, end.until)
    brief, cause = end.left < ending_pods.LONG, ProblemCause.POD_NOT_ENDING
    return Blocker.at(pod, POD, end.reason, end.remedy, now=True, cause=cause, repeatable=brief)


def _once(blockers: Iterable[Blocker]) -> Iterator[Blocker]:
    """Yield each cause at a budget once, however many pods of the node it protects."""
    # named by the first one, whichever the others of a pod are
    several = ProblemCause.SEVERAL_BUDGETS
    found = {
        (each.kind, each.id, each.cause == several and each.reason): each
        for each in reversed(list(blockers))
    }
    yield from found.values()
