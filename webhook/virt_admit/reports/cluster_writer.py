"""Write into a cluster what a scan of it found: a report for each object, Events for what needs somebody.

Nothing else is ever written, and never during admission.
"""

from __future__ import annotations

import datetime
import hashlib
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

from virt_admit.engine.admission_review import line
from virt_admit.kube.client import PATIENCE, Api, ApiError, path_of, pause
from virt_admit.model import kinds
from virt_admit.model.kinds import Kind
from virt_admit.model.messages import cut
from virt_admit.model.objects import Object
from virt_admit.reports.formats.policy_reports import LONGEST, MANAGED, SOURCE, Format, name, reference, report, subject
from virt_admit.reports.report import ObjectResult, rows_of
from virt_admit.rule import POLICY_FINDING, Action
from virt_admit.rules import load_rules

MANAGER: Final = "virt-admit-scan"
"""The field manager of our reports."""

T = TypeVar("T")
Where = tuple[Kind, str, str]
"""Kind, namespace (empty for what has none) and name."""


class NotWritten(Exception):
    """Something could not be written; the message says what and why."""


def write_reports(
    api: Api, form: Format, judged: Iterable[ObjectResult], unreadable: frozenset[str], home: str, seconds: int
) -> None:
    """Apply a report for each object, then delete our reports about objects that are gone.

    ``unreadable``: kinds (``plural.group``) of which nothing is known, so their reports stay. ``home``: the namespace
    that was looked into, the others' reports stay; empty: all of them. ``seconds``: the time, since 1970.

    Raises:
        NotWritten: the kinds are not installed, or a report was not taken or not deleted.
    """
    stale: set[Where] = set()
    for kind in (form.home,) if home else (form.home, form.cluster):
        stale |= _ours(api, kind, home, unreadable)
    for one in judged:
        about = subject(one)
        if not about.results:  # it is being deleted
            continue
        body = report(form, about, seconds)
        kind = form.home if "namespace" in body["metadata"] else form.cluster
        where = kind, _namespace(body), body["metadata"]["name"]
        stale.discard(where)
        _apply(api, where, body)
    for where in sorted(stale):
        _delete(api, where)


def _ours(api: Api, kind: Kind, home: str, unreadable: frozenset[str]) -> set[Where]:
    """Our reports, but those about objects of which nothing is known."""
    labels = ",".join(f"{key}={value}" for key, value in MANAGED.items())

    def read() -> set[Where]:
        found = api.list(path_of(kind, home), {"labelSelector": labels})
        return {(kind, _namespace(obj), obj["metadata"]["name"]) for obj in found if not _about(obj, unreadable)}

    try:
        return _patiently(read)
    except ApiError as error:
        what = f"{kind} is not installed" if error.code == 404 else f"cannot list {kind}: {error}"
        raise NotWritten(what) from None


def _about(body: dict[str, Any], unreadable: frozenset[str]) -> bool:
    kind = kinds.of(Object(body.get("scope")))
    return kind is not None and kind.resource in unreadable


def _delete(api: Api, where: Where) -> None:
    try:
        _patiently(lambda: api.delete(path_of(*where)))
    except ApiError as error:
        if error.code != 404:
            raise _not_written("delete", where, error) from None


def _apply(api: Api, where: Where, body: dict[str, Any]) -> None:
    query = {"fieldManager": MANAGER, "force": "true"}
    try:
        _patiently(lambda: api.patch(path_of(*where), "apply-patch+yaml", body, query))
    except ApiError as error:
        if not _leaving(error):
            raise _not_written("write", where, error) from None


def write_events(api: Api, judged: Iterable[ObjectResult], now: datetime.datetime) -> None:
    """An Event for each rule and object with a finding that is denied or warned of; one that is there is used again.

    Raises:
        NotWritten: an Event was not taken.
    """
    for one in judged:
        for body in events(one, now):
            _use_again_or_create(api, (EVENT, _namespace(body), body["metadata"]["name"]), body)


def _use_again_or_create(api: Api, where: Where, body: dict[str, Any]) -> None:
    again = {key: body[key] for key in ("message", "lastTimestamp")}

    def write() -> None:
        try:
            api.patch(path_of(*where), "merge-patch+json", again)
        except ApiError as error:
            if error.code != 404:
                raise
            api.post(path_of(*where[:2]), body)

    try:
        _patiently(write)
    except ApiError as error:
        if not _leaving(error):
            raise _not_written("write", where, error) from None


def events(judged: ObjectResult, now: datetime.datetime) -> Iterator[dict[str, Any]]:
    """The Events about one object, one for each rule."""
    found: dict[str, list[str]] = {}
    for each in rows_of(judged):
        if (each.action or Action.OFF) >= Action.WARN and not (each.exempted or each.fixed):
            found.setdefault(each.rule, []).append(f"{each.path}: {each.message}" if each.path else each.message)
    for rule, texts in sorted(found.items()):
        yield _event(judged.obj, rule, "; ".join(dict.fromkeys(texts)), now)


EVENT: Final = Kind("", ("v1",), "events", "Event")


def _event(obj: Object, rule: str, text: str, now: datetime.datetime) -> dict[str, Any]:
    mark = f" [{SOURCE}/{rule}]"
    stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    known = load_rules().by_id.get(rule)
    digest = hashlib.sha256(f"{name(obj)}/{rule}".encode()).hexdigest()[:16]
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        # Events about what has no namespace belong there (kubernetes pkg/apis/core/validation/events.go)
        "metadata": {"name": f"{SOURCE}.{digest}", "namespace": obj.namespace or "default", "labels": dict(MANAGED)},
        "involvedObject": reference(obj),
        "type": "Warning",
        "reason": known.event if known else POLICY_FINDING,
        "message": cut(line(text), LONGEST - len(mark)) + mark,
        "source": {"component": MANAGER},
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }


def _namespace(obj: dict[str, Any]) -> str:
    return str(obj["metadata"].get("namespace") or "")


def _leaving(error: ApiError) -> bool:
    """Whether the namespace was deleted while we worked."""
    return error.code == 404 or (error.code == 403 and "being terminated" in str(error))


def _patiently(call: Callable[[], T]) -> T:
    """Try again where the API server is busy or away for a moment."""
    failures = 0
    while True:
        try:
            return call()
        except ApiError as error:
            if failures == PATIENCE or (400 <= error.code < 500 and error.code != 429):
                raise
        failures += 1
        time.sleep(pause(failures))


def _not_written(verb: str, where: Where, error: ApiError) -> NotWritten:
    kind, *names = where
    return NotWritten(f"cannot {verb} {kind} {'/'.join(each for each in names if each)}: {error}")
