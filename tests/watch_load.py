"""``make verify-watch-load``: what ``virt-admit watch`` costs in a large cluster,
and how soon a change shows.

``python -m tests.watch_load 10000 250 30`` serves so many VMs on so many nodes, one of which is
drained, with the fake API server of the tests, and changes them for so many minutes. It fails if a
changed VM takes longer than a second, or 50 ms of CPU more than three seconds without a change in
turn with it; if a changed node takes longer than two seconds, a cluster without changes more than 1
% of a core, or if memory grows by a tenth during the second half. Other workloads on the machine
count: the command and the server share its processors.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.apiserver.webhook import VIRT_ADMIT
from tests.fake_api import FakeApi, path_of
from tests.follow_load import churn, objects, padded, put
from tests.forecasts.drain.vm_motion import NOW, launcher, node, vm
from tests.watching import Watching
from virt_admit.install.manifests import FORECAST_READS
from virt_admit.kube.stores import stores
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.kinds import POD, VM
from virt_admit.model.kubernetes.objects import Object
from virt_admit.rules import load_rules

VM_SECONDS: Final = 1.0
VM_CPU: Final = 0.05
NODE_SECONDS: Final = 2.0
IDLE: Final = 0.01
GROWTH: Final = 1.1
_FOUND: Final = (
    'virt_admit_scan_findings{action="deny",namespace="shop",rule="vm-running-and-run-strategy"}'
)
_ROUNDS: Final = 20
_PATIENCE: Final = 600.0
_SETTLED: Final = 20.0
"""Seconds in which the process used next to nothing: the estimates that come last are made."""


def serve(api: FakeApi, vms: int, nodes: int) -> None:
    """Fill an API server: a launcher pod for each VM, and three other pods for each two VMs."""
    api.time = clock.instant(NOW)
    for store in stores(load_rules().in_scan, FORECAST_READS):
        api.install(store.kind)
    for obj in (*objects(vms, nodes), *_others(vms // 2, nodes)):
        put(api, obj)
    for history in api.history.values():
        history.clear()  # no watch begins before


def _others(number: int, nodes: int) -> Iterator[Object]:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "controller": True}
    for each in range(number):
        pod = launcher(f"log-{each:05}", f"node-{each % nodes:03}")
        pod.data["metadata"] |= {"labels": {"app": "log"}, "ownerReferences": [owner]}
        yield pod


def cpu(watch: Watching) -> float:
    """Return the seconds of CPU that the process has used, without asking it, which costs some."""
    return time.clock_gettime((~watch.pid << 3) | 2)  # Linux: the CPU clock of another process


def resident(watch: Watching) -> int:
    """Return MiB that the process uses now."""
    lines = Path(f"/proc/{watch.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) >> 10


def settle(watch: Watching) -> None:
    """Wait until nothing is left to be judged."""
    since = time.monotonic()
    while time.monotonic() - since < _PATIENCE:
        before = cpu(watch)
        time.sleep(_SETTLED)
        if cpu(watch) - before < _SETTLED * IDLE:
            return
    raise SystemExit(f"the process was not idle within {_PATIENCE:.0f} s")


def spoil(api: FakeApi, number: int) -> None:
    """Give a VM both keys."""
    obj = padded(vm(f"vm-{number:05}"))
    api.put(VM, {**obj, "spec": {**obj["spec"], "running": True}})


def spent(watch: Watching) -> float:
    """Return the seconds of CPU of the next three seconds."""
    before = cpu(watch)
    time.sleep(3)
    return cpu(watch) - before


def vm_changes(api: FakeApi, watch: Watching) -> Iterator[tuple[float, float, float]]:
    """Yield the seconds until a changed VM shows,
    and the seconds of CPU without a change and after another one.

    Nothing asks for figures meanwhile. What the cluster costs anyway, such as the clock of its
    drain, is in both.
    """
    for number in range(0, 2 * _ROUNDS, 2):
        spoil(api, number)
        took = watch.wait_for(_FOUND, number + 1)
        time.sleep(3)
        without = spent(watch)
        spoil(api, number + 1)
        yield took, without, spent(watch)


def node_changes(api: FakeApi, watch: Watching, nodes: int) -> Iterator[float]:
    """Yield the seconds until a node that stops to report shows, and until it reports again."""
    name = f"node-{nodes - 1:03}"
    sample = f'virt_admit_node_drainable{{node="{name}"}}'
    drainable = watch.sample(sample)
    silent = node(name)
    conditions = silent.data["status"].get("conditions", [])
    silent.data["status"]["conditions"] = [
        *(each for each in conditions if each["type"] != "Ready"),
        {"type": "Ready", "status": "Unknown", "lastTransitionTime": NOW},
    ]
    for _ in range(_ROUNDS // 4):
        put(api, silent)
        began = time.monotonic()
        while watch.sample(sample) == drainable:
            if time.monotonic() - began > _PATIENCE:
                raise SystemExit("a changed node does not show")
            time.sleep(0.02)
        yield time.monotonic() - began
        put(api, node(name))
        yield watch.wait_for(sample, drainable)


def measure(vms: int, nodes: int, minutes: int) -> int:
    """Print the figures. Returns the exit code."""
    with FakeApi() as api, tempfile.TemporaryDirectory() as folder:
        serve(api, vms, nodes)
        pods = len(api.objects[path_of(POD)])
        began = time.monotonic()
        process = Watching(api.kubeconfig(Path(folder)), program=VIRT_ADMIT)
        # whose figures are its own
        process.command = (sys.executable, "-m", "virt_admit", *process.command[1:])
        with process as watch:
            while not watch.is_ready():
                time.sleep(0.2)
            print(
                f"{vms} VMs, {nodes} nodes, {pods} pods: ready after "
                f"{time.monotonic() - began:.1f} s",
                flush=True,
            )
            settle(watch)
            before, since = cpu(watch), time.monotonic()
            time.sleep(60)
            idle = (cpu(watch) - before) / (time.monotonic() - since)
            print(f"idle: {idle:.2%} of a core, {resident(watch)} MiB", flush=True)
            shown, without, used = zip(*vm_changes(api, watch), strict=True)
            more = statistics.median(used) - statistics.median(without)
            print(
                f"a changed VM: {statistics.median(shown):.2f} s, {max(shown):.2f} s at most; "
                f"{more * 1000:.0f} ms of CPU: {_milliseconds(used)} in three seconds, "
                f"{_milliseconds(without)} without a change",
                flush=True,
            )
            took = list(node_changes(api, watch, nodes))
            print(
                f"a changed node: {statistics.median(took):.2f} s, {max(took):.2f} s at most",
                flush=True,
            )
            sizes = churned(api, watch, vms, nodes, minutes)
    flat = not sizes or max(sizes[len(sizes) // 2 :]) <= GROWTH * sizes[len(sizes) // 2]
    kept = (max(shown) <= VM_SECONDS, more <= VM_CPU, max(took) <= NODE_SECONDS, idle <= IDLE, flat)
    return int(not all(kept))


def _milliseconds(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds) * 1000:.0f} ms ({max(seconds) * 1000:.0f} at most)"


def churned(api: FakeApi, watch: Watching, vms: int, nodes: int, minutes: int) -> list[int]:
    """Print and return the MiB after each minute of ten changes a second."""
    ended = threading.Event()
    threading.Thread(target=churn, args=(api, vms, nodes, ended), daemon=True).start()
    sizes = []
    for minute in range(minutes):
        before = cpu(watch)
        time.sleep(60)
        sizes.append(resident(watch))
        print(
            f"minute {minute + 1} of churn: {sizes[-1]} MiB, {(cpu(watch) - before) / 60:.0%} of a "
            "core",
            flush=True,
        )
    ended.set()
    return sizes


if __name__ == "__main__":
    sys.exit(measure(*(int(each) for each in sys.argv[1:])))
