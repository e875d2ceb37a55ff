"""A TLS server of a few lines, which drives its connections as asyncio does but in threads,
and sends its alerts.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable

from virt_admit_certs.tls import TlsContextProvider


class Server:
    """Answers each connection with one byte, in one thread; counts nothing and keeps nothing."""

    def __init__(self, front: TlsContextProvider) -> None:
        self._front = front
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # the socket is closed: the end
            while True:
                connection, _ = self._socket.accept()
                with contextlib.suppress(OSError), connection:
                    connection.settimeout(5)
                    self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = self._front.context.wrap_bio(incoming, outgoing, server_side=True)

        def go_on(step: Callable[[], object]) -> None:
            while True:
                try:
                    step()
                except ssl.SSLWantReadError:
                    connection.sendall(outgoing.read())
                    if not incoming.write(connection.recv(65536)):
                        incoming.write_eof()
                else:
                    return
                finally:
                    connection.sendall(outgoing.read())

        go_on(tls.do_handshake)
        go_on(lambda: tls.write(b"!"))

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(5)
