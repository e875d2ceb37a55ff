"""Requests to an API server, over plain JSON.

The kubernetes package only finds the API server and authenticates to it. Its models cost a hundred
times as much as parsing JSON, and reject values that they do not know. Importing it takes 0.3 s and
70 MB, so only a connection does.
"""

from __future__ import annotations

import contextlib
import email.utils
import json
import logging
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol, Self
from urllib.parse import unquote, urlencode

import urllib3
from urllib3.exceptions import HTTPError

from virt_admit_certs.errors import error_text
from virt_admit_certs.response_body import BODY_TIMEOUT, LARGEST_BODY, LimitExceeded, bounded_body

if TYPE_CHECKING:
    from kubernetes.client import Configuration

FIELD_MANAGER: Final = "virt-admit-certs"
"""The field manager of every write of this package."""

TIMEOUT: Final = urllib3.Timeout(connect=3.0, read=5.0)
"""Seconds. The next round of the reconcile loop is the retry."""

_LONGEST_REASON: Final = 500
"""Characters of an error message; parts of it come from the server."""
_NOTHING: Final[Mapping[str, str]] = {}
_REASONS: Final = {
    0: "unreachable",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    409: "conflict",
    422: "invalid",
    429: "throttled",
}


def reason_of(status: int) -> str:
    """Return the word for an HTTP status; metrics use it as a label."""
    return _REASONS.get(status, "server" if status >= 500 else "refused")


class ApiError(Exception):
    """A request to the API server failed.

    Attributes:
        status: the HTTP status, or 0 if there was no valid response.
        reason: unreachable, unauthorized, forbidden, not_found, conflict, invalid, throttled,
            server or refused.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason_of(status)


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """A response of the API server."""

    status: int
    body: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Empty unless the request succeeded. Not in the representation, because it can be a Secret."""
    date: datetime | None = None
    """The clock of the API server."""

    def error(self, action: str) -> ApiError:
        """Return the error for a failed action, without the response body,
        which can quote a Secret.
        """
        return ApiError(self.status, f"{action}: {reason_of(self.status)}")


class JsonRequests(Protocol):
    """The one request that stores and webhook configurations need."""

    def request_json(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        media_type: str = "",
        query: Mapping[str, str] = _NOTHING,
    ) -> ApiResponse:
        """Send a request and return the response, whatever its status.

        Raise ApiError if none arrives.
        """


class KubeApi:
    """Requests to one API server. Threads may share it."""

    user_agent = FIELD_MANAGER

    def __init__(self, configuration: Configuration) -> None:
        from kubernetes.client import ApiClient  # noqa: PLC0415 - 0.3 s, 70 MB

        self._configuration = configuration
        self._pool: urllib3.PoolManager = ApiClient(configuration).rest_client.pool_manager

    @classmethod
    def connect(
        cls, kubeconfig: str | None = None, context: str | None = None, connections: int = 1
    ) -> Self:
        """Return a client for the cluster of this pod, or of the kubeconfig. It sends no request.

        Raises:
            ApiError: no cluster is configured.
        """
        configuration = cluster_configuration(kubeconfig, context)
        configuration.connection_pool_maxsize = connections
        with _proxy_failure_as_error():
            configuration.proxy_headers = _proxy_credentials(configuration.proxy)
            return cls(configuration)

    def request(
        self,
        method: str,
        path: str,
        *,
        timeout: urllib3.Timeout = TIMEOUT,
        headers: Mapping[str, str] = _NOTHING,
        **content: Any,
    ) -> urllib3.BaseHTTPResponse:
        """Send a request and return the response, whatever its status; the body is not read yet.

        Raises:
            ApiError: no response arrived.
        """
        with unreachable_as_error():
            return self._pool.request(
                method,
                self._configuration.host + path,
                headers={**self._headers(), **headers},
                timeout=timeout,
                retries=False,
                preload_content=False,
                **content,
            )

    def request_json(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        media_type: str = "",
        query: Mapping[str, str] = _NOTHING,
    ) -> ApiResponse:
        """Send a request and return the response, whatever its status.

        Raises:
            ApiError: no response arrived, or it is not JSON.
        """
        url = f"{path}?{urlencode(query)}" if query else path
        headers = {"Content-Type": media_type} if media_type else _NOTHING
        content: dict[str, Any] = {} if body is None else {"body": json.dumps(body)}
        response = self.request(method, url, headers=headers, **content)
        text = read_body(response)
        date = parse_date(response.headers)
        if not 200 <= response.status < 300:
            return ApiResponse(response.status, {}, date)
        with unreachable_as_error():
            found = json.loads(text)
            if not isinstance(found, dict):
                raise ValueError("the answer is not a JSON object")
            return ApiResponse(response.status, found, date)

    def _headers(self) -> dict[str, str]:
        """Return the headers of every request.

        Tokens are read each time, because they are renewed meanwhile.
        """
        headers = {"Accept": "application/json", "User-Agent": self.user_agent}
        credentials: dict[str, Any] = dict(self._configuration.auth_settings())
        return headers | {
            credential["key"]: credential["value"] for credential in credentials.values()
        }


class TooLarge(ApiError):
    """The API server sends more, or for a longer time, than a real one does.

    A second attempt would not help.
    """


def read_body(
    response: urllib3.BaseHTTPResponse, most: int = LARGEST_BODY, seconds: float = BODY_TIMEOUT
) -> bytes:
    """Return the whole body of a response and free its connection.

    Raises:
        TooLarge: the body has more bytes after decompression, or takes longer.
        ApiError: the body breaks off.
    """
    with unreachable_as_error():
        try:
            return bounded_body(response, most, seconds)
        except LimitExceeded as error:
            raise TooLarge(0, f"the API server {error}") from None


@contextlib.contextmanager
def unreachable_as_error() -> Iterator[None]:
    """Turn errors of the network, of credentials and of a body that is not JSON into ApiError."""
    from kubernetes.config import ConfigException  # noqa: PLC0415

    try:
        yield
    except (HTTPError, OSError, ConfigException) as error:
        reason = re.sub(r"\[Errno -?\d+\] ", "", " ".join(str(error).split()))[:_LONGEST_REASON]
        raise ApiError(0, f"the API server does not answer: {reason}") from None
    except (ValueError, RecursionError) as error:
        # its text can quote the body, which can be a Secret
        raise ApiError(0, f"the API server does not answer: {type(error).__name__}") from None


def cluster_configuration(
    kubeconfig: str | None = None, context: str | None = None
) -> Configuration:
    """Return how to reach the API server of this pod, or of the kubeconfig. It sends no request.

    Raises:
        ApiError: no cluster is configured, or the kubeconfig is not valid.
    """
    from kubernetes import client, config  # noqa: PLC0415

    configuration = client.Configuration()
    try:
        if kubeconfig is None and context is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            with _plugin_failure_as_error():
                config.load_kube_config(kubeconfig, context, client_configuration=configuration)  # type: ignore[no-untyped-call]
    except ApiError:
        raise
    except OSError as error:
        raise ApiError(0, f"no cluster is configured: {error_text(error)}") from None
    except config.ConfigException as error:
        missing = kubeconfig and not os.path.exists(kubeconfig)
        reason = f"{kubeconfig}: No such file or directory" if missing else error_text(error)
        raise ApiError(0, f"no cluster is configured: {reason}") from None
    except Exception:  # the library fails in many ways on a file that is not a kubeconfig
        file = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
        remedy = f"Check it with: kubectl config view --kubeconfig {file}"
        raise ApiError(
            0, f"no cluster is configured: {file} is not a valid kubeconfig. {remedy}"
        ) from None
    host = configuration.host
    if not host:
        raise ApiError(0, "no cluster is configured: the cluster of the kubeconfig has no server")
    if not host.lower().startswith(("https://", "http://")):  # urllib3 would warn, and use http
        whole = "://" in host or host.endswith(":")  # the library strips slashes at the end
        problem = "is not an https:// URL" if whole else f"has no scheme. Write https://{host}"
        raise ApiError(0, f"no cluster is configured: the server {host} {problem}")
    return configuration


def _proxy_credentials(proxy: str | None) -> dict[str, str] | None:
    """Return the header with the user and the password in the URL of a proxy, as kubectl sends it;
    urllib3 does not.
    """
    credentials = urllib3.util.parse_url(proxy).auth if proxy else None
    return urllib3.make_headers(proxy_basic_auth=unquote(credentials)) if credentials else None


@contextlib.contextmanager
def _proxy_failure_as_error() -> Iterator[None]:
    """Raise ApiError if the proxy cannot be used.

    Its URL is not shown, because it can have a password.
    """
    try:
        # urllib3 says that PySocks is missing, and then fails
        with warnings.catch_warnings(action="ignore"):
            yield
    except ImportError:
        problem = (
            "a SOCKS proxy needs the Python package PySocks. Install it next to virt-admit, or use "
            "an http:// proxy"
        )
    except (HTTPError, ValueError, AttributeError, TypeError):
        problem = (
            "the proxy is not an http:// or https:// URL. Correct proxy-url in the kubeconfig, or "
            "HTTPS_PROXY"
        )
    else:
        return
    raise ApiError(0, f"no cluster is configured: {problem}")


class _PluginFailures(logging.Handler):
    """Collects what the library logs about the credential plugin of a kubeconfig,
    and then goes on without a token.
    """

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.module == "kube_config":
            self.messages.append(record.getMessage())


@contextlib.contextmanager
def _plugin_failure_as_error() -> Iterator[None]:
    """Raise ApiError if the credential plugin of a kubeconfig fails.

    Without this handler logging would print the failure.
    """
    handler, root = _PluginFailures(), logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
    if handler.messages:
        reason = re.sub(r"^\[Errno \d+\] ", "", handler.messages[0])
        # its stderr is the terminal (exec_provider.py#run)
        if reason.endswith("no attribute 'strip'"):
            reason = "its own message is above"
        problem = f"the credential plugin of the kubeconfig failed: {reason}"
        raise ApiError(0, f"no cluster is configured: {problem}. Fix it, or use another context")


def parse_date(headers: Mapping[str, str]) -> datetime | None:
    """Return the time in the ``Date`` header, or None if it is missing or not valid."""
    try:
        date = email.utils.parsedate_to_datetime(headers["Date"])
    except (KeyError, ValueError):
        return None
    return date.replace(tzinfo=date.tzinfo or UTC)  # "-0000" is UTC too (RFC 5322, section 3.3)
