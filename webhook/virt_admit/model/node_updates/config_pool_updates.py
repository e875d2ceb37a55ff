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
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from virt_admit.model import machine_pools
from virt_admit.model.commands import argument, shell
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import (
    CLUSTER_VERSION,
    MACHINE_CONFIG_NODE,
    MACHINE_CONFIG_POOL,
    NODE,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.kubevirt.settings.versions import Version, parse_version
from virt_admit.model.lookups import find
from virt_admit.model.messages import names, unescaped
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

ERROR_FIELDS: Final = (
    *(f"metadata.annotations.{key}" for key in (CURRENT, DESIRED, *_IMAGES, _STATE, _REASON)),
    "metadata.labels",
    "spec.unschedulable",
)
"""Of a Node, what tells why its daemon has stopped, and to which pool it belongs."""
READS: Final[Reads] = union(
    clock.READS,
    {
        CLUSTER_VERSION: ("status.desired.version",),
        MACHINE_CONFIG_POOL: (),
        MACHINE_CONFIG_NODE: (
            *CONDITIONS,
            "status.conditions.lastTransitionTime",
            "status.conditions.message",
        ),
        NODE: (
            *ERROR_FIELDS,
            *(f"metadata.annotations.{key}" for key in (_DESIRED_DRAIN, _APPLIED_DRAIN)),
            "metadata.creationTimestamp",
            "spec.taints",
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
        failed = failure(node) if phase is Phase.FAILING else None
        why = failed or _drain_error(reports.get(node.name), phase)
        begun = phase is not Phase.FAILING or _is_changing(node)
        nodes[node.name] = NodeUpdate(
            *(MACHINE_CONFIG_POOL.kind, pool.name, phase, since, exact, why, begun),
            wanted=given(pool, node, wanted),
            withdrawn=withdrawn(node, wanted),
        )
    began = node_phases.true_since(pool.condition("Updating"))
    return PoolUpdate(MACHINE_CONFIG_POOL.kind, pool.name, nodes, began)


def failure(node: Object) -> str | None:
    """Return the words with which the daemon of a node has stopped; None: it has not."""
    has_failed = node.annotations.get(_STATE) in _FAILED
    return _brief(node.annotations.get(_REASON, "")) if has_failed else None


def withdrawn(node: Object, wanted: str) -> str:
    """Return that the daemon of a node has stopped at a configuration which its pool has replaced
    since, after the name of the node; empty: it has not.

    The operator gives another one to a node whose daemon has stopped, unless that is cordoned, as
    it is after its drain (#getAllCandidateMachines). Nodes with images of their own are judged by
    those too, and left alone here.
    """
    current, desired = (node.annotations.get(key, "") for key in (CURRENT, DESIRED))
    images = [node.annotations.get(key) for key in _IMAGES]
    if failure(node) is None or not wanted or not desired or images != [None, None]:
        return ""
    if desired in (wanted, current) or not node.at("spec", "unschedulable").boolean:
        return ""
    has = " (its present one)" if current == wanted else ""
    return f"still wants {desired}, which its pool has replaced by {wanted}{has}"


def _brief(text: str) -> str:
    """Return an error of the daemon on one line, with the begin of each digest alone,
    and without the checksum of the booted tree.
    """
    flat = " ".join(text.split()).replace(" : ", ": ")  # it ends its parts with line breaks
    return _DIGEST.sub(r"\1…", _CHECKSUM.sub("", flat))


_DIGEST: Final = re.compile(r"(sha256:[0-9a-f]{12})[0-9a-f]{52}")
_CHECKSUM: Final = re.compile(r' \("[0-9a-f]{64}"\)')


def others_unavailable(pool: Object, node: Object) -> int:
    """Return how many nodes of a pool are unavailable besides one of them, which is so itself while
    it is cordoned or not Ready
    (openshift/machine-config-operator:pkg/controller/node/status.go#isNodeUnavailable).
    """
    every = pool.at("status", "unavailableMachineCount").integer or 0
    return every - node_phases.is_away(node)


def degraded(pool: Object) -> str:
    """Return what a MachineConfigPool reports as an error; empty: none.

    The condition Degraded alone has no words.
    """
    said = [found for kind in _ERRORS if (found := pool.condition(kind))["status"].text == "True"]
    whole = (each["message"].text or each["reason"].text or "" for each in said)
    texts = (_brief(_unquoted(_together(each))) for each in whole)
    return next(filter(None, texts), "see its conditions") if said else ""


def _together(text: str) -> str:
    """Return what nodes report, without what only repeats another report of the same node, and as
    one report if all of them report the same.
    """
    every = [each.partition(_REPORTS) for each in _EACH.split(text)]
    told = [each for each in every if not any(_frames(each, other) for other in every)]
    if len(told) < 2 or len({words for _, _, words in told}) > 1:
        return ", ".join(map("".join, told))
    others = names(node.removeprefix("Node ") for node, _, _ in told[1:])
    return f"{told[0][0]} (as {others}){_REPORTS}{told[0][2]}"


def _frames(report: tuple[str, str, str], other: tuple[str, str, str]) -> bool:
    """Whether the words of a report hold those of another one of its node, as a MachineConfigNode
    frames the error of its daemon.
    """
    (node, _, words), (other_node, _, shorter) = report, other
    error = shorter.strip('"')
    return node == other_node and shorter != words and bool(error) and error in words


_EACH: Final = re.compile(r", (?=Node [\w.-]{1,253} is reporting: )")


def _unquoted(text: str) -> str:
    """Return what nodes report without its escapes, and of one node without the quotes around it
    (pkg/controller/node/status.go): it may hold quotes.
    """
    subject, reports, said = text.partition(_REPORTS)
    if not reports or _REPORTS in said or said[:1] + said[-1:] != '""':
        return unescaped(text) if reports else text
    return f"{subject}{reports}{unescaped(said[1:-1])}"


_REPORTS: Final = " is reporting: "
_ERRORS: Final = ("NodeDegraded", "RenderDegraded", "Degraded")


def target(pool: Object, own: Sequence[Object]) -> str:
    """Return the configuration that the nodes get; empty: no node is on its way to another one."""
    said = pool.at("spec", "configuration", "name").text
    if said:
        return said
    wanted = Counter(node.annotations.get(DESIRED, "") for node in own if _is_changing(node))
    return max(wanted, key=lambda name: (wanted[name], name), default="")


def given(pool: Object, node: Object, wanted: str) -> str:
    """Return the configuration of a pool that a node may get; empty: the pool is paused, which
    keeps it from all but its present one.
    """
    is_held = pool.at("spec", "paused").boolean and node.annotations.get(CURRENT) != wanted
    return "" if is_held else wanted


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
    Phase.DRAINING: "Cordoned",
    Phase.UPDATING: "Drained",
    Phase.REBOOTING: "UpdateExecuted",
    Phase.RETURNING: "RebootedNode",
}
"""The condition of a MachineConfigNode with which each phase begins (machineconfignodes,
status.conditions).
"""


def _since(node: Object, phase: Phase, report: Object | None) -> tuple[datetime | None, bool]:
    """Return when a phase began, else when the node was cordoned, and whether it is the former."""
    if phase not in IN_FLIGHT:
        return None, False
    if report is not None and phase in _BEGAN:
        found = node_phases.true_since(report.condition(_BEGAN[phase]))
        if found is not None:
            return found, True
    silent = node_phases.unready_since(node) if phase is Phase.REBOOTING else None
    if silent is not None:
        return (silent, True)
    return (node_phases.cordoned_since(node), phase is Phase.DRAINING)


def _drain_error(report: Object | None, phase: Phase) -> str:
    if report is None or phase is not Phase.DRAINING:
        return ""
    drained = report.condition("Drained")
    return drained["message"].text or "" if drained["status"].text == "Unknown" else ""


# --- drains without a cordon ----------------------------------------------------------------------

WITHOUT_CORDON: Final = "but the node is not cordoned any more"
"""What the note of such a drain says."""
_SETTLED: Final = timedelta(minutes=2)
"""The controller cordons a node this soon after its daemon has asked for a drain."""
_AGAIN: Final = Version(4, 21)
"""From this release on the controller cordons such a node again when it tries again, as late
patches of 4.18, 4.19 and 4.20 do; those before never (pkg/controller/drain/drain_controller.go
#drainNode in the branches release-4.14 to release-4.22; pull requests 5281, 5300 and 6028).
"""


class OpenDrain(NamedTuple):
    """A node that the operator drains and another one has uncordoned meanwhile."""

    node: str
    why: str
    """That its drain goes on without a cordon, as a main clause, and what follows."""
    command: str
    again: bool
    """Whether this release cordons it again by itself."""

    @property
    def note(self) -> str:
        """What is to be known before the node is drained."""
        itself = ", unless the operator does so at its next try" if self.again else ""
        return f"{self.why}. Cordon it again{itself}: {self.command}"


def open_drains(cluster: Cluster) -> Mapping[str, OpenDrain]:
    """Return the nodes that were uncordoned during the drain of their MachineConfigPool, by name.

    One that another roll-out has uncordoned before is about to be cordoned.
    """
    known = machine_pools.members(cluster.known(MACHINE_CONFIG_POOL), cluster.known(NODE))
    every = ((node, _open_drain(pool, node, cluster)) for pool, own in known for node in own)
    return {node.name: found for node, found in every if found is not None}


def _open_drain(pool: Object, node: Object, cluster: Cluster) -> OpenDrain | None:
    pending = _pending_drain(node)
    if not pending.startswith("drain-") or node.at("spec", "unschedulable").boolean:
        return None
    began = node_phases.true_since(pool.condition("Updating"))
    last = max(node_phases.uncordons(node.name, cluster), default=None)
    report = find(cluster, MACHINE_CONFIG_NODE, "", node.name)
    not_yet = report is not None and report.condition("Cordoned")["status"].text == "False"
    lasts = clock.elapsed(last, cluster)
    if began is None or last is None or last <= began or not_yet:
        return None
    if lasts is None or lasts < _SETTLED:
        return None
    version = find(cluster, CLUSTER_VERSION, "", "version")
    said = version.at("status", "desired", "version").text if version is not None else None
    release = parse_version(said)
    again = release is not None and release >= _AGAIN
    why = (
        f"MachineConfigPool {pool.name} drains {node.name} ({_DESIRED_DRAIN} {pending} is not "
        f"applied), {WITHOUT_CORDON}: it was uncordoned {clock.duration(lasts)} ago (Event "
        "NodeSchedulable). Pods and VMs come back to it, so that the drain may not end, and the "
        "reboot after it stops those VMs"
    )
    return OpenDrain(node.name, why, shell("kubectl", "cordon", argument(node.name)), again)
