"""Instances come and go, and no call fails."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Self

import pytest

from tests.apiserver.control_plane import free_port
from tests.apiserver.webhook import Webhook
from tests.https.clients import FINE, Client
from tests.load import Load, Poster
from tests.prefork import virt_admit
from tests.waiting import eventually


@pytest.mark.slow
def test_after_sigterm_it_serves_until_the_stop_delay_ends(tmp_path):
    """Not ready at once, so that no more calls come; and who has not noticed yet is answered."""
    with Webhook(tmp_path, "--stop-delay", "10") as webhook:
        client = Client(webhook.ca, webhook.port)
        with Load(
            *(Poster(client, "/validate", FINE, keep=keep) for keep in (False, True))
        ) as load:
            load.more(50)
            asked = time.monotonic()
            webhook.terminate()
            eventually(lambda: webhook.ops("/readyz")[0] != 200)
            assert "[-] serving: stopping" in webhook.ops("/readyz")[1]
            load.more(100)

        assert load.failures == []
        assert webhook.running
        assert webhook.wait() == 0
        assert time.monotonic() - asked >= 10


class Balancer:
    """TCP in front of several instances: a new connection goes to the next one that is ready,
    and stays there.
    """

    def __init__(self, *instances: Webhook) -> None:
        self.instances = instances
        self.port = free_port()
        self.ready: frozenset[int] = frozenset()
        """Replaced, never changed, because several threads read it."""
        self.connections = [0] * len(instances)
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=128)
        self._ending = threading.Event()
        self._threads = [
            threading.Thread(target=run, daemon=True) for run in (self._probe, self._accept)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        eventually(lambda: len(self.ready) == len(self.instances))
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)

    def _probe(self) -> None:
        while not self._ending.wait(0.2):
            for number, instance in enumerate(self.instances):
                self.ready = (
                    self.ready | {number}
                    if instance.ops("/readyz")[0] == 200
                    else self.ready - {number}
                )

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed: the end
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._relay, args=(client,), daemon=True).start()

    def _relay(self, client: socket.socket) -> None:
        """Relay until one side ends.

        If the instance refuses, the client loses its connection, and its call.
        """
        with client, contextlib.suppress(OSError):
            number = min(eventually(lambda: self.ready), key=lambda each: self.connections[each])
            self.connections[number] += 1
            with socket.create_connection(("127.0.0.1", self.instances[number].port)) as server:
                answers = threading.Thread(target=_pump, args=(server, client), daemon=True)
                answers.start()
                _pump(client, server)
                answers.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@pytest.mark.slow
def test_a_rolling_restart_loses_no_request(tmp_path):
    shared = tmp_path / "certs"
    with contextlib.ExitStack() as stack:
        instances = []
        for number in "12":
            (tmp_path / number).mkdir()
            flags = ("--certs", shared, "--stop-delay", "5")
            instances.append(
                stack.enter_context(Webhook(tmp_path / number, *flags, program=virt_admit()))
            )
        balancer = stack.enter_context(Balancer(*instances))
        client = Client(shared / "ca.crt", balancer.port)
        senders = [
            Poster(client, "/validate", FINE, keep=keep, pause=0.05) for keep in (False, True, True)
        ]
        with Load(*senders) as load:
            for number, instance in [*enumerate(instances)] * 2:
                load.more(100)
                instance.terminate()
                eventually(lambda number=number: number not in balancer.ready)
                assert instance.wait() == 0
                instance.start()
                eventually(lambda number=number: number in balancer.ready)
            load.more(max(200, 1_000 - load.requests))
            eventually(lambda: min(balancer.connections) >= 50)

    print(
        f"{load.requests} requests, {len(load.failures)} failed; {balancer.connections} connections"
    )
    assert load.failures == []
