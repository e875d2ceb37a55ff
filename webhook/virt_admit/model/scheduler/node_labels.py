"""What a node's name, labels and taints mean for a pod: the plugins NodeName, NodeAffinity,
TaintToleration and NodeUnschedulable of kube-scheduler.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from virt_admit.model.scheduler.controller_taints import MEDIK8S, is_of_dell_driver, is_of_podmon
from virt_admit.model.scheduler.node_selectors import tolerates
from virt_admit.model.scheduler.pods import Pod, Spread
from virt_admit.model.scheduler.snapshot import Node

_UNSCHEDULABLE: Final = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_NOT_READY: Final = tuple(
    {"key": f"node.kubernetes.io/{name}", "effect": "NoSchedule"}
    for name in ("not-ready", "unreachable")
)
"""What the node lifecycle controller sooner or later puts on a node that is not Ready."""
_TRANSIENT: Final = ("node.kubernetes.io/", "kubevirt.io/drain", *MEDIK8S)
"""Prefixes of taints that a cordon, drain, maintenance or remediation sets for a while."""


def label_causes(pod: Pod, node: Node, *, moment: bool) -> Iterator[str]:
    """Yield why the node's name, labels and taints keep the pod off, in words.

    ``moment``: whether cordons, transient taints and readiness count.
    """
    own = pod.node_selector.items()
    lacks = {key: value for key, value in own if node.labels.get(key) != value}
    for key, value in lacks.items():
        yield pod.meanings.get(key) or f"node selector {key}={value}"
    affinity = pod.node_affinity
    if (
        affinity is not None
        and not affinity.matches(node.name, node.labels)
        # one that demands the same labels, as Harvester adds it, is not a second cause
        and not (lacks and affinity.matches(node.name, {**node.labels, **lacks}))
    ):
        yield "node affinity"
    for key in pod.forbidden_labels:
        if key in node.labels:
            yield pod.meanings.get(key) or f"label {key}"
    if moment and node.cordoned and not tolerates(pod.tolerations, _UNSCHEDULABLE):
        yield "cordoned"
    if (
        moment
        and not node.ready
        and not any(tolerates(pod.tolerations, taint) for taint in _NOT_READY)
    ):
        yield "not Ready"
    said: object = ""  # one key has often two effects, next to each other
    for taint in node.taints:
        if (moment or not is_transient(taint)) and not tolerates(pod.tolerations, taint):
            cordon = node.cordoned and taint.get("key") == _UNSCHEDULABLE["key"]
            if not cordon and taint.get("key") != said:
                said = taint.get("key")
                yield f"taint {said}"
    if pod.attachment_tolerations is not None:
        yield from _unattached(pod, node, moment=moment)


def _unattached(pod: Pod, node: Node, *, moment: bool) -> Iterator[str]:
    """Yield the taints that the pod tolerates, but not the one that must start next to it."""
    keys = (
        str(taint.get("key"))
        for taint in node.taints
        if (moment or not is_transient(taint))
        and tolerates(pod.tolerations, taint)
        and not tolerates(pod.attachment_tolerations, taint)
    )
    yield from (f"{UNATTACHED}{key}" for key in dict.fromkeys(keys))


UNATTACHED: Final = "the pod that attaches its hotplugged volumes does not tolerate taint "
"""How the cause begins that a node takes a launcher pod, and not the pod that must follow it."""


def is_transient(taint: Mapping[str, Any]) -> bool:
    """Return whether a taint goes away by itself or with a drain,
    so that rules at admission must not count it.
    """
    key = str(taint.get("key") or "")
    return key.startswith(_TRANSIENT) or is_of_podmon(key) or is_of_dell_driver(key)


def counts_for_spread(pod: Pod, node: Node, constraint: Spread) -> bool:
    """Return whether a node is one of those over which a spread constraint counts pods.

    Source: podtopologyspread/common.go#matchNodeInclusionPolicies.
    """
    if constraint.honor_affinity:
        if any(node.labels.get(key) != value for key, value in pod.node_selector.items()):
            return False
        if pod.node_affinity is not None and not pod.node_affinity.matches(node.name, node.labels):
            return False
        if any(key in node.labels for key in pod.forbidden_labels):
            return False
    if constraint.honor_taints:
        taints = (*node.taints, *((_UNSCHEDULABLE,) if node.cordoned else ()))
        return all(tolerates(pod.tolerations, taint) for taint in taints)
    return True
