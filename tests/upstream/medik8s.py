"""Which health check acts, and when, against the operators of Medik8s, in virtual time.

``python -m tests.upstream.medik8s 200`` compares that many random clusters; a second number is the first seed. ``--record``
writes the runs that the tests replay. The packages of the operators are internal, so the programs in ``medik8s/`` are
built as a part of checkouts, which are in the folder ``MEDIK8S`` and vendor all that they need. Without it git fetches them.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from tests.apiserver.binaries import Build, go_command, run_go
from tests.forecasts.outage import losses
from tests.upstream.renderer import LAUNCHER, cached, render
from virt_admit.forecasts.outage import health_actors
from virt_admit.forecasts.outage.health_actors import Actor
from virt_admit.forecasts.outage.loss import Loss
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.remediation import remediators

SOURCES: Final = LAUNCHER.with_name("medik8s")
RECORDED: Final = SOURCES.with_suffix(".json")
RECORDED_SEEDS: Final = range(60)


class Operator(NamedTuple):
    """A program, and the checkout of which it becomes a part."""

    program: str
    repository: str
    commit: str


HEALTH_CHECK: Final = Operator("healthcheck", "node-healthcheck-operator", "dd44432997c6edb4b577043919c4701c16524a73")
CALCULATOR: Final = Operator("calculator", "self-node-remediation", "640aac50d7ba64bc08a5c1a45763bb3043ee9ed7")


def built(operator: Operator) -> Path:
    """Return the path of a program; build it the first time, which takes minutes."""
    found = cached(SOURCES / operator.program)
    found = found.with_name(f"{found.name}-{operator.commit[:12]}")
    if not found.is_file():
        found.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=found.parent) as scratch:
            _build(operator, Path(scratch)).rename(found)
    return found


def _build(operator: Operator, scratch: Path) -> Path:
    """Build in a checkout to which nothing is written: Go overlays our file."""
    checkout, binary, overlay = scratch / operator.repository, scratch / operator.program, scratch / "overlay.json"
    folder = os.environ.get("MEDIK8S")
    source = f"{folder}/{operator.repository}" if folder else f"https://github.com/medik8s/{operator.repository}"
    for command in (
        ("init", "-q", checkout),
        ("-C", checkout, "fetch", "-q", "--depth", "1", source, operator.commit),
        ("-C", checkout, "checkout", "-q", "FETCH_HEAD"),
    ):
        subprocess.run(("git", *command), check=True)
    ours = SOURCES / operator.program / "main.go"
    overlay.write_text(json.dumps({"Replace": {str(checkout / "virt-admit" / "main.go"): str(ours)}}))
    go = go_command(Build(operator.program, (operator.program,), "."))
    options = ("-mod=vendor", "-overlay", str(overlay), "-trimpath", "-ldflags", "-s -w")
    run_go([go, "build", *options, "-o", str(binary), "./virt-admit"], checkout)
    return binary


# --- random clusters -----------------------------------------------------------------------------------------------

_SECONDS: Final = 2_000


def case(seed: int) -> dict[str, Any]:
    """Return a case for ``healthcheck``; ``lost`` are its nodes that are lost."""
    rng = random.Random(seed)
    workers = [losses.node(f"w{number}") for number in range(rng.randint(2, 9))]
    masters = [losses.master(f"m{number}") for number in range(rng.choice((0, 1, 3, 3, 5)))]
    nodes = [*workers, *masters]
    for node in nodes:
        node["metadata"]["uid"] = node["metadata"]["name"]
        _age(node, rng)
    ready = [node["metadata"]["name"] for node in nodes if node["status"]["conditions"][0]["status"] == "True"]
    lost = sorted(rng.sample(ready, min(len(ready), rng.choice((1, 1, 1, 2, 3)))))
    openshift = rng.random() < 0.4
    return {
        "objects": [*nodes, *_check(rng), *(_etcd(masters, rng) if openshift else ())],
        "unknown": {name: 50 + rng.randint(0, 5) for name in lost},
        "openshift": openshift,
        "seconds": _SECONDS,
    }


def _age(node: losses.Manifest, rng: random.Random) -> None:
    """Make a few nodes unhealthy before, or exclude them."""
    (ready,) = node["status"]["conditions"] = [dict(node["status"]["conditions"][0])]
    ready["lastTransitionTime"] = _BEFORE
    if rng.random() < 0.12:
        ready["status"] = rng.choice(("False", "Unknown"))
    if rng.random() < 0.08:
        node["metadata"]["labels"]["remediation.medik8s.io/exclude-from-remediation"] = "true"


_BEFORE: Final = "1999-12-31T00:00:00Z"
"""A day before the time at which virtual time begins."""


def _check(rng: random.Random) -> Iterator[losses.Manifest]:
    limit = {rng.choice(("minHealthy", "maxUnhealthy")): rng.choice((1, 2, 3, "20%", "49%", "51%", "60%", "100%"))}
    check, template = losses.nhc()
    spec = check["spec"]
    del spec["minHealthy"]
    spec |= limit
    if rng.random() < 0.5:
        del spec["selector"]["matchExpressions"]  # the masters too
    wait = rng.choice(("60s", "300s", "600s"))
    spec["unhealthyConditions"] = [{"type": "Ready", "status": each, "duration": wait} for each in ("Unknown", "False")]
    yield template
    if rng.random() < 0.5:
        first = spec.pop("remediationTemplate")
        _, second = losses.nhc("FenceAgentsRemediation", name="fences")
        reference = {
            "apiVersion": losses.FENCING,
            "kind": second["kind"],
            "name": "fences-template",
            "namespace": "medik8s",
        }
        pair = [first, reference] if rng.random() < 0.5 else [reference, first]
        spec["escalatingRemediations"] = [
            {"remediationTemplate": each, "order": order, "timeout": rng.choice(("60s", "120s", "400s"))}
            for order, each in enumerate(pair)
        ]
        yield second
    if rng.random() < 0.1:
        spec["pauseRequests"] = ["maintenance"]
    check["metadata"]["uid"] = "check"
    yield check


def _etcd(masters: list[losses.Manifest], rng: random.Random) -> Iterator[losses.Manifest]:
    """Yield what is on OpenShift: the budget of the guard pods. Those of lost nodes are not ready."""
    yield losses.manifest("config.openshift.io/v1", "ClusterVersion", "version")
    for number in range(rng.choice((1, 1, 1, 0, 2)) if masters else 1):
        yield losses.manifest(
            "policy/v1",
            "PodDisruptionBudget",
            f"etcd-guard-{number}",
            "openshift-etcd",
            spec={"selector": {"matchLabels": {"app": "guard"}}},
            status={"disruptionsAllowed": 0},
        )


# --- what is compared ----------------------------------------------------------------------------------------------


def differences(given: Mapping[str, Any], answer: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield for each lost node what was compared, and the disagreement; empty if there is none."""
    cluster = Snapshot(
        map(Object, [*losses.NAMESPACES, losses.KUBEVIRT, *given["objects"]]), ["*"], server_version="v1.34.0"
    )
    loss = Loss(tuple(sorted(given["unknown"])), cluster)
    for node in loss.nodes:
        found = health_actors.coverage(node, loss).actors
        created = [each for each in answer["created"] if each["node"] == node]
        if loss.stopped:
            continue  # the API server has stopped with etcd, and the program has no etcd
        yield _compared(found[0] if found else None, created, given["unknown"][node])


def _compared(actor: Actor | None, created: list[dict[str, Any]], noticed: int) -> tuple[str, str]:
    if actor is None or (actor.refuses and not _exhausted(actor)):
        what = "not selected" if actor is None else "refused"
        return what, f"remediated by {created[0]}, although {actor and actor.refuses}" if created else ""
    if actor.unseen:
        return "not certain", ""
    if not actor.parts:
        return "no remediator with enough time", ""
    kind = f"{actor.remediator.split(' ')[0]}"
    parts = {part.what: part.low for part in actor.parts}
    due = noticed + parts["waited"] + parts.get("earlier remediators", 0)
    at = next((each["at"] for each in created if each["kind"].startswith(kind)), None)
    if at is None:
        return "remediated", f"no {kind} of {created}, due after {due}"
    # the check looks again a second after a time has ended, and waits up to a second for its own changes
    late = 2.5 * (1 + sum(1 for each in created if each["at"] < at))
    return "remediated", "" if due - 1 <= at <= due + late else f"{kind} after {at}, due after {due}"


def _exhausted(actor: Actor) -> bool:
    return actor.refuses == "no step has enough time"


# --- how long a node is given to reboot ------------------------------------------------------------------------------


def reboot_case(seed: int) -> dict[str, Any]:
    """Return a case for ``calculator``, with all fields of a configuration as the API server has defaulted them."""
    rng = random.Random(seed)
    spec = {
        "apiCheckInterval": f"{rng.choice((1, 15, 40))}s",
        "apiServerTimeout": f"{rng.choice((1, 5, 30))}s",
        "maxApiErrorThreshold": rng.choice((1, 3, 7)),
        "peerDialTimeout": f"{rng.choice((1, 5, 20))}s",
        "peerRequestTimeout": f"{rng.choice((1, 5, 20))}s",
    }
    if rng.random() < 0.4:
        spec["safeTimeToAssumeNodeRebootedSeconds"] = rng.choice((10, 180, 900))
    watchdog = {remediators.WATCHDOG: rng.choice(("10", "45", "90"))} if rng.random() < 0.6 else {}
    return {
        "config": {"spec": spec},
        "annotations": watchdog,
        "workers": rng.choice((1, 2, 3, 4, 6, 7, 20, 33, 100, 250)),
    }


def reboot_time(given: Mapping[str, Any]) -> float:
    """Return the seconds of our forecast."""
    version = losses.REMEDIATION
    config = losses.manifest(
        version, "SelfNodeRemediationConfig", remediators.SNR_CONFIG_NAME, "medik8s", spec=given["config"]["spec"]
    )
    nodes = [losses.node(f"w{number}") for number in range(given["workers"])]
    nodes[0]["metadata"]["annotations"] = given["annotations"]
    cluster = losses.snapshot(nodes, config)
    return remediators.snr_duration(cluster, [Object(nodes[0])]) / 1e9


# --- the command ---------------------------------------------------------------------------------------------------


def main(count: int, first: int) -> int:
    """Compare many clusters and print what differs. Returns the exit code."""
    compared: Counter[str] = Counter()
    different: Counter[str] = Counter()
    seeds = range(first, first + count)
    cases = list(map(case, seeds))
    for seed, given, answer in zip(seeds, cases, render(built(HEALTH_CHECK), cases), strict=True):
        for what, why in differences(given, answer):
            compared[what] += 1
            if why:
                different[what] += 1
                print(f"seed {seed}: {why}", flush=True)
    cases = list(map(reboot_case, seeds))
    for seed, given, took in zip(seeds, cases, render(built(CALCULATOR), cases), strict=True):
        compared["time to reboot"] += 1
        if abs(reboot_time(given) - took) > 1:
            different["time to reboot"] += 1
            print(f"seed {seed}: {reboot_time(given)} s to reboot, the operator says {took}")
    for what, number in sorted(compared.items()):
        print(f"{number:6} {what}: {different[what]} disagree")
    return 1 if different else 0


def record() -> None:
    """Write what the operators did with the cases of some seeds. It changes with these cases."""
    checks = render(built(HEALTH_CHECK), map(case, RECORDED_SEEDS))
    reboots = render(built(CALCULATOR), map(reboot_case, RECORDED_SEEDS))
    lines = [
        *({"check": seed, "answer": answer} for seed, answer in zip(RECORDED_SEEDS, checks, strict=True)),
        *({"reboot": seed, "took": took} for seed, took in zip(RECORDED_SEEDS, reboots, strict=True)),
    ]
    RECORDED.write_text("".join(json.dumps(each, separators=(",", ":")) + "\n" for each in lines))


if __name__ == "__main__":
    if sys.argv[1:] == ["--record"]:
        record()
    else:
        sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
