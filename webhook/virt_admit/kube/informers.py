"""The live cluster: long-running informers, and one complete read for ``scan``.

They list and watch plain JSON. No admission request waits for anything here.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import urllib3
from urllib3.exceptions import HTTPError, ReadTimeoutError

from virt_admit.kube import vm_ledger_feed
from virt_admit.kube.cache import ByNamespace, ClusterCache, KindStore, StoreState
from virt_admit.kube.client import (
    LONGEST,
    PATIENCE,
    ApiClient,
    MalformedResponse,
    NotFound,
    PageRequests,
    malformed_as_error,
    page_items,
    path_of,
    pause,
)
from virt_admit.kube.field_filter import looked_up_at_admission
from virt_admit.kube.stores import lookup_stores
from virt_admit.model.kubernetes import clock, json_codec
from virt_admit.model.kubernetes.kinds import BUILT_IN_GROUPS, Kind
from virt_admit.rules import Rules
from virt_admit_certs.kube_api import ApiError, TooLarge

log = logging.getLogger(__name__)

BACKOFF_RESET_AFTER: Final = 1.0
"""Seconds. An informer that worked longer than this restarts without a delay."""
WARN_AFTER_FAILURES: Final = 6
"""Failures in a row, after about ten seconds, that are worth a warning."""


@dataclass(frozen=True, slots=True)
class InformerTimeouts:
    """Timeouts and intervals of informers in seconds."""

    watch: float = 290.0
    """The length of a watch. The API server checks permissions only when a watch starts."""
    silence: float = 90.0
    """The longest silence of a watch before it restarts. A bookmark arrives about once a minute."""
    absent: float = 30.0
    """The interval between look-ups of a kind that is not installed."""
    longest: float = LONGEST
    """The longest delay before a failed request is repeated."""
    version: float = 30.0
    """The interval between requests for the API server's version."""


class ResumePoint(NamedTuple):
    """The path and version at which a list ended and a watch resumes."""

    path: str
    version: str


def read(
    api: ApiClient, store: KindStore, progress: Callable[[int], None] = lambda _: None
) -> ResumePoint:
    """List the objects of a kind into its store, page by page,
    in the newest version that is served.

    ``progress`` receives the number of objects read so far.

    Raises:
        NotFound: the kind or its namespace does not exist.
        ApiError: the objects cannot be read; the store is unchanged.
    """
    kind = store.kind
    for version in kind.versions:
        path = path_of(kind, store.namespace, version=version)
        try:
            by_namespace, resource_version = _pages(api, path, store, progress)
        except ApiError as error:
            if error.status == 403 and store.namespace and not api.has_namespace(store.namespace):
                raise NotFound(404, "the namespace does not exist") from None
            if error.status != 404:
                raise
            continue
        store.replace(by_namespace, StoreState.LISTED)
        return ResumePoint(path, resource_version)
    if kind.group in BUILT_IN_GROUPS:
        raise MalformedResponse(404, "not an API server: every API server has this kind")
    api.groups()  # raises ApiError unless an API server answers
    raise NotFound(404, "the kind does not exist")


def _pages(
    api: ApiClient, path: str, store: KindStore, progress: Callable[[int], None]
) -> tuple[ByNamespace, str]:
    by_namespace: ByNamespace = {}
    count = 0
    pages, more, resource_version = PageRequests(), True, ""
    while more:
        body = api.page(path, pages)
        size = len(body)
        with malformed_as_error(), api.one_page:
            page = json_codec.loads_bounded(body)
            del body
            items = page_items(page)
            for item in items:
                store.add(by_namespace, item)
            metadata = page["metadata"]
            resource_version = str(metadata["resourceVersion"])
            more = pages.proceed(size, metadata)
        count += len(items)
        progress(count)
    return by_namespace, resource_version


class Informed(NamedTuple):
    """The look-ups of one kind."""

    kind: str
    current: bool
    """Whether they are listed, or known to be empty, and changes arrive."""
    objects: int


MOST_LINE: Final = 32 << 20
"""Bytes of one event of a watch. etcd stores objects of at most 1.5 MiB by default."""


def watch_lines(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """Yield the lines of a watch.

    Raises:
        MalformedResponse: a line is longer than any event.
    """
    parts: list[bytes] = []
    size = 0
    for chunk in response.stream(decode_content=True):
        first, *others = chunk.split(b"\n")
        parts.append(first)
        size += len(first)
        if size > MOST_LINE:
            raise MalformedResponse(
                0, f"the API server sends a line of more than {MOST_LINE} bytes"
            )
        for part in others:
            line = b"".join(parts)
            parts, size = [part], len(part)
            if line:
                yield line
    if any(parts):  # the last line of an answer may have no end
        yield b"".join(parts)


class Informer:
    """Keeps one store up to date: lists, watches, and restarts after failures."""

    def __init__(
        self, api: ApiClient, store: KindStore, timeouts: InformerTimeouts, stopped: threading.Event
    ) -> None:
        self.store = store
        self.current = False
        """Whether the API server currently sends changes."""
        self._api, self._timeouts, self._stopped = api, timeouts, stopped
        self._resume_point: ResumePoint | None = None
        self._failures = 0
        """Failures in a row."""
        self._response: urllib3.BaseHTTPResponse | None = None

    def run(self) -> None:
        """Run until the cluster is stopped."""
        while not self._stopped.is_set():
            try:
                delay = self._list_and_watch()
            except Exception:  # a bug; without this thread its look-ups would stay outdated forever
                log.exception(
                    "informer failed; restarting it", extra={"kind": str(self.store.kind)}
                )
                self.current, self._resume_point = False, None
                delay = self._timeouts.longest
            self._stopped.wait(delay)

    def interrupt(self) -> None:
        """Interrupt a blocking read, so that the thread can stop."""
        response = self._response
        with contextlib.suppress(OSError, RuntimeError, ValueError):  # the response is being closed
            if response is not None:
                response.shutdown()

    def _list_and_watch(self) -> float:
        """List if necessary, then watch until the watch ends.

        Return the seconds to wait before the next call.
        """
        began = time.monotonic()
        failed = False
        try:
            with malformed_as_error():
                if self._resume_point is None:
                    self._resume_point = read(self._api, self.store)
                self._watch(self._resume_point)
        except ApiError as error:
            failed = True
            self._handle_failure(error)
            if isinstance(error, NotFound):
                return self._timeouts.absent
        long_lived = time.monotonic() - began > BACKOFF_RESET_AFTER
        self._failures = (0 if long_lived else self._failures) + (failed or not long_lived)
        return pause(self._failures, self._timeouts.longest)

    def _watch(self, resume_point: ResumePoint) -> None:
        # spread the ends of watches
        seconds = int(self._timeouts.watch * random.uniform(0.9, 1))  # noqa: S311
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resume_point.version,
            "timeoutSeconds": str(max(seconds, 1)),
        }
        response = self._api.get(resume_point.path, query, self._timeouts.silence)
        with contextlib.closing(response):
            self._response = response
            self.current = True
            try:
                for line in watch_lines(response):
                    # an object of 1.5 MB may take 60 MB while it is applied
                    with self._api.one_page:
                        event = json_codec.loads_bounded(line)
                        self._apply(event["type"], event["object"])
                        version = str(event["object"]["metadata"]["resourceVersion"])
                        del event
                    self._resume_point = ResumePoint(resume_point.path, version)
            except ReadTimeoutError:
                return  # the connection may be dead, which the next watch will show
            except (HTTPError, OSError) as error:
                raise ApiError(0, f"the watch ended early: {error}") from None
            finally:
                self._response = None

    def _apply(self, event: str, obj: dict[str, Any]) -> None:
        match event:
            case "ADDED" | "MODIFIED":
                self.store.upsert(obj)
            case "DELETED":
                self.store.delete(obj)
            case "ERROR":
                raise ApiError(int(obj.get("code") or 0), str(obj.get("message")))

    def _handle_failure(self, error: ApiError) -> None:
        """Update the state of the kind after a failure.

        Known objects stay while the API server is unavailable.
        """
        before = self.store.state
        self.current = isinstance(error, NotFound)
        if isinstance(error, (NotFound, MalformedResponse)) or error.status in (401, 403, 404, 410):
            self._resume_point = None
        if isinstance(error, NotFound):
            self.store.replace({}, StoreState.ABSENT)
        elif error.status in (401, 403):
            self.store.replace({}, StoreState.REFUSED)
        details = {"kind": str(self.store.kind), "error": str(error)}
        if self.store.state is StoreState.REFUSED and before is not StoreState.REFUSED:
            log.warning("look-ups of a kind are forbidden", extra=details)
        elif error.status and self._failures == WARN_AFTER_FAILURES:
            log.warning("a kind cannot be read", extra=details)
        else:
            log.debug("informer of a kind restarts", extra=details)


class LiveCluster(ClusterCache):
    """A cluster kept up to date by informers: one thread for each kind,
    and one for the server's version.

    A kind that is not listed yet, or forbidden, is unseen. A kind that is not installed has no
    objects.
    """

    def __init__(
        self,
        api: ApiClient,
        rules: Rules,
        timeouts: InformerTimeouts = InformerTimeouts(),
        stores: Iterable[KindStore] | None = None,
    ) -> None:
        """Make informers for these stores; None: for everything that the rules look up."""
        super().__init__(lookup_stores(rules) if stores is None else stores)
        self._api, self._timeouts = api, timeouts
        self._stopped = threading.Event()
        vm_ledger_feed.follow(self)
        self._informers = [
            Informer(api, store, timeouts, self._stopped) for store in self.stores.values()
        ]
        self._threads: list[threading.Thread] = []

    @classmethod
    def connect(
        cls, rules: Rules, kubeconfig: str | None = None, context: str | None = None
    ) -> LiveCluster:
        """Connect to the cluster of this pod, or else of the kubeconfig. ``start`` begins reading.

        Raises:
            SettingError: neither is configured. An API server that does not respond is not an
                error.
        """
        return cls(
            ApiClient.connect(
                kubeconfig, context, connections=len(looked_up_at_admission(rules)) + 1
            ),
            rules,
        )

    def start(self) -> None:
        """Start all threads; returns at once."""
        work = [(str(informer.store.kind), informer.run) for informer in self._informers]
        for name, run in (*work, ("version", self._follow_version)):
            thread = threading.Thread(target=run, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Stop all threads; the known objects stay."""
        self._stopped.set()
        for thread in self._threads:
            while thread.is_alive():
                for informer in self._informers:
                    informer.interrupt()
                thread.join(0.05)

    @property
    def missing(self) -> tuple[str, ...]:
        """The kinds that have not been listed yet."""
        return tuple(
            str(store.kind) for store in self.stores.values() if store.state is StoreState.WAITING
        )

    @property
    def current(self) -> bool:
        """Whether every kind is listed, or known not to exist, and changes arrive."""
        return all(informer.current for informer in self.informed())

    @property
    def silence(self) -> float:
        """Seconds since the API server last answered a request."""
        return time.monotonic() - self._api.answered

    def now(self) -> datetime.datetime | None:
        """Return the API server's time; None: it has not told it."""
        return self._api.now()

    def informed(self) -> Iterator[Informed]:
        """Yield for metrics each kind, whether its objects are current, and their number."""
        for informer in self._informers:
            store = informer.store
            known = store.state in (StoreState.LISTED, StoreState.ABSENT)
            yield Informed(str(store.kind), known and informer.current, len(store))

    def _follow_version(self) -> None:
        away = False
        while not self._stopped.is_set():
            try:
                self.server_version = self._api.version()
            except ApiError as error:
                if not away:
                    log.warning("the API server does not respond", extra={"error": str(error)})
                away = True
            else:
                if away:
                    log.info("the API server responds again")
                away = False
            self._stopped.wait(self._timeouts.longest if away else self._timeouts.version)


def snapshot(
    api: ApiClient,
    stores: Iterable[KindStore],
    namespace: str = "",
    progress: Callable[[Kind, int], None] = lambda _kind, _count: None,
) -> ClusterCache:
    """Read a cluster once and fill these stores.

    Args:
        api: the API server.
        stores: the stores to fill. A kind that cannot be listed gets the state REFUSED.
        namespace: where to list kinds that cannot be listed in the whole cluster; empty: nowhere.
        progress: receives the kind and the number of its objects read so far.

    Raises:
        ApiError: the API server does not respond, even after several attempts.
    """
    cache = ClusterCache(stores, api.version())
    groups = _groups(api)
    for store in cache.stores.values():
        progress(store.kind, 0)
        if groups is None or store.kind.group in groups:
            _sweep(api, store, namespace, progress)
        else:
            store.replace({}, StoreState.ABSENT)
    cache.time = clock.stamp(api.time)
    return cache


def _groups(api: ApiClient) -> frozenset[str] | None:
    """Return the API groups of which kinds are asked for; None: they cannot be listed, so of all.

    One request instead of two for each version of each kind of operators that are not installed.
    """
    try:
        return api.groups() | BUILT_IN_GROUPS
    except ApiError:
        return None


def _sweep(
    api: ApiClient, store: KindStore, namespace: str, progress: Callable[[Kind, int], None]
) -> None:
    failures = 0
    while store.state is StoreState.WAITING:
        try:
            read(api, store, lambda count: progress(store.kind, count))
        except NotFound:
            store.replace({}, StoreState.ABSENT)
        except ApiError as error:
            if error.status == 403 and namespace and store.kind.namespaced and not store.namespace:
                store.namespace = namespace
            elif error.status == 403:
                store.replace({}, StoreState.REFUSED)
            elif error.status == 401 or isinstance(error, TooLarge) or failures == PATIENCE:
                raise
            else:
                failures += 1
                time.sleep(pause(failures))
