"""``make soak MINUTES=15``: the webhook under valid and hostile traffic, rotations, and an API
server that restarts.

It fails on a lost call, and when memory, file descriptors or threads of the webhook grow.
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from tests.apiserver.control_plane import ControlPlane
from tests.apiserver.crds import install_crds
from tests.apiserver.webhook import Webhook
from tests.fuzz.wire import send_damaged
from tests.https.clients import FINE, QUICK, ROTATIONS, Client, metric
from tests.https.reviews import review, vm
from tests.load import Load, Poster
from virt_admit_certs.commands import request_rotation
from virt_admit_certs.stores.directory import Directory

ROTATE_EVERY: Final = 4.0
RESTART_EVERY: Final = 60.0
SAMPLE_EVERY: Final = 2.0
PAUSE = 0.005
"""Seconds between two reviews on a connection that is kept."""
SILENT: Final = 40
"""Connections that are open and say nothing; each fourth has sent half a body."""
MEMORY_SLACK: Final = 12.0
"""MiB that the median of the last quarter may lie above the one of the second:
garbage collection takes turns.
"""
ENVIRONMENT: Final = QUICK | {
    f"VIRT_ADMIT_CERTS_{key}": value
    for key, value in {
        "PROPAGATION": "300ms",
        "SERVING_DURATION": "60s",
        "SERVING_RENEW_BEFORE": "30s",
        "SIGNER_DURATION": "120s",
        "SIGNER_RENEW_BEFORE": "60s",
    }.items()
}


@dataclass(frozen=True, slots=True)
class Sample:
    """What the processes of the webhook hold together."""

    memory: float
    """Resident, in MiB."""
    descriptors: int
    threads: int


def sample(webhook: Webhook) -> Sample:
    processes = [Path("/proc", str(webhook.pid)), *webhook.workers]
    states = [
        dict(line.split(":\t", 1) for line in Path(p, "status").read_text().splitlines())
        for p in processes
    ]
    return Sample(
        sum(int(state["VmRSS"].split()[0]) for state in states) / 1024,
        sum(len(list(Path(process, "fd").iterdir())) for process in processes),
        sum(int(state["Threads"]) for state in states),
    )


def growth(samples: Sequence[Sample]) -> list[str]:
    """Return what grew from the second quarter of the samples to the last one."""
    quarter = len(samples) // 4
    if not quarter:
        return [
            (
                f"{len(samples)} samples are too few to see growth: run for {4 * SAMPLE_EVERY:.0f} "
                "seconds at least"
            )
        ]
    early, late = samples[quarter : 2 * quarter], samples[-quarter:]
    found = []
    for name, slack in (("memory", MEMORY_SLACK), ("descriptors", 25), ("threads", 3)):
        before, after = (median(getattr(each, name) for each in part) for part in (early, late))
        if after > before + slack:
            found.append(f"{name} grew from {before:.0f} to {after:.0f}")
    return found


# --- traffic --------------------------------------------------------------------------------------


class Hostile:
    """Sends damaged bytes, as the fuzzer does."""

    def __init__(self, webhook: Webhook, seed: int) -> None:
        self._webhook, self._chance = webhook, random.Random(seed)

    def send(self) -> None:
        with contextlib.suppress(OSError):
            send_damaged(self._webhook, self._chance)
        time.sleep(0.05)

    def close(self) -> None:
        pass


@contextlib.contextmanager
def silent_peers(webhook: Webhook) -> Iterator[None]:
    """Keep connections open that say nothing, or that never end what they began."""
    head = (
        b"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: 100000\r\n\r\n"
    )
    trusting = webhook.tls()
    with contextlib.ExitStack() as stack:
        for number in range(SILENT):
            plain = stack.enter_context(
                socket.create_connection(("127.0.0.1", webhook.port), timeout=10)
            )
            if number % 2:
                peer = stack.enter_context(trusting.wrap_socket(plain, server_hostname="localhost"))
                if number % 4 == 1:
                    peer.sendall(head + b"{" * 50_000)
        yield


@contextlib.contextmanager
def repeated(
    what: str, action: Callable[[], object], seconds: float, failures: list[str]
) -> Iterator[None]:
    """Do something every so many seconds, in a thread, while the block lasts.

    It is a failure if it never worked.
    """
    ending, worked = threading.Event(), threading.Event()

    def run() -> None:
        while not ending.wait(seconds):
            try:
                action()
                worked.set()
            except Exception as error:
                failures.append(f"{what}: {error!r}")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join(120)
        if thread.is_alive() or not worked.is_set():
            failures.append(f"{what}: {'did not end' if thread.is_alive() else 'never worked'}")


def soak(
    webhook: Webhook, plane: ControlPlane, seconds: float, say: Callable[[str], object] = print
) -> list[str]:
    """Return everything that went wrong in so many seconds."""
    failures: list[str] = []
    samples: list[Sample] = []
    store, client = Directory(webhook.folder / "certs"), Client(webhook.ca, webhook.port)
    large = json.dumps(
        review(vm(template={"volumes": [{"name": f"v{n}"} for n in range(2_000)]}))
    ).encode()
    senders = [
        Poster(client, "/validate", FINE, keep=True, pause=PAUSE),
        Poster(client, "/mutate", FINE, keep=True, pause=PAUSE),
        Poster(client, "/validate", FINE, keep=False, pause=0.05),
        Poster(client, "/validate", large, keep=True, pause=0.2),
    ]
    end = time.monotonic() + seconds
    with contextlib.ExitStack() as stack:
        load = stack.enter_context(Load(*senders))
        hostile = stack.enter_context(Load(Hostile(webhook, 1), Hostile(webhook, 2)))
        stack.enter_context(
            repeated("rotation", lambda: request_rotation(store, "serving"), ROTATE_EVERY, failures)
        )
        stack.enter_context(repeated("restart", plane.restart_apiserver, RESTART_EVERY, failures))
        while time.monotonic() < end:
            with silent_peers(webhook):
                until = min(end, time.monotonic() + 30)
                while time.monotonic() < until:
                    samples.append(sample(webhook))
                    time.sleep(SAMPLE_EVERY)
            last = samples[-1]
            held = f"{last.memory:.0f} MiB, {last.descriptors} descriptors, {last.threads} threads"
            say(
                f"{load.requests} reviews, {len(load.failures)} lost, "
                f"{metric(webhook, ROTATIONS):.0f} rotations, {held}"
            )
    failures += load.failures + hostile.failures
    if min(load.requests, hostile.requests) < seconds / 10:
        failures.append(
            f"only {load.requests} reviews and {hostile.requests} damaged ones were sent"
        )
    if "Traceback" in webhook.log.read_text():
        failures.append(f"a traceback in {webhook.log}")
    if not metric(webhook, ROTATIONS):
        failures.append("no certificate was rotated")
    return failures + growth(samples)


def main(minutes: float) -> int:
    with tempfile.TemporaryDirectory(prefix="virt-admit-soak-") as folder, ControlPlane() as plane:
        install_crds(plane)
        flags = ("--live", "--kubeconfig", plane.kubeconfig)
        with Webhook(Path(folder), *flags, environment=ENVIRONMENT) as webhook:
            failures = soak(webhook, plane, 60 * minutes)
            print("\n".join(failures[:30]) or "nothing was lost, nothing grew")
            return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
