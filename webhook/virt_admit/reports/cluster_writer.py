"""Write the results of a scan into the cluster: a report for each object, Events for findings.

virt-admit writes nothing else, and nothing during admission.
"""

from __future__ import annotations

import datetime
import hashlib
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final, TypeVar

from virt_admit.kube.client import PATIENCE, ApiClient, path_of, pause
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.events import EVENT
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import count, cut_bytes
from virt_admit.model.sanitize import line
from virt_admit.reports.findings.formats.policy_reports import (
    MANAGED,
    MAX_MESSAGE,
    SOURCE,
    Format,
    name,
    reference,
    report,
    subject,
)
from virt_admit.reports.findings.report import ObjectResult, rows_of
from virt_admit.rule import POLICY_FINDING, Action
from virt_admit.rules import load_rules
from virt_admit_certs.kube_api import ApiError

MANAGER: Final = "virt-admit-scan"
"""The field manager of the reports."""

T = TypeVar("T")
Address = tuple[Kind, str, str]
"""Kind, namespace (empty for cluster-scoped objects) and name."""


class NotWritten(Exception):
    """An object could not be written. The message says which one and why."""


class WriteRefused(NotWritten):
    """The API server refuses this object: because of a quota, a policy or a missing right, or
    because of what is in it.

    A user of a namespace can cause each of them, so the objects of others are written all the same.
    """

    def __init__(self, message: str, *, alone: bool = False) -> None:
        super().__init__(message)
        self.alone = alone
        """Whether the fault is in this object, so that the next one of its namespace is tried."""


class Refusals:
    """The namespaces that refuse objects.

    Nothing more of that kind is written there, and everything in the others.
    """

    def __init__(self) -> None:
        self._first: dict[tuple[Kind | str, ...], WriteRefused] = {}
        """By kind and namespace; what is refused alone also by its name."""

    def write(self, address: Address, write: Callable[[], None]) -> bool:
        """Write an object, unless its namespace refused one of this kind before.

        Return whether it was written.

        Raises:
            NotWritten: the API server does not answer.
        """
        place = address[:2]
        if place in self._first:
            return False
        try:
            write()
        except WriteRefused as error:
            self._first[address if error.alone else place] = error
            return False
        return True

    def end(self) -> None:
        """Raise WriteRefused if an object was refused."""
        if self._first:
            error, *others = self._first.values()
            more = f" (and {count(len(others), 'more refusal')})" if others else ""
            raise WriteRefused(f"{error}{more}")


def write_reports(
    api: ApiClient,
    form: Format,
    results: Iterable[ObjectResult],
    unreadable: frozenset[str],
    namespace: str,
    seconds: int,
) -> None:
    """Apply a report for each object, then delete the reports about objects that no longer exist.

    Args:
        api: the API server.
        form: which kinds of report to write.
        results: the results of the scan.
        unreadable: kinds (``plural.group``) that could not be listed. Their reports stay.
        namespace: the namespace that was scanned; reports in others stay. Empty: all namespaces.
        seconds: the current time, since 1970.

    Raises:
        NotWritten: the report kinds are not installed, or a report could not be written or deleted.
    """
    stale: set[Address] = set()
    refusals = Refusals()
    for kind in (form.namespaced,) if namespace else (form.namespaced, form.cluster):
        stale |= own_reports(api, kind, namespace, unreadable)
    for result in results:
        about = subject(result)
        if not about.results:  # no rule ran, because the object is being deleted
            continue
        address = address_of(form, about.obj)
        stale.discard(address)
        refusals.write(address, partial(apply, api, address, report(form, about, seconds)))
    for address in sorted(stale):
        refusals.write(address, partial(delete, api, address))
    refusals.end()


def address_of(form: Format, obj: Object) -> Address:
    """Return the address of the report about an object."""
    return (form.namespaced if obj.namespace else form.cluster), line(obj.namespace), name(obj)


def own_reports(
    api: ApiClient, kind: Kind, namespace: str, unreadable: frozenset[str]
) -> set[Address]:
    """Return the reports that virt-admit wrote, except those about kinds that could not be listed.

    Raises:
        NotWritten: the reports cannot be listed.
    """
    labels = ",".join(f"{key}={value}" for key, value in MANAGED.items())

    def read() -> set[Address]:
        found = api.list(path_of(kind, namespace), {"labelSelector": labels})
        return {
            (kind, _namespace(obj), obj["metadata"]["name"])
            for obj in found
            if not _is_about(obj, unreadable)
        }

    try:
        return _retry(read)
    except ApiError as error:
        what = f"{kind} is not installed" if error.status == 404 else f"cannot list {kind}: {error}"
        raise NotWritten(what) from None


def _is_about(body: dict[str, Any], unreadable: frozenset[str]) -> bool:
    kind = kinds.of(Object(body.get("scope")))
    return kind is not None and kind.resource in unreadable


def delete(api: ApiClient, address: Address) -> None:
    """Delete an object if it exists.

    Raises:
        NotWritten: it cannot be deleted.
    """
    try:
        _retry(lambda: api.delete(path_of(*address)))
    except ApiError as error:
        if error.status != 404:
            raise _not_written("delete", address, error) from None


def apply(api: ApiClient, address: Address, body: dict[str, Any]) -> None:
    """Apply an object unless its namespace was deleted.

    Raises:
        NotWritten: it cannot be written.
    """
    query = {"fieldManager": MANAGER, "force": "true"}
    try:
        _retry(lambda: api.patch(path_of(*address), "apply-patch+yaml", body, query))
    except ApiError as error:
        if not _is_namespace_gone(error):
            raise _not_written("write", address, error) from None


def write_events(api: ApiClient, results: Iterable[ObjectResult], now: datetime.datetime) -> None:
    """Write an Event for each rule and object with a denial or a warning.

    Update the Event if it exists.

    Raises:
        NotWritten: an Event could not be written.
    """
    refusals = Refusals()
    for result in results:
        for address, body in addressed_events(result, now):
            refusals.write(address, partial(update_or_create, api, address, body))
    refusals.end()


def addressed_events(
    result: ObjectResult, now: datetime.datetime
) -> Iterator[tuple[Address, dict[str, Any]]]:
    """Yield the Events about one object with their addresses."""
    for body in events(result, now):
        yield (EVENT, _namespace(body), body["metadata"]["name"]), body


def update_or_create(api: ApiClient, address: Address, body: dict[str, Any]) -> None:
    """Write an Event unless its namespace was deleted.

    Raises:
        NotWritten: it cannot be written.
    """
    update = {key: body[key] for key in ("message", "lastTimestamp")}

    def write() -> None:
        try:
            api.patch(path_of(*address), "merge-patch+json", update)
        except ApiError as error:
            if error.status != 404:
                raise
            api.post(path_of(*address[:2]), body)

    try:
        _retry(write)
    except ApiError as error:
        if not _is_namespace_gone(error):
            raise _not_written("write", address, error) from None


def events(result: ObjectResult, now: datetime.datetime) -> Iterator[dict[str, Any]]:
    """Yield the Events about one object, one for each rule."""
    found: dict[str, list[str]] = {}
    for row in rows_of(result):
        if (row.action or Action.OFF) >= Action.WARN and not (row.exempted or row.fixed):
            text = f"{row.path}: {row.message}" if row.path else row.message
            found.setdefault(row.rule, []).append(text)
    for rule, texts in sorted(found.items()):
        yield _event(result.obj, rule, "; ".join(dict.fromkeys(texts)), now)


def _event(obj: Object, rule: str, text: str, now: datetime.datetime) -> dict[str, Any]:
    tag = f" [{SOURCE}/{rule}]"
    timestamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    known = load_rules().by_id.get(rule)
    digest = hashlib.sha256(f"{name(obj)}/{rule}".encode()).hexdigest()[:16]
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        # Events about cluster-scoped objects belong into "default" (kubernetes
        # pkg/apis/core/validation/events.go)
        "metadata": {
            "name": f"{SOURCE}.{digest}",
            "namespace": obj.namespace or "default",
            "labels": dict(MANAGED),
        },
        "involvedObject": reference(obj),
        "type": "Warning",
        "reason": known.event if known else POLICY_FINDING,
        "message": cut_bytes(line(text), MAX_MESSAGE - len(tag)) + tag,
        "source": {"component": MANAGER},
        "firstTimestamp": timestamp,
        "lastTimestamp": timestamp,
        "count": 1,
    }


def _namespace(obj: dict[str, Any]) -> str:
    return str(obj["metadata"].get("namespace") or "")


def _is_namespace_gone(error: ApiError) -> bool:
    """Return whether the namespace was deleted during the scan."""
    return error.status == 404 or (error.status == 403 and "being terminated" in str(error))


def _retry(call: Callable[[], T]) -> T:
    """Retry while the API server is overloaded or unreachable."""
    failures = 0
    while True:
        try:
            return call()
        except ApiError as error:
            if failures == PATIENCE or (400 <= error.status < 500 and error.status != 429):
                raise
        failures += 1
        time.sleep(pause(failures))


_ABOUT_NO_OBJECT: Final = frozenset((0, 401, 429, 502, 503, 504))
"""Statuses of an API server that does not answer, or answers nothing to this account. 422 and 500
are about one object: etcd refuses one that is too large with 500.
"""


def _not_written(verb: str, address: Address, error: ApiError) -> NotWritten:
    kind, *names = address
    message = f"cannot {verb} {kind} {'/'.join(filter(None, names))}: {error}"
    if error.status in _ABOUT_NO_OBJECT:
        return NotWritten(message)
    return WriteRefused(message, alone=error.status < 500 and error.status != 403)
