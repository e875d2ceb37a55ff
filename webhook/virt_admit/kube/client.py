"""Lists, watches and single objects of an API server,
on top of :mod:`virt_admit_certs.kube_api`.
"""

from __future__ import annotations

import contextlib
import datetime
import math
import os
import random
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final, Self
from urllib.parse import urlencode

import urllib3
from kubernetes.client import Configuration

from virt_admit import __version__
from virt_admit.model.kubernetes import json_codec
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.messages import cut, did_you_mean, names
from virt_admit.model.sanitize import line
from virt_admit.settings import SettingError
from virt_admit_certs.kube_api import ApiError, KubeApi, TooLarge, parse_date, read_body

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
LARGEST_PAGE: Final = 16 << 20
"""Bytes of a page. One of 500 pods has about 10 MB. A larger one is requested again, in parts."""
MOST_VALUES: Final = 1_000_000
"""Commas and opening brackets of a page: what they mean takes up to 80 bytes each.
One of 500 pods has 400,000.
"""
_FEWER: Final = 5
"""The factor by which pages become smaller and larger."""
MOST_PAGES: Final = 2_000
"""Pages of one listing: a million objects."""
MOST_BYTES: Final = 4 << 30
"""Bytes of one listing. 100,000 pods with 20 kB each have 2 GB."""
LISTING_TIMEOUT: Final = 600.0
"""Seconds for one listing; a ``continue`` token is valid for about 300."""
_LARGEST_ERROR: Final = 1 << 20
"""Bytes of the body of an error."""
_LONGEST_MESSAGE: Final = 500
"""Characters of an error message of the API server."""
_NOTHING: Final[Mapping[str, str]] = {}


def pause(failures: int, longest: float = LONGEST) -> float:
    """Return how many seconds to wait after this number of failures in a row."""
    most = min(longest, FIRST * 2 ** min(failures - 1, 10)) if failures else 0.0
    return most * random.uniform(0.5, 1)  # noqa: S311 - so that not all replicas retry at once


def path_of(kind: Kind, namespace: str = "", name: str = "", version: str = "") -> str:
    """Return the URL path of the objects of a kind, or of one object;
    by default in the newest version.
    """
    version = version or kind.versions[0]
    root = f"/apis/{kind.group}/{version}" if kind.group else f"/api/{version}"
    scope = f"/namespaces/{namespace}" if namespace and kind.namespaced else ""
    return f"{root}{scope}/{kind.plural}" + (f"/{name}" if name else "")


class NotFound(ApiError):
    """The kind or the namespace does not exist."""


class MalformedResponse(ApiError):
    """The response does not look like one of an API server."""


def _remedied(error: ApiError) -> str:
    """Return why no cluster is configured, and what to do if there is no kubeconfig at all."""
    if "No configuration found" not in str(error):
        return str(error)
    named = os.environ.get("KUBECONFIG", "")
    if named:  # the library leaves out files that do not exist and then finds nothing
        return (
            f"no cluster is configured: KUBECONFIG names {line(named)}, which does not exist or is "
            "empty. Correct it, or name a file with --kubeconfig FILE"
        )
    return (
        "no cluster is configured: no kubeconfig was found. Name one with --kubeconfig FILE or the "
        "variable KUBECONFIG"
    )


def _no_context(kubeconfig: str | None, context: str | None) -> str:
    """Return what to do about a context that the kubeconfig does not have;
    empty if that is not the problem.
    """
    from kubernetes import config  # noqa: PLC0415 - only an error needs it

    try:
        found, _ = config.list_kube_config_contexts(kubeconfig)  # type: ignore[no-untyped-call]
        known = sorted(str(each["name"]) for each in found)
    except Exception:  # the library fails in many ways; the first error stands
        return ""
    if context is None or context in known:
        return ""
    meant = did_you_mean(context, known) if known else None
    hint = f"Did you mean {meant}?" if meant else f"The contexts are: {names(known) or 'none'}"
    return f"no cluster is configured: the kubeconfig has no context {context}. {hint}"


class PageRequests:
    """The requests of one listing. It ends, whatever the API server answers."""

    def __init__(self, query: Mapping[str, str] = _NOTHING) -> None:
        self.query = {"limit": str(PAGE), **query}
        """The parameters of the next request."""
        self._seen: set[str] = set()
        self._bytes = 0
        self._deadline = time.monotonic() + LISTING_TIMEOUT

    def fits(self, body: bytes) -> bool:
        """Return whether a page is small enough to be parsed; if not,
        the same request asks for fewer objects.

        Objects of a user can have 1.5 MB each, and 40 times as much after parsing.
        """
        dense = sum(map(body.count, (b",", b"[", b"{"))) > MOST_VALUES
        return not (dense and self.shrink())

    def shrink(self) -> bool:
        """Ask for fewer objects. Return False if the request asks for one already.

        Raises:
            TooLarge: no time is left.
        """
        self._require_time()
        limit = int(self.query["limit"])
        if limit == 1:
            return False
        self.query["limit"] = str(max(1, limit // _FEWER))
        return True

    def proceed(self, size: int, metadata: Mapping[str, Any]) -> bool:
        """Prepare the next request after a page. Return whether there is one.

        Args:
            size: the bytes of the page.
            metadata: the metadata of the page.

        Raises:
            TypeError: the ``continue`` token is not text.
            TooLarge: the listing has more pages or bytes, or takes longer, than one of a real
                cluster.
        """
        token = metadata.get("continue") or ""
        if not isinstance(token, str):
            raise TypeError("continue is not text")
        self._bytes += size
        if not token:
            return False
        if token in self._seen:
            raise TooLarge(
                0, "the API server sends a listing without an end: the same continue token twice"
            )
        self._seen.add(token)
        if len(self._seen) >= MOST_PAGES or self._bytes > MOST_BYTES:
            raise TooLarge(
                0,
                f"the API server sends a listing of more than {MOST_PAGES} pages or {MOST_BYTES} "
                "bytes",
            )
        self._require_time()
        self.query["continue"] = token
        limit = int(self.query["limit"])
        if limit < PAGE and size < LARGEST_PAGE // (2 * _FEWER):
            self.query["limit"] = str(min(PAGE, limit * _FEWER))
        return True

    def _require_time(self) -> None:
        if time.monotonic() > self._deadline:
            raise TooLarge(
                0, f"the API server does not complete a listing within {LISTING_TIMEOUT:g} s"
            )


class ApiClient(KubeApi):
    """Requests for lists, watches and single objects. Threads may share it."""

    user_agent = f"virt-admit/{__version__}"

    def __init__(self, configuration: Configuration) -> None:
        super().__init__(configuration)
        self.time: datetime.datetime | None = None
        """The API server's time of its last answer; None: no answer had one."""
        self.answered = time.monotonic()
        """When the API server last answered, or this client was made,
        by the clock of this process.
        """
        self._dated = self.answered
        self.one_page = threading.Lock()
        """Hold it while a page is decoded: several pages at once would take much memory and save no
        time.
        """
        self._deadline = math.inf

    @classmethod
    def connect(
        cls, kubeconfig: str | None = None, context: str | None = None, connections: int = 1
    ) -> Self:
        """Return a client for the cluster of this pod, or of the kubeconfig. It sends no request.

        Raises:
            SettingError: no cluster is configured.
        """
        try:
            return super().connect(kubeconfig, context, connections)
        except ApiError as error:
            raise SettingError(_no_context(kubeconfig, context) or _remedied(error)) from None

    @contextlib.contextmanager
    def bounded(self, seconds: float) -> Iterator[None]:
        """Let requests fail after this time, also those that are under way."""
        self._deadline = time.monotonic() + seconds
        try:
            yield
        finally:
            self._deadline = math.inf

    @property
    def out_of_time(self) -> bool:
        """Whether the time of ``bounded`` is over."""
        return time.monotonic() >= self._deadline

    def get(
        self, path: str, query: dict[str, str], read_timeout: float = READ_TIMEOUT, accept: str = ""
    ) -> urllib3.BaseHTTPResponse:
        """Return a response whose body is not read yet, in one of the media types in ``accept``.

        Raises:
            ApiError: the request failed.
        """
        return self._ask(
            "GET", path, read_timeout, {"Accept": accept} if accept else _NOTHING, fields=query
        )

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Create an object and return it as stored; for a review, that is the answer.

        Raises:
            ApiError: the request failed.
        """
        response = self._ask("POST", path, READ_TIMEOUT, json=body)
        with malformed_as_error():
            answer: dict[str, Any] = json_codec.loads(read_body(response))
            return answer

    def patch(
        self, path: str, kind: str, body: dict[str, Any], query: Mapping[str, str] = _NOTHING
    ) -> None:
        """Change an object: merge into it (kind ``merge-patch+json``), or apply it
        (``apply-patch+yaml``).

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
        pages, more = PageRequests(query), True
        while more:
            body = self.page(path, pages)
            with malformed_as_error():
                page = json_codec.loads_bounded(body)
                items = page_items(page)
                more = pages.proceed(len(body), page["metadata"])
            yield from items

    def _ask(
        self,
        method: str,
        path: str,
        read_timeout: float,
        headers: Mapping[str, str] = _NOTHING,
        **content: Any,
    ) -> urllib3.BaseHTTPResponse:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise ApiError(0, "no time was left")
        timeout = urllib3.Timeout(connect=min(CONNECT_TIMEOUT, left), read=min(read_timeout, left))
        response = self.request(method, path, timeout=timeout, headers=headers, **content)
        self.answered = time.monotonic()
        if date := parse_date(response.headers):
            self.time, self._dated = date, self.answered
        if response.status in (200, 201, 202):
            return response
        message = (
            error_message(read_body(response, _LARGEST_ERROR)) or f"HTTP status {response.status}"
        )
        raise ApiError(response.status, message)

    def body(self, path: str, query: dict[str, str]) -> bytes:
        """Return a whole response body.

        Raises:
            ApiError: the request failed.
        """
        return read_body(self.get(path, query))

    def page(self, path: str, pages: PageRequests) -> bytes:
        """Return the next page of a listing, with fewer objects if they are large.

        Raises:
            ApiError: the request failed.
        """
        while True:
            try:
                body = read_body(self.get(path, pages.query), LARGEST_PAGE)
            except TooLarge:
                if not pages.shrink():
                    raise
            else:
                if pages.fits(body):
                    return body

    def version(self) -> str:
        """Return the API server's version, such as ``v1.36.3``.

        Raises:
            ApiError: the request failed.
        """
        with malformed_as_error():
            version = json_codec.loads(self.body("/version", {}))["gitVersion"]
            if not isinstance(version, str):
                raise TypeError("gitVersion is not text")
            return cut(line(version), _LONGEST_MESSAGE)

    def has_namespace(self, name: str) -> bool:
        """Return False only if the namespace certainly does not exist; a 403 does not tell."""
        try:
            self.body(f"/api/v1/namespaces/{name}", {})
        except ApiError as error:
            return error.status != 404
        return True

    def now(self) -> datetime.datetime | None:
        """Return the API server's time now: that of its last answer, and what has passed since."""
        if self.time is None:
            return None
        return self.time + datetime.timedelta(seconds=time.monotonic() - self._dated)

    def groups(self) -> frozenset[str]:
        """Return the names of the API groups that are served, without the core group.

        A 404 of anything but an API server does not mean that a kind does not exist.

        Raises:
            ApiError: the request failed, or what answers is not an API server.
        """
        with malformed_as_error():
            found = json_codec.loads(self.body("/apis", {}))
            if found["kind"] != "APIGroupList":
                raise ValueError("not a list of API groups")
            return frozenset(group["name"] for group in found["groups"])


@contextlib.contextmanager
def malformed_as_error() -> Iterator[None]:
    """Raise MalformedResponse where a response does not have the expected form."""
    try:
        yield
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        reason = cut(line(repr(error)), _LONGEST_MESSAGE)
        raise MalformedResponse(0, f"this is not the answer of an API server: {reason}") from None


def page_items(page: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the objects of a page. Raise TypeError if they are not objects."""
    items = page.get("items") or []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise TypeError("items is not a list of objects")
    return items


def error_message(body: bytes) -> str:
    """Return the message of an error of an API server; empty if it has none."""
    try:
        message = json_codec.loads(body)["message"]
    except (LookupError, RecursionError, TypeError, ValueError):
        return ""
    return cut(line(message), _LONGEST_MESSAGE) if isinstance(message, str) else ""
