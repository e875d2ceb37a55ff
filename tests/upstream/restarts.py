"""Which VMs of lost nodes start again, against KubeVirt's own controllers in virtual time.

``python -m tests.upstream.restarts 200`` compares that many random clusters; a second number is the
first seed. The program in ``restarts/`` runs the controllers. ``--record`` writes the runs that the
tests replay.
"""

from __future__ import annotations

import json
import random
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.forecasts.outage import losses
from tests.upstream.comparisons import command, show, write
from tests.upstream.renderer import RESTARTS, program
from virt_admit.forecasts.outage.health_actors import Actor, NodeCoverage
from virt_admit.forecasts.outage.loss import Loss
from virt_admit.forecasts.outage.lost_vms import LostVm, lost_vms
from virt_admit.forecasts.outage.restarts.fates import LossOutcome
from virt_admit.forecasts.outage.restarts.next_vmis import BACKOFF, ENDED
from virt_admit.forecasts.outage.time_parts import Seconds, total
from virt_admit.model.kubernetes.cluster import Snapshot

RECORDED: Final = RESTARTS.with_suffix(".json")
_RECORDED_SEEDS: Final = range(5)
_LOST: Final = 300
"""When the nodes are lost. Three starts that fail take 260 s at most."""
_END: Final = 1200
_TOLERANCE: Final = 1.0
_EVICTED: Final = 350
"""Seconds after which a lost node's pods are marked for deletion: 50 until it is noticed,
300 that they tolerate it.
"""

# --- random clusters ------------------------------------------------------------------------------

_STRATEGIES: Final = ("Always", "RerunOnFailure", "Manual", "Once")
_ASKED: Final[Mapping[str, tuple[str, ...]]] = {
    "Always": ("halt", "restart", "delete VMI", "delete VM"),
    "RerunOnFailure": ("stop", "restart", "delete VMI"),
    "Manual": ("stop", "restart", "delete VMI"),
    "Once": ("delete VMI", "delete VM"),
}
"""What a user may ask for just before the loss, so that no virt-handler does it."""
_SET: Final = "VirtualMachineInstanceReplicaSet"
FREED: Final = ("forced", "collected")
ENDS: Final = (*FREED, *FREED, "terminating", "failed", "ended", "untouched")
"""What becomes of the pod of a lost node."""


def case(seed: int) -> dict[str, Any]:
    """Return a case for ``main.go``.

    A guest also has its run strategy, the end of its pod, and what a user asked for.
    """
    rng = random.Random(seed)
    guests = [_guest(f"guest-{index}", rng) for index in range(12)]
    return {"kubevirt": {}, "guests": guests, "lost": _LOST, "seconds": _END}


def _guest(name: str, rng: random.Random) -> dict[str, Any]:
    kind = rng.choice(("VirtualMachine",) * 5 + tuple(_MADE))
    strategy = rng.choice(_STRATEGIES) if kind == "VirtualMachine" else rng.choice(_STRATEGIES[:2])
    strategy = strategy if kind in ("VirtualMachine", "VirtualMachinePool") else ""
    asked = rng.choice(_ASKED[strategy]) if kind == "VirtualMachine" and rng.random() < 0.3 else ""
    if kind == _SET and rng.random() < 0.3:
        asked = "pause"
    end = rng.choice(ENDS)
    # KubeVirt would have acted before the loss
    if end in ("failed", "ended") and (asked or kind == _SET):
        end = "terminating"
    # its pod is always marked for deletion, outside of a zone in trouble
    if end == "untouched" and kind == _SET:
        end = "terminating"
    early = strategy in ("Always", "RerunOnFailure") and rng.random() < 0.3
    made = _MADE[kind](name, strategy)
    guest = {
        "name": name,
        "kind": kind,
        "strategy": strategy,
        "asked": asked,
        "end": end,
        "object": made,
    }
    guest |= {"fails": rng.randint(0, 3) if early and kind == "VirtualMachine" else 0}
    guest |= {
        "reaches": "Scheduled" if early else "Running",
        "do": [*_asking(asked), *_ending(end, rng)],
    }
    return guest


def _asking(asked: str) -> Iterator[dict[str, Any]]:
    if asked:
        yield {"at": -0.5, "what": asked}


def _ending(end: str, rng: random.Random) -> Iterator[dict[str, Any]]:
    gone = round(rng.uniform(60, 800), 2)
    if end in ("failed", "ended"):
        yield {"at": -0.2, "what": {"failed": "fail", "ended": "end"}[end]}
    if end in ("terminating", "ended") or (end in FREED and gone > _EVICTED):
        yield {"at": _EVICTED, "what": "terminate"}
    if end in FREED:
        yield {"at": gone, "what": {"forced": "force", "collected": "collect"}[end]}


def _vm(name: str, strategy: str) -> losses.Manifest:
    started = {"stateChangeRequests": [{"action": "Start"}]} if strategy == "Manual" else {}
    spec = {"runStrategy": strategy, "template": _template(name)}
    return losses.manifest(
        "kubevirt.io/v1", "VirtualMachine", name, "shop", spec=spec, status=started
    )


def _vmi(name: str, _strategy: str) -> losses.Manifest:
    meta = {"labels": {"guest": name}}
    return losses.manifest(
        "kubevirt.io/v1", "VirtualMachineInstance", name, "shop", metadata=meta, spec=_SPEC
    )


def _replica_set(name: str, _strategy: str) -> losses.Manifest:
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": {"guest": name}},
        "template": _template(name),
    }
    return losses.manifest("kubevirt.io/v1", _SET, name, "shop", spec=spec)


def _pool(name: str, strategy: str) -> losses.Manifest:
    machine = {"runStrategy": strategy, "template": _template(name)}
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": {"guest": name}},
        "virtualMachineTemplate": {"metadata": {"labels": {"guest": name}}, "spec": machine},
    }
    return losses.manifest(
        "pool.kubevirt.io/v1beta1", "VirtualMachinePool", name, "shop", spec=spec
    )


_SPEC: Final = {"domain": {"devices": {}, "memory": {"guest": "1Gi"}}, "evictionStrategy": "None"}
_MADE: Final = {
    "VirtualMachine": _vm,
    "VirtualMachineInstance": _vmi,
    _SET: _replica_set,
    "VirtualMachinePool": _pool,
}


def _template(name: str) -> losses.Manifest:
    return {"metadata": {"labels": {"guest": name}}, "spec": _SPEC}


# --- what is compared -----------------------------------------------------------------------------


_WORDS: Final = (LossOutcome.RESTARTS, LossOutcome.NEVER, LossOutcome.OFF, LossOutcome.LOST)


class Restart(NamedTuple):
    """What became of a guest, and what the forecast says."""

    kind: str
    end: str
    word: str
    came: float | None
    """Seconds from the end of its pod to its next VMI. None: there is none."""
    low: float = 0
    high: float | None = 0

    @property
    def agrees(self) -> bool:
        if self.word not in _WORDS:
            return False
        if self.came is None or self.word != LossOutcome.RESTARTS:
            return (self.came is None) is (self.word != LossOutcome.RESTARTS)
        return self.low - _TOLERANCE <= self.came and (
            self.high is None or self.came <= self.high + _TOLERANCE
        )

    def __str__(self) -> str:
        came = "no next VMI" if self.came is None else f"next VMI after {self.came:.1f} s"
        return (
            f"{self.kind}, pod {self.end}: {came}, forecast {self.word} ({self.low} to {self.high} "
            "s)"
        )


def restarts(given: Mapping[str, Any], result: Mapping[str, Any]) -> Iterator[Restart]:
    """Yield what became of each guest. An actor is known where something frees its pod."""
    cluster: Snapshot = losses.snapshot(result["objects"])
    for guest in given["guests"]:
        node = f"n-{guest['name']}"
        actors = (Actor(node, "", ""),) if guest["end"] in FREED else ()
        said = lost_vms(Loss((node,), cluster), {node: NodeCoverage(actors, ())}).vms
        yield _restart(guest, said[-1] if said else None, result)


def _restart(guest: Mapping[str, Any], said: LostVm | None, result: Mapping[str, Any]) -> Restart:
    *_, pod = (
        each
        for each in result["pods"]
        if each["guest"] == guest["name"] and each["node"] != "stays"
    )
    later = [
        vmi["created"]
        for vmi in result["vmis"]
        if vmi["guest"] == guest["name"] and vmi["created"] > 0
    ]
    begin = (
        0
        if guest["end"] == "failed"
        else pod["gone"]
        if guest["end"] in FREED
        else pod["terminating"]
    )
    if guest["kind"] == _SET and pod["terminating"] > 0:
        begin = pod["terminating"]
    words = (guest["kind"], guest["strategy"], guest["reaches"], guest["asked"])
    waits = (
        total(part for part in said.parts if part.what in (BACKOFF, ENDED))
        if said
        else Seconds(0, 0)
    )
    came = min(later) - begin if later else None
    return Restart(
        " ".join(filter(None, words)),
        guest["end"],
        said.outcome if said else "missing",
        came,
        *waits,
    )


def run(binary: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``main.go`` prints for a case."""
    done = subprocess.run(
        [binary], input=json.dumps(given), check=False, text=True, capture_output=True, timeout=300
    )
    if done.returncode:
        raise RuntimeError(f"{binary.name} failed:\n{done.stderr[-4000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found | {"objects": list(map(_short, found["objects"]))}


def _short(obj: dict[str, Any]) -> dict[str, Any]:
    """Return an object without most of what no forecast of a loss reads:
    recorded runs would be ten times as long.
    """
    meta, spec = obj["metadata"], obj["spec"]
    obj["metadata"] = {key: meta[key] for key in _META if key in meta}
    if obj["kind"] == "Pod":
        containers = [
            {key: each[key] for key in ("name", "resources")} for each in spec["containers"]
        ]
        spec = {
            key: spec[key] for key in ("nodeName", "nodeSelector", "tolerations") if key in spec
        }
        return obj | {
            "spec": spec | {"containers": containers},
            "status": {"phase": obj["status"]["phase"]},
        }
    if "status" in obj and obj["kind"] != "Node":
        obj["status"] = {key: obj["status"][key] for key in _STATUS if key in obj["status"]}
    return obj


_STATUS: Final = (
    "phase",
    "nodeName",
    "phaseTransitionTimestamps",
    "startFailure",
    "stateChangeRequests",
)
_META: Final = ("name", "namespace", "uid", "labels", "ownerReferences", "deletionTimestamp")


def main(count: int, first: int) -> int:
    """Compare many clusters and print what differs. Returns the exit code."""
    binary = program(RESTARTS)
    compared: Counter[str] = Counter()
    different: Counter[str] = Counter()
    chance: Counter[str] = Counter()
    for seed in range(first, first + count):
        given = case(seed)
        for index, found in enumerate(restarts(given, run(binary, given))):
            kind = f"{found.kind}, pod {found.end}"
            compared[kind] += 1
            if found.agrees:
                continue
            by_chance = _agrees_again(binary, given, index)
            (chance if by_chance else different)[kind] += 1
            print(f"seed {seed}: {found}{'; another run agrees' if by_chance else ''}", flush=True)
    print(
        f"{count} clusters, {compared.total()} guests: {different.total()} disagree, "
        f"{chance.total()} agree in another run"
    )
    return show(compared, different)


def _agrees_again(binary: Path, given: Mapping[str, Any], index: int) -> bool:
    """Return whether a guest agrees in one of three more runs.

    virt-controller may see that a VMI is gone before it sees its own note of the failed start. Then
    it does not wait.
    """
    return any(list(restarts(given, run(binary, given)))[index].agrees for _ in range(3))


def record() -> None:
    """Write the runs that the tests replay."""
    binary = program(RESTARTS)
    runs = [{"case": given, "result": run(binary, given)} for given in map(case, _RECORDED_SEEDS)]
    for each in (guest for one in runs for guest in one["case"]["guests"]):
        del each["object"]
    write(RECORDED, runs)


if __name__ == "__main__":
    command(main, record)
