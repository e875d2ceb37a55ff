"""The ops listener: plain HTTP for probes and scrapes, in its own thread next to the event loop."""

from __future__ import annotations

import socket
import threading
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from virt_admit.settings import SettingError, address


class _OpsServer(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    allow_reuse_address = True
    allow_reuse_port = True  # several workers share the port; a scrape sees one of them

    def __init__(self, address: tuple[str, int], handler: type[WSGIRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Bind without looking up the host name, which takes seconds without DNS."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()


class _Quiet(WSGIRequestHandler):
    timeout = 10  # seconds; a silent client must not block a thread

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
