"""Events, as far as they are known. ``kube/bounded_events.py`` reads those of a live cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Object

EVENT: Final = Kind("", ("v1",), "events", "Event")
NOT_WARNINGS: Final = (
    *("involvedObject.kind=MachineSet,reason=SuccessfulCreate", "reason=MachineMarkedUnhealthy"),
    "involvedObject.kind=Machine,reason=MachineDeleted",
    *("reason=RemediationSkipped", "reason=NodeSchedulable", "reason=NodeNotReady"),
    *("reason=UncordonNode", "involvedObject.kind=Node,reason=Starting"),
    *("involvedObject.kind=Plan", "involvedObject.kind=Pod,reason=SuccessfulAttachVolume"),
    *(
        "involvedObject.kind=Deployment,reason=ScalingReplicaSet",
        "reason=FailedToEvictVM",
        "reason=CIDRNotAvailable",
        "reason=UpdatePaused",
        "source=sigs.k8s.io/descheduler",
        "involvedObject.kind=Pod,reason=NotTriggerScaleUp",
        "involvedObject.kind=Pod,reason=TriggeredScaleUp",
    ),
)
"""Field selectors of the events that are looked up and are not warnings.

Source: kubernetes/kubernetes:pkg/registry/core/event/strategy.go#ToSelectableFields.
"""


def last_warning(obj: Object, reason: str, since: datetime | None, cluster: Cluster) -> str:
    """Return the message of the newest known warning with this reason about an object; empty:
    there is none.

    Args:
        obj: the object that the event is about.
        reason: the reason of the event, such as ``FailedCreate``.
        since: older events are about an earlier state; events without a time count.
        cluster: the cluster.
    """
    return next((said for why, said in warnings(obj, since, cluster) if why == reason), "")


def warnings(obj: Object, since: datetime | None, cluster: Cluster) -> Iterator[tuple[str, str]]:
    """Yield reason and message of the known warnings about an object, the newest first.

    Arguments as above.
    """
    for event in about(obj, since, cluster):
        yield event["reason"].text or "", message(event)


def message(event: Object) -> str:
    """Return the message of an event in one line, without the mark of those that stand for several.

    Source: kubernetes/client-go:tools/record/events_cache.go#EventAggregatorByReasonMessageFunc.
    """
    return event["message"].words.removeprefix(_COMBINED).lstrip()


_COMBINED: Final = "(combined from similar events):"


def probe_answer(reason: str, said: str) -> str:
    """Return what a readiness probe answered, from the reason and the message of a warning;
    empty: it is about something else.

    Source: kubernetes:pkg/kubelet/prober/prober.go.
    """
    return said.partition(_UNREADY)[2] if reason == "Unhealthy" else ""


_UNREADY: Final = "Readiness probe failed: "


def about(obj: Object, since: datetime | None, cluster: Cluster) -> Iterator[Object]:
    """Yield the known warnings about an object, the newest first. Arguments as above."""
    for event in cluster.cached(_warnings).get(
        (obj.namespace or "default", obj.kind, obj.name), ()
    ):
        if since is None or (time_of(event) or since) >= since:
            yield event


def known(kind: str, reason: str, cluster: Cluster) -> Iterator[Object]:
    """Yield the known events with this reason about objects of a kind."""
    yield from cluster.cached(_by_reason).get((kind, reason), ())


def _by_reason(cluster: Cluster) -> Mapping[tuple[str, str], list[Object]]:
    """Return all known events by the kind of what they are about, and by reason."""
    groups: dict[tuple[str, str], list[Object]] = {}
    for event in cluster.known(EVENT):
        key = event.at("involvedObject", "kind").text or "", event["reason"].text or ""
        groups.setdefault(key, []).append(event)
    return groups


def newest_warnings(cluster: Cluster) -> list[Object]:
    """Return all known warnings, the newest first."""
    known = (event for event in cluster.known(EVENT) if event["type"].text == "Warning")
    return sorted(known, key=_age, reverse=True)


def _warnings(cluster: Cluster) -> Mapping[tuple[str, str, str], tuple[Object, ...]]:
    """Return the warnings by namespace, kind and name of what they are about, the newest first."""
    groups: dict[tuple[str, str, str], list[Object]] = {}
    for event in newest_warnings(cluster):
        about = event["involvedObject"]
        key = (
            about["namespace"].text or "default",
            about["kind"].text or "",
            about["name"].text or "",
        )
        groups.setdefault(key, []).append(event)
    attached = _attached(cluster)
    return {key: tuple(_telling(some, attached.get(key, {}))) for key, some in groups.items()}


def _telling(some: Sequence[Object], attached: Mapping[str, datetime]) -> Iterator[Object]:
    """Yield warnings without those that are over, and those of which another one tells the cause.

    The controller that attaches volumes says so when it has, and the kubelet repeats that it waits
    for some volume beside the error of the volume (kubernetes/kubernetes:pkg/controller/volume/
    attachdetach; :pkg/kubelet/volumemanager/volume_manager.go#WaitForAttachAndMount).
    """
    lasting = [event for event in some if not _is_over(event, attached)]
    causes = [
        time_of(event) for event in lasting if _is_of_volume(event) and not _is_summary(event)
    ]
    for event in lasting:
        time = time_of(event)
        told = (cause is None or time is None or time - cause < _BESIDE for cause in causes)
        if not (_is_summary(event) and any(told)):
            yield event


OF_VOLUMES: Final = ("FailedMount", "FailedMapVolume", "FailedAttachVolume")
"""The reasons of the events of a pod whose volumes are not there, the most telling first."""
_SUMMARY: Final = "Unable to attach or mount volumes: "
_BESIDE: Final = timedelta(minutes=5)
"""The kubelet repeats either event every two minutes."""
_VOLUME: Final = re.compile(r'for volume "([^"]{1,253})"')


def _is_of_volume(event: Object) -> bool:
    return event["reason"].text in OF_VOLUMES


def _is_summary(event: Object) -> bool:
    return _is_of_volume(event) and (event["message"].text or "").startswith(_SUMMARY)


def _is_over(event: Object, attached: Mapping[str, datetime]) -> bool:
    named = _VOLUME.search(event["message"].text or "")
    if event["reason"].text != "FailedAttachVolume" or named is None:
        return False
    since, time = attached.get(named[1]), time_of(event)
    return since is not None and time is not None and time <= since


def _attached(cluster: Cluster) -> Mapping[tuple[str, str, str], Mapping[str, datetime]]:
    """Return by pod when each of its volumes was attached last."""
    found: dict[tuple[str, str, str], dict[str, datetime]] = {}
    for event in known("Pod", "SuccessfulAttachVolume", cluster):
        named = _VOLUME.search(event["message"].text or "")
        time = time_of(event)
        about = event["involvedObject"]
        if named is not None and time is not None:
            own = found.setdefault(
                (about["namespace"].text or "default", "Pod", about["name"].text or ""), {}
            )
            own[named[1]] = max(time, own.get(named[1], time))
    return found


def _age(event: Object) -> tuple[str, str]:
    found = time_of(event)
    return found.isoformat() if found is not None else "", event.name


def host(event: Object) -> str:
    """Return the node whose kubelet wrote an event; empty: it does not say it."""
    return event.at("source", "host").text or event["reportingInstance"].text or ""


def times_of(event: Object) -> int:
    """Return how often an event has happened."""
    return event["count"].integer or event.at("series", "count").integer or 1


def begin_of(event: Object) -> datetime | None:
    """Return when an event first happened; None: that is not known."""
    return clock.instant(event["firstTimestamp"].text or event["eventTime"].text)


def time_of(event: Object) -> datetime | None:
    """Return when an event last happened; a series counts in its own field."""
    times = (
        event.at("series", "lastObservedTime"),
        event["lastTimestamp"],
        event["eventTime"],
        event.metadata["creationTimestamp"],
    )
    return next((found for each in times if (found := clock.instant(each.text)) is not None), None)
