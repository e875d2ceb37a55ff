"""What an object reports as wrong, by the conventions that all kinds share: events, conditions,
states, messages.

Sources:
kubernetes/community:contributors/devel/sig-architecture/api-conventions.md#typical-status-properties;
kubernetes/api:core/v1/types.go#ContainerState.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import chain
from typing import Final, NamedTuple

from virt_admit.model.kubernetes import clock, events
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import POD
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.messages import count

_RECENT: Final = timedelta(hours=2)
"""The API server keeps an event for an hour (``--event-ttl``);
a saved one may be a little older.
"""
_SETTLED: Final = timedelta(minutes=5)
"""For so long the deletion of an object is nothing unusual."""
_LASTING: Final = timedelta(minutes=10)
"""Roll-outs, pulls of images and new volumes take minutes."""
_OFTEN: Final = 5
"""Warnings of one kind about one object: controllers try again a few times before they succeed."""
_GOOD: Final = re.compile(
    r"(?i)(?<!not)(?<!un)(?<!dis)(?<!\bin)(ready|available|scheduled|healthy|established|accepted|"
    r"succeeded|valid|synced|upgradeable|resolved|bound|connected|complete|applied|deployed|"
    r"reconciled|approved|schedulable|compatible)\Z"
)
"""Ends of the types of conditions that are wrong when they are False."""
_BAD: Final = re.compile(
    r"(?i)fail|error|degraded|pressure|unavailable|problem|invalid|stalled|denied|corrupt|"
    r"unhealthy|resizepending|terminationstuck"
)
"""Words in the types of conditions that are wrong when they are True."""
_NEGATED: Final = re.compile(r"\bNo[A-Z]|Free\Z")
"""Types that say the opposite of a word in them: ``NoProblems``, ``ErrorFree``."""
_BAD_STATES: Final = frozenset(
    (
        "failed",
        "error",
        "err",
        "lost",
        "faulted",
        "degraded",
        "unhealthy",
        "installfailed",
        "yellow",
        "red",
    )
)
_WAITS: Final = frozenset(("ContainerCreating", "PodInitializing"))
"""Reasons of containers that start as usual."""
_SERIOUS: Final = frozenset(("Critical", "Error"))
"""Categories of conditions that only exist while they are wrong, as those of Forklift."""
_ENDED: Final = (("lastState", "terminated"), ("state", "terminated"))
_UNSET: Final = "backup target URL is empty"
"""What Longhorn says of a backup target that is not set."""
_EXPECTED: Final = frozenset(
    (
        *("KubernetesNodeCordoned", "InUse", "GuestNotRunning", "VMINotExists", "PodNotExists"),
        # also of a launcher pod that is Completed; a pod that does not end is said of the pod
        "PodTerminating",
        *("AsExpected", "NotYetOccurred", "NotYetOccured", "NoClusterTransfer", "NoTraffic"),
    )
)
"""Reasons of conditions that follow from what an administrator does,
or from what another object reports.
"""
_MESSAGES: Final = (
    "error",
    "errorMessage",
    "lastError",
    "failureMessage",
    "failureReason",
    "message",
)
"""Fields of a status that hold what went wrong last, or what it waits for."""


FIELDS: Final = (
    *(
        "metadata.finalizers",
        "metadata.creationTimestamp",
        "spec.enabled",
        "spec.suspend",
        "spec.desireState",
    ),
    *(
        "status.conditions",
        "status.phase",
        "status.state",
        "status.robustness",
        "status.health",
        "status.currentState",
        "status.nodeName",
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

    @property
    def words(self) -> str:
        """The complaint in one line."""
        return ": ".join(filter(None, (self.about, self.message)))


def lasting(obj: Object, cluster: Cluster) -> Iterator[Complaint]:
    """Yield what an object itself has reported as wrong for so long that usual work is over by
    then.
    """
    now = clock.now(cluster)
    if _is_off(obj):
        return
    for found in chain(_conditions(obj), _state(obj), _deletion(obj, cluster)):
        if found.time is not None and now is not None and now - found.time > _LASTING:
            yield found
    if now is not None:
        yield from _repeated(obj, now, cluster)


def of(obj: Object, cluster: Cluster) -> Iterator[Complaint]:
    """Yield what an object reports as wrong, the most telling first;
    nothing if it reports nothing.
    """
    if _is_off(obj):
        return
    yield from _containers(obj, cluster)
    yield from _warnings(obj, cluster)
    yield from _conditions(obj)
    yield from _state(obj)
    yield from _deletion(obj, cluster)


def _is_off(obj: Object) -> bool:
    """Whether an administrator has switched an object off: an add-on, a job that is suspended."""
    return obj.at("spec", "enabled").boolean is False or obj.at("spec", "suspend").boolean is True


def _containers(obj: Object, cluster: Cluster) -> Iterator[Complaint]:
    """Yield why the containers of a pod do not run, or why they ended last,
    unless that is long ago.
    """
    if obj.kind != POD.kind:
        return
    now = clock.now(cluster)
    for kind in ("initContainerStatuses", "containerStatuses"):
        for status in obj.at("status", kind).items():
            name, waiting = status["name"].text or "?", status.at("state", "waiting")
            ended = next(
                (each for each in _ENDED if status.at(*each, "exitCode").integer), _ENDED[0]
            )
            last, time = (
                _ended(status.at(*ended)),
                clock.instant(status.at(*ended, "finishedAt").text),
            )
            reason = waiting["reason"].text or ""
            again = reason == "CrashLoopBackOff"  # whose message says only for how long it waits
            said = "" if again else waiting["message"].text
            held = _words(reason, said) if reason not in _WAITS else ""
            restarts = status["restartCount"].integer or 0
            old = time is not None and now is not None and now - time > _RECENT
            if held or (last and restarts and not old):
                times = f", {count(restarts, 'restart')}" if restarts else ""
                words = "; it ended last with ".join(filter(None, (held, last)))
                yield Complaint(obj, f"container {name}", f"{words}{times}", time)


def _ended(ended: Field) -> str:
    code = ended["exitCode"].integer
    reason = ended["reason"].text or ""
    if not code and reason in ("", "Completed"):
        return ""
    return _words(
        f"{reason or 'an error'}{f' (exit code {code})' if code else ''}", ended["message"].text
    )


def _warnings(obj: Object, cluster: Cluster) -> Iterator[Complaint]:
    """Yield the newest warning of each reason,
    but none that only names a reason if another one has a message.

    The kubelet says why it cannot pull an image in one event, and repeats
    ``Error: ImagePullBackOff``.
    """
    now = clock.now(cluster)
    since = now - _RECENT if now is not None else None
    by_reason: dict[str, Complaint] = {}
    for event in events.about(obj, since, cluster):
        reason, found = event["reason"].text or "", _warning(obj, event)
        if found and (
            reason not in by_reason or (_is_bare(by_reason[reason]) and not _is_bare(found))
        ):
            by_reason[reason] = found
    yield from by_reason.values()


_BARE: Final = re.compile(r"(?:Error: )?\w+\Z")


def _is_bare(complaint: Complaint) -> bool:
    return _BARE.match(complaint.message) is not None


def _repeated(obj: Object, now: datetime, cluster: Cluster) -> Iterator[Complaint]:
    """Yield the warnings that a controller repeats: often, for long, and still."""
    for event in events.about(obj, now - _LASTING, cluster):
        times = event["count"].integer or event.at("series", "count").integer or 1
        first = clock.instant(event["firstTimestamp"].text or event["eventTime"].text)
        if (
            times >= _OFTEN
            and first is not None
            and now - first > _LASTING
            and (found := _warning(obj, event))
        ):
            yield found._replace(about=f"{found.about or 'a warning'}, {times} times")


def _warning(obj: Object, event: Object) -> Complaint | None:
    reason, message = event["reason"].text or "", events.message(event)
    about = reason if reason not in message else ""
    return Complaint(obj, about, message, events.time_of(event)) if message else None


def _conditions(obj: Object) -> Iterator[Complaint]:
    finished = obj.at("status", "phase").text == "Succeeded"
    for condition in obj.at("status", "conditions").items():
        kind, status = condition["type"].text or "", condition["status"].text
        good = _GOOD.search(kind)
        bad = not good and _BAD.search(kind) and not _NEGATED.search(kind)
        bad = bad or condition["category"].text in _SERIOUS
        wrong = status == "True" if bad else status == "False" and good
        follows = obj.kind == POD.kind and kind != "PodScheduled"  # from what its containers report
        reason, message = condition["reason"].text or "", condition["message"].text or ""
        if not message and " " in reason:  # KubeVirt's snapshots and restores put their words there
            reason, message = "", reason
        usual = (
            reason in _EXPECTED
            or reason.endswith(("InProgress", "Successful"))
            or message == _UNSET
        )
        if wrong and message and not (usual or follows or finished):
            kept = f"{kind} is {status}{f' ({reason})' if reason and reason not in message else ''}"
            yield Complaint(obj, kept, " ".join(message.split()), _changed(condition))


def _changed(condition: Field) -> datetime | None:
    return clock.instant(condition["lastTransitionTime"].text or condition["lastUpdateTime"].text)


def _state(obj: Object) -> Iterator[Complaint]:
    """Yield a state of failure, with the message beside it,
    and a state that is not the wanted one.
    """
    status = obj["status"]
    for key in ("phase", "state", "robustness", "health"):
        word = status[key].text or status[key]["status"].text or ""
        if word.lower() in _BAD_STATES:
            yield Complaint(obj, f"{key} {word}", _beside(status), None)
            return
    wanted, current = obj.at("spec", "desireState").text, status["currentState"].text
    if wanted and current and wanted != current:
        yield Complaint(obj, f"is to be {wanted}, but is {current}", _beside(status), None)
    elif (failed := _error(status)) and obj.kind != POD.kind:
        yield Complaint(obj, *failed, None)


def _beside(status: Field) -> str:
    said = next((found for key in (*_MESSAGES, "reason") if (found := status[key].text)), "")
    return " ".join(said.split())


def _error(status: Field) -> tuple[str, str] | None:
    """Return an error that a status holds on its own, and its field: ``error``,
    ``attachError.message``.
    """
    for key, value in status.map.items():
        named = key in _MESSAGES[:-1] or key.lower().endswith("error")
        text = value.get("message") if isinstance(value, dict) else value
        if named and isinstance(text, str) and text:
            return key, " ".join(text.split())
    return None


def _deletion(obj: Object, cluster: Cluster) -> Iterator[Complaint]:
    deleted = obj.metadata["deletionTimestamp"].text
    held = [text for each in obj.metadata["finalizers"].items() if (text := each.text)]
    lasts = clock.since(deleted, cluster)
    if deleted and held and lasts is not None and lasts > _SETTLED:
        node = obj.at("status", "nodeName").text
        of = f" (node {node})" if node and obj.kind != POD.kind else ""
        lasting = clock.duration(lasts)
        kept = f"is being deleted for {lasting}{of}, and kept by finalizer {', '.join(held)}"
        yield Complaint(obj, kept, "", clock.instant(deleted))


def _words(reason: str, message: str | None) -> str:
    said = " ".join((message or "").split())
    return said if reason and reason in said else ": ".join(filter(None, (reason, said)))
