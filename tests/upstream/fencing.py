"""What FenceAgentsRemediation does with a lost node,
against the operator's own code in virtual time.

``python -m tests.upstream.fencing 200`` compares that many random remediations, and a few in real
time with a script as the fence agent; a second number is the first seed. ``--record`` writes the
runs that the tests replay. When a NodeHealthCheck makes the remediation is compared in
``medik8s.py``, and how the out-of-service taint ends pods in ``clocks.py``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tests.forecasts.outage import losses
from tests.upstream.comparisons import command, compare, write
from tests.upstream.renderer import FENCING, program, render
from virt_admit.forecasts.outage import health_actors
from virt_admit.forecasts.outage.loss import Loss
from virt_admit.forecasts.outage.time_parts import Detach
from virt_admit.forecasts.remediation import failed_remediations
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.remediation import fence_taints

RECORDED: Final = FENCING.with_suffix(".json")
RECORDED_SEEDS: Final = range(40)
NODE: Final = "n0"
_NODES: Final = (NODE, "n1", "n2")
_NAMESPACE: Final = "medik8s"
_DEFAULTS: Final = {
    "retrycount": 5,
    "retryinterval": "5s",
    "timeout": "60s",
    "remediationStrategy": "ResourceDeletion",
}
"""Of the definition, which the API server sets in a template and in a remediation."""
_NEEDS: Final = {
    "fence_ipmilan": ["--ip"],
    "fence_aws": ["--plug"],
    "fence_apc": ["--ip", "--plug"],
}
"""The parameters without which an agent fails at once
(ClusterLabs/fence-agents:lib/fencing.py.py#_validate_input).
"""


# --- random remediations --------------------------------------------------------------------------


def case(seed: int) -> dict[str, Any]:
    """Return the template of a remediation, how its agent acts, and what happens meanwhile."""
    rng = random.Random(seed)
    agent = rng.choice(sorted(_NEEDS))
    spec: dict[str, Any] = {"agent": agent, **_DEFAULTS}
    for field, values in (
        ("retrycount", (5, 5, 5, 3, 3, 1, 1, 2, 0, -1)),
        ("retryinterval", ("5s", "0s", "30s")),
        ("timeout", ("60s", "60s", "60s", "20s", "20s", "0s")),
        ("remediationStrategy", ("ResourceDeletion", "OutOfServiceTaint")),
    ):
        spec[field] = rng.choice(values)
    shared, by_node = _parameters(agent, rng)
    spec |= {"sharedparameters": shared, "nodeparameters": by_node}
    secrets = _secrets(spec, rng)
    calls = [
        {"takes": rng.choice((1, 10, 30, 100)), "fails": rng.random() < 0.5}
        for _ in range(rng.choice((1, 1, 2, 4)))
    ]
    missing = rng.random() < 0.05
    return {
        "spec": {key: value for key, value in spec.items() if value not in ({}, None)},
        "secrets": secrets,
        "agent": {"needs": _NEEDS[agent], "calls": calls},
        "do": [] if missing else _events(rng),
        "name": "elsewhere" if missing else rng.choice((NODE, f"{NODE}-abcde")),
        "seconds": 700,
    }


def _parameters(agent: str, rng: random.Random) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return shared parameters and those of nodes. Most have what the agent needs."""
    shared: dict[str, Any] = {"--username": "admin"} if rng.random() < 0.6 else {}
    by_node: dict[str, Any] = {}
    for name in _NEEDS[agent]:
        where = rng.random()
        if where < 0.7:
            by_node[name] = {node: f"10.0.0.{number}" for number, node in enumerate(_NODES)}
        elif where < 0.75:
            by_node[name] = {
                node: f"10.0.0.{number}" for number, node in enumerate(_NODES) if node != NODE
            }
        elif where < 0.78:
            by_node[name] = {NODE: "", "n1": "10.0.0.1"}
        elif where < 0.9:
            shared[name] = "{{.NodeName}}.example.com"
        elif where < 0.95:
            shared[name] = "10.0.0.9"
    if rng.random() < 0.1:
        shared["--password"] = rng.choice(
            ("{{.NodeName", "{{.Host}}", "{{ .NodeName }}", "{{", "a}}")
        )
    if rng.random() < 0.12:
        action = rng.choice(("off", "reboot", "on", "", "status"))
        name = rng.choice(("--action", "action"))
        if rng.random() < 0.5:
            shared[name] = action
        else:
            by_node[name] = {rng.choice(_NODES): action}
    if rng.random() < 0.1:
        by_node["--lanplus"] = {"n1": ""}
    return shared, by_node


def _secrets(spec: dict[str, Any], rng: random.Random) -> list[losses.Manifest]:
    """Let a template name Secrets, and return those that exist."""
    found = []
    for field, share in (("sharedSecretName", 0.08), ("nodeSecretNames", 0.08)):
        if rng.random() >= share:
            continue
        name = field.lower()
        spec[field] = name if field.startswith("shared") else {rng.choice((NODE, "n1")): name}
        data = {
            rng.choice(("--password", "--ip", "--plug")): rng.choice(
                ("MTA=", "e3suTm9kZU5hbWV9fQ==")
            )
        }
        if rng.random() < 0.8:
            found.append({**losses.manifest("v1", "Secret", name, _NAMESPACE), "data": data})
    return found


def _events(rng: random.Random) -> list[dict[str, Any]]:
    if rng.random() < 0.6:
        return []
    what = rng.choice(("timed out", "deleted", "operator restarts", "node deleted"))
    at = rng.choice((0, 2, 40, 100, 400))
    later = (
        [{"at": at + 60, "what": "deleted"}] if what == "timed out" and rng.random() < 0.5 else []
    )
    return [{"at": at, "what": what}, *later]


def real_case(seed: int) -> dict[str, Any]:
    """Return a remediation whose agent is a process: with time-outs and pauses of a second."""
    rng = random.Random(seed)
    calls = [
        {"takes": rng.choice((0, 0.5, 4)), "fails": rng.random() < 0.5}
        for _ in range(rng.choice((1, 2, 3)))
    ]
    spec = {
        **_DEFAULTS,
        "agent": "fence_ipmilan",
        "retrycount": rng.choice((1, 2, 3)),
        "retryinterval": "1s",
    }
    address = "" if rng.random() < 0.2 else "10.0.0.1"
    spec |= {"timeout": rng.choice(("2s", "2s", "0s")), "nodeparameters": {"--ip": {NODE: address}}}
    agent = {"needs": ["--ip"], "calls": calls}
    return {
        "spec": spec,
        "secrets": [],
        "agent": agent,
        "do": [],
        "name": NODE,
        "seconds": 10,
        "real": True,
    }


def asked(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``main.go`` is asked.

    A NodeHealthCheck copies the template's spec into the remediation.
    """
    metadata: dict[str, Any] = {"uid": "uid"}
    if given["name"].startswith(f"{NODE}-"):
        metadata["annotations"] = {fence_taints.NODE_NAME: NODE}
    far = losses.manifest(
        losses.FENCING, "FenceAgentsRemediation", given["name"], _NAMESPACE, spec=given["spec"]
    )
    far["metadata"] |= metadata
    nodes = [losses.node(name) for name in _NODES]
    pods = [
        losses.manifest(
            "v1", "Pod", f"pod-{node}", "shop", spec={"nodeName": node, "containers": []}
        )
        for node in _NODES
    ]
    objects = [*nodes, *pods, losses.manifest("v1", "Namespace", "shop"), *given["secrets"]]
    return {
        "objects": objects,
        "remediation": far,
        **{key: given[key] for key in ("agent", "do", "seconds")},
    } | {"real": given.get("real", False)}


# --- what is compared -----------------------------------------------------------------------------


def differences(given: Mapping[str, Any], answer: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what was compared, and the disagreement; empty if there is none."""
    yield from _told_before(given, answer)
    yield from _cancelled(given, answer)
    yield from _told_after(given, answer)
    yield from _tainted(given, answer)


def _told_before(given: Mapping[str, Any], answer: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Compare what is forecast of the loss of the node, if nothing happens meanwhile."""
    if given["do"] or given["name"] == "elsewhere":
        return
    loss = Loss((NODE,), _before(given))
    (actor,) = health_actors.coverage(NODE, loss).actors
    ended, fenced = _end(answer), _fenced(given, answer)
    succeeded = ended is not None and ended["conditions"]["Succeeded"].startswith("True")
    if actor.refuses and answer["refused"] and succeeded:
        # a parameter of other nodes is in the Secret too
        yield "rejected by the operator's webhook", ""
    elif actor.refuses:
        yield "refused", f"fenced after {ended}, although {actor.refuses}" if succeeded else ""
    elif actor.unseen:
        yield "not certain", ""
    elif answer["refused"]:
        yield "rejected by the operator's webhook", ""  # for Secrets, which virt-admit never reads
    elif ended is None:
        yield "ends", f"never ends: {answer['states'][-1]}"
    else:
        part = next(each for each in actor.parts if each.what == "remediated")
        late = part.high is None or ended["at"] > part.high + _LATE
        yield "ends", f"ended after {ended['at']}, not {part.low} to {part.high}" if late else ""
        if succeeded:
            yield "fenced", "" if fenced else "no agent was able to"
            detach = (
                Detach.AT_ONCE if fence_taints.OUT_OF_SERVICE in _keys(ended) else Detach.FORCED
            )
            yield (
                str(detach.name),
                "" if actor.detach is detach else f"{detach}, not {actor.detach}",
            )
            gone = detach is Detach.AT_ONCE or not ended["pods"]
            yield "pods", "" if gone else f"{ended['pods']} are left"
        elif fenced and _hangs(given):
            exact = part.high is not None and abs(ended["at"] - part.high) <= _LATE
            yield (
                "takes the longest time",
                "" if exact else f"failed after {ended['at']}, not {part.high}",
            )


_LATE: Final = 1
"""Seconds for the reconciler, which is started when the object has changed."""


def _before(given: Mapping[str, Any]) -> Snapshot:
    nodes = [losses.node(name) for name in _NODES]
    check, template = losses.nhc("FenceAgentsRemediation")
    template["spec"] = {"template": {"spec": given["spec"]}}
    return losses.snapshot(nodes, check, template, unreadable=("secrets",))


def _end(answer: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the first state in which the operator has ended; None: it is still at work."""
    for state in answer["states"]:
        if state["conditions"].get("Succeeded", "Unknown").partition(" ")[0] != "Unknown":
            return dict(state)
    return None


def _fenced(given: Mapping[str, Any], answer: Mapping[str, Any]) -> bool:
    return any(_has_all(given, run["parameters"]) for run in answer["runs"])


def _has_all(given: Mapping[str, Any], parameters: list[str]) -> bool:
    values = dict(each.partition("=")[::2] for each in parameters)
    return all(values.get(name) for name in given["agent"]["needs"])


def _hangs(given: Mapping[str, Any]) -> bool:
    longest = float(given["spec"]["timeout"].removesuffix("s"))
    return longest > 0 and all(call["takes"] > longest for call in given["agent"]["calls"])


def _keys(state: Mapping[str, Any]) -> set[str]:
    return {taint.rpartition(":")[0] for taint in state["taints"]}


def _cancelled(given: Mapping[str, Any], answer: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Compare that a remediator is cancelled at the time-out of its step,
    and when the remediation is deleted.
    """
    ended = _end(answer)
    for each in given["do"]:
        if each["what"] in ("timed out", "deleted") and (
            ended is None or ended["at"] >= each["at"]
        ):
            late = [run["at"] for run in answer["runs"] if run["at"] > each["at"] + _LATE]
            succeeded = answer["states"][-1]["conditions"].get("Succeeded", "").startswith("True")
            yield "cancelled", f"{each}, but {late or 'it succeeds'}" if late or succeeded else ""


def _told_after(given: Mapping[str, Any], answer: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Compare what is said of the remediation at the end of the run,
    when nothing can go on any more.
    """
    if given.get("real"):
        return
    far = answer["remediation"]
    named = {"kind": "FenceAgentsRemediation", "name": given["name"], "namespace": _NAMESPACE}
    begun = {"resource": named, "started": _BEGAN}
    if any(each["what"] == "timed out" for each in given["do"]):
        begun["timedOut"] = _BEGAN
    check, template = losses.nhc("FenceAgentsRemediation")
    check["status"] = {"unhealthyNodes": [{"name": NODE, "remediations": [begun]}]}
    objects = [*losses.NAMESPACES, check, template, *([far] if far else ())]
    cluster = Snapshot(map(Object, objects), ["*"], time=_LATER)
    found = failed_remediations.of_node(Object(check), NODE, cluster)
    if far is None:
        yield "gone", str(found.reason) if found else ""
        yield "untainted", "taints are left" if _keys(answer["states"][-1]) else ""
        return
    succeeded = answer["states"][-1]["conditions"]["Succeeded"].startswith("True")
    if succeeded:
        yield "succeeded", str(found.reason) if found else ""
    else:
        what = "failed" if _end(answer) else "stuck"
        yield what, "" if found else f"nothing is said of {answer['states'][-1]['conditions']}"


_BEGAN: Final = "2000-01-01T00:00:00Z"
"""When virtual time begins."""
_LATER: Final = "2000-01-01T01:00:00Z"
"""Nothing happens after the end of the run any more."""


def _tainted(given: Mapping[str, Any], answer: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Compare what is said of the taints of the node if it reports again,
    and the remediation stays.
    """
    if given.get("real"):
        return
    taints = [
        dict(zip(("key", "effect"), each.split(":"), strict=True))
        for each in answer["states"][-1]["taints"]
    ]
    node = {**losses.node(NODE), "spec": {"taints": taints}}
    node["status"]["conditions"][0] |= {"lastTransitionTime": _BEGAN}
    found = fence_taints.left(Object(node), Snapshot([Object(node)], ["*"], time=_LATER))
    said = {each["key"].text for each in found.every} if found else set()
    wanted = {each["key"] for each in taints}
    yield "taints of a node that is back", "" if said == wanted else f"{said}, not {wanted}"


# --- the command ----------------------------------------------------------------------------------


def main(count: int, first: int) -> int:
    """Compare many remediations and print what differs. Returns the exit code."""
    seeds = range(first, first + count)
    makes = {case: seeds, real_case: seeds[: -(-count // 20)]}
    return compare(FENCING, makes, asked, differences)


def record() -> None:
    """Write what the operator's code did with the cases of some seeds.

    It changes with these cases.
    """
    answers = render(program(FENCING), (asked(case(seed)) for seed in RECORDED_SEEDS))
    lines = [
        {"seed": seed, "answer": answer}
        for seed, answer in zip(RECORDED_SEEDS, answers, strict=True)
    ]
    write(RECORDED, lines)


if __name__ == "__main__":
    command(main, record)
