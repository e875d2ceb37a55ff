"""What an object reports as wrong, by the conventions that all kinds share: events, conditions,
states, messages.

Sources:
kubernetes/community:contributors/devel/sig-architecture/api-conventions.md#typical-status-properties;
kubernetes/api:core/v1/types.go#ContainerState.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import chain, islice
from typing import Final, NamedTuple

from virt_admit.model.evidence import (
    condition_words,
    container_states,
    demanding_quotas,
    status_errors,
    unready_pods,
)
from virt_admit.model.evidence.condition_words import BAD_STATE, EMPTY, FAILED
from virt_admit.model.evidence.container_states import ContainerReport
from virt_admit.model.kubernetes import clock, events, kinds, node_health
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import JOB, MACHINE, NODE, POD, PVC, VM, VMI, VMIM
from virt_admit.model.kubernetes.nodes import HOSTNAME
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.lookups import find, grouped
from virt_admit.model.messages import count, without_preemption

_SETTLED: Final = timedelta(minutes=5)
"""For so long the deletion of an object is nothing unusual."""
_LASTING: Final = timedelta(minutes=10)
"""Roll-outs, pulls of images and new volumes take minutes."""
_OFTEN: Final = 5
"""Warnings of one kind about one object: controllers try again a few times before they succeed."""
_STATES: Final = ("phase", "state", "robustness", "health", "operationalStatus")
"""Fields of a status that hold one word for it."""
_STANDING: Final = ("stopped", "error")
"""Current states of Longhorn's instances that are none of a change
(longhorn/longhorn-manager:k8s/pkg/apis/longhorn/v1beta2/instancemanager.go)."""
_UNDECIDED: Final = ("Pending", "Unknown")
"""States that wait for what is said beside them."""
_STARTING: Final = frozenset((POD, PVC, VM, VMI, VMIM))
"""Kinds whose start is judged."""
_ENDS: Final = (
    *("completionTimestamp", "completionTime", "completed", "completedAt", "endTime"),
    *("finishedAt", "stoppedAt"),
)
"""Fields of a status that say when work ended that is done once: a job, a backup, a plan."""
_ONCE: Final = frozenset(
    ("Backup", "Restore", "InstallPlan", "Job", "Workflow", "TaskRun", "PipelineRun", "Build")
)
"""Kinds of work that is done once, which do not all say when it ended."""
_LATE: Final = timedelta(days=1)
"""For so long work that failed is news."""
_LEFT_OVER: Final = _ONCE | {"ReplicaSet", "VirtualMachineInstance", "ReplicationController"}
"""Owners of pods that say themselves what failed, or make another pod and keep the failed one."""
_AT_ONCE: Final = timedelta(hours=12)
"""The mean time between restarts from which a container restarts again and again."""
_UNPAUSED: Final = "ReadinessGatesNotReady"
"""Why the pod of a VM is not ready that an administrator has paused."""
_FOLLOWING: Final = dict.fromkeys((VM.kind, VMI.kind), ("Ready", "PodScheduled"))
"""Types of conditions that repeat what another object reports, by kind: the containers of a pod say
why it is not ready, and the pod of a VM why the VM is not."""
_SCALING: Final = ("ScalingDown", "ScalingUp")
"""Reasons of conditions of Cluster API that say what an object does, and not why it does not end
(kubernetes-sigs/cluster-api:api/controlplane/kubeadm/v1beta1/condition_consts.go)."""
_MIGRATING: Final = ("MigrationBackoff", "migrationTargetPodUnschedulable", "Migrated")
"""Reasons of events about VMIs whose cause is said of the migration."""
_ERRORS: Final = ("error", "errorMessage", "failureMessage", "failureReason")
"""Fields of a status that hold what is wrong."""
_RETRIED: Final = ("attachError", "detachError")
"""Errors of a VolumeAttachment that tell when it was tried last. They go when it succeeds."""
_MESSAGES: Final = (*_ERRORS, "lastError", "message", "stateMessage")
"""Fields of a status that hold what went wrong last, or what it waits for."""


FIELDS: Final = (
    *(
        "metadata.finalizers",
        "metadata.creationTimestamp",
        "spec.enabled",
        "spec.suspend",
        "spec.desireState",
        "spec.replicas",
        "spec.replicationState",
        "spec.terminationGracePeriodSeconds",
        f"spec.template.spec.nodeSelector.{HOSTNAME}",
    ),
    *(
        "status.conditions",
        *(f"status.{each}" for each in (*_ENDS, "operationalStatus", "lastDegradedAt")),
        "status.phase",
        "status.state",
        "status.robustness",
        "status.health",
        "status.currentState",
        "status.nodeName",
        "status.readyReplicas",
        "status.inProgressMigrations",
    ),
    *(
        f"status.{each}"
        for each in (*_MESSAGES, "reason", "attachError", "detachError", "syncError")
    ),
)
"""The fields that ``lasting`` reads. Errors of other names count where the object is whole."""


class Complaint(NamedTuple):
    """One thing that an object reports as wrong."""

    obj: Object
    about: str
    """What it is about: the container, the condition; empty: the message says it."""
    message: str
    """The text of the object, on one line and not shortened."""
    time: datetime | None
    """When it was reported last; None: not known."""
    of_pods: bool = False
    """Whether it only counts the pods, which may say why."""
    stays: bool = False
    """Whether it is a state that objects do not pass through."""

    @classmethod
    def of(cls, obj: Object, about: str, message: str, time: datetime | None) -> Complaint:
        """Return a complaint without the secrets that may be in its message."""
        return cls(obj, about, status_errors.plain(message), time)

    @property
    def words(self) -> str:
        """The complaint in one line."""
        return ": ".join(filter(None, (self.about, self.message)))


def lasting(obj: Object, cluster: Cluster) -> Iterator[Complaint]:
    """Yield what an object itself has reported as wrong for so long that usual work is over by
    then.
    """
    now = clock.now(cluster)
    if now is None or _is_off(obj):
        return
    unmade = list(_unmade(obj, cluster))
    if _is_over(obj, now) and not unmade:
        return
    found = _pod(obj, cluster) if obj.kind == POD.kind else _own(obj)
    for each in chain(unmade, found, _deletion(obj, cluster)):
        time = each.time or (clock.instant(obj.created) if each.stays else None)
        if time is not None and now - time > _LASTING:
            yield each
    yield from _repeated(obj, now, cluster)


def of(obj: Object, cluster: Cluster) -> Iterator[Complaint]:
    """Yield what an object reports as wrong, the most telling first;
    nothing if it reports nothing.
    """
    if _is_off(obj):
        return
    yield from _containers(obj, cluster)
    yield from _unmade(obj, cluster)
    yield from _warnings(obj, cluster)
    yield from _own(obj)
    yield from _deletion(obj, cluster)


def _unmade(obj: Object, cluster: Cluster) -> Iterator[Complaint]:
    """Yield why a Job cannot make its first pod, where a quota refuses it."""
    refused = demanding_quotas.of_job(obj, cluster) if kinds.of(obj) is JOB else None
    if refused is not None:
        yield Complaint.of(obj, "it has no pod", refused.words, clock.instant(obj.created))


def _is_over(obj: Object, now: datetime) -> bool:
    """Whether an object is about work that ended long ago."""
    times = [clock.instant(obj.at("status", each).text) for each in _ENDS]
    if obj.kind in _ONCE and not obj.deleted:
        times.append(clock.instant(obj.created))
    return any(time is not None and now - time > _LATE for time in times)


def _is_off(obj: Object) -> bool:
    """Whether an administrator has switched an object off: an add-on, a job that is suspended, the
    standby of a replication."""
    spec = obj["spec"]
    is_standby = spec["replicationState"].text == "secondary"
    return spec["enabled"].boolean is False or spec["suspend"].boolean is True or is_standby


def _containers(obj: Object, cluster: Cluster) -> Iterator[Complaint]:
    if obj.kind == POD.kind:
        yield from (_of_container(obj, each) for each in container_states.reports(obj, cluster))


def _of_container(pod: Object, report: ContainerReport) -> Complaint:
    return Complaint.of(pod, f"container {report.container}", report.words, report.time)


def _pod(pod: Object, cluster: Cluster) -> Iterator[Complaint]:
    """Yield why a pod has failed, does not become ready, or starts again and again."""
    phase, owner = pod.at("status", "phase").text, pod.controller
    if phase == "Failed" and owner is not None and owner["kind"].text not in _LEFT_OVER:
        yield from (each for each in _state(pod, ()) if each.message)
    if pod.ended or pod.deleted or pod.condition("Ready")["reason"].text == _UNPAUSED:
        return
    age = clock.age(pod, cluster) or timedelta()
    if pod.is_true("Ready"):
        for each in container_states.reports(pod, cluster):
            if each.restarts >= _OFTEN and age < each.restarts * _AT_ONCE and not each.booted:
                yield _of_container(pod, each)._replace(time=clock.instant(pod.created))
        return
    since = clock.ago(_unready_for(pod, cluster), cluster)
    told = (each._replace(time=since) for each in _containers(pod, cluster))
    if (first := next(told, None)) is not None:
        yield first
    elif why := unready_pods.why(pod, cluster):
        yield Complaint.of(pod, "", why.removeprefix("reports "), since)
    elif _is_on_ready_node(pod, cluster) and (said := pod.condition("Ready")["message"].words):
        yield Complaint.of(pod, "Ready is False", said, since)


def _is_on_ready_node(pod: Object, cluster: Cluster) -> bool:
    node = find(cluster, NODE, "", pod.at("spec", "nodeName").text)
    return node is None or node.is_true("Ready")


def _unready_for(pod: Object, cluster: Cluster) -> timedelta:
    node = find(cluster, NODE, "", pod.at("spec", "nodeName").text)
    length = node_health.pod_unready_for(pod, node, cluster)
    return length if length is not None else clock.age(pod, cluster) or timedelta()


def _warnings(obj: Object, cluster: Cluster) -> Iterator[Complaint]:
    """Yield the newest warning of each reason,
    but none that only names a reason if another one has a message.

    The kubelet says why it cannot pull an image in one event, and repeats
    ``Error: ImagePullBackOff``.
    """
    by_reason: dict[str, Complaint] = {}
    for event in events.about(obj, clock.ago(container_states.RECENT, cluster), cluster):
        reason, found = event["reason"].text or "", _warning(obj, event)
        if found and (
            reason not in by_reason or (_is_bare(by_reason[reason]) and not _is_bare(found))
        ):
            by_reason[reason] = found
    yield from by_reason.values()


_MOST_CONDITIONS: Final = 100
"""Of one list; the API conventions call for few."""
_BARE: Final = re.compile(r"(?:Error: )?\w+\Z")


def _is_bare(complaint: Complaint) -> bool:
    return _BARE.match(complaint.message) is not None


def _repeated(obj: Object, now: datetime, cluster: Cluster) -> Iterator[Complaint]:
    """Yield the warnings that a controller repeats: often, for long, and still.

    Each pod that is refused has another name, so that its events are counted one by one.
    """
    recent = clock.ago(container_states.RECENT, cluster)
    alike = grouped(
        events.about(obj, recent, cluster),
        lambda event: (event["reason"].text, _QUOTED.sub("", events.message(event))),
    )
    for newest, *older in alike.values():
        every = (newest, *older)
        times = sum(map(events.times_of, every))
        starts = (event["firstTimestamp"].text or event["eventTime"].text for event in every)
        first = min(filter(None, map(clock.instant, starts)), default=None)
        last = events.time_of(newest)
        goes_on = last is None or now - last <= (_AGAIN if older else _LASTING)
        long = first is not None and now - first > _LASTING
        if _is_done(obj, newest["reason"].text, last):
            continue
        if times >= _OFTEN and long and goes_on and (found := _warning(obj, newest)):
            yield found._replace(about=f"{found.about or 'a warning'}, {times} times")


def _is_done(obj: Object, reason: str | None, last: datetime | None) -> bool:
    """Whether an object ended its work after a warning, or has all pods that one said it lacks."""
    ends = (clock.instant(obj.at("status", each).text) for each in _ENDS)
    if last is not None and any(end is not None and end >= last for end in ends):
        return True
    spec, status = obj["spec"], obj["status"]
    if kinds.of(obj) is JOB:
        wanted, has = spec["parallelism"].integer, status["active"].integer
        wanted = 1 if wanted is None else wanted
    else:
        wanted, has = spec["replicas"].integer, status["readyReplicas"].integer
    return reason == "FailedCreate" and wanted is not None and 0 < wanted <= (has or 0)


_QUOTED: Final = re.compile(r'"[^"]{1,253}"')
_AGAIN: Final = timedelta(minutes=15)
"""Of warnings that are not alike, one in five minutes is recorded
(kubernetes/client-go:tools/record/events_cache.go#EventSourceObjectSpamFilter)."""


def _warning(obj: Object, event: Object) -> Complaint | None:
    reason, message = event["reason"].text or "", without_preemption(events.message(event))
    if obj.kind == VMI.kind and reason in _MIGRATING:
        return None
    about = reason if reason not in message else ""
    return Complaint.of(obj, about, message, events.time_of(event)) if message else None


_Parts = Sequence[tuple[str, Field]]


def _own(obj: Object) -> Iterator[Complaint]:
    """Yield what the status of an object reports as wrong. The containers of a pod say more."""
    parts = status_errors.parts(obj["status"]) if obj.kind != POD.kind else ()
    inner = list(islice(parts, 1, None))
    yield from _conditions(obj, inner)
    yield from _state(obj, inner)


def _conditions(obj: Object, inner: _Parts) -> Iterator[Complaint]:
    """Yield the conditions that are wrong, those with an error first: others follow from it; then
    those of the parts of its status.
    """
    yield from _wrong(obj, obj.at("status", "conditions"), "")
    for name, part in inner:
        if part["conditions"].is_list:
            yield from _wrong(obj, part["conditions"], f"{name or part.path}: ")


def _wrong(obj: Object, conditions: Field, part: str) -> Iterator[Complaint]:
    """Yield the conditions of an object, or of a part of it, that are wrong."""
    finished = obj.at("status", "phase").text == "Succeeded"
    found = islice(conditions.items(), _MOST_CONDITIONS)
    wrong = [each for each in found if condition_words.is_wrong(each, obj, of_part=bool(part))]
    if any(each["reason"].text not in _SCALING and _says_why(each, obj) for each in wrong):
        wrong = [each for each in wrong if each["reason"].text not in _SCALING]
    for condition in sorted(wrong, key=lambda each: each["reason"].text != FAILED):
        kind, status = condition["type"].text or "", condition["status"].text
        follows = kind in _FOLLOWING.get(obj.kind, ()) or (
            obj.kind == POD.kind and kind != "PodScheduled"
        )
        if finished or follows:
            continue
        reason, message = condition["reason"].text or "", condition["message"].text or ""
        if not message and " " in reason:  # KubeVirt's snapshots and restores put their words there
            reason, message = "", reason
        of_pods = reason == unready_pods.UNAVAILABLE
        if of_pods:
            reason, message = "", _ready(obj)
        if message and not condition_words.is_usual(kind, reason, message, obj):
            because = f" ({reason})" if reason and reason not in message else ""
            kept = f"{part}{kind} is {status}{because}"
            words = without_preemption(" ".join(message.split()))
            if "fail" in kind.lower():
                words = _with_cause(words, obj["status"])
            yield Complaint.of(obj, kept, words, _changed(condition))._replace(of_pods=of_pods)


def _says_why(condition: Field, obj: Object) -> bool:
    kind, reason = condition["type"].text or "", condition["reason"].text or ""
    message = condition["message"].text
    return bool(message) and not condition_words.is_usual(kind, reason, message or "", obj)


def _ready(obj: Object) -> str:
    """Return how many pods of a Deployment are ready: its own words do not say it."""
    ready, wanted = obj.at("status", "readyReplicas").integer, obj.at("spec", "replicas").integer
    return f"{ready or 0} of {1 if wanted is None else wanted} pods are ready"


def _changed(condition: Field) -> datetime | None:
    return clock.instant(condition["lastTransitionTime"].text or condition["lastUpdateTime"].text)


def _state(obj: Object, inner: _Parts) -> Iterator[Complaint]:
    """Yield a state of failure, with the message beside it,
    and a state that is not the wanted one.
    """
    status = obj["status"]
    time = clock.instant(status.at("error", "time").text or status["lastDegradedAt"].text)
    for key in _STATES:
        word = status[key].text or status[key]["status"].text or ""
        if not word:
            continue
        failed, said = BAD_STATE.search(word), _beside(status)
        if failed and (said or obj.kind not in _FOLLOWING):
            told = _with_cause(said, status)
            yield Complaint.of(obj, f"{key} {word}", told, time)._replace(stays=True)
            return
        if said and word in _UNDECIDED and kinds.of(obj) not in _STARTING:
            yield Complaint.of(obj, f"{key} {word}", said, _changed(status))
            return
    wanted, current = obj.at("spec", "desireState").text, status["currentState"].text
    if wanted and current and wanted != current:
        unwanted = Complaint.of(obj, f"is to be {wanted}, but is {current}", _beside(status), None)
        yield unwanted._replace(stays=current in _STANDING)
    elif obj.kind != POD.kind:
        error = _error(obj)
        yield from _failed_part(obj, inner) if error is None else (error,)


def _failed_part(obj: Object, inner: _Parts) -> Iterator[Complaint]:
    """Yield the first part of a status that is in a state of failure and says why."""
    for name, part in inner:
        for key in _STATES:
            word = part[key].text or ""
            over = any(part[each].present for each in _ENDS)  # a former run
            if BAD_STATE.search(word) and not over and (said := _beside(part)):
                found = Complaint.of(obj, f"{name or part.path}: {key} {word}", said, None)
                yield found._replace(stays=True)
                return


def _beside(status: Field) -> str:
    said = next((found for key in _MESSAGES if (found := status[key].text)), "")
    told = container_states.with_reason(status["reason"].text or "", said)
    lacks = next(map(status_errors.unmet_words, status_errors.unmet(status)), "")
    return ": ".join(filter(None, (told, lacks)))


def _with_cause(message: str, status: Field) -> str:
    """Return what an object that failed says, with the first error of its parts and their number:
    its own message may only say that it failed.
    """
    said = status_errors.plain(message)
    found = dict.fromkeys(
        text
        for text in status_errors.errors(status)
        if (text.partition("…")[0] or text) not in said
    )
    first = next(iter(found), "")
    more = f" (and {count(len(found) - 1, 'other error')})" if len(found) > 1 else ""
    return ": ".join(filter(None, (message.rstrip("."), f"{first}{more}"))) if first else message


def _error(obj: Object) -> Complaint | None:
    """Return an error that a status holds on its own, with its field: ``error``, ``attachError``.

    One without a time may be that of a former run, if its field does not say that it is not.
    """
    for key, value in obj["status"].map.items():
        error = value if isinstance(value, dict) else {"message": value}
        text, time = error.get("message"), error.get("time")
        named = key in _ERRORS or key.lower().endswith("error")
        if named and isinstance(text, str) and text and text not in EMPTY:
            told = isinstance(time, str) and key not in _RETRIED
            found = Complaint.of(obj, key, text, clock.instant(time) if told else None)
            return found._replace(stays=key in (*_ERRORS, *_RETRIED) and not told)
    return None


def _deletion(obj: Object, cluster: Cluster) -> Iterator[Complaint]:
    deleted = obj.metadata["deletionTimestamp"].text
    held = [text for each in obj.metadata["finalizers"].items() if (text := each.text)]
    lasts = clock.since(deleted, cluster)
    if deleted and held and lasts is not None and lasts > _SETTLED + _grace(obj):
        node = obj.at("status", "nodeName").text
        of = f" (node {node})" if node and obj.kind != POD.kind else ""
        lasting = clock.duration(lasts)
        kept = f"kept by finalizer {', '.join(held)}"
        drained = obj.condition("Drained") if kinds.of(obj) is MACHINE else Field(None)
        if drained["status"].text == "False":  # its finalizer guards the host until then
            said = drained["message"].words.rstrip(".") or drained["reason"].text or "no message"
            kept = f"the drain of its node has not ended (Drained is False: {said})"
        told = f"is being deleted for {lasting}{of}, and {kept}"
        yield Complaint.of(obj, told, "", clock.instant(deleted))


def _grace(obj: Object) -> timedelta:
    """Return how long the guest of a VMI may take to shut down: its finalizers stay until then."""
    grace = obj.at("spec", "terminationGracePeriodSeconds").integer
    return timedelta(seconds=clock.bounded(grace or 0) if obj.kind == VMI.kind else 0)
