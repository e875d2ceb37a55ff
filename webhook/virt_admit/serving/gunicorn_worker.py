"""gunicorn's asgi worker with the limits that it lacks: TLS handshakes, connections, the wait for a first request."""

from __future__ import annotations

import asyncio
import gc
import os
from asyncio.sslproto import SSLProtocol
from typing import Any, Final

from gunicorn.asgi.protocol import ASGIProtocol
from gunicorn.workers.gasgi import ASGIWorker

MAX_CONNECTIONS: Final = 2000
"""Open connections per worker, of 60 KiB each. An API server keeps 25 idle ones."""
DRAIN_SECONDS: Final = 5
"""Seconds to finish requests after the listener has closed."""
HANDSHAKE_TIMEOUT: Final = 10.0
"""Seconds for a TLS handshake, as in the API server. asyncio's default is a minute."""
SHUTDOWN_TIMEOUT: Final = 5.0
"""Seconds in which the peer must confirm the end of a TLS connection. asyncio's default is 30."""
TLS_BUFFER: Final = 32 * 1024
"""Bytes of the read buffer of each TLS connection. asyncio's default of 256 KiB is most of the memory of a connection.
A TLS record has at most 16 KiB."""
GC_INTERVAL: Final = 10
"""Seconds between two collections. A connection that ends during its handshake is a reference cycle of few objects and much
memory, so the collector, which counts objects, finds it late. A collection skips the frozen heap and takes a millisecond."""
HEARTBEAT: Final = 1.0
"""Seconds between two signs of life to gunicorn's arbiter, as in gunicorn's own worker."""


class AdmissionWorker(ASGIWorker):  # type: ignore[misc]
    """A worker process of gunicorn. ``self.app.worker`` is what it serves with, or None until that is loaded."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.without_request: dict[Connection, None] = {}
        """The connections that never sent a request, oldest first."""

    async def _serve(self) -> None:
        """Listen until the worker stops. gunicorn's own method has no option for the protocol and its timeouts."""
        limit_tls_buffers()
        self.cfg.set("graceful_timeout", DRAIN_SECONDS)  # the arbiter waits longer than its workers
        context = self._get_ssl_context()
        for listener in self.sockets:
            server = await self.loop.create_server(
                lambda: Connection(self),
                sock=listener.sock,
                ssl=context,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT,
                ssl_shutdown_timeout=SHUTDOWN_TIMEOUT,
            )
            self.servers.append(server)
            self.log.info("ASGI server listening on %s", listener)
        self.loop.call_later(GC_INTERVAL, self._collect_garbage)
        while self.alive and self.ppid == os.getppid():
            self.notify()
            await asyncio.sleep(HEARTBEAT)
        await self._shutdown()

    def handle_exit_signal(self) -> None:
        """Stop after SIGTERM: not ready at once, listen until the endpoint is removed, then finish open requests."""
        worker = self.app.worker
        if worker is None:
            super().handle_exit_signal()
            return
        worker.draining = True
        self.loop.call_later(worker.settings.stop_delay, super().handle_exit_signal)

    def count_dropped(self) -> None:
        """Count a connection that was closed at the limit."""
        self.app.worker.metrics.connections_dropped.inc()

    def _collect_garbage(self) -> None:
        gc.collect()
        self.loop.call_later(GC_INTERVAL, self._collect_garbage)


class Connection(ASGIProtocol):  # type: ignore[misc]
    """A connection that closes if its first request takes longer than a further one may.

    At the limit, the oldest connection that never sent a request makes room; without one, the new connection closes.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Start the timer for the first request."""
        super().connection_made(transport)
        self._arm_keepalive_timer()
        self.worker.without_request[self] = None
        if self.worker.nr_conns > MAX_CONNECTIONS:
            oldest = next(iter(self.worker.without_request))
            del self.worker.without_request[oldest]
            oldest.transport.abort()
            self.worker.count_dropped()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection and release its TLS buffers, which the cycles of gunicorn's objects would keep."""
        self.worker.without_request.pop(self, None)
        super().connection_lost(exc)
        self.transport = self.writer = self._flow_control = None

    def _on_headers_complete(self) -> Any:
        self.worker.without_request.pop(self, None)
        return super()._on_headers_complete()


def limit_tls_buffers() -> None:
    """Reduce the read buffer of every later TLS connection of this process. asyncio has no option for it."""
    SSLProtocol.max_size = TLS_BUFFER
