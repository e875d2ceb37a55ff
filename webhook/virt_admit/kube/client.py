"""Lists, watches and single objects of an API server, on top of :mod:`virt_admit_certs.kube_api`."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final, Self
from urllib.parse import urlencode

import urllib3
from kubernetes.client import Configuration

from virt_admit import __version__
from virt_admit.model.kubernetes import json_codec
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.settings import SettingError
from virt_admit_certs.kube_api import ApiError, KubeApi, read_body

PAGE: Final = 500
"""Objects a page, as kubectl and client-go request."""
CONNECT_TIMEOUT: Final = 5.0
"""Seconds for TCP and TLS."""
READ_TIMEOUT: Final = 60.0
"""Seconds between two pieces of a response."""
FIRST: Final = 0.2
"""Seconds before the first retry; each further failure doubles them."""
LONGEST: Final = 5.0
"""Seconds: the longest wait before a retry."""
PATIENCE: Final = 5
"""Failures in a row after which a sweep gives up."""
_NOTHING: Final[Mapping[str, str]] = {}


def pause(failures: int, longest: float = LONGEST) -> float:
    """Return how many seconds to wait after this number of failures in a row."""
    most = min(longest, FIRST * 2 ** min(failures - 1, 10)) if failures else 0.0
    return most * random.uniform(0.5, 1)  # noqa: S311 - so that not all replicas retry at once


def path_of(kind: Kind, namespace: str = "", name: str = "", version: str = "") -> str:
    """Return the URL path of the objects of a kind, or of one object; by default in the newest version."""
    version = version or kind.versions[0]
    root = f"/apis/{kind.group}/{version}" if kind.group else f"/api/{version}"
    scope = f"/namespaces/{namespace}" if namespace and kind.namespaced else ""
    return f"{root}{scope}/{kind.plural}" + (f"/{name}" if name else "")


class NotFound(ApiError):
    """The kind or the namespace does not exist."""


class MalformedResponse(ApiError):
    """The response does not look like one of an API server."""


class ApiClient(KubeApi):
    """Requests for lists, watches and single objects. Threads may share it."""

    user_agent = f"virt-admit/{__version__}"

    def __init__(self, configuration: Configuration) -> None:
        super().__init__(configuration)
        self.one_page = threading.Lock()
        """Hold it while a page is decoded: several pages at once would take much memory and save no time."""

    @classmethod
    def connect(cls, kubeconfig: str | None = None, context: str | None = None, connections: int = 1) -> Self:
        """Return a client for the cluster of this pod, or of the kubeconfig. It sends no request.

        Raises:
            SettingError: no cluster is configured.
        """
        try:
            return super().connect(kubeconfig, context, connections)
        except ApiError as error:
            raise SettingError(str(error)) from None

    def get(self, path: str, query: dict[str, str], read_timeout: float = READ_TIMEOUT) -> urllib3.BaseHTTPResponse:
        """Return a response whose body is not read yet.

        Raises:
            ApiError: the request failed.
        """
        return self._ask("GET", path, read_timeout, fields=query)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Create an object and return it as stored; for a review, that is the answer.

        Raises:
            ApiError: the request failed.
        """
        response = self._ask("POST", path, READ_TIMEOUT, json=body)
        with malformed_as_error():
            answer: dict[str, Any] = json_codec.loads(read_body(response))
            return answer

    def patch(self, path: str, kind: str, body: dict[str, Any], query: Mapping[str, str] = _NOTHING) -> None:
        """Change an object: merge into it (kind ``merge-patch+json``), or apply it (``apply-patch+yaml``).

        Raises:
            ApiError: the request failed.
        """
        text, media = json_codec.dumps(body), {"Content-Type": f"application/{kind}"}
        read_body(self._ask("PATCH", f"{path}?{urlencode(query)}", READ_TIMEOUT, media, body=text))

    def delete(self, path: str) -> None:
        """Delete an object.

        Raises:
            ApiError: the request failed.
        """
        read_body(self._ask("DELETE", path, READ_TIMEOUT))

    def list(self, path: str, query: Mapping[str, str] = _NOTHING) -> Iterator[dict[str, Any]]:
        """Yield the objects of a kind, requested page by page.

        Raises:
            ApiError: a request failed.
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
        self, method: str, path: str, read_timeout: float, headers: Mapping[str, str] = _NOTHING, **content: Any
    ) -> urllib3.BaseHTTPResponse:
        timeout = urllib3.Timeout(connect=CONNECT_TIMEOUT, read=read_timeout)
        response = self.request(method, path, timeout=timeout, headers=headers, **content)
        if response.status in (200, 201, 202):
            return response
        raise ApiError(response.status, _message(read_body(response)) or f"HTTP status {response.status}")

    def body(self, path: str, query: dict[str, str]) -> bytes:
        """Return a whole response body.

        Raises:
            ApiError: the request failed.
        """
        return read_body(self.get(path, query))

    def version(self) -> str:
        """Return the API server's version, such as ``v1.36.3``.

        Raises:
            ApiError: the request failed.
        """
        with malformed_as_error():
            return str(json_codec.loads(self.body("/version", {}))["gitVersion"])

    def has_namespace(self, name: str) -> bool:
        """Return False only if the namespace certainly does not exist; a 403 does not tell."""
        try:
            self.body(f"/api/v1/namespaces/{name}", {})
        except ApiError as error:
            return error.status != 404
        return True

    def require_api_server(self) -> None:
        """Check that an API server answers: a 404 of anything else does not mean that a kind does not exist.

        Raises:
            ApiError: it does not.
        """
        with malformed_as_error():
            if json_codec.loads(self.body("/apis", {}))["kind"] != "APIGroupList":
                raise ValueError("not a list of API groups")


@contextlib.contextmanager
def malformed_as_error() -> Iterator[None]:
    """Raise MalformedResponse where a response does not have the expected form."""
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise MalformedResponse(0, f"this is not the answer of an API server: {error!r}") from None


def _message(body: bytes) -> str:
    try:
        return str(json_codec.loads(body)["message"])
    except (LookupError, TypeError, ValueError):
        return ""
