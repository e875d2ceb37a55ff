"""Our time line of lost nodes against kube-controller-manager's own controllers, in virtual time.

``python -m tests.upstream.clocks 200`` compares that many random clusters; a second number is the
first seed. The program in ``clocks/`` runs the controllers. ``--record`` writes the runs that the
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
from tests.upstream.renderer import CLOCKS, program
from virt_admit.forecasts.outage import lost_vms, machine_replacement
from virt_admit.forecasts.outage.loss import Loss
from virt_admit.forecasts.outage.time_parts import NODE_GONE, POD_GONE, Detach, detection
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import VMI

RECORDED: Final = CLOCKS.with_suffix(".json")
_RECORDED_SEEDS: Final = (*range(20), 39)
_LOST: Final = 100
"""When the nodes are lost. All of them have renewed their Leases often enough before."""
_END: Final = 1500
_KUBEVIRT: Final = 30
"""Seconds that virt-launcher gets beside the grace period of the guest."""


# --- random clusters ------------------------------------------------------------------------------


def case(seed: int) -> dict[str, Any]:
    """Return a case for ``main.go``. A Node is also ``master``, or not."""
    rng = random.Random(seed)
    number = rng.choice((1, 1, 2, 3))
    sizes = [rng.randint(1, 6) + (number == 1) * 3 for _ in range(number)]
    # only a zone of more than 50 nodes is tainted slowly when it is in trouble
    large = seed % 20 == 19
    if large:
        sizes[0] = 50 + seed // 20 % 2
    zones = [
        "" if number == 1 and rng.random() < 0.5 else f"zone-{index}" for index in range(number)
    ]
    nodes = [
        {"name": f"n{index}-{each}", "zone": zone, "phase": round(rng.uniform(0, 10), 2), "lost": 0}
        for index, (zone, size) in enumerate(zip(zones, sizes, strict=True))
        for each in range(size)
    ]
    lost = _lost(nodes, "most" if large else rng.choice(_LOSSES), rng)
    moves = rng.random() < 0.25
    for node in nodes:
        node["lost"] = _LOST if node in lost else 0
        node["master"] = moves and node is lost[0]
    left = [node["name"] for node in nodes if not node["lost"]]
    pods = [_pod(f"vm-{each['name']}", each, left, rng) for each in lost[:6]]
    noticed = _LOST + (100 if moves else 60)
    acts = rng.random() < 0.6 and not large
    actions = [
        {
            "at": round(noticed + rng.uniform(0, 500), 2),
            "node": each["name"],
            "what": rng.choice(("taint", "delete")),
        }
        for each in (lost if acts else ())
    ]
    leader = round(_LOST + rng.uniform(13, 17), 2) if moves else 0
    return {
        **{"nodes": nodes, "pods": pods, "actions": actions, "leader": leader},
        **{"grace": rng.choice((50, 50, 40)), "seconds": 3 * _END if large else _END},
    }


_LOSSES: Final = ("one", "some", "most", "most", "zone", "all")


def _lost(nodes: list[dict[str, Any]], how: str, rng: random.Random) -> list[dict[str, Any]]:
    zone = [node for node in nodes if node["zone"] == nodes[0]["zone"]]
    if how == "one":
        return [rng.choice(nodes)]
    if how == "some":
        return rng.sample(nodes, rng.randint(1, len(nodes)))
    if how == "most":
        return rng.sample(zone, -(-len(zone) * 55 // 100))
    return zone if how == "zone" else list(nodes)


def _pod(name: str, node: Mapping[str, Any], left: list[str], rng: random.Random) -> dict[str, Any]:
    mode = rng.choice(("ReadWriteOnce", "ReadWriteOnce", "ReadWriteMany", ""))
    return {
        **{"name": name, "node": node["name"], "tolerates": rng.choice((300, 300, 60, None))},
        **{
            "grace": rng.choice((30, 60, 210)),
            "volume": mode and f"disk-{name}",
            "access_mode": mode,
        },
        "next": rng.choice(left) if left else "",
    }


def loss_of(given: Mapping[str, Any]) -> Loss:
    """Return the loss of a case, as the forecast sees it before."""
    nodes = [_node(each) for each in given["nodes"]]
    vms = [_vm(each) for each in given["pods"]]
    version = "v1.31.0" if given["grace"] == 40 else "v1.36.3"
    cluster: Snapshot = losses.snapshot(nodes, vms, version=version)
    return Loss(tuple(sorted(node["name"] for node in given["nodes"] if node["lost"])), cluster)


def _node(given: Mapping[str, Any]) -> losses.Manifest:
    labels = {"zone": given["zone"]} if given["zone"] else {}
    return (
        losses.master(given["name"], **labels)
        if given["master"]
        else losses.node(given["name"], **labels)
    )


def _vm(given: Mapping[str, Any]) -> Any:
    """Return a VM with its launcher pod.

    The API server gives pods without a toleration one of 300 s.
    """
    toleration = {
        "key": machine_replacement.UNREACHABLE,
        "operator": "Exists",
        "effect": "NoExecute",
    }
    if given["tolerates"] is not None:
        toleration |= {"tolerationSeconds": given["tolerates"]}
    volume = given["volume"]
    return [
        losses.vm(
            given["name"],
            given["node"],
            evictionStrategy="LiveMigrate",
            terminationGracePeriodSeconds=given["grace"] - _KUBEVIRT,
            tolerations=[] if given["tolerates"] == 300 else [toleration],
            volumes=[losses.disk(volume)] if volume else [],
        ),
        losses.claim(volume, given["access_mode"]) if volume else [],
    ]


# --- what is compared -----------------------------------------------------------------------------


class Clock(NamedTuple):
    """How long one part took, and what the forecast says."""

    what: str
    took: float | None
    """None: it never happened."""
    low: float | None
    """None: the forecast says that it never happens."""
    high: float | None
    tolerance: float = 1

    @property
    def agrees(self) -> bool:
        if self.took is None or self.low is None or self.high is None:
            return self.took is None and self.low is None
        return self.low - self.tolerance <= self.took <= self.high + self.tolerance

    def __str__(self) -> str:
        took = "never" if self.took is None else f"{self.took:.1f}"
        return (
            f"{self.what}: {took}, forecast "
            f"{'never' if self.low is None else f'{self.low} to {self.high}'}"
        )


def clocks(given: Mapping[str, Any], result: Mapping[str, Any]) -> Iterator[Clock]:
    """Yield the parts of all time lines of a case.

    A node stops reporting with the last renewal of its Lease.
    """
    loss = loss_of(given)
    part = detection(loss)
    acts = {action["node"]: action for action in given["actions"]}
    for node in loss.nodes:
        yield Clock(
            "Ready is Unknown",
            _since(result, "unknown", node, result["heartbeat"][node]),
            part.low,
            part.high,
        )
        delay = loss.taint_delay(node)
        if not acts and delay is not None:
            yield Clock("taint", _since(result, "tainted", node, result["unknown"][node]), 0, delay)
    if not acts:
        for zone in {
            tuple(loss.in_zone_of(node)) for node in loss.nodes if loss.taints_the_first(node)
        }:
            yield Clock(
                "taints in a zone in trouble",
                sum(node in result["tainted"] for node in zone),
                0,
                1,
                0,
            )
    for pod in given["pods"]:
        action = acts.get(pod["node"])
        yield from _acted(pod, action, loss, result) if action else _waited(pod, loss, result)


def _since(result: Mapping[str, Any], what: str, name: str, begin: float) -> float | None:
    return result[what][name] - begin if name in result[what] else None


def _waited(pod: Mapping[str, Any], loss: Loss, result: Mapping[str, Any]) -> Iterator[Clock]:
    """Yield when the deletion time of a pod has passed, which ends a drain. No remediator acts."""
    node = pod["node"]
    freed = machine_replacement.by_deletion(None, node, loss)
    ended = _since(result, "deleted", pod["name"], result["heartbeat"][node])
    ended = None if ended is None else ended + pod["grace"]
    if isinstance(freed, str) or freed.not_before is None:
        if not (loss.taints_the_first(node) and node in result["tainted"]):
            yield Clock("drain of the dead node", ended, None, None)
        return
    width = detection(loss).high - detection(loss).low  # type: ignore[operator]
    yield Clock(
        "drain of the dead node",
        ended,
        freed.not_before,
        freed.not_before + width + (loss.taint_delay(node) or 0),
    )


def _acted(
    pod: Mapping[str, Any], action: Mapping[str, Any], loss: Loss, result: Mapping[str, Any]
) -> Iterator[Clock]:
    """Yield when a pod is gone after a remediator acted,
    and when its volume is attached to another node.
    """
    deletes = action["what"] == "delete"
    part = NODE_GONE if deletes else POD_GONE
    gone = _since(result, "gone", pod["name"], action["at"])
    yield Clock(f"pod gone by {action['what']}", gone, part.low, part.high)
    if gone is not None and pod["volume"] and pod["next"]:
        vmi = loss.cluster.get(VMI, "shop", pod["name"])
        assert vmi is not None
        fresh = lost_vms.returning(vmi, loss.cluster).fresh.pod
        part = lost_vms.detach(
            vmi, fresh, Detach.FORCED if deletes else Detach.AT_ONCE, loss.cluster
        )
        took = _since(result, "attached", f"{pod['volume']} {pod['next']}", action["at"] + gone)
        yield Clock(
            f"{pod['access_mode']} attached after {action['what']}", took, part.low, part.high
        )


def run(binary: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``main.go`` prints for a case."""
    done = subprocess.run(
        [binary], input=json.dumps(given), check=False, text=True, capture_output=True, timeout=300
    )
    if done.returncode:
        raise RuntimeError(f"{binary.name} failed:\n{done.stderr[-4000:]}")
    found: dict[str, dict[str, float]] = json.loads(done.stdout)
    lost = {node["name"] for node in given["nodes"] if node["lost"]}
    return found | {
        "heartbeat": {name: at for name, at in found["heartbeat"].items() if name in lost}
    }


def main(count: int, first: int) -> int:
    """Compare many clusters and print what differs. Returns the exit code."""
    binary = program(CLOCKS)
    compared: Counter[str] = Counter()
    different: Counter[str] = Counter()
    for seed in range(first, first + count):
        given = case(seed)
        for clock in clocks(given, run(binary, given)):
            compared[clock.what] += 1
            if not clock.agrees:
                different[clock.what] += 1
                print(f"seed {seed}: {clock}", flush=True)
    print(f"{count} clusters")
    return show(compared, different)


def record() -> None:
    """Write the runs that the tests replay."""
    binary = program(CLOCKS)
    runs = [{"case": given, "result": run(binary, given)} for given in map(case, _RECORDED_SEEDS)]
    write(RECORDED, runs)


if __name__ == "__main__":
    command(main, record)
