"""The gunicorn application: one ``Worker`` in each process."""

from __future__ import annotations

import contextlib
import os
import ssl
import sys
from collections.abc import Iterator
from typing import Any, Final

from gunicorn.app.base import BaseApplication
from gunicorn.glogging import Logger

from virt_admit.serving.gunicorn_worker import DRAIN_SECONDS, AdmissionWorker
from virt_admit.serving.settings import Settings, address
from virt_admit.serving.worker import Worker
from virt_admit_certs.errors import error_text
from virt_admit_certs.kube_api import ApiError

KEEPALIVE: Final = 120
"""Seconds. Must exceed the 90 s after which the API server closes idle connections, Go's default
(kubernetes/apimachinery: pkg/util/net/http.go#SetOldTransportDefaults): it does not retry a POST
whose connection was closed under it.
"""

MAX_HEADERS: Final = 24
MAX_HEADER: Final = 4096
"""Bytes of one header. Together at most 96 KiB a connection; the API server sends eight headers,
the longest a token. int() raises for a Content-Length of more than 4300 digits, which gunicorn does
not expect.
"""


# shared memory, as gunicorn advises
def heartbeat_folder(memory: str = "/dev/shm") -> str | None:  # noqa: S108
    """Return the folder for gunicorn's heartbeat files: in memory if possible,
    else (None) that of temporary files.
    """
    return memory if os.path.isdir(memory) and os.access(memory, os.W_OK) else None


class _Application(BaseApplication):  # type: ignore[misc]
    """gunicorn, configured only by :class:`Settings`: not by files,
    the environment or the command line.
    """

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
            "worker_class": AdmissionWorker,
            "workers": settings.workers,
            "asgi_loop": "asyncio",
            "asgi_lifespan": "off",
            "http_protocols": "h1",
            "keepalive": KEEPALIVE,
            "graceful_timeout": int(settings.stop_delay) + DRAIN_SECONDS + 5,
            "max_requests": 0,
            # a request whose client is gone has nothing to finish
            "asgi_disconnect_grace_period": 0,
            "limit_request_fields": MAX_HEADERS,
            "limit_request_field_size": MAX_HEADER,
            "preload_app": False,
            "control_socket_disable": True,
            "worker_tmp_dir": heartbeat_folder(),
            "certfile": os.devnull,  # only enables TLS; ssl_context provides the context
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

    def _started(self, _process: Any) -> None:
        assert self.worker is not None  # noqa: S101 - gunicorn loads the app first
        with _exit_on_config_error():
            self.worker.start()

    def _exited(self, _arbiter: Any, _process: Any) -> None:
        if self.worker is not None:
            self.worker.rotator.stop()


_LOAD_ERROR: Final = 4
"""The exit code after which gunicorn stops instead of retrying forever
(gunicorn.arbiter.Arbiter.APP_LOAD_ERROR).
"""


@contextlib.contextmanager
def _exit_on_config_error() -> Iterator[None]:
    """Print an error of the configuration in one line, and stop all workers."""
    try:
        yield
    except (ValueError, OSError, ApiError) as error:
        print(f"virt-admit: {error_text(error)}", file=sys.stderr)
        raise SystemExit(_LOAD_ERROR) from None


class _Log(Logger):  # type: ignore[misc]
    """Sends gunicorn's messages to the root logger. There is no access log."""

    # setup() of gunicorn would look this up once; without it, each request does
    access_log_enabled = False

    def setup(self, cfg: Any) -> None:
        self.cfg = cfg
        self.error_log.propagate = True


def serve(settings: Settings) -> int:
    """Serve until a signal, and return the exit code: 0 after a signal,
    2 if the server cannot start.
    """
    parent = os.getpid()
    try:
        _Application(settings).run()
    except SystemExit as stopped:
        if os.getpid() != parent:
            raise  # the exit code of a worker tells gunicorn the reason
        return 2 if stopped.code else 0
    return 0
