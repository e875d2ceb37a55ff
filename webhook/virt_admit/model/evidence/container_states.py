"""What the containers of a pod report as wrong.

Source: kubernetes/api:core/v1/types.go#ContainerState.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from virt_admit.model.kubernetes import clock, events
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.workloads import CONTAINERS, container_statuses
from virt_admit.model.messages import count, unescaped

FIELDS: Final = tuple(f"status.{kind}" for kind in CONTAINERS)
RECENT: Final = timedelta(hours=2)
"""An end, or an event, that is longer ago says nothing of now. The API server keeps an event for an
hour (``--event-ttl``); a saved one may be a little older."""
_BOOTED: Final = ("Unknown", 255)
"""How a container ended whose node was booted (kubernetes/kubernetes:pkg/kubelet/kubelet_pods.go
#convertToAPIContainerStatuses: ContainerStatusUnknown, and cri-o and containerd for those lost)."""
OF_STARTS: Final = frozenset(("ContainerCreating", "PodInitializing"))
"""Reasons of containers that start as usual."""
_ENDED: Final = (("lastState", "terminated"), ("state", "terminated"))


class ContainerReport(NamedTuple):
    """Why a container does not run, or why it ended last."""

    container: str
    words: str
    time: datetime | None
    """When it ended last; None: it has not, or that is not known."""
    restarts: int
    booted: bool
    """Whether it ended as its node was booted."""


def reports(pod: Object, cluster: Cluster) -> Iterator[ContainerReport]:
    """Yield why the containers of a pod do not run, or why they ended last,
    unless that is long ago.
    """
    now = clock.now(cluster)
    for status in container_statuses(pod):
        name, waiting = status["name"].text or "?", status.at("state", "waiting")
        ended = next((each for each in _ENDED if status.at(*each, "exitCode").integer), _ENDED[0])
        last = _ended(status.at(*ended))
        time = clock.instant(status.at(*ended, "finishedAt").text)
        reason = waiting["reason"].text or ""
        again = reason == "CrashLoopBackOff"  # whose message says only for how long it waits
        said = "" if again else waiting["message"].text
        held = with_reason(reason, said) if reason not in OF_STARTS else ""
        restarts = status["restartCount"].integer or 0
        old = time is not None and now is not None and now - time > RECENT
        if held or (last and restarts and not old):
            times = f", {count(restarts, 'restart')}" if restarts else ""
            words = "; it ended last with ".join(filter(None, (held, last)))
            code = status.at(*ended, "exitCode").integer
            booted = (status.at(*ended, "reason").text, code) == _BOOTED
            yield ContainerReport(name, f"{words}{times}", time, restarts, booted)


def _ended(ended: Field) -> str:
    code = ended["exitCode"].integer
    reason = ended["reason"].text or ""
    if not code and reason in ("", "Completed"):
        return ""
    return with_reason(
        f"{reason or 'an error'}{f' (exit code {code})' if code else ''}", ended["message"].text
    )


def with_reason(reason: str, message: str | None) -> str:
    """Return a reason with its message, in which it may stand already."""
    said = " ".join((message or "").split())
    return said if reason and reason in said else ": ".join(filter(None, (reason, said)))


def terminations(pod: Object) -> Iterator[tuple[str, Field]]:
    """Yield how containers of a pod ended, the present state of each before the last one,
    with the container's name.
    """
    for status in pod.at("status", "containerStatuses").items():
        for state in ("state", "lastState"):
            yield status["name"].text or "?", status.at(state, "terminated")


_OFTEN: Final = 5
_GAP: Final = timedelta(minutes=5)
_SHORT: Final = timedelta(minutes=10)


def row(pod: Object, container: str, age: timedelta, cluster: Cluster) -> str:
    """Return how often a container that ends again and again was restarted, and since when the
    kubelet says so; empty: that is as long as its pod is not ready, or not known.

    ``age``: for how long the pod is not ready. It may be ready between two ends.
    """
    statuses = (each for each in container_statuses(pod) if each["name"].text == container)
    restarts = max((each["restartCount"].integer or 0 for each in statuses), default=0)
    events_of = events.about(pod, clock.ago(_SHORT, cluster), cluster)
    starts = (each["firstTimestamp"].text for each in events_of if each["reason"].text == "BackOff")
    ages = (each for start in starts if (each := clock.since(start, cluster)) is not None)
    first = max(ages, default=age)
    if restarts < _OFTEN or (first < age + _GAP and age >= _SHORT):
        return ""
    told = f", first reported {clock.duration(first)} ago" if first >= age + _GAP else ""
    return f" ({restarts} restarts{told})"


def is_uncreated(pod: Object) -> bool:
    """Return whether a container of a pod waits for what comes before it, such as the network."""
    return any(
        status.at("state", "waiting", "reason").text in OF_STARTS
        for status in container_statuses(pod)
    )


def last_words(said: str) -> str:
    """Return the line of a termination message that most likely names the cause: the first one
    about an error.

    A message is written on purpose, or it is the end of the log (terminationMessagePolicy).
    """
    lines = [" ".join(each.split()) for each in said.splitlines() if each.strip()]
    telling = [each for each in lines if not _NO_ERROR.match(each)] or lines
    line = next(filter(_ERROR.search, telling), telling[-1] if telling else "")
    return unescaped(_PLACE.sub("", line))


_ERROR: Final = re.compile(
    r"error|fail|fatal|panic|already|cannot|can't|could not|denied|refused|unable|invalid|"
    r"not found",
    re.IGNORECASE,
)
_NO_ERROR: Final = re.compile(r"(?:INFO|DEBUG)\b")
_PLACE: Final = re.compile(r"^(?:[\d:. -]{8,26} )?(?:\[\w+\](?:\[\d+\])? )?[\w/.-]+\.go \d+: ")
"""``2026-02-09 05:44:36.099 [WARNING][9] startup/startup.go 990: ``: where in its program a line
was written."""
