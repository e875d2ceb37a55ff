"""Requests to an API server, over plain JSON.

The kubernetes package only finds and authenticates it: its models cost a hundred times as much and refuse values that
they do not know.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlencode

import urllib3
from kubernetes import client, config
from urllib3.exceptions import HTTPError

from virt_admit import __version__
from virt_admit.model import json_codec
from virt_admit.model.kinds import Kind
from virt_admit.settings import SettingError
from virt_admit_certs.store import cluster

PAGE: Final = 500
"""Objects a page, as kubectl and client-go ask for."""
CONNECT: Final = 5.0
"""Seconds for TCP and TLS."""
ANSWER: Final = 60.0
"""Seconds between two pieces of an ordinary answer."""
FIRST: Final = 0.2
"""Seconds before what failed is tried again; twice as long after each further failure."""
LONGEST: Final = 5.0
"""Seconds: the longest wait before something that failed is tried again."""
PATIENCE: Final = 5
"""Failures in a row after which a sweep gives up."""
_NOTHING: Final[Mapping[str, str]] = {}


def pause(failures: int, longest: float = LONGEST) -> float:
    """How many seconds to wait after so many failures in a row."""
    most = min(longest, FIRST * 2 ** min(failures - 1, 10)) if failures else 0.0
    return most * random.uniform(0.5, 1)  # noqa: S311 - so that not all come at once


def path_of(kind: Kind, namespace: str = "", name: str = "", version: str = "") -> str:
    """Where the objects of a kind are served, or one of them; in the newest version if none is said."""
    version = version or kind.versions[0]
    root = f"/apis/{kind.group}/{version}" if kind.group else f"/api/{version}"
    home = f"/namespaces/{namespace}" if namespace and kind.namespaced else ""
    return f"{root}{home}/{kind.plural}" + (f"/{name}" if name else "")


class ApiError(Exception):
    """The API server did not give what was asked for. ``code``: the HTTP status; 0: there was no proper answer."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class NotFound(ApiError):
    """There is no such kind, or no such namespace."""


class MalformedResponse(ApiError):
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
        try:
            configuration = cluster(kubeconfig, context)
        except LookupError as error:
            raise SettingError(str(error)) from None
        configuration.connection_pool_maxsize = connections
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
        with malformed_as_error():
            answer: dict[str, Any] = json_codec.loads(_all(response))
            return answer

    def patch(self, path: str, kind: str, body: dict[str, Any], query: Mapping[str, str] = _NOTHING) -> None:
        """Change an object: merge into it (kind ``merge-patch+json``), or apply it (``apply-patch+yaml``).

        Raises:
            ApiError: it was not taken.
        """
        text, media = json_codec.dumps(body), {"Content-Type": f"application/{kind}"}
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
            with malformed_as_error():
                page = json_codec.loads(self.body(path, rest))
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
        with malformed_as_error():
            return str(json_codec.loads(self.body("/version", {}))["gitVersion"])

    def has_namespace(self, name: str) -> bool:
        """Whether the namespace exists, or may exist: to be forbidden something in it tells nothing."""
        try:
            self.body(f"/api/v1/namespaces/{name}", {})
        except ApiError as error:
            return error.code != 404
        return True

    def require_api_server(self) -> None:
        """Go on only if it is an API server that answers: that something else lacks a kind tells nothing.

        Raises:
            ApiError: it is not.
        """
        with malformed_as_error():
            if json_codec.loads(self.body("/apis", {}))["kind"] != "APIGroupList":
                raise ValueError("no list of API groups")


@contextlib.contextmanager
def malformed_as_error() -> Iterator[None]:
    """Turns surprises about the shape of an answer into Garbled."""
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise MalformedResponse(0, f"this is not the answer of an API server: {error!r}") from None


def _all(response: urllib3.BaseHTTPResponse) -> bytes:
    try:
        return response.data
    except (HTTPError, OSError) as error:
        raise ApiError(0, f"the API server does not answer: {error}") from None
    finally:
        response.release_conn()


def _message(body: bytes) -> str:
    try:
        return str(json_codec.loads(body)["message"])
    except (LookupError, TypeError, ValueError):
        return ""
