"""From gunicorn's asgi worker to the Flask app, inline on the event loop.

A review does no I/O, so a thread would only add a hand-over (130 to 200 us). The worker terminates TLS and HTTP,
so a silent peer costs a socket and never a thread (certificates.md section 8).
"""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

BODY_DEADLINE: Final = 15.0
"""Seconds from the end of the headers to the end of the body; the API server sends both at once."""


def bridge(app: Wsgi, max_body: int) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    """The WSGI app as an ASGI one. Bodies above ``max_body`` bytes are answered 413 without being read."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        environ = _environ(scope)
        if int(environ.get("CONTENT_LENGTH") or 0) > max_body:
            await _plain(send, 413, b"the body is larger than 7 MiB\n")
            return
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_DEADLINE):
                more = True
                while more:
                    event = await receive()
                    if event["type"] == "http.disconnect":
                        return
                    body += event.get("body", b"")
                    more = event.get("more_body", False)
                    if len(body) > max_body:
                        await _plain(send, 413, b"the body is larger than 7 MiB\n")
                        return
        except TimeoutError:
            await _plain(send, 408, b"the body did not arrive\n")
            return
        environ["wsgi.input"] = io.BytesIO(body)
        environ["CONTENT_LENGTH"] = str(len(body))
        await _answer(app, environ, send)

    return serve


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


def _environ(scope: Scope) -> dict[str, Any]:
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
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": False,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    for name, value in scope["headers"]:
        key = name.decode("latin-1").upper().replace("-", "_")
        environ[key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else "HTTP_" + key] = value.decode("latin-1")
    return environ
