"""``make verify-follow``: what ``drain NODE --follow`` costs in a large cluster,
and how soon a change shows.

``python -m tests.follow_load 10000 250`` serves so many VMs on so many nodes, of which the first is
drained, with the fake API server of the tests. It fails above 300 MiB, or if a change takes longer
than a second. Other workloads on the machine count: the command and the server share its
processors.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests import builders
from tests.apiserver.webhook import VIRT_ADMIT
from tests.cli.following_process import Following
from tests.fake_api import FakeApi, path_of
from tests.forecasts.drain.vm_motion import NOW, ago, launcher, migration, node, vm, vmi
from virt_admit.model.kubernetes import clock, kinds
from virt_admit.model.kubernetes.kinds import POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.reports.drain.follow import READS

MOST_MIB: Final = 300
MOST_SECONDS: Final = 1.0
_NODE: Final = "node-000"
_ROUNDS: Final = 20
"""VMs that leave, at most: two VMs stay."""
_PATIENCE: Final = 120
_PER_SECOND: Final = 10
"""Changes of other VMs while the changes of the node are measured."""
_PADDING: Final = [
    {
        "manager": "virt-controller",
        "operation": "Update",
        "fieldsV1": {f"f:field{number}": {} for number in range(150)},
    }
]
"""The managed fields of an object, about 3 kB."""


def padded(obj: Object) -> dict[str, Any]:
    """Return an object about as large as the API server sends it."""
    return {**obj.data, "metadata": {**obj.data["metadata"], "managedFields": _PADDING}}


def objects(vms: int, nodes: int) -> Iterator[Object]:
    """Yield the cluster: as many ordinary pods as VMs."""
    yield builders.kubevirt({"migrations": {}}, status={"observedKubeVirtVersion": "v1.9.0"})
    names = [f"node-{number:03}" for number in range(nodes)]
    yield from (node(name, unschedulable=name == _NODE) for name in names)
    for number in range(vms):
        name, on = f"vm-{number:05}", names[number % nodes]
        yield vm(name)
        yield vmi(name, on, **({"evacuationNodeName": on} if on == _NODE else {}))
        yield launcher(name, on)
        daemon = launcher(f"app-{number:05}", on)
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "controller": True}
        daemon.data["metadata"] |= {"labels": {"app": "agent"}, "ownerReferences": [owner]}
        yield daemon


def serve(api: FakeApi, vms: int, nodes: int) -> None:
    """Fill an API server."""
    api.time = clock.instant(NOW)
    for kind in READS:
        api.install(kind)
    for obj in objects(vms, nodes):
        put(api, obj)
    for history in api.history.values():
        history.clear()  # no watch begins before


def put(api: FakeApi, obj: Object) -> None:
    """Create or change an object."""
    kind = kinds.of(obj)
    assert kind is not None
    if path_of(kind) in api.objects:
        api.put(kind, padded(obj))


def churn(api: FakeApi, vms: int, nodes: int, ended: threading.Event) -> None:
    """Change VMs of other nodes until the end."""
    number = 0
    while not ended.wait(1 / _PER_SECOND):
        number += 1
        if number % nodes:  # the first node is the one that is followed
            on = f"node-{number % nodes:03}"
            put(api, vmi(f"vm-{number % vms:05}", on, guestOSInfo={"name": f"{number}"}))


def shows(run: Following, *words: str) -> float:
    """Return the seconds until a line with these words comes."""
    started = time.monotonic()
    while time.monotonic() - started < _PATIENCE:
        if any(all(word in line for word in words) for line in run.lines):
            return time.monotonic() - started
        time.sleep(0.01)
    raise SystemExit(
        f"no line with {words} came in {_PATIENCE} s; the last ones: {run.lines[-3:]} "
        f"{run.errors[-3:]}"
    )


def resident(run: Following, field: str) -> int:
    """Return MiB of the command: ``VmRSS`` now, or ``VmHWM`` at its peak."""
    lines = Path(f"/proc/{run.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) >> 10


def migrate(api: FakeApi, run: Following, name: str, target: str) -> Iterator[float]:
    """Let a VM leave the node, and yield the seconds until each step shows."""
    job = f"m-{name}"
    put(api, migration(job, of=name, age=5))
    put(api, launcher(name, target, "2", job=f"uid-{job}", phase="Pending"))
    yield shows(run, f"shop/{name}", f"target-pending to {target}")
    state = {
        "migrationUid": f"uid-{job}",
        "sourceNode": _NODE,
        "targetNode": target,
        "startTimestamp": ago(1),
    }
    put(api, migration(job, "Running", of=name, age=5))
    put(api, vmi(name, _NODE, evacuationNodeName=_NODE, migrationState=state))
    yield shows(run, f"shop/{name}", f"running to {target}")
    put(api, migration(job, "Succeeded", of=name, age=5))
    put(api, vmi(name, target))
    api.delete(POD, f"virt-launcher-{name}-1", "shop")
    yield shows(run, f"shop/{name} has left to {target}")


def measure(vms: int, nodes: int) -> int:
    """Print the figures. Returns the exit code."""
    with FakeApi() as api, tempfile.TemporaryDirectory() as folder:
        serve(api, vms, nodes)
        started = time.monotonic()
        run = Following(
            api, Path(folder), "drain", _NODE, "--follow", "--lines", program=VIRT_ADMIT
        )
        ended = threading.Event()
        try:
            shows(run, f"{_NODE}: ")
            print(
                f"{vms} VMs on {nodes} nodes: the first verdict after "
                f"{time.monotonic() - started:.1f} s",
                flush=True,
            )
            threading.Thread(target=churn, args=(api, vms, nodes, ended), daemon=True).start()
            took: list[float] = []
            rounds = min(_ROUNDS, vms // nodes - 2)
            for number in range(rounds):
                took += migrate(api, run, f"vm-{number * nodes:05}", f"node-{number + 1:03}")
            api.stop()
            time.sleep(3)
            api.start()
            last = list(migrate(api, run, f"vm-{rounds * nodes:05}", "node-001"))
            print(
                f"after a restart of the API server a change shows after {last[0]:.1f} s",
                flush=True,
            )
            peak, now = resident(run, "VmHWM"), resident(run, "VmRSS")
        finally:
            ended.set()
            run.process.kill()
            run.ended()
        middle = statistics.median(took)
        print(
            f"{len(took)} changes, and {_PER_SECOND} others a second: {middle:.2f} s, "
            f"{max(took):.2f} s at most"
        )
        print(f"memory: {now} MiB, {peak} MiB at most")
        return int(peak > MOST_MIB or max(took) > MOST_SECONDS)


if __name__ == "__main__":
    sys.exit(measure(*(int(each) for each in sys.argv[1:])))
