"""A running cluster: informers that last for years, and one sweep for ``scan``.

List and watch over plain JSON. Nothing here is called while a request waits.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import urllib3
from urllib3.exceptions import HTTPError, ReadTimeoutError

from virt_admit.kube.cache import ByNamespace, ClusterCache, Informed, KindStore, State, lookup_stores
from virt_admit.kube.client import (
    LONGEST,
    PAGE,
    PATIENCE,
    Api,
    ApiError,
    MalformedResponse,
    NotFound,
    malformed_as_error,
    path_of,
    pause,
)
from virt_admit.kube.field_filter import looked_up_kinds
from virt_admit.model import json_codec
from virt_admit.model.kinds import BUILT_IN_GROUPS, Kind
from virt_admit.rules import Rules

log = logging.getLogger(__name__)

BACKOFF_RESET_AFTER: Final = 1.0
"""Seconds. What lasted longer may begin again at once."""
WARN_AFTER_FAILURES: Final = 6
"""Failures in a row, about ten seconds, that somebody should know of."""


@dataclass(frozen=True, slots=True)
class InformerTimeouts:
    """How patient informers are, in seconds."""

    watch: float = 290.0
    """After so long a watch ends and another one begins; only then does the API server ask anew whether we may."""
    silence: float = 90.0
    """A watch on which nothing comes for so long may be dead and begins again; a bookmark comes about each minute."""
    absent: float = 30.0
    """So often a kind that is not installed is looked for."""
    longest: float = LONGEST
    """The longest wait before something that failed is tried again."""
    version: float = 30.0
    """So often the API server is asked for its version."""


class ResumePoint(NamedTuple):
    """Where a list ended and a watch goes on."""

    path: str
    version: str


def read(api: Api, store: KindStore, progress: Callable[[int], None] = lambda _: None) -> ResumePoint:
    """List the objects of a kind onto their shelf, page by page, in the newest version that is served.

    ``progress`` is told how many objects have been read.

    Raises:
        Absent: there is no such kind, or not the namespace that is looked into.
        ApiError: they could not be read; the shelf is as it was.
    """
    kind = store.kind
    for version in kind.versions:
        path = path_of(kind, store.namespace, version=version)
        try:
            by_namespace, at = _pages(api, path, store, progress)
        except ApiError as error:
            if error.code == 403 and store.namespace and not api.has_namespace(store.namespace):
                raise NotFound(404, "there is no such namespace") from None
            if error.code != 404:
                raise
            continue
        store.replace(by_namespace, State.LISTED)
        return ResumePoint(path, at)
    if kind.group in BUILT_IN_GROUPS:
        raise MalformedResponse(404, "this is not the answer of an API server: every one has this kind")
    api.require_api_server()
    raise NotFound(404, "there is no such kind")


def _pages(api: Api, path: str, store: KindStore, progress: Callable[[int], None]) -> tuple[ByNamespace, str]:
    by_namespace: ByNamespace = {}
    count = 0
    query = {"limit": str(PAGE)}
    while True:
        body = api.body(path, query)
        with malformed_as_error(), api.one_page:
            page = json_codec.loads(body)
            del body
            items = page.get("items") or ()
            for item in items:
                store.add(by_namespace, item)
            metadata = page["metadata"]
            at = str(metadata["resourceVersion"])
            query["continue"] = metadata.get("continue") or ""
        count += len(items)
        progress(count)
        if not query["continue"]:
            return by_namespace, at


class Informer:
    """Keeps one shelf up to date, for ever: lists, watches, and begins again where something breaks."""

    def __init__(self, api: Api, store: KindStore, pace: InformerTimeouts, stopped: threading.Event) -> None:
        self.store = store
        self.current = False
        """Whether the API server tells us what changes."""
        self._api, self._pace, self._stopped = api, pace, stopped
        self._bookmark: ResumePoint | None = None
        self._failures = 0
        """In a row."""
        self._response: urllib3.BaseHTTPResponse | None = None

    def run(self) -> None:
        """Work until somebody stops us."""
        while not self._stopped.is_set():
            try:
                rest = self._round()
            except Exception:  # a bug; if the thread ended, its look-ups would be wrong for ever
                log.exception("an informer begins again", extra={"kind": str(self.store.kind)})
                self.current, self._bookmark = False, None
                rest = self._pace.longest
            self._stopped.wait(rest)

    def interrupt(self) -> None:
        """Wake the thread from a read, when all is to stop."""
        response = self._response
        with contextlib.suppress(OSError, RuntimeError, ValueError):  # it ends just now
            if response is not None:
                response.shutdown()

    def _round(self) -> float:
        """List if need be, then watch until something ends it. Gives the seconds to wait before the next round."""
        began = time.monotonic()
        failed = False
        try:
            with malformed_as_error():
                if self._bookmark is None:
                    self._bookmark = read(self._api, self.store)
                self._watch(self._bookmark)
        except ApiError as error:
            failed = True
            self._learn(error)
            if isinstance(error, NotFound):
                return self._pace.absent
        calm = time.monotonic() - began > BACKOFF_RESET_AFTER
        self._failures = (0 if calm else self._failures) + (failed or not calm)
        return pause(self._failures, self._pace.longest)

    def _watch(self, bookmark: ResumePoint) -> None:
        seconds = int(self._pace.watch * random.uniform(0.9, 1))  # noqa: S311 - so that not all end at once
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": bookmark.version,
            "timeoutSeconds": str(max(seconds, 1)),
        }
        response = self._api.get(bookmark.path, query, self._pace.silence)
        with contextlib.closing(response):
            self._response = response
            self.current = True
            try:
                for line in response:  # urllib3 gives whole lines
                    event = json_codec.loads(line)
                    self._apply(event["type"], event["object"])
                    self._bookmark = ResumePoint(bookmark.path, str(event["object"]["metadata"]["resourceVersion"]))
            except ReadTimeoutError:
                return  # silent: if the connection is dead, the next one will tell
            except (HTTPError, OSError) as error:
                raise ApiError(0, f"the watch broke off: {error}") from None
            finally:
                self._response = None

    def _apply(self, event: str, obj: dict[str, Any]) -> None:
        match event:
            case "ADDED" | "MODIFIED":
                self.store.put(obj)
            case "DELETED":
                self.store.drop(obj)
            case "ERROR":
                raise ApiError(int(obj.get("code") or 0), str(obj.get("message")))

    def _learn(self, error: ApiError) -> None:
        """What a failure tells of the kind. While the API server is away, what was known stays."""
        before = self.store.state
        self.current = isinstance(error, NotFound)
        if isinstance(error, (NotFound, MalformedResponse)) or error.code in (401, 403, 404, 410):
            self._bookmark = None
        if isinstance(error, NotFound):
            self.store.replace({}, State.ABSENT)
        elif error.code in (401, 403):
            self.store.replace({}, State.REFUSED)
        what = {"kind": str(self.store.kind), "error": str(error)}
        if self.store.state is State.REFUSED and before is not State.REFUSED:
            log.warning("look-ups of a kind are forbidden", extra=what)
        elif error.code and self._failures == WARN_AFTER_FAILURES:
            log.warning("a kind cannot be read", extra=what)
        else:
            log.debug("look-ups of a kind begin again", extra=what)


class LiveCluster(ClusterCache):
    """The cluster as its API server tells it: one thread for each kind, and one for the server's version.

    A kind that is not listed yet, or forbidden, is unseen. A kind that is not installed has no objects.
    """

    def __init__(self, api: Api, rules: Rules, pace: InformerTimeouts = InformerTimeouts()) -> None:
        super().__init__(lookup_stores(rules))
        self._api, self._pace = api, pace
        self._stopped = threading.Event()
        self._informers = [Informer(api, store, pace, self._stopped) for store in self.stores.values()]
        self._threads: list[threading.Thread] = []

    @classmethod
    def connect(cls, rules: Rules, kubeconfig: str | None = None, context: str | None = None) -> LiveCluster:
        """The cluster of this pod, or else of the kubeconfig; ``start`` begins to read it.

        Raises:
            SettingError: there is neither. That the API server is away is no error.
        """
        return cls(Api.connect(kubeconfig, context, connections=len(looked_up_kinds(rules)) + 1), rules)

    def start(self) -> None:
        """Begin to read; returns at once."""
        work = [(str(informer.store.kind), informer.run) for informer in self._informers]
        for name, run in (*work, ("version", self._follow_version)):
            thread = threading.Thread(target=run, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """End all threads; what is known stays."""
        self._stopped.set()
        for thread in self._threads:
            while thread.is_alive():
                for informer in self._informers:
                    informer.interrupt()
                thread.join(0.05)

    @property
    def missing(self) -> tuple[str, ...]:
        """The kinds that the API server has said nothing of yet."""
        return tuple(str(store.kind) for store in self.stores.values() if store.state is State.WAITING)

    def informed(self) -> Iterator[Informed]:
        """For metrics: each kind, whether its look-ups are current, and the number of its objects."""
        for informer in self._informers:
            store = informer.store
            known = store.state in (State.LISTED, State.ABSENT)
            yield Informed(str(store.kind), known and informer.current, len(store))

    def _follow_version(self) -> None:
        away = False
        while not self._stopped.is_set():
            try:
                self.server_version = self._api.version()
            except ApiError as error:
                if not away:
                    log.warning("the API server does not answer", extra={"error": str(error)})
                away = True
            else:
                if away:
                    log.info("the API server answers again")
                away = False
            self._stopped.wait(self._pace.longest if away else self._pace.version)


def snapshot(
    api: Api,
    stores: Iterable[KindStore],
    home: str = "",
    progress: Callable[[Kind, int], None] = lambda _kind, _count: None,
) -> ClusterCache:
    """One sweep over a cluster: fill these shelves.

    What may not be listed in the whole cluster is listed in the namespace ``home``, if one is given; what may not be
    listed at all is left in state REFUSED. ``progress`` is told how many objects of a kind have been read.

    Raises:
        ApiError: the API server does not answer, also not after some patience.
    """
    cache = ClusterCache(stores, api.version())
    for store in cache.stores.values():
        progress(store.kind, 0)
        _sweep(api, store, home, progress)
    return cache


def _sweep(api: Api, store: KindStore, home: str, progress: Callable[[Kind, int], None]) -> None:
    failures = 0
    while store.state is State.WAITING:
        try:
            read(api, store, lambda count: progress(store.kind, count))
        except NotFound:
            store.replace({}, State.ABSENT)
        except ApiError as error:
            if error.code == 403 and home and store.kind.namespaced and not store.namespace:
                store.namespace = home
            elif error.code == 403:
                store.replace({}, State.REFUSED)
            elif error.code == 401 or failures == PATIENCE:
                raise
            else:
                failures += 1
                time.sleep(pause(failures))
