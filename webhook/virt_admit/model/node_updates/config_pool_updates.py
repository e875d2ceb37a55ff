"""The update of nodes by the machine config operator of OpenShift.

Sources:
openshift/machine-config-operator:pkg/controller/common/layered_node_state.go#IsUnavailableForUpdate
#IsNodeDone; :pkg/controller/node/node_controller.go#getAllCandidateMachines #sortNodeList;
:pkg/daemon/drain.go#performDrain;
openshift/oc:pkg/cli/admin/upgrade/status/workerpool.go#calculatePhase.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from virt_admit.model import machine_pools
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import MACHINE_CONFIG_NODE, MACHINE_CONFIG_POOL, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.node_updates import node_phases
from virt_admit.model.node_updates.node_phases import IN_FLIGHT, NodeUpdate, Phase, PoolUpdate

_GROUP: Final = "machineconfiguration.openshift.io"
CURRENT: Final = f"{_GROUP}/currentConfig"
DESIRED: Final = f"{_GROUP}/desiredConfig"
"""The annotations of a Node that differ while it is updated."""
_STATE: Final = f"{_GROUP}/state"
_FAILED: Final = ("Degraded", "Unreconcilable")
_REASON: Final = f"{_GROUP}/reason"
_IMAGES: Final = (f"{_GROUP}/currentImage", f"{_GROUP}/desiredImage")
_DESIRED_DRAIN: Final = f"{_GROUP}/desiredDrain"
_APPLIED_DRAIN: Final = f"{_GROUP}/lastAppliedDrain"

READS: Final[Reads] = union(
    {
        MACHINE_CONFIG_POOL: (),
        MACHINE_CONFIG_NODE: (
            *CONDITIONS,
            "status.conditions.lastTransitionTime",
            "status.conditions.message",
        ),
        NODE: (
            *(
                f"metadata.annotations.{key}"
                for key in (
                    CURRENT,
                    DESIRED,
                    _STATE,
                    _REASON,
                    *_IMAGES,
                    _DESIRED_DRAIN,
                    _APPLIED_DRAIN,
                )
            ),
            "metadata.creationTimestamp",
            "metadata.labels",
            "spec.taints",
            "spec.unschedulable",
            *CONDITIONS,
            "status.conditions.lastTransitionTime",
        ),
    },
)
"""The fields that say how far the update of a node is."""


def pools(cluster: Cluster) -> Iterator[PoolUpdate]:
    """Yield the roll-out of each MachineConfigPool that has nodes, as far as they are known."""
    for pool, own in machine_pools.members(cluster.known(MACHINE_CONFIG_POOL), cluster.known(NODE)):
        if own:
            yield _pool(pool, sorted(own, key=machine_pools.zone_then_age), cluster)


def _pool(pool: Object, own: Sequence[Object], cluster: Cluster) -> PoolUpdate:
    wanted = target(pool, own)
    reports = {report.name: report for report in cluster.known(MACHINE_CONFIG_NODE)}
    phases = {node.name: _phase(node, wanted) for node in own}
    chosen = set(_next(pool, own, phases))
    nodes = {}
    for node in own:
        phase = Phase.NEXT if node.name in chosen else phases[node.name]
        since, exact = _since(node, phase, reports.get(node.name))
        why = (
            (failure(node) or "")
            if phase is Phase.FAILING
            else _drain_error(reports.get(node.name), phase)
        )
        nodes[node.name] = NodeUpdate(MACHINE_CONFIG_POOL.kind, pool.name, phase, since, exact, why)
    updating = pool.condition("Updating")
    began = (
        clock.instant(updating["lastTransitionTime"].text)
        if updating["status"].text == "True"
        else None
    )
    return PoolUpdate(MACHINE_CONFIG_POOL.kind, pool.name, nodes, began)


def failure(node: Object) -> str | None:
    """Return the words with which the daemon of a node has stopped; None: it has not."""
    return (
        _brief(node.annotations.get(_REASON, ""))
        if node.annotations.get(_STATE) in _FAILED
        else None
    )


def _brief(text: str) -> str:
    """Return an error of the daemon with the begin of each digest alone,
    and without the checksum of the booted tree.
    """
    return _DIGEST.sub(r"\1…", _CHECKSUM.sub("", text))


_DIGEST: Final = re.compile(r"(sha256:[0-9a-f]{12})[0-9a-f]{52}")
_CHECKSUM: Final = re.compile(r' \("[0-9a-f]{64}"\)')


def degraded(pool: Object) -> str:
    """Return what a MachineConfigPool reports as an error; empty: none.

    The condition Degraded alone has no words.
    """
    said = [found for kind in _ERRORS if (found := pool.condition(kind))["status"].text == "True"]
    texts = (_brief(_unquoted(each["message"].text or each["reason"].text or "")) for each in said)
    return next(filter(None, texts), "see its conditions") if said else ""


def _unquoted(text: str) -> str:
    """Return what one node reports without the quotes around it (pkg/controller/node/status.go):
    it may hold quotes.
    """
    subject, reports, said = text.partition(_REPORTS)
    if not reports or _REPORTS in said or said[:1] + said[-1:] != '""':
        return text
    return f"{subject}{reports}{said[1:-1]}".replace('\\"', '"')


_REPORTS: Final = " is reporting: "
_ERRORS: Final = ("NodeDegraded", "RenderDegraded", "Degraded")


def target(pool: Object, own: Sequence[Object]) -> str:
    """Return the configuration that the nodes get; empty: no node is on its way to another one."""
    said = pool.at("spec", "configuration", "name").text
    if said:
        return said
    wanted = Counter(node.annotations.get(DESIRED, "") for node in own if _is_changing(node))
    return max(wanted, key=lambda name: (wanted[name], name), default="")


def _is_changing(node: Object) -> bool:
    current, desired = node.annotations.get(CURRENT), node.annotations.get(DESIRED)
    images = [node.annotations.get(key) for key in _IMAGES]
    return current != desired or images[0] != images[1]


def is_under_way(node: Object) -> bool:
    """Return whether the operator ends the cordon of a node by itself: it updates the node,
    or only uncordons it yet.
    """
    return _is_changing(node) or _pending_drain(node).startswith("uncordon-")


def _pending_drain(node: Object) -> str:
    """Return the drain or uncordon that a node has asked for and not got."""
    wanted = node.annotations.get(_DESIRED_DRAIN, "")
    return wanted if wanted != node.annotations.get(_APPLIED_DRAIN) else ""


def _phase(node: Object, target: str) -> Phase:
    desired, state = node.annotations.get(DESIRED), node.annotations.get(_STATE, "")
    pending = _pending_drain(node)
    if not desired:
        return Phase.NOT_PART if target else Phase.DONE
    # also where the configuration is the wanted one and the files on the disk differ from it
    if state in _FAILED:
        return Phase.FAILING
    if not _is_changing(node):
        if pending.startswith("uncordon-"):
            return Phase.RETURNING
        return Phase.DONE if desired == target or not target else Phase.WAITING
    # ``Done``: chosen, and its daemon has not begun
    if pending.startswith("drain-") or state in ("Done", ""):
        return Phase.DRAINING
    return Phase.REBOOTING if state == "Rebooting" else Phase.UPDATING


def _next(pool: Object, own: Sequence[Object], phases: dict[str, Phase]) -> Iterator[str]:
    """Yield the nodes that the operator chooses when it looks again (#getAllCandidateMachines,
    #syncMachineConfigPool).
    """
    if pool.at("spec", "paused").boolean:
        return
    taken = sum(phases[node.name] in IN_FLIGHT or node_phases.is_away(node) for node in own)
    try:
        left = machine_pools.capacity(pool, len(own)) - taken
    except ValueError:
        return
    waiting = [
        node.name
        for node in own
        if phases[node.name] is Phase.WAITING and not node_phases.is_away(node)
    ]
    yield from waiting[: max(left, 0)]


_BEGAN: Final = {
    Phase.DRAINING: ("Cordoned", "True"),
    Phase.UPDATING: ("Drained", "True"),
    Phase.REBOOTING: ("UpdateExecuted", "True"),
    Phase.RETURNING: ("RebootedNode", "True"),
}
"""The condition of a MachineConfigNode with which each phase begins (machineconfignodes,
status.conditions).
"""


def _since(node: Object, phase: Phase, report: Object | None) -> tuple[datetime | None, bool]:
    """Return when a phase began, else when the node was cordoned, and whether it is the former."""
    if phase not in IN_FLIGHT:
        return None, False
    if report is not None and phase in _BEGAN:
        kind, status = _BEGAN[phase]
        condition = report.condition(kind)
        found = (
            clock.instant(condition["lastTransitionTime"].text)
            if condition["status"].text == status
            else None
        )
        if found is not None:
            return found, True
    silent = node_phases.unready_since(node) if phase is Phase.REBOOTING else None
    return (
        (silent, True)
        if silent is not None
        else (node_phases.cordoned_since(node), phase is Phase.DRAINING)
    )


def _drain_error(report: Object | None, phase: Phase) -> str:
    drained = (
        report.condition("Drained") if report is not None and phase is Phase.DRAINING else None
    )
    return (
        (drained["message"].text or "")
        if drained is not None and drained["status"].text == "Unknown"
        else ""
    )
