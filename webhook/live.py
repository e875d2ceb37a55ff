"""A running cluster: informers that last for years, and one sweep for ``scan``.

List and watch over plain JSON. The kubernetes package only finds and authenticates the API server: its models cost a
hundred times as much and refuse values that they do not know. Nothing here is called while a request waits.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import urllib3
from kubernetes import client, config
from urllib3.exceptions import HTTPError, ReadTimeoutError

from webhook import __version__, codec
from webhook.inventory import Homes, Inventory, Shelf, State
from webhook.kept import lookup_namespace, reads
from webhook.metrics import Informed, Metrics
from webhook.model.kinds import BUILT_IN_GROUPS, Kind
from webhook.rules import Rules
from webhook.settings import SettingError

log = logging.getLogger(__name__)

PAGE: Final = 500
"""Objects a page, as kubectl and client-go ask for."""
CONNECT: Final = 5.0
"""Seconds for TCP and TLS."""
ANSWER: Final = 60.0
"""Seconds between two pieces of an ordinary answer."""
CALM: Final = 1.0
"""Seconds. What lasted longer may begin again at once."""
FIRST: Final = 0.2
"""Seconds before what failed is tried again; twice as long after each further failure."""
LASTING: Final = 6
"""Failures in a row, about ten seconds, that somebody should know of."""
PATIENCE: Final = 5
"""Failures in a row after which a sweep gives up."""
_NOTHING: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class Pace:
    """How patient informers are, in seconds."""

    watch: float = 290.0
    """After so long a watch ends and another one begins; only then does the API server ask anew whether we may."""
    silence: float = 90.0
    """A watch on which nothing comes for so long may be dead and begins again; a bookmark comes about each minute."""
    absent: float = 30.0
    """So often a kind that is not installed is looked for."""
    longest: float = 5.0
    """The longest wait before something that failed is tried again."""
    version: float = 30.0
    """So often the API server is asked for its version."""

    def pause(self, failures: int) -> float:
        """How long to wait after so many failures in a row."""
        longest = min(self.longest, FIRST * 2 ** min(failures - 1, 10)) if failures else 0.0
        return longest * random.uniform(0.5, 1)  # noqa: S311 - so that not all come at once


class ApiError(Exception):
    """The API server did not give what was asked for. ``code``: the HTTP status; 0: there was no proper answer."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Absent(ApiError):
    """There is no such kind, or no such namespace."""


class Garbled(ApiError):
    """What came does not look like what an API server sends."""


class Api:
    """Requests to one API server. Threads may share it."""

    def __init__(self, configuration: client.Configuration) -> None:
        self._configuration = configuration
        self._pool: urllib3.PoolManager = client.ApiClient(configuration).rest_client.pool_manager
        self.one_page = threading.Lock()
        """Hold it while a page is decoded: many pages at once would take much memory and gain no time."""

    @classmethod
    def connect(cls, kubeconfig: str | None = None, context: str | None = None, connections: int = 1) -> Api:
        """The API server of this pod, or else of the kubeconfig. Asks it nothing yet.

        Raises:
            SettingError: there is neither.
        """
        configuration = client.Configuration()
        configuration.connection_pool_maxsize = connections
        try:
            if kubeconfig is None and context is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
                config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            else:
                config.load_kube_config(kubeconfig, context, client_configuration=configuration)  # type: ignore[no-untyped-call]
        except (config.ConfigException, OSError) as error:
            raise SettingError(f"no cluster is configured: {error}") from None
        return cls(configuration)

    def get(self, path: str, query: dict[str, str], silence: float = ANSWER) -> urllib3.BaseHTTPResponse:
        """An answer whose body is yet to be read.

        Raises:
            ApiError: it is not the answer that was asked for.
        """
        return self._ask("GET", path, silence, fields=query)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """What an object becomes that is created there: the answer to a review, say.

        Raises:
            ApiError: it was not taken.
        """
        response = self._ask("POST", path, ANSWER, json=body)
        with _proper_answer():
            answer: dict[str, Any] = codec.loads(_all(response))
            return answer

    def patch(self, path: str, kind: str, body: dict[str, Any], query: Mapping[str, str] = _NOTHING) -> None:
        """Change an object: merge into it (kind ``merge-patch+json``), or apply it (``apply-patch+yaml``).

        Raises:
            ApiError: it was not taken.
        """
        text, media = codec.dumps(body), {"Content-Type": f"application/{kind}"}
        _all(self._ask("PATCH", f"{path}?{urlencode(query)}", ANSWER, media, body=text))

    def delete(self, path: str) -> None:
        """Delete an object.

        Raises:
            ApiError: it was not deleted.
        """
        _all(self._ask("DELETE", path, ANSWER))

    def list(self, path: str, query: Mapping[str, str] = _NOTHING) -> Iterator[dict[str, Any]]:
        """The objects of a kind, asked for page by page.

        Raises:
            ApiError: they cannot be read.
        """
        rest = {"limit": str(PAGE), **query}
        while True:
            with _proper_answer():
                page = codec.loads(self.body(path, rest))
                items, rest["continue"] = page.get("items") or (), page["metadata"].get("continue") or ""
            yield from items
            if not rest["continue"]:
                return

    def _ask(
        self, method: str, path: str, silence: float, headers: Mapping[str, str] = _NOTHING, **content: Any
    ) -> urllib3.BaseHTTPResponse:
        try:
            response = self._pool.request(
                method,
                self._configuration.host + path,
                headers={**self._headers(), **headers},
                timeout=urllib3.Timeout(connect=CONNECT, read=silence),
                retries=False,
                preload_content=False,
                **content,
            )
            if response.status in (200, 201, 202):
                return response
            raise ApiError(response.status, _message(response.data) or f"HTTP status {response.status}")
        except (HTTPError, OSError, config.ConfigException) as error:
            raise ApiError(0, f"the API server does not answer: {error}") from None

    def _headers(self) -> dict[str, str]:
        """Read anew each time: tokens are renewed while we run."""
        headers = {"Accept": "application/json", "User-Agent": f"virt-admit/{__version__}"}
        settings: dict[str, Any] = dict(self._configuration.auth_settings())
        return headers | {each["key"]: each["value"] for each in settings.values()}

    def body(self, path: str, query: dict[str, str]) -> bytes:
        """A whole answer.

        Raises:
            ApiError: it is not the answer that was asked for.
        """
        return _all(self.get(path, query))

    def version(self) -> str:
        """The API server's version, ``v1.36.3``.

        Raises:
            ApiError: it does not tell.
        """
        with _proper_answer():
            return str(codec.loads(self.body("/version", {}))["gitVersion"])

    def has_namespace(self, name: str) -> bool:
        """Whether the namespace exists, or may exist: to be forbidden something in it tells nothing."""
        try:
            self.body(f"/api/v1/namespaces/{name}", {})
        except ApiError as error:
            return error.code != 404
        return True

    def demand_api_server(self) -> None:
        """Go on only if it is an API server that answers: that something else lacks a kind tells nothing.

        Raises:
            ApiError: it is not.
        """
        with _proper_answer():
            if codec.loads(self.body("/apis", {}))["kind"] != "APIGroupList":
                raise ValueError("no list of API groups")


@contextlib.contextmanager
def _proper_answer() -> Iterator[None]:
    """Turns surprises about the shape of an answer into Garbled."""
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise Garbled(0, f"this is not the answer of an API server: {error!r}") from None


def _all(response: urllib3.BaseHTTPResponse) -> bytes:
    try:
        return response.data
    except (HTTPError, OSError) as error:
        raise ApiError(0, f"the API server does not answer: {error}") from None
    finally:
        response.release_conn()


def _message(body: bytes) -> str:
    try:
        return str(codec.loads(body)["message"])
    except (LookupError, TypeError, ValueError):
        return ""


class Place(NamedTuple):
    """Where a list ended and a watch goes on."""

    path: str
    version: str


def read(api: Api, shelf: Shelf, progress: Callable[[int], None] = lambda _: None) -> Place:
    """List the objects of a kind onto their shelf, page by page, in the newest version that is served.

    ``progress`` is told how many objects have been read.

    Raises:
        Absent: there is no such kind, or not the namespace that is looked into.
        ApiError: they could not be read; the shelf is as it was.
    """
    kind = shelf.kind
    for version in kind.versions:
        path = _path(kind, version, shelf.namespace)
        try:
            homes, at = _pages(api, path, shelf, progress)
        except ApiError as error:
            if error.code == 403 and shelf.namespace and not api.has_namespace(shelf.namespace):
                raise Absent(404, "there is no such namespace") from None
            if error.code != 404:
                raise
            continue
        shelf.replace(homes, State.LISTED)
        return Place(path, at)
    if kind.group in BUILT_IN_GROUPS:
        raise Garbled(404, "this is not the answer of an API server: every one has this kind")
    api.demand_api_server()
    raise Absent(404, "there is no such kind")


def _path(kind: Kind, version: str, home: str) -> str:
    root = f"/apis/{kind.group}/{version}" if kind.group else f"/api/{version}"
    return f"{root}/namespaces/{home}/{kind.plural}" if home and kind.namespaced else f"{root}/{kind.plural}"


def _pages(api: Api, path: str, shelf: Shelf, progress: Callable[[int], None]) -> tuple[Homes, str]:
    homes: Homes = {}
    count = 0
    query = {"limit": str(PAGE)}
    while True:
        body = api.body(path, query)
        with _proper_answer(), api.one_page:
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
        self._place: Place | None = None
        self._failures = 0
        """In a row."""
        self._response: urllib3.BaseHTTPResponse | None = None

    def run(self) -> None:
        """Work until somebody stops us."""
        while not self._stopped.is_set():
            try:
                pause = self._round()
            except Exception:  # a bug; if the thread ended, its look-ups would be wrong for ever
                log.exception("an informer begins again", extra={"kind": str(self.shelf.kind)})
                self.current, self._place = False, None
                pause = self._pace.longest
            self._stopped.wait(pause)

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
            with _proper_answer():
                if self._place is None:
                    self._place = read(self._api, self.shelf)
                self._watch(self._place)
        except ApiError as error:
            failed = True
            self._learn(error)
            if isinstance(error, Absent):
                return self._pace.absent
        calm = time.monotonic() - began > CALM
        self._failures = (0 if calm else self._failures) + (failed or not calm)
        return self._pace.pause(self._failures)

    def _watch(self, place: Place) -> None:
        seconds = int(self._pace.watch * random.uniform(0.9, 1))  # noqa: S311 - so that not all end at once
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": place.version,
            "timeoutSeconds": str(max(seconds, 1)),
        }
        response = self._api.get(place.path, query, self._pace.silence)
        with contextlib.closing(response):
            self._response = response
            self.current = True
            try:
                for line in response:  # urllib3 gives whole lines
                    event = codec.loads(line)
                    self._apply(event["type"], event["object"])
                    self._place = Place(place.path, str(event["object"]["metadata"]["resourceVersion"]))
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
            self._place = None
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
                time.sleep(Pace().pause(failures))
