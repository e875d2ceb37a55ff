"""Nodes that a required anti-affinity closes, each by a pod of its own: one rule is one cause,
whichever pods it is about and on however many nodes they are.

A rule that two pods share closes a node in both directions
(kubernetes/kubernetes:pkg/scheduler/framework/plugins/interpodaffinity/filtering.go
#satisfyPodAntiAffinity, #satisfyExistingPodsAntiAffinity).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from virt_admit.model.messages import names

TO, OF = "anti-affinity to pod", "anti-affinity of pod"
"""How the causes begin (``inter_pod_affinity.InterPodAffinity.refusals``): by the rule of the pod
to place, and by that of the other one.
"""
_WIDTH: Final = 90


def direction(cause: str) -> str:
    """Return ``TO`` or ``OF``; empty: it is another cause."""
    return next((each for each in (TO, OF) if cause.startswith(f"{each} ")), "")


def together(owners: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return for each such cause how all of its direction are told, as one; empty: another one
    tells it.

    ``owners``: the nodes of each cause. A pod that both directions name is told once.
    """
    told: dict[str, str] = {}
    own = {cause.removeprefix(TO) for cause in owners if direction(cause) == TO}
    for way in (TO, OF):
        some = [cause for cause in owners if direction(cause) == way]
        alone = [cause for cause in some if way == TO or cause.removeprefix(OF) not in own]
        told |= dict.fromkeys(some, "")
        pods = (
            f"{cause.removeprefix(way).strip()} ({names(owners[cause], 60)})" for cause in alone
        )
        if len(alone) > 1:
            told[some[0]] = f"{way}s {names(pods, _WIDTH)}"
        elif alone:
            told[alone[0]] = alone[0]
    return told
