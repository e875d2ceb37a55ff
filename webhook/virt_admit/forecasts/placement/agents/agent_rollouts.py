"""How far the roll-out of a workload is that has one pod on each node, whatever product it is of: a
DaemonSet, or the own kind of an operator that numbers its revisions as one does.

What is wrong is a pod that stays unready on a node that is well, not the time that all take
together: a roll-out of one pod at a time lasts as long as there are nodes. The controller of
DaemonSets ends each former pod that is not available, whatever maxUnavailable says. So a node that
restarts gets the new template also while the roll-out stands. With maxSurge the former pod stays
until the new one is ready. Sources:
kubernetes/kubernetes:pkg/controller/daemon/update.go#rollingUpdate,
:pkg/controller/daemon/util/daemonset_util.go#IsPodUpdated,
:pkg/controller/daemon/daemon_controller.go#updateDaemonSetStatus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.placement.components import broken_pods
from virt_admit.forecasts.placement.components.broken_pods import BrokenPod
from virt_admit.forecasts.placement.starts import pod_starts
from virt_admit.model.evidence import failed_probes, forbidden_pods, writers
from virt_admit.model.kubernetes import clock, events, node_health
from virt_admit.model.kubernetes.cluster import Cluster, cached, unlisted
from virt_admit.model.kubernetes.kinds import DAEMON_SET, NODE, POD, STATEFUL_SET
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubernetes.workloads import container_statuses
from virt_admit.model.lookups import find, grouped
from virt_admit.model.messages import cut_middle
from virt_admit.model.scheduler.pod_terms import REQUIRED

_TEMPLATE: Final = "deprecated.daemonset.template.generation"
_GENERATION: Final = "pod-template-generation"
_REVISION: Final = "controller-revision-hash"
READS: Final[Reads] = union(
    broken_pods.CHANGED_READS,
    failed_probes.READS,
    forbidden_pods.READS,
    node_health.READS,
    pod_starts.READS,
    {
        DAEMON_SET: (
            *("metadata.annotations", "metadata.generation", "metadata.labels"),
            *("metadata.ownerReferences", "spec.minReadySeconds", "spec.updateStrategy"),
            *("spec.template.spec.volumes.hostPath.path", "status.currentNumberScheduled"),
            *("status.desiredNumberScheduled", "status.observedGeneration"),
            "status.updatedNumberScheduled",
        ),
        NODE: ("spec.unschedulable",),
        POD: (
            *("metadata.creationTimestamp", "metadata.labels", "metadata.ownerReferences"),
            *(
                "spec.affinity",
                "spec.containers",
                "spec.hostNetwork",
                "spec.nodeName",
                "spec.priorityClassName",
            ),
            *("spec.volumes", "status.conditions", "status.containerStatuses"),
            *("status.initContainerStatuses", "status.phase"),
        ),
    },
)
_USUAL: Final = timedelta(minutes=20)
"""A pod that is replaced, and each one of a node that was rebooted, is ready by then."""
_LONG: Final = timedelta(hours=1)
"""The same where nothing says what it waits for, or while its node is cordoned for its update."""
_RETRIED: Final = timedelta(hours=1)
"""A controller tries again after 16 minutes at the latest."""
_LONGEST_BACK_OFF: Final = "back-off 5m0s"
"""A container has ended again and again for ten minutes, without ten minutes between two ends
(kubernetes/kubernetes:pkg/kubelet/kubelet.go#MaxContainerBackOff, and its reset)."""
_LONGEST: Final = 200

Key = tuple[str, str, str]
"""Kind, namespace and name of what makes pods."""


@dataclass(frozen=True, slots=True)
class AgentRollout:
    """A workload with a pod on each node, whose pods are not all ready, beyond normal motion."""

    kind: str
    namespace: str
    name: str
    workload: Object | None
    """None: it is of a kind that is not known."""
    pods: int
    new: int
    """The pods of its present template."""
    new_ready: int
    former_ready: int
    """Those that are ready of each template."""
    broken: tuple[BrokenPod, ...]
    """The pods that stay unready on nodes that are well, by node."""
    broken_new: bool
    """Whether one of them is of the present template, of which others are not."""
    refused: str
    """Why the API server lets it create no pod; empty: it does, or that is not known."""
    nodes: frozenset[str]
    """The nodes with a pod of it."""

    @property
    def key(self) -> Key:
        """Its kind, namespace and name."""
        return self.kind, self.namespace, self.name

    @property
    def title(self) -> str:
        """``DaemonSet kube-system/cilium``."""
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def rolls(self) -> bool:
        """Whether pods of its former template are left."""
        return self.new < self.pods

    @property
    def spreads(self) -> bool:
        """Whether each further node gets a template as it restarts with which no pod is ready."""
        if self.workload is None or not self.broken_new or self.new_ready:
            return False
        strategy = self.workload.at("spec", "updateStrategy")
        surge = strategy.at("rollingUpdate", "maxSurge").value
        return strategy["type"].text != _BY_HAND and surge in (None, 0, "0", "0%")

    @property
    def owner(self) -> str:
        """What writes it, as ``TridentOrchestrator trident`` or ``Helm release cilium``; empty:
        nothing says so.
        """
        if self.workload is None:
            return ""
        above, writer = writers.owner_above(self.workload), writers.of(self.workload)
        return above.title if above is not None else writer.source if writer is not None else ""


_BY_HAND: Final = "OnDelete"


@cached
def unfinished(cluster: Cluster) -> Sequence[AgentRollout]:
    """Return the workloads with pods that stay unready on nodes that are well, or that cannot be
    created, by their names."""
    if unlisted(cluster, POD):
        return ()
    waiting = grouped(
        (pod for pod in cluster.known(POD) if not pod.is_true("Ready") and not pod.ended), key_of
    )
    refused = {} if unlisted(cluster, DAEMON_SET) else _refused(cluster)
    down: dict[Key, list[BrokenPod]] = {}
    for key, pods in waiting.items():
        daemon = _daemon(key, cluster) if key is not None else None
        if key is None or not _is_taken_up(key, daemon):
            continue
        found = (_standing(pod, daemon, cluster) for pod in pods)
        if broken := [each for each in found if each is not None]:
            down[key] = broken
    keys = down.keys() | refused.keys()
    pods_of = grouped(cluster.known(POD), key_of) if keys else {}
    every = (
        _rollout(key, pods_of.get(key, []), down.get(key, []), refused.get(key, ""), cluster)
        for key in sorted(keys)
    )
    return tuple(each for each in every if each.broken or each.refused)


def key_of(pod: Object) -> Key | None:
    """Return what makes a pod, if it has one on each node; None: nothing that is known to."""
    owner = pod.controller
    kind = owner["kind"].text if owner is not None else None
    if owner is None or not kind or kind == STATEFUL_SET.kind:
        return None
    numbered = kind == DAEMON_SET.kind or _REVISION in pod.labels
    return (kind, pod.namespace, owner["name"].text or "") if numbered else None


def host_of(pod: Object) -> str:
    """Return the node of a pod, or the one that its DaemonSet has made it for; empty: not known."""
    if node := pod.at("spec", "nodeName").text:
        return node
    terms = pod.at("spec", "affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms").items()
    fields = (field for term in terms for field in term["matchFields"].items())
    return next(
        (text for each in fields for one in each["values"].items() if (text := one.text)), ""
    )


def _daemon(key: Key, cluster: Cluster) -> Object | None:
    kind, namespace, name = key
    return find(cluster, DAEMON_SET, namespace, name) if kind == DAEMON_SET.kind else None


def _is_taken_up(key: Key, daemon: Object | None) -> bool:
    """Return whether the controller has certainly seen the present spec of a DaemonSet: its pods
    and its status are of that."""
    if daemon is None:
        return key[0] != DAEMON_SET.kind
    written, seen = daemon.metadata["generation"], daemon.at("status", "observedGeneration")
    return written.integer is None or seen.integer is None or seen.integer >= written.integer


def _rollout(
    key: Key, pods: Sequence[Object], down: Iterable[BrokenPod], refused: str, cluster: Cluster
) -> AgentRollout:
    daemon, alive = _daemon(key, cluster), [pod for pod in pods if not pod.ended]
    is_new = _newness(daemon, alive)
    serves = {host_of(pod) for pod in alive if pod.is_true("Ready")}  # beside it, by maxSurge
    down = (each for each in down if host_of(each.pod) not in serves)
    broken = sorted(down, key=lambda each: (host_of(each.pod), each.pod.name))
    made = [pod.is_true("Ready") for pod in alive if is_new(pod)]
    former = [pod.is_true("Ready") for pod in alive if not is_new(pod)]
    return AgentRollout(
        *key,
        daemon,
        pods=len(alive),
        new=len(made),
        new_ready=sum(made),
        former_ready=sum(former),
        broken=tuple(broken_pods.changed(each, cluster) for each in broken),
        broken_new=bool(former) and any(is_new(each.pod) for each in broken),
        refused=refused,
        nodes=frozenset(map(host_of, alive)),
    )


def _newness(daemon: Object | None, pods: Sequence[Object]) -> Callable[[Object], bool]:
    """Return what tells whether a pod is of the present template: by the number of the template,
    else by the revision of the youngest pod, unless the controller says that it has made none.
    """
    number = daemon.annotations.get(_TEMPLATE) if daemon is not None else None
    if number and any(_GENERATION in pod.labels for pod in pods):
        return lambda pod: pod.labels.get(_GENERATION) == number
    made = daemon.at("status", "updatedNumberScheduled").integer if daemon is not None else None
    youngest = max(pods, key=lambda pod: pod.created, default=None)
    revision = youngest.labels.get(_REVISION) if youngest is not None and made != 0 else None
    return lambda pod: made != 0 and pod.labels.get(_REVISION) == revision


# --- pods that stay unready -----------------------------------------------------------------------


def _standing(pod: Object, daemon: Object | None, cluster: Cluster) -> BrokenPod | None:
    """Return what is wrong with a pod, beyond what a roll-out or a reboot explains; None: nothing
    is, or its node is the cause."""
    node = find(cluster, NODE, "", host_of(pod))
    if node is None or not node.is_true("Ready") or node_health.silence_now(node.name, cluster):
        return None
    broken = broken_pods.of_pod(pod, cluster)
    age = _age(pod, node, cluster) if broken is not None else None
    if broken is None or age is None or age < _USUAL:
        return None
    broken = explained(broken, cluster)
    if pod.deleted:
        broken = broken._replace(why=broken.why or "it is being deleted, which does not end")
    least = daemon.at("spec", "minReadySeconds").integer or 0 if daemon is not None else 0
    short = broken.why and not node.at("spec", "unschedulable").boolean
    patience = (_USUAL if short else _LONG) + timedelta(seconds=min(max(0, least), _MOST_SECONDS))
    return broken if age >= patience and not _progresses(broken) else None


_MOST_SECONDS: Final = 3600


def _age(pod: Object, node: Object, cluster: Cluster) -> timedelta | None:
    """Return for how long a pod has not worked: one that ends again and again may have been ready
    for a moment, and one that is being deleted has had its time to end."""
    if pod.deleted:
        return clock.since(pod.metadata["deletionTimestamp"].text, cluster)
    age = node_health.pod_unready_for(pod, node, cluster)
    back = clock.since(node.condition("Ready")["lastTransitionTime"].text, cluster)
    since = [each for each in (clock.age(pod, cluster), back) if each is not None]
    waits = (each.at("state", "waiting", "message").text for each in container_statuses(pod))
    crashes = any(_LONGEST_BACK_OFF in (said or "") for said in waits)
    return max(filter(None, (age, min(since))), default=None) if crashes and since else age


def _progresses(broken: BrokenPod) -> bool:
    """Return whether a pod runs and tells of progress, so that it becomes ready with time."""
    states = list(broken.pod.at("status", "containerStatuses").items())
    runs = bool(states) and all(each.at("state", "running").present for each in states)
    return runs and failed_probes.tells_of_progress(broken.why)


def explained(broken: BrokenPod, cluster: Cluster) -> BrokenPod:
    """Return the same with what the events of a pod say that runs no container yet."""
    if broken.why and not broken.uncreated:
        return broken
    fault = pod_starts.fault(broken.pod, cluster)
    return broken if fault is None else broken._replace(why=fault.words, remedy=fault.remedy)


# --- pods that cannot be created ------------------------------------------------------------------


def _refused(cluster: Cluster) -> Mapping[Key, str]:
    """Return the DaemonSets that lack pods which the API server refuses, with what it says."""
    found: dict[Key, str] = {}
    since = clock.ago(_RETRIED, cluster)
    for daemon in cluster.known(DAEMON_SET):
        key = DAEMON_SET.kind, daemon.namespace, daemon.name
        if not _lacks_pods(daemon) or not _is_taken_up(key, daemon):
            continue
        said = (e for e in events.about(daemon, since, cluster) if e["reason"].text == _FAILED)
        event = next(said, None)
        age = clock.elapsed(events.begin_of(event), cluster) if event is not None else None
        if event is not None and age is not None and age >= _USUAL:
            found[key] = cut_middle(events.message(event).replace("; ", ", "), _LONGEST)
    return found


_FAILED: Final = "FailedCreate"


def _lacks_pods(daemon: Object) -> bool:
    status = daemon["status"]
    wanted, there = status["desiredNumberScheduled"].integer, status["currentNumberScheduled"]
    return wanted is not None and there.integer is not None and there.integer < wanted
