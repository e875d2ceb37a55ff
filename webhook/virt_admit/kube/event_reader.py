"""The last warning about single objects, read on demand:
a cluster has too many Events to list all of them.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from virt_admit.kube.client import ApiClient, malformed_as_error, page_items
from virt_admit.model.kubernetes import clock, json_codec
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import cut
from virt_admit_certs.kube_api import ApiError, read_body

TIMEOUT: Final = 3.0
"""Seconds that the caller waits at most."""
_MOST: Final = 100
"""Events of one object. The API server keeps them for an hour and merges equal ones."""
_LONGEST: Final = 300


class EventReader:
    """Reads Events, unless the account may not."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self._refused = False

    def last_warning(self, kind: Kind, namespace: str, name: str) -> str:
        """Return reason and message of the newest warning about an object; empty: none is known,
        or may be read.
        """
        newest = max(self.warnings(kind, namespace, name), key=_time, default=None)
        if newest is None:
            return ""
        return cut(
            f"{newest['reason'].text or 'Warning'}: {newest['message'].text or ''}", _LONGEST
        )

    def warnings(self, kind: Kind, namespace: str, name: str) -> list[Object]:
        """Return the warnings about an object, as far as they may be read."""
        if self._refused:
            return []
        about = {"involvedObject.kind": kind.kind, "involvedObject.name": name, "type": "Warning"}
        query = {
            "fieldSelector": ",".join(f"{key}={value}" for key, value in about.items()),
            "limit": str(_MOST),
        }
        try:
            response = self._api.get(
                f"/api/v1/namespaces/{quote(namespace, safe='')}/events", query, TIMEOUT
            )
            with malformed_as_error():
                events = [
                    Object(item) for item in page_items(json_codec.loads(read_body(response)))
                ]
        except ApiError as error:
            self._refused = error.status in (401, 403)
            return []
        return [event for event in events if _is_about(event, about)]


def _is_about(event: Object, about: dict[str, str]) -> bool:
    found: dict[str, Any] = {
        "involvedObject.kind": event.at("involvedObject", "kind").text,
        "involvedObject.name": event.at("involvedObject", "name").text,
        "type": event["type"].text,
    }
    return found == about


def _time(event: Object) -> str:
    """Return when an event last happened, as a text that sorts by time;
    a series counts in its own field.
    """
    times = (
        event.at("series", "lastObservedTime"),
        event["lastTimestamp"],
        event["eventTime"],
        event.metadata["creationTimestamp"],
    )
    found = (clock.instant(each.text) for each in times)
    return next((clock.stamp(time) or "" for time in found if time is not None), "")
