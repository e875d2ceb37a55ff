"""Call the Flask app from gunicorn's asgi worker, inline on the event loop.

A review does no I/O, so a thread would only add latency (130 to 200 us). The worker terminates TLS
and HTTP, so a silent peer costs a socket and never a thread (docs/decisions/serving.md).
"""

from __future__ import annotations

import asyncio
import functools
import io
import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from virt_admit.serving.body_budget import BodyBudget, Overloaded, UnfinishedBody

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
Scope = dict[str, Any]
Event = dict[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

BODY_DEADLINE: Final = 15.0
"""Seconds from the first part of a body to its end; the API server sends both at once."""
TRANSFER_ENCODING: Final = b"transfer-encoding"


def bridge(
    app: Wsgi, max_body: int, on_overload: Callable[[], None] = lambda: None
) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    """Return a WSGI app as an ASGI app.

    Bodies above ``max_body`` bytes get a 413, those above the budget a 503 and a call of
    ``on_overload``.
    """
    budget = BodyBudget()

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if _coding(scope) not in (b"", b"chunked"):
            await _plain(send, 501, b"the only supported transfer coding is chunked\n")
            return
        try:
            body = await _body(receive, max_body, budget)
        except TimeoutError:
            await _plain(send, 408, b"the body did not arrive\n")
        except Overloaded:
            on_overload()
            await _plain(send, 503, b"too many large requests at once\n")
        except _TooLarge:
            await _plain(send, 413, f"the body is larger than {max_body >> 20} MiB\n".encode())
        else:
            if body is not None:
                await _answer(app, _environ(scope, body), send)

    return serve


def _coding(scope: Scope) -> bytes:
    """Return the transfer coding of the request body; empty if the body has a length."""
    codings = [
        value.strip().lower() for name, value in scope["headers"] if name == TRANSFER_ENCODING
    ]
    return b", ".join(codings)


class _TooLarge(Exception):
    pass


async def _body(receive: Receive, most: int, budget: BodyBudget) -> bytes | None:
    """Return the whole body; None if the client disconnected.

    Raises:
        TimeoutError: the body does not arrive in time.
        Overloaded: all connections together send too much, and this body is the largest.
        _TooLarge: the body is too large.
    """
    event = await receive()  # gunicorn itself waits for a first part no longer than its time-out
    # the usual request: nothing to collect, and no timer
    if _is_last(event) and len(_part(event)) <= most:
        return _part(event)
    if event["type"] == "http.disconnect":
        raise TimeoutError  # of gunicorn, or the client is gone and reads no answer
    async with asyncio.timeout(BODY_DEADLINE) as deadline:
        with budget.body(deadline) as body:
            try:
                return await _complete(event, receive, most, budget, body)
            except asyncio.CancelledError:
                if body.dropped:
                    raise Overloaded from None
                raise


def _is_last(event: Event) -> bool:
    """Return whether an event is the last part of a body."""
    return event["type"] == "http.request" and not event.get("more_body")


def _part(event: Event) -> bytes:
    """Return the part of a body that an event brings."""
    part: bytes = event.get("body", b"")
    return part


async def _complete(
    event: Event, receive: Receive, most: int, budget: BodyBudget, body: UnfinishedBody
) -> bytes | None:
    """Read a body, which starts with ``event``, until it is complete.

    A body that is too large is read and dropped, up to four times the limit: a client that is still
    sending when the connection closes never reads the response.
    """
    size = 0
    while True:
        if event["type"] == "http.disconnect":
            return None
        part = _part(event)
        size += len(part)
        if size <= most:
            budget.extend(body, part)
        if size > 4 * most or (size > most and _is_last(event)):
            raise _TooLarge
        if _is_last(event):
            return b"".join(body.parts)
        event = await receive()


async def _answer(app: Wsgi, environ: dict[str, Any], send: Send) -> None:
    started: list[tuple[int, list[tuple[bytes, bytes]]]] = []

    def start_response(status: str, headers: list[tuple[str, str]], _error: object = None) -> None:
        raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        started[:] = [(int(status[:3]), raw)]

    chunks = app(environ, start_response)
    content = b"".join(chunks)
    status, headers = started[0]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


async def _plain(send: Send, status: int, text: bytes) -> None:
    headers = [
        (b"content-type", b"text/plain"),
        (b"content-length", str(len(text)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})


@functools.lru_cache(maxsize=256)
def _variable(header: bytes) -> str:
    """Return the name of a header in a WSGI environment. API servers send the same few."""
    key = header.decode("latin-1").upper().replace("-", "_")
    return key if key == "CONTENT_TYPE" else "HTTP_" + key


def _environ(scope: Scope, body: bytes) -> dict[str, Any]:
    host, port = scope.get("server") or ("", 0)
    environ = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": scope["path"],
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_NAME": str(host),
        "SERVER_PORT": str(port),
        "SERVER_PROTOCOL": "HTTP/" + scope["http_version"],
        "REMOTE_ADDR": str((scope.get("client") or ("",))[0]),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "https",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": False,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    for name, value in scope["headers"]:
        if name == TRANSFER_ENCODING:
            continue  # the worker has removed the chunks, and werkzeug would read an empty body
        environ[_variable(name)] = value.decode("latin-1")
    environ["CONTENT_LENGTH"] = str(len(body))
    return environ
