"""Response bodies that are bounded in bytes and time, whatever the server sends."""

from __future__ import annotations

import contextlib
import threading
from typing import Final

import urllib3

LARGEST_BODY: Final = 256 << 20
"""Bytes of one response after decompression. A page of 500 pods has about 10 MB."""

BODY_TIMEOUT: Final = 300.0
"""Seconds for the whole body of one response, however often a piece of it arrives."""

_PIECE: Final = 1 << 16
"""Bytes that are read and decompressed at once."""


class LimitExceeded(Exception):
    """A body is larger, or takes longer, than permitted."""


def bounded_body(response: urllib3.BaseHTTPResponse, most: int, seconds: float) -> bytes:
    """Return the whole body of a response and free its connection. Errors of urllib3 pass.

    Raises:
        LimitExceeded: the body has more than ``most`` bytes after decompression, or takes longer
            than ``seconds``.
    """
    late = threading.Event()
    # a read time-out starts again with each byte, so only a second thread can end a body that
    # arrives byte by byte
    timer = threading.Timer(seconds, _interrupt, (response, late))
    timer.daemon = True
    timer.start()
    body = bytearray()
    try:
        for piece in response.stream(_PIECE):
            body += piece
            if len(body) > most:
                raise LimitExceeded(f"sends a response of more than {most} bytes")
    except Exception:
        response.close()  # the rest of the body must not become the next response
        if not late.is_set():
            raise
    finally:
        timer.cancel()
        response.release_conn()
    if late.is_set():  # a body without a length looks complete where it was interrupted
        raise LimitExceeded(f"does not complete a response within {seconds:g} s")
    return bytes(body)


def _interrupt(response: urllib3.BaseHTTPResponse, late: threading.Event) -> None:
    late.set()
    with contextlib.suppress(OSError, RuntimeError, ValueError):  # the response has just ended
        response.shutdown()
