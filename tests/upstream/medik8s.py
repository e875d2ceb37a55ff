"""Which health check acts, and when, against recorded runs of the operators of Medik8s.

The runs in ``medik8s.json`` are answers of the operators' own code in virtual time: the reconciler
of the node-healthcheck-operator at dd44432997c6 and the calculator of self-node-remediation at
640aac50d7ba. Their packages are internal, so nothing here can link them and record again: the cases
of these seeds must not change.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tests.forecasts.outage import losses
from virt_admit.forecasts.outage import health_actors
from virt_admit.forecasts.outage.health_actors import Actor
from virt_admit.forecasts.outage.loss import Loss
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.remediation import remediators

RECORDED: Final = Path(__file__).with_suffix(".json")


# --- random clusters ------------------------------------------------------------------------------

_SECONDS: Final = 2_000


def case(seed: int) -> dict[str, Any]:
    """Return the cluster of a run of the NodeHealthCheck, and when which of its nodes are lost."""
    rng = random.Random(seed)
    workers = [losses.node(f"w{number}") for number in range(rng.randint(2, 9))]
    masters = [losses.master(f"m{number}") for number in range(rng.choice((0, 1, 3, 3, 5)))]
    nodes = [*workers, *masters]
    for node in nodes:
        node["metadata"]["uid"] = node["metadata"]["name"]
        _age(node, rng)
    ready = [
        node["metadata"]["name"]
        for node in nodes
        if node["status"]["conditions"][0]["status"] == "True"
    ]
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
    limit = {
        rng.choice(("minHealthy", "maxUnhealthy")): rng.choice(
            (1, 2, 3, "20%", "49%", "51%", "60%", "100%")
        )
    }
    check, template = losses.nhc()
    spec = check["spec"]
    del spec["minHealthy"]
    spec |= limit
    if rng.random() < 0.5:
        del spec["selector"]["matchExpressions"]  # the masters too
    wait = rng.choice(("60s", "300s", "600s"))
    spec["unhealthyConditions"] = [
        {"type": "Ready", "status": each, "duration": wait} for each in ("Unknown", "False")
    ]
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
            {
                "remediationTemplate": each,
                "order": order,
                "timeout": rng.choice(("60s", "120s", "400s")),
            }
            for order, each in enumerate(pair)
        ]
        yield second
    if rng.random() < 0.1:
        spec["pauseRequests"] = ["maintenance"]
    check["metadata"]["uid"] = "check"
    yield check


def _etcd(masters: list[losses.Manifest], rng: random.Random) -> Iterator[losses.Manifest]:
    """Yield what is on OpenShift: the budget of the guard pods.

    Those of lost nodes are not ready.
    """
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


# --- what is compared -----------------------------------------------------------------------------


def differences(given: Mapping[str, Any], answer: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield for each lost node what was compared, and the disagreement; empty if there is none."""
    cluster = Snapshot(
        map(Object, [*losses.NAMESPACES, losses.KUBEVIRT, *given["objects"]]),
        ["*"],
        server_version="v1.34.0",
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
        return (
            what,
            f"remediated by {created[0]}, although {actor and actor.refuses}" if created else "",
        )
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
    # the check looks again a second after a time has ended, and waits up to a second for its own
    # changes
    late = 2.5 * (1 + sum(1 for each in created if each["at"] < at))
    return (
        "remediated",
        "" if due - 1 <= at <= due + late else f"{kind} after {at}, due after {due}",
    )


def _exhausted(actor: Actor) -> bool:
    return actor.refuses == "no step has enough time"


# --- how long a node is given to reboot -----------------------------------------------------------


def reboot_case(seed: int) -> dict[str, Any]:
    """Return a configuration as the API server has defaulted it, for a run of the calculator."""
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
        version,
        "SelfNodeRemediationConfig",
        remediators.SNR_CONFIG_NAME,
        "medik8s",
        spec=given["config"]["spec"],
    )
    nodes = [losses.node(f"w{number}") for number in range(given["workers"])]
    nodes[0]["metadata"]["annotations"] = given["annotations"]
    cluster = losses.snapshot(nodes, config)
    return remediators.snr_duration(cluster, [Object(nodes[0])]) / 1e9
