"""Events, as far as a snapshot holds them. They are never listed in a live cluster: it has too many of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final

from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Object

EVENT: Final = Kind("", ("v1",), "events", "Event")


def last_warning(obj: Object, reason: str, since: datetime | None, cluster: Cluster) -> str:
    """Return the message of the newest known warning with this reason about an object; empty: there is none.

    Args:
        obj: the object that the event is about.
        reason: the reason of the event, such as ``FailedCreate``.
        since: older events are about an earlier state; events without a time count.
        cluster: the cluster.
    """
    return next((message for why, message in warnings(obj, since, cluster) if why == reason), "")


def warnings(obj: Object, since: datetime | None, cluster: Cluster) -> Iterator[tuple[str, str]]:
    """Yield reason and message of the known warnings about an object, the newest first. Arguments as above."""
    for event in about(obj, since, cluster):
        message = " ".join((event["message"].text or "").split())
        yield event["reason"].text or "", message.removeprefix(_COMBINED)


_COMBINED: Final = "(combined from similar events): "
"""What client-go writes before the message of the newest one
(tools/record/events_cache.go#EventAggregate)."""


def about(obj: Object, since: datetime | None, cluster: Cluster) -> Iterator[Object]:
    """Yield the known warnings about an object, the newest first. Arguments as above."""
    for event in cluster.cached(_warnings).get((obj.namespace or "default", obj.kind, obj.name), ()):
        if since is None or (time_of(event) or since) >= since:
            yield event


def known(kind: str, reason: str, cluster: Cluster) -> Iterator[Object]:
    """Yield the known events with this reason about objects of a kind."""
    for event in cluster.known(EVENT):
        if event["reason"].text == reason and event.at("involvedObject", "kind").text == kind:
            yield event


def newest_warnings(cluster: Cluster) -> list[Object]:
    """Return all known warnings, the newest first."""
    known = (event for event in cluster.known(EVENT) if event["type"].text == "Warning")
    return sorted(known, key=_age, reverse=True)


def _warnings(cluster: Cluster) -> Mapping[tuple[str, str, str], tuple[Object, ...]]:
    """Return the warnings by namespace, kind and name of what they are about, the newest first."""
    groups: dict[tuple[str, str, str], list[Object]] = {}
    for event in newest_warnings(cluster):
        about = event["involvedObject"]
        key = about["namespace"].text or "default", about["kind"].text or "", about["name"].text or ""
        groups.setdefault(key, []).append(event)
    return {key: tuple(some) for key, some in groups.items()}


def _age(event: Object) -> tuple[str, str]:
    found = time_of(event)
    return found.isoformat() if found is not None else "", event.name


def host(event: Object) -> str:
    """Return the node whose kubelet wrote an event; empty: it does not say it."""
    return event.at("source", "host").text or event["reportingInstance"].text or ""


def time_of(event: Object) -> datetime | None:
    """Return when an event last happened; a series counts in its own field."""
    times = (
        event.at("series", "lastObservedTime"),
        event["lastTimestamp"],
        event["eventTime"],
        event.metadata["creationTimestamp"],
    )
    return next((found for each in times if (found := clock.instant(each.text)) is not None), None)
