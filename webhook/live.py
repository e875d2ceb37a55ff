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

from webhook import codec
from webhook.apiserver import LONGEST, PAGE, PATIENCE, Absent, Api, ApiError, Garbled, path_of, pause, proper_answer
from webhook.inventory import Homes, Inventory, Shelf, State
from webhook.metrics import Informed, Metrics
from webhook.model.kinds import BUILT_IN_GROUPS, Kind
from webhook.rules import Rules
from webhook.trimming import lookup_namespace, reads

log = logging.getLogger(__name__)

CALM: Final = 1.0
"""Seconds. What lasted longer may begin again at once."""
LASTING: Final = 6
"""Failures in a row, about ten seconds, that somebody should know of."""


@dataclass(frozen=True, slots=True)
class Pace:
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


class Bookmark(NamedTuple):
    """Where a list ended and a watch goes on."""

    path: str
    version: str


def read(api: Api, shelf: Shelf, progress: Callable[[int], None] = lambda _: None) -> Bookmark:
    """List the objects of a kind onto their shelf, page by page, in the newest version that is served.

    ``progress`` is told how many objects have been read.

    Raises:
        Absent: there is no such kind, or not the namespace that is looked into.
        ApiError: they could not be read; the shelf is as it was.
    """
    kind = shelf.kind
    for version in kind.versions:
        path = path_of(kind, shelf.namespace, version=version)
        try:
            homes, at = _pages(api, path, shelf, progress)
        except ApiError as error:
            if error.code == 403 and shelf.namespace and not api.has_namespace(shelf.namespace):
                raise Absent(404, "there is no such namespace") from None
            if error.code != 404:
                raise
            continue
        shelf.replace(homes, State.LISTED)
        return Bookmark(path, at)
    if kind.group in BUILT_IN_GROUPS:
        raise Garbled(404, "this is not the answer of an API server: every one has this kind")
    api.demand_api_server()
    raise Absent(404, "there is no such kind")


def _pages(api: Api, path: str, shelf: Shelf, progress: Callable[[int], None]) -> tuple[Homes, str]:
    homes: Homes = {}
    count = 0
    query = {"limit": str(PAGE)}
    while True:
        body = api.body(path, query)
        with proper_answer(), api.one_page:
            page = codec.loads(body)
            del body
            items = page.get("items") or ()
            for item in items:
                shelf.add(homes, item)
            metadata = page["metadata"]
            at = str(metadata["resourceVersion"])
            query["continue"] = metadata.get("continue") or ""
        count += len(items)
        progress(count)
        if not query["continue"]:
            return homes, at


class Informer:
    """Keeps one shelf up to date, for ever: lists, watches, and begins again where something breaks."""

    def __init__(self, api: Api, shelf: Shelf, pace: Pace, stopped: threading.Event) -> None:
        self.shelf = shelf
        self.current = False
        """Whether the API server tells us what changes."""
        self._api, self._pace, self._stopped = api, pace, stopped
        self._bookmark: Bookmark | None = None
        self._failures = 0
        """In a row."""
        self._response: urllib3.BaseHTTPResponse | None = None

    def run(self) -> None:
        """Work until somebody stops us."""
        while not self._stopped.is_set():
            try:
                rest = self._round()
            except Exception:  # a bug; if the thread ended, its look-ups would be wrong for ever
                log.exception("an informer begins again", extra={"kind": str(self.shelf.kind)})
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
            with proper_answer():
                if self._bookmark is None:
                    self._bookmark = read(self._api, self.shelf)
                self._watch(self._bookmark)
        except ApiError as error:
            failed = True
            self._learn(error)
            if isinstance(error, Absent):
                return self._pace.absent
        calm = time.monotonic() - began > CALM
        self._failures = (0 if calm else self._failures) + (failed or not calm)
        return pause(self._failures, self._pace.longest)

    def _watch(self, bookmark: Bookmark) -> None:
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
                    event = codec.loads(line)
                    self._apply(event["type"], event["object"])
                    self._bookmark = Bookmark(bookmark.path, str(event["object"]["metadata"]["resourceVersion"]))
            except ReadTimeoutError:
                return  # silent: if the connection is dead, the next one will tell
            except (HTTPError, OSError) as error:
                raise ApiError(0, f"the watch broke off: {error}") from None
            finally:
                self._response = None

    def _apply(self, event: str, obj: dict[str, Any]) -> None:
        match event:
            case "ADDED" | "MODIFIED":
                self.shelf.put(obj)
            case "DELETED":
                self.shelf.drop(obj)
            case "ERROR":
                raise ApiError(int(obj.get("code") or 0), str(obj.get("message")))

    def _learn(self, error: ApiError) -> None:
        """What a failure tells of the kind. While the API server is away, what was known stays."""
        before = self.shelf.state
        self.current = isinstance(error, Absent)
        if isinstance(error, (Absent, Garbled)) or error.code in (401, 403, 404, 410):
            self._bookmark = None
        if isinstance(error, Absent):
            self.shelf.replace({}, State.ABSENT)
        elif error.code in (401, 403):
            self.shelf.replace({}, State.REFUSED)
        what = {"kind": str(self.shelf.kind), "error": str(error)}
        if self.shelf.state is State.REFUSED and before is not State.REFUSED:
            log.warning("look-ups of a kind are forbidden", extra=what)
        elif error.code and self._failures == LASTING:
            log.warning("a kind cannot be read", extra=what)
        else:
            log.debug("look-ups of a kind begin again", extra=what)


class Live(Inventory):
    """The cluster as its API server tells it: one thread for each kind, and one for the server's version.

    A kind that is not listed yet, or forbidden, is unseen. A kind that is not installed has no objects.
    """

    def __init__(self, api: Api, rules: Rules, pace: Pace = Pace()) -> None:
        super().__init__(Shelf(kind, lookup_namespace(kind, rules)) for kind in reads(rules))
        self._api, self._pace = api, pace
        self._stopped = threading.Event()
        self._informers = [Informer(api, shelf, pace, self._stopped) for shelf in self.shelves.values()]
        self._threads: list[threading.Thread] = []

    @classmethod
    def connect(
        cls, rules: Rules, kubeconfig: str | None = None, context: str | None = None, metrics: Metrics | None = None
    ) -> Live:
        """The cluster of this pod, or else of the kubeconfig; ``start`` begins to read it.

        Raises:
            SettingError: there is neither. That the API server is away is no error.
        """
        live = cls(Api.connect(kubeconfig, context, connections=len(reads(rules)) + 1), rules)
        if metrics is not None:
            metrics.follow_informers(live.informed)
        return live

    def start(self) -> None:
        """Begin to read; returns at once."""
        work = [(str(informer.shelf.kind), informer.run) for informer in self._informers]
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
        return tuple(str(shelf.kind) for shelf in self.shelves.values() if shelf.state is State.WAITING)

    def informed(self) -> Iterator[Informed]:
        """For metrics: each kind, whether its look-ups are current, and the number of its objects."""
        for informer in self._informers:
            shelf = informer.shelf
            known = shelf.state in (State.LISTED, State.ABSENT)
            yield Informed(str(shelf.kind), known and informer.current, len(shelf))

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
    shelves: Iterable[Shelf],
    home: str = "",
    progress: Callable[[Kind, int], None] = lambda _kind, _count: None,
) -> Inventory:
    """One sweep over a cluster: fill these shelves.

    What may not be listed in the whole cluster is listed in the namespace ``home``, if one is given; what may not be
    listed at all is left in state REFUSED. ``progress`` is told how many objects of a kind have been read.

    Raises:
        ApiError: the API server does not answer, also not after some patience.
    """
    inventory = Inventory(shelves, api.version())
    for shelf in inventory.shelves.values():
        progress(shelf.kind, 0)
        _sweep(api, shelf, home, progress)
    return inventory


def _sweep(api: Api, shelf: Shelf, home: str, progress: Callable[[Kind, int], None]) -> None:
    failures = 0
    while shelf.state is State.WAITING:
        try:
            read(api, shelf, lambda count: progress(shelf.kind, count))
        except Absent:
            shelf.replace({}, State.ABSENT)
        except ApiError as error:
            if error.code == 403 and home and shelf.kind.namespaced and not shelf.namespace:
                shelf.namespace = home
            elif error.code == 403:
                shelf.replace({}, State.REFUSED)
            elif error.code == 401 or failures == PATIENCE:
                raise
            else:
                failures += 1
                time.sleep(pause(failures))
