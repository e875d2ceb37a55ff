"""The ops listener: plain HTTP for probes and scrapes, in its own thread next to the event loop."""

from __future__ import annotations

import contextlib
import logging
import socket
import sys
import threading
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from virt_admit.serving.settings import address
from virt_admit.settings import SettingError

log = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 64
"""Open connections, each with a thread. A further one closes the oldest,
so that silent clients cannot stop probes.
"""
TIMEOUT: Final = 10
"""Seconds that a client may be silent."""


class _OpsServer(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    allow_reuse_address = True
    allow_reuse_port = True  # several workers share the port; a scrape sees one of them

    def __init__(self, address: tuple[str, int], handler: type[WSGIRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._open: dict[socket.socket, None] = {}
        self._lock = threading.Lock()
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Bind without looking up the host name, which takes seconds without DNS."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = (
            str(self.server_address[0]),
            int(self.server_address[1]),
        )
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in its own thread. If there are too many, close the oldest."""
        with self._lock:
            if len(self._open) >= MAX_CONNECTIONS:
                oldest = next(iter(self._open))
                del self._open[oldest]
                with contextlib.suppress(OSError):
                    # its thread reads the end of the connection and closes it
                    oldest.shutdown(socket.SHUT_RDWR)
            self._open[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection that is answered."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    # the library's method
    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Log errors. Clients that are silent, or disconnect, are not errors."""
        if not isinstance(sys.exception(), OSError):
            log.exception("request of the ops listener failed")


class _Quiet(WSGIRequestHandler):
    timeout = TIMEOUT
    # an answer is sent in one piece: a process that ends meanwhile sends all of it or nothing
    wbufsize = -1

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log probes."""


def serve_ops(bind: str, app: Any) -> None:
    """Serve a WSGI app at an address until the process ends.

    Raises:
        SettingError: the address cannot be used.
    """
    host, port = address(bind)
    try:
        server = make_server(host, port, app, _OpsServer, _Quiet)
    except OSError as error:
        raise SettingError(f"--ops-bind {bind}: {error.strerror}") from None
    threading.Thread(target=server.serve_forever, name="ops", daemon=True).start()
