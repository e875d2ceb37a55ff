"""The events of a live cluster, within bounds: all warnings, and the others that rules name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from virt_admit.kube.cache import ByNamespace, KindStore
from virt_admit.kube.client import ApiClient, PageRequests, malformed_as_error, page_items, path_of
from virt_admit.kube.field_filter import FieldSet
from virt_admit.model.kubernetes import json_codec
from virt_admit.model.kubernetes.events import EVENT, NOT_WARNINGS
from virt_admit_certs.kube_api import ApiError

MOST: Final = 20_000
"""Warnings that are kept, of 1 kB each at most. A large cluster in which much fails has half."""
_MOST_OTHERS: Final = 1_000
"""Other events that are kept for each selector."""
_LISTINGS: Final = (
    ("type=Warning", MOST),
    *((f"type!=Warning,{each}", _MOST_OTHERS) for each in NOT_WARNINGS),
)
_REFUSED: Final = ", which this account may not list"
SECONDS: Final = 30.0
"""For all listings. The API server goes through all events for each of them, as it has no index."""
_FIELDS: Final = FieldSet(
    (
        *("type", "reason", "message", "count", "involvedObject", "series", "source"),
        *("reportingComponent", "reportingInstance"),
        *("firstTimestamp", "lastTimestamp", "eventTime", "metadata.creationTimestamp"),
    )
)


class BoundedEvents(KindStore):
    """Events of a live cluster. It is never complete: most that are not warnings are not read."""

    def __init__(self) -> None:
        super().__init__(EVENT, fields=_FIELDS, packed=True)
        self.missing = ""
        """Why some of them may be missing; empty: all of them are there."""

    def read(self, api: ApiClient, namespace: str = "") -> None:
        """Read the events: those of this namespace, if it is named, and then those of all."""
        found: ByNamespace = {}
        missing: dict[str, None] = {}
        with api.bounded(SECONDS):
            for home in dict.fromkeys((namespace, "")):
                for selector, most in _LISTINGS:
                    reason = self._read(api, home, selector, most, found)
                    if reason:
                        missing[reason] = None
                    if reason.endswith(_REFUSED):
                        break
        self.missing = "; ".join(missing)
        self.replace(found, self.state)

    def _read(
        self, api: ApiClient, namespace: str, selector: str, most: int, found: ByNamespace
    ) -> str:
        """Add the events with these fields. Return why some may be missing."""
        count = 0
        events = f"events of namespace {namespace}" if namespace else "events"
        try:
            for items in _pages(api, path_of(EVENT, namespace), selector):
                if count >= most:
                    return f"{events} with {selector} after the first {count}: there are very many"
                for item in items:
                    self.add(found, item)
                count += len(items)
        except ApiError as error:
            if error.status in (401, 403):
                return f"{events}{_REFUSED}"
            return f"{events}: {'no time was left' if api.out_of_time else error}"
        return ""


def _pages(api: ApiClient, path: str, selector: str) -> Iterator[list[dict[str, Any]]]:
    pages, more = PageRequests({"fieldSelector": selector}), True
    while more:
        body = api.page(path, pages)
        with malformed_as_error():
            page = json_codec.loads_bounded(body)
            items = [item for item in page_items(page) if item["metadata"]["name"]]
            more = pages.proceed(len(body), page["metadata"])
        yield items
