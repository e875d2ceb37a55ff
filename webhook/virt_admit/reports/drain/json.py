"""A drain plan as JSON data (contract: only additions)."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable
from typing import Any

from virt_admit.forecasts.drain.drain_plan import NodePlan, Plan
from virt_admit.forecasts.drain.states.vm_states_kinds import VmState
from virt_admit.forecasts.drain.vm_outcomes import Forecast, VmOutcome
from virt_admit.forecasts.drain.workload_updates import Reach
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.objects import Object


def as_data(result: Plan) -> dict[str, Any]:
    """Return a plan as JSON data. Additive changes only:

    ``drainable``: true, false, or null (unknown), for all ``nodes`` of the plan. ``nodes``: worst first, each with
    ``name``, ``state`` (of ``cordoned``, ``not Ready``, ``not seen``), ``drainable``, ``counts`` by outcome, and
    ``vms``, worst first: ``namespace``, ``name``, ``outcome``, ``reason``, ``remedy`` (empty: none), ``state``,
    ``flags``, ``since`` and ``until`` of the state (RFC 3339 or null), ``attempts``, ``failure`` (``class``,
    ``text``, or null), ``from`` (the node of a VM that arrives, else null), ``downtime`` (null: not determined). VMs
    of other nodes come last: their own node counts them. ``waits``, what passes by itself: ``kind``, ``namespace``,
    ``name``, ``reason``, ``since``, ``until`` (RFC 3339 or null). ``control``, the components of KubeVirt that a
    drain needs: ``component``, ``healthy`` (true, false or null), ``reason``, ``remedy``. ``updates`` (null for a
    single node, or if the methods are unknown): ``methods``, ``counts`` by reach, and ``vms``: ``namespace``,
    ``name``, ``reach``, ``reason``. ``unseen``: the data that could not be read.
    """
    return {
        "version": 1,
        "drainable": result.drainable,
        "nodes": [_node_data(node) for node in result.nodes],
        "updates": None
        if result.methods is None
        else {
            "methods": list(result.methods),
            "counts": _counts(Reach, (update.reach for update in result.updates)),
            "vms": [
                {**_name(update.vmi), "reach": str(update.reach), "reason": update.reason} for update in result.updates
            ],
        },
        "unseen": list(result.unseen),
        "uncovered": None if result.uncovered is None else list(result.uncovered),
    }


def _node_data(node: NodePlan) -> dict[str, Any]:
    return {
        "name": node.name,
        "state": list(node.state),
        "drainable": node.drainable,
        "fits": node.packing.fits,
        "counts": _counts(VmOutcome, (row.outcome for row in node.forecasts)),
        "vms": [_vm_data(row) for row in (*node.forecasts, *node.visitors)],
        "blockers": [
            {
                "kind": blocker.kind,
                "namespace": blocker.namespace,
                "name": blocker.name,
                "reason": blocker.reason,
                "remedy": blocker.remedy,
                "now": blocker.now,
            }
            for blocker in node.pods.blockers
        ],
        "waits": [dataclasses.asdict(wait) for wait in node.pods.waits],
        "needs": [{"flag": need.flag, "pods": list(need.pods), "cost": need.cost} for need in node.pods.needs],
        "control": [dataclasses.asdict(component) for component in node.control],
        "notes": list(node.notes),
        "unseen": list(node.unseen),
    }


def _vm_data(row: Forecast) -> dict[str, Any]:
    placement = row.placement
    certain = placement.certain
    return {
        **_name(row.vmi),
        "outcome": str(row.outcome),
        "reason": row.reason,
        "remedy": row.remedy,
        "candidates": None if certain is None else list(certain),
        "short": [{"node": node, "what": what} for node, what in sorted(placement.refusals.items())],
        **_state_data(row.state),
    }


def _state_data(state: VmState) -> dict[str, Any]:
    failure = state.failure
    return {
        "state": str(state.state),
        "flags": list(map(str, state.flags)),
        "since": clock.stamp(state.since),
        "until": clock.stamp(state.until),
        "attempts": state.attempts,
        "failure": {"class": str(failure.kind), "text": failure.text} if failure is not None else None,
        "from": state.source or None,
        "downtime": None,
    }


def _name(vmi: Object) -> dict[str, str]:
    return {"namespace": vmi.namespace, "name": vmi.name}


def _counts(words: Iterable[str], found: Iterable[str]) -> dict[str, int]:
    """Return how often each word of an enumeration was found, including zeros."""
    counts = Counter(found)
    return {str(word): counts[word] for word in words}
