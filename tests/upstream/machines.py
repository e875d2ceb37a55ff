"""When the Machine of a dead node is deleted and drained, against OpenShift's and Cluster API's own
code, in virtual time.

``python -m tests.upstream.machines 200`` compares that many random losses; a second number is the
first seed. ``--record`` writes the runs that the tests replay. When Kubernetes deletes the pods is
compared in ``clocks.py``, and which evictions KubeVirt refuses in ``admission.py``; the program in
``machines/`` is told both. The rules of Cluster API's MachineHealthCheck are compared in
``health.py``; ``owners.py`` has the clusters in which its controllers replace Machines.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tests.forecasts.outage import losses
from tests.upstream import owners
from tests.upstream.comparisons import command, compare, write
from tests.upstream.renderer import MACHINES, program, render
from virt_admit.forecasts.outage import health_actors, machine_replacement
from virt_admit.forecasts.outage.loss import Loss
from virt_admit.forecasts.outage.time_parts import detection
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object

RECORDED: Final = MACHINES.with_suffix(".json")
RECORDED_SEEDS: Final = range(40)
_END: Final = 7_200
_AGAIN: Final = 20
"""Cluster API drains again after so many seconds. OpenShift does after 5 s, twice as long each
time, each try of 20 s.
"""


# --- drains ---------------------------------------------------------------------------------------


def drain(seed: int) -> dict[str, Any]:
    """Return VMs on a node that is lost with others, and when its drain begins after that."""
    rng = random.Random(seed)
    vms = [
        {
            "name": f"vm-{number}",
            "strategy": rng.choice(("LiveMigrate", "LiveMigrate", "External", "None")),
            "tolerates": rng.choice((300, 300, 300, 60, 600, None)),
            "grace": rng.choice((0, 30, 180)),
        }
        for number in range(rng.randint(0, 3))
    ]
    return {
        "vms": vms,
        "lost": rng.choice((1, 1, 1, 2, 4)),
        "nodes": 6,
        "begins": 50 + rng.choice((10, 60, 300, 600)),
    }


def loss_of(given: Mapping[str, Any]) -> Loss:
    """Return the loss, as the forecast sees it before.

    More than half of the nodes are a zone in trouble.
    """
    nodes = [losses.node(f"n{number}") for number in range(given["nodes"])]
    cluster = losses.snapshot(nodes, [_vm(each) for each in given["vms"]], version="v1.36.3")
    return Loss(tuple(f"n{number}" for number in range(given["lost"])), cluster)


def _vm(given: Mapping[str, Any]) -> Any:
    toleration = {
        "key": machine_replacement.UNREACHABLE,
        "operator": "Exists",
        "effect": "NoExecute",
    }
    if given["tolerates"] is not None:
        toleration |= {"tolerationSeconds": given["tolerates"]}
    return losses.vm(
        given["name"],
        "n0",
        evictionStrategy=given["strategy"],
        terminationGracePeriodSeconds=given["grace"],
        tolerations=[] if given["tolerates"] == 300 else [toleration],
    )


def asked(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``main.go`` is asked. virt-launcher gets 30 s beside the grace period of the
    guest.
    """
    if "check" in given:
        return dict(given)
    if "objects" in given:
        return owners.asked(given)
    loss = loss_of(given)
    return {
        "drain": {
            "pods": [_pod(each, loss, given["begins"]) for each in given["vms"]],
            "seconds": _END,
        }
    }


def _pod(vm: Mapping[str, Any], loss: Loss, begins: int) -> dict[str, Any]:
    tainted = detection(loss).low if loss.taint_delay("n0") is not None else None
    deleted = (
        None if tainted is None or vm["tolerates"] is None else tainted + vm["tolerates"] - begins
    )
    return {
        **{"name": vm["name"], "refused": vm["strategy"] != "None"},
        **{"deleted": deleted, "grace": vm["grace"] + 30},
    }


def differences(given: Mapping[str, Any], answer: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what was compared, and the disagreement; empty if there is none."""
    if "objects" in given:
        yield from owners.differences(given, answer["owned"])
    else:
        yield from _checked(given["check"], answer) if "check" in given else _drained(given, answer)


def _drained(given: Mapping[str, Any], answer: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    loss = loss_of(given)
    freed = machine_replacement.by_deletion(None, "n0", loss)
    if loss.taints_the_first("n0") and not isinstance(freed, str):
        yield "chance decides", ""
        return
    for which in ("openshift", "capi"):
        ended = None if answer[which] is None else given["begins"] + answer[which]
        if isinstance(freed, str) or ended is None:
            yield (
                f"{which} never",
                ""
                if isinstance(freed, str) and ended is None
                else f"{which}: {ended}, not {freed}",
            )
            continue
        least = max(given["begins"], freed.not_before or 0)
        most = (
            _latest_of_capi(given, loss, least)
            if which == "capi"
            else 2 * least - given["begins"] + 3 * _AGAIN
        )
        agrees = least - 1 <= ended <= most + 1
        yield f"{which} ends", "" if agrees else f"{which}: {ended}, not {least} to {most}"


def _latest_of_capi(given: Mapping[str, Any], loss: Loss, least: int) -> int:
    """Return when the drain ends at the latest.

    It does not evict again what is being deleted: of a VM that shuts down it awaits the deletion
    time. The forecast leaves that out, so it is a lower bound.
    """
    pods = [_pod(each, loss, given["begins"]) for each in given["vms"]]
    ends = [
        each["deleted"] + each["grace"] + 1
        for each in pods
        if each["deleted"] is not None and each["deleted"] <= 0
    ]
    return max(least, *(given["begins"] + end for end in ends), 0) + _AGAIN


# --- OpenShift's MachineHealthCheck ---------------------------------------------------------------


def check(seed: int) -> dict[str, Any]:
    """Return a cluster with a MachineHealthCheck, of which nodes are lost."""
    rng = random.Random(seed)
    names = [f"n{number}" for number in range(rng.randint(2, 10))]
    wait = rng.choice(("60s", "300s", "600s"))
    limit = rng.choice((None, 1, 2, 3, "20%", "34%", "40%", "50%", "100%"))
    *machines, checked = losses.machines(*names, timeout=wait, limit=limit)
    if limit is None:
        del checked["spec"]["maxUnhealthy"]
    nodes = [losses.node(name) for name in names]
    for node, machine in zip(nodes, machines, strict=True):
        node["metadata"]["annotations"] = {
            "machine.openshift.io/machine": f"openshift-machine-api/{machine['metadata']['name']}"
        }
        machine["metadata"]["finalizers"] = ["machine.machine.openshift.io"]
        # one without is taken for a node that is gone
        node["metadata"]["uid"] = node["metadata"]["name"]
        node["status"]["conditions"] = [
            {"type": "Ready", "status": "True", "lastTransitionTime": _BEFORE}
        ]
        if rng.random() < 0.12:
            node["status"]["conditions"][0]["status"] = rng.choice(("False", "Unknown"))
        if rng.random() < 0.08:
            del machine["metadata"]["ownerReferences"]
        if rng.random() < 0.06:
            machine["status"]["phase"] = "Failed"
        if rng.random() < 0.1:
            machine["metadata"]["labels"] = {"role": "other"}
    ready = [  # a Machine that has failed is deleted before its node is lost
        node["metadata"]["name"]
        for node, machine in zip(nodes, machines, strict=True)
        if node["status"]["conditions"][0]["status"] == "True"
        and machine["status"]["phase"] != "Failed"
    ]
    lost = rng.sample(ready, min(len(ready), rng.choice((1, 1, 2, 3))))
    unknown = {name: 50 + rng.randint(0, 15) for name in sorted(lost)}
    return {
        "check": {"objects": [*nodes, *machines, checked], "unknown": unknown, "seconds": 1_500}
    }


_BEFORE: Final = "1999-12-31T00:00:00Z"
"""A day before the time at which virtual time begins."""


def _checked(given: Mapping[str, Any], answer: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    objects = [*losses.NAMESPACES, losses.KUBEVIRT, *given["objects"]]
    loss = Loss(
        tuple(given["unknown"]), Snapshot(map(Object, objects), ["*"], server_version="v1.34.0")
    )
    for node in loss.nodes:
        actors = health_actors.coverage(node, loss).actors
        at = answer["deleted"].get(f"machine-{node}")
        if not actors or actors[0].refuses:
            what = "refused" if actors else "not selected"
            why = actors[0].refuses if actors else ""
            yield (
                what,
                f"machine-{node} deleted after {at}, although {why or what}"
                if at is not None
                else "",
            )
        else:
            due = (
                given["unknown"][node] + {part.what: part.low for part in actors[0].parts}["waited"]
            )
            # it looks again a second after the time has ended
            agrees = at is not None and due - 1 <= at <= due + 1.5
            yield "deleted", "" if agrees else f"machine-{node} deleted after {at}, due after {due}"


MAKES: Final = (drain, check, owners.replaced)

# --- the command ----------------------------------------------------------------------------------


def main(count: int, first: int) -> int:
    """Compare many losses and print what differs. Returns the exit code."""
    seeds = range(first, first + count)
    return compare(MACHINES, dict.fromkeys(MAKES, seeds), asked, differences)


def record() -> None:
    """Write what upstream's code did with the cases of some seeds. It changes with these cases."""
    lines = [
        {"make": make.__name__, "seed": seed, "answer": answer}
        for make in MAKES
        for seed, answer in zip(
            RECORDED_SEEDS,
            render(program(MACHINES), (asked(make(seed)) for seed in RECORDED_SEEDS)),
            strict=True,
        )
    ]
    write(RECORDED, lines)


if __name__ == "__main__":
    command(main, record)
