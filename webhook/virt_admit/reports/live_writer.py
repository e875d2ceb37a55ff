"""Keep reports and Events in a cluster up to date:
each call writes only what changed since the last one.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from virt_admit.kube.client import ApiClient
from virt_admit.reports import cluster_writer
from virt_admit.reports.cluster_writer import Address, NotWritten, Refusals
from virt_admit.reports.findings.formats.policy_reports import Format, report, subject
from virt_admit.reports.findings.report import ObjectResult, Report

RELIST: Final = 600.0
"""Seconds between two lists of the reports,
which find those that another client changed or deleted.
"""
EVENT_REFRESH: Final = 1800
"""Seconds after which an Event is written again.
The API server deletes it one hour after its last change.
"""


class _Written(NamedTuple):
    content: int
    about: str
    """The kind (``plural.group``) of the object that the report is about."""


class LiveWriter:
    """Writes the reports and Events of one judgement after another."""

    def __init__(self, api: ApiClient, form: Format | None, *, events: bool) -> None:
        """Make a writer. ``form``: the kinds of report to write; None: no reports."""
        self._api, self._form, self._with_events = api, form, events
        self._reports: dict[Address, _Written] = {}
        self._events: dict[Address, tuple[str, int]] = {}
        self._listed = float("-inf")

    def write(
        self, judged: Report, unreadable: frozenset[str], more: Sequence[ObjectResult] = ()
    ) -> None:
        """Write what changed, and delete the reports about objects that no longer exist.

        Args:
            judged: the report on the whole cluster.
            unreadable: kinds (``plural.group``) that could not be listed. Their reports stay.
            more: what only Events say.

        Raises:
            WriteRefused: a namespace refuses what is written there. The next call tries that again.
            NotWritten: something else could not be written. The next call writes everything again.
        """
        now, refusals = datetime.datetime.now(datetime.UTC), Refusals()
        try:
            if self._form is not None:
                self._write_reports(self._form, judged, unreadable, int(now.timestamp()), refusals)
            if self._with_events:
                self._write_events((*judged.results, *more), now, refusals)
        except NotWritten:
            self._reports.clear()
            self._events.clear()
            self._listed = float("-inf")
            raise
        refusals.end()

    def _write_reports(
        self,
        form: Format,
        judged: Report,
        unreadable: frozenset[str],
        seconds: int,
        refusals: Refusals,
    ) -> None:
        stale = self._existing(form, unreadable)
        existing = frozenset(stale)
        for result in judged.results:
            about = subject(result)
            if not about.results:  # no rule ran, because the object is being deleted
                continue
            address = cluster_writer.address_of(form, about.obj)
            stale.discard(address)
            kind = result.request.kind
            written = _Written(hash(tuple(about.results)), kind.resource if kind else "")
            if address not in existing or self._reports.get(address) != written:
                body = report(form, about, seconds)
                if refusals.write(address, partial(cluster_writer.apply, self._api, address, body)):
                    self._reports[address] = written
        for address in sorted(stale):
            if refusals.write(address, partial(cluster_writer.delete, self._api, address)):
                self._reports.pop(address, None)

    def _existing(self, form: Format, unreadable: frozenset[str]) -> set[Address]:
        """Return the reports in the cluster, except those about kinds that could not be listed."""
        if time.monotonic() - self._listed < RELIST:
            known = self._reports.items()
            return {address for address, written in known if written.about not in unreadable}
        found = set[Address]()
        for kind in (form.namespaced, form.cluster):
            found |= cluster_writer.own_reports(self._api, kind, "", unreadable)
        self._listed = time.monotonic()
        return found

    def _write_events(
        self, results: Sequence[ObjectResult], now: datetime.datetime, refusals: Refusals
    ) -> None:
        current = set[Address]()
        for result in results:
            for address, body in cluster_writer.addressed_events(result, now):
                current.add(address)
                # not all at the same time
                due = int(now.timestamp()) + hash(address) % EVENT_REFRESH
                written = body["message"], due // EVENT_REFRESH
                if self._events.get(address) != written:
                    write = partial(cluster_writer.update_or_create, self._api, address, body)
                    if refusals.write(address, write):
                        self._events[address] = written
        for address in self._events.keys() - current:
            del self._events[address]
