"""Constant load: what is sent again and again, how often, and what failed."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

Connect = Callable[[], http.client.HTTPSConnection]


class Sender(Protocol):
    """Something that can be sent over and over."""

    def send(self) -> None:
        """One request; raises if it fails."""

    def close(self) -> None:
        """The end."""


class Load:
    """Threads, one for each sender, that send again and again while the block lasts."""

    def __init__(self, *senders: Sender) -> None:
        self.failures: list[str] = []
        self._counts = [0] * len(senders)
        self._ending = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=each, daemon=True)
            for each in enumerate(senders)
        ]

    @property
    def requests(self) -> int:
        """How many have been sent."""
        return sum(self._counts)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(60)

    def more(self, requests: int, patience: float = 60.0) -> None:
        """Wait until so many more have been sent."""
        goal, deadline = self.requests + requests, time.monotonic() + patience
        while self.requests < goal:
            assert time.monotonic() < deadline, (
                f"{self.requests} of {goal} requests; failed: {self.failures[:5]}"
            )
            time.sleep(0.01)

    def _run(self, number: int, sender: Sender) -> None:
        while not self._ending.is_set():
            try:
                sender.send()
            except Exception as error:
                self.failures.append(f"{time.strftime('%H:%M:%S')} {error!r}")
            self._counts[number] += 1
        sender.close()


class Poster:
    """Posts the same body over and over, over one connection or over a new one each time.

    A connection whose server says that it closes is opened again, as every client does. ``pause``
    is in seconds: without one, a client takes a whole processor from what it waits for.
    """

    def __init__(
        self,
        connect: Connect,
        path: str,
        body: bytes,
        status: int = 200,
        *,
        keep: bool,
        pause: float = 0.01,
        **headers: str,
    ) -> None:
        self._connect, self._path, self._body, self._status = connect, path, body, status
        self._keep, self._pause = keep, pause
        self._headers = {"Content-Type": "application/json", **headers}
        self._connection: http.client.HTTPSConnection | None = None

    def send(self) -> None:
        connection = self._connection = self._connection or self._connect()
        keep = False
        try:
            connection.request("POST", self._path, self._body, self._headers)
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status == self._status, f"{answer.status} {text[:300]!r}"
            keep = self._keep and not answer.will_close
        finally:
            if not keep:
                self.close()
        time.sleep(self._pause)

    def close(self) -> None:
        if self._connection:
            self._connection.close()
        self._connection = None
