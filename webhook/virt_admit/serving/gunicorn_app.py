"""gunicorn and its TLS: one ``Worker`` in each process."""

from __future__ import annotations

import asyncio
import asyncio.constants
import contextlib
import gc
import os
import signal
import ssl
import sys
from asyncio.sslproto import SSLProtocol
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from gunicorn.app.base import BaseApplication
from gunicorn.asgi.protocol import ASGIProtocol
from gunicorn.glogging import Logger
from gunicorn.workers import gasgi

from virt_admit.serving.worker import Worker
from virt_admit.settings import Settings, address
from virt_admit_certs.kube_api import ApiError

KEEPALIVE: Final = 120
"""Seconds. Must exceed the 90 s after which the API server closes idle connections, Go's default (kubernetes/apimachinery:
pkg/util/net/http.go#SetOldTransportDefaults): it does not retry a POST whose connection was closed under it."""
MAX_CONNECTIONS: Final = 2000
"""Open connections per worker, of 60 KiB each; further ones are closed. An API server keeps 25 idle ones."""
DRAIN_SECONDS: Final = 5
"""Seconds that answers under way get after listening has ended."""
HANDSHAKE_TIMEOUT: Final = 10.0
"""Seconds for a TLS handshake: as long as the API server gives it, and not a minute as asyncio."""
TLS_BUFFER: Final = 32 * 1024
"""Bytes that each TLS connection holds for reading; asyncio's default of 256 KiB is most of what a connection costs.
A TLS record has at most 16 KiB."""
GC_INTERVAL: Final = 10
"""Seconds between two collections. A closed TLS connection is a reference cycle of few objects and much memory, so
counting objects, as Python does, finds it late. What is frozen is not looked at, so a collection takes a millisecond."""


class _Application(BaseApplication):  # type: ignore[misc]
    """gunicorn with everything set from our settings, nothing from files or the command line."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.worker: Worker | None = None
        super().__init__()

    def load_config(self) -> None:
        settings = self.settings
        host, port = address(settings.bind)
        config = {
            "bind": f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
            "proc_name": "virt-admit",
            "worker_class": "asgi",
            "workers": settings.workers,
            "asgi_loop": "asyncio",
            "asgi_lifespan": "off",
            "http_protocols": "h1",
            "keepalive": KEEPALIVE,
            "graceful_timeout": int(settings.stop_delay) + DRAIN_SECONDS + 5,
            "max_requests": 0,
            "preload_app": False,
            "control_socket_disable": True,
            "worker_tmp_dir": "/dev/shm" if Path("/dev/shm").is_dir() else None,  # noqa: S108 - a heartbeat file
            "certfile": os.devnull,  # only switches TLS on; the hook below gives the context
            "ssl_context": self._tls,
            "post_worker_init": self._started,
            "worker_exit": self._exited,
            "logger_class": _Log,
        }
        for name, value in config.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        with _exit_on_config_error():
            self.worker = Worker(self.settings)
        return self.worker.app()

    def _tls(self, _config: Any, _default: Any) -> ssl.SSLContext:
        assert self.worker is not None  # noqa: S101 - gunicorn loads the app first
        return self.worker.tls.context

    def _started(self, process: Any) -> None:
        worker = self.worker
        assert worker is not None  # noqa: S101 - gunicorn loads the app first
        process.cfg.set("graceful_timeout", DRAIN_SECONDS)

        def stop() -> None:
            """Not ready at once; listen on until the endpoint is gone; then finish what is running."""
            worker.draining = True
            process.loop.call_later(self.settings.stop_delay, process.handle_exit_signal)

        def collect() -> None:
            gc.collect()
            process.loop.call_later(GC_INTERVAL, collect)

        process.loop.add_signal_handler(signal.SIGTERM, stop)
        process.loop.call_later(GC_INTERVAL, collect)
        SSLProtocol.max_size = TLS_BUFFER
        asyncio.constants.SSL_HANDSHAKE_TIMEOUT = HANDSHAKE_TIMEOUT
        gasgi.ASGIProtocol = _Connection  # the worker has no setting for it
        with _exit_on_config_error():
            worker.start()

    def _exited(self, _arbiter: Any, _process: Any) -> None:
        if self.worker is not None:
            self.worker.rotator.stop()


_LOAD_ERROR: Final = 4
"""gunicorn stops instead of trying again for ever (gunicorn.arbiter.Arbiter.APP_LOAD_ERROR)."""


@contextlib.contextmanager
def _exit_on_config_error() -> Iterator[None]:
    """What keeps a worker from serving is said in one line, and ends the others too."""
    try:
        yield
    except (ValueError, OSError, ApiError) as error:
        print(f"virt-admit: {error}", file=sys.stderr)
        raise SystemExit(_LOAD_ERROR) from None


class _Connection(ASGIProtocol):  # type: ignore[misc]
    """gunicorn's connection, with two limits that its asgi worker lacks: how many there are, and how long a peer may
    take for its first request (as long as for each further one)."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._arm_keepalive_timer()
        if self.worker.nr_conns > MAX_CONNECTIONS:
            transport.abort()


class _Log(Logger):  # type: ignore[misc]
    """gunicorn's messages go where ours go."""

    def setup(self, cfg: Any) -> None:
        self.cfg = cfg
        self.error_log.propagate = True


def serve(settings: Settings) -> int:
    """Serve until a signal; the exit code: 0 after a signal, 2 if serving could not begin."""
    parent = os.getpid()
    try:
        _Application(settings).run()
    except SystemExit as stopped:
        if os.getpid() != parent:
            raise  # a worker leaves by the code that tells gunicorn why
        return 2 if stopped.code else 0
    return 0
