"""gunicorn's asgi worker with the limits that it lacks: TLS handshakes, connections,
the wait for a first request.
"""

from __future__ import annotations

import asyncio
import gc
import os
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from typing import Any, Final

from gunicorn.asgi.protocol import ASGIProtocol
from gunicorn.workers.gasgi import ASGIWorker

MAX_CONNECTIONS: Final = 2000
"""Open connections per worker, of 60 KiB each. An API server keeps 25 idle ones."""
MAX_HANDSHAKES: Final = 1000
"""TLS handshakes in progress per worker, of 85 KiB each. A handshake takes milliseconds."""
DRAIN_SECONDS: Final = 5
"""Seconds to finish requests after the listener has closed."""
HANDSHAKE_TIMEOUT: Final = 10.0
"""Seconds for a TLS handshake, as in the API server. asyncio's default is a minute."""
SHUTDOWN_TIMEOUT: Final = 5.0
"""Seconds in which the peer must confirm the end of a TLS connection. asyncio's default is 30."""
TLS_BUFFER: Final = 32 * 1024
"""Bytes of the read buffer of each TLS connection. asyncio's default of 256 KiB is most of the
memory of a connection. A TLS record has at most 16 KiB.
"""
GC_INTERVAL: Final = 10
"""Seconds between two collections. A connection that ends during its handshake is a reference cycle
of few objects and much memory, so the collector, which counts objects, finds it late. A collection
skips the frozen heap and takes a millisecond.
"""
DROPPED_PER_COLLECTION: Final = 200
"""Handshakes that are dropped between two further collections, for the same reason."""
HEARTBEAT: Final = 1.0
"""Seconds between two signs of life to gunicorn's arbiter, as in gunicorn's own worker."""


class AdmissionWorker(ASGIWorker):  # type: ignore[misc]
    """A worker process of gunicorn.

    ``self.app.worker`` is what it serves with, or None until that is loaded.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.without_request: dict[Connection, None] = {}
        """The connections that never sent a request, oldest first."""
        self.handshakes = Handshakes(self.count_dropped)

    async def _serve(self) -> None:
        """Listen until the worker stops. gunicorn's own method has no option for the protocol and
        its timeouts.
        """
        limit_tls_buffers()
        self.cfg.set("graceful_timeout", DRAIN_SECONDS)  # the arbiter waits longer than its workers
        context = self._get_ssl_context()
        for listener in self.sockets:
            server = await self.loop.create_server(
                self._accept,
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
        """Stop after SIGTERM: not ready at once, listen until the endpoint is removed,
        then finish open requests.
        """
        worker = self.app.worker
        if worker is None:
            super().handle_exit_signal()
            return
        worker.draining = True
        self.loop.call_later(worker.settings.stop_delay, super().handle_exit_signal)

    def _accept(self) -> Connection:
        self.handshakes.begin()
        return Connection(self)

    def count_dropped(self) -> None:
        """Count a connection that was closed at the limit."""
        self.app.worker.metrics.connections_dropped.inc()

    def _collect_garbage(self) -> None:
        gc.collect()
        self.loop.call_later(GC_INTERVAL, self._collect_garbage)


class Handshakes:
    """The TLS handshakes in progress.

    At the limit, the oldest makes room: only peers that are slow on purpose take long.
    """

    def __init__(self, on_dropped: Callable[[], None]) -> None:
        self._on_dropped = on_dropped
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._dropped = 0

    def begin(self) -> None:
        """Count the handshake of a new connection, in whose task asyncio asks for its protocol,
        until the task ends.
        """
        task = asyncio.current_task()
        if task is None:
            return
        self._tasks[task] = None
        task.add_done_callback(lambda ended: self._tasks.pop(ended, None))
        if len(self._tasks) > MAX_HANDSHAKES:
            self._drop(next(iter(self._tasks)))

    def _drop(self, task: asyncio.Task[Any]) -> None:
        del self._tasks[task]
        task.cancel()
        self._on_dropped()
        self._dropped += 1
        if self._dropped % DROPPED_PER_COLLECTION == 0:
            gc.collect()


class Connection(ASGIProtocol):  # type: ignore[misc]
    """A connection that closes if its first request takes longer than a further one may.

    At the limit, the oldest connection that never sent a request makes room; without one, the new
    connection closes.
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
        """Forget the connection and release its TLS buffers,
        which the cycles of gunicorn's objects would keep.
        """
        self.worker.without_request.pop(self, None)
        super().connection_lost(exc)
        self.transport = self.writer = self._flow_control = None

    def _on_headers_complete(self) -> Any:
        self.worker.without_request.pop(self, None)
        return super()._on_headers_complete()


def limit_tls_buffers() -> None:
    """Reduce the read buffer of every later TLS connection of this process.
    asyncio has no option for it.
    """
    SSLProtocol.max_size = TLS_BUFFER
