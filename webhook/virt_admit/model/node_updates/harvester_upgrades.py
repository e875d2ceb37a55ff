"""Upgrades of Harvester, which updates one node after the other: an Upgrade,
or since 1.8 an UpgradePlan.

Sources: harvester/harvester:package/upgrade/upgrade_node.sh,
:pkg/apis/harvesterhci.io/v1beta1/upgrade.go#UpgradeStatus;
harvester/upgrade-toolkit:api/v1beta1/upgradeplan_types.go#NodeUpgradeState.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final, NamedTuple

from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import HARVESTER_UPGRADE, NODE, UPGRADE_PLAN, Kind
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.messages import names
from virt_admit.model.node_updates import node_phases, update_orders
from virt_admit.model.node_updates.node_phases import NodeUpdate, Phase, PoolUpdate

_LATEST: Final = "harvesterhci.io/latestUpgrade"

READS: Final[Reads] = {
    HARVESTER_UPGRADE: (f"metadata.labels.{_LATEST}", "metadata.creationTimestamp", "status"),
    UPGRADE_PLAN: ("metadata.creationTimestamp", "status"),
    NODE: ("spec.taints", "status.nodeInfo.kubeletVersion"),
}
"""The fields that say how far an upgrade is."""


def _completed(upgrade: Object) -> bool | None:
    return {"True": True, "False": False}.get(upgrade.condition("Completed")["status"].text or "")


def _last_phase(plan: Object) -> bool | None:
    return {"Succeeded": True, "Failed": False}.get(plan.at("status", "currentPhase").text or "")


class _Form(NamedTuple):
    """How one kind tells its progress."""

    kind: Kind
    statuses: str
    """The field of its status with the states by node."""
    phases: Mapping[str, Phase]
    """The phase of each state of a node; the others are before its turn."""
    paused: str
    """The state of a node before which it waits for its administrator."""
    succeeded: Callable[[Object], bool | None]
    """Whether it has succeeded. None: it has not ended."""


_FORMS: Final = (
    _Form(
        HARVESTER_UPGRADE,
        "nodeStatuses",
        {
            "Pre-draining": Phase.DRAINING,
            "Pre-drained": Phase.DRAINING,
            "Post-draining": Phase.UPDATING,
            "Waiting Reboot": Phase.REBOOTING,
            "Succeeded": Phase.DONE,
            "Failed": Phase.FAILING,
        },
        "Node-upgrade paused",
        _completed,
    ),
    _Form(
        UPGRADE_PLAN,
        "nodeUpgradeStatuses",
        {
            "PreDraining": Phase.DRAINING,
            "PreDrained": Phase.DRAINING,
            "PreDrainFailed": Phase.FAILING,
            "PostDraining": Phase.UPDATING,
            "SingleNodeUpgrading": Phase.UPDATING,
            "WaitingReboot": Phase.REBOOTING,
            "PostDrainFailed": Phase.FAILING,
            "SingleNodeUpgradeFailed": Phase.FAILING,
            **dict.fromkeys(
                (
                    "PostDrained",
                    "SingleNodeUpgraded",
                    "ImageCleaning",
                    "ImageCleaned",
                    "ImageCleanFailed",
                ),
                Phase.DONE,
            ),
        },
        "UpgradePaused",
        _last_phase,
    ),
)


KINDS: Final = tuple(form.kind.kind for form in _FORMS)
"""The names of the kinds that say how far an upgrade of Harvester is."""


def upgrades(cluster: Cluster) -> Iterator[PoolUpdate]:
    """Yield how far the upgrade of Harvester is that is under way."""
    return (update for _, update in going(cluster))


def going(cluster: Cluster) -> Iterator[tuple[Object, PoolUpdate]]:
    """Yield the upgrade of Harvester that is under way, with how far it is."""
    return ((own, _progress(own, form, cluster)) for form, own in _under_way(cluster))


def keeps_launchers(cluster: Cluster) -> bool:
    """Return whether an upgrade of Harvester is under way, which switches workload updates of
    KubeVirt off meanwhile.

    Its drains move the VMs
    (package/upgrade/upgrade_manifests.sh#disable_kubevirt_workload_live_migration).
    """
    return any(each.kind == HARVESTER_UPGRADE.kind for each in upgrades(cluster))


def has_failed(cluster: Cluster) -> bool:
    """Return whether the last upgrade of Harvester has ended with an error."""
    return any(form.succeeded(upgrade) is False for form, upgrade in _latest(cluster))


def _under_way(cluster: Cluster) -> Iterator[tuple[_Form, Object]]:
    return ((form, own) for form, own in _latest(cluster) if form.succeeded(own) is None)


def _latest(cluster: Cluster) -> Iterator[tuple[_Form, Object]]:
    """Yield the last upgrade of each form."""
    for form in _FORMS:
        known = (
            each
            for each in cluster.known(form.kind)
            if form.kind is UPGRADE_PLAN or each.labels.get(_LATEST) == "true"
        )
        latest = max(known, key=lambda each: each.created, default=None)
        if latest is not None:
            yield form, latest


_BEFORE_NODES: Final = (
    "LogReady",
    "ImageReady",
    "RepoReady",
    "NodesPrepared",
    "SystemServicesUpgraded",
)
"""The conditions that have to be True before a node is touched, in their order
(pkg/controller/master/upgrade/upgrade_controller.go).
"""


_STEPS: Final = (
    *("Initializ", "ISODownload", "RepoCreat", "MetadataPopulat", "ImagePreload", "ClusterUpgrad"),
)
_PLAN_BEFORE_NODES: Final = tuple(f"{each}{end}" for each in _STEPS for end in ("ing", "ed"))
"""The phases of an UpgradePlan before those of its nodes."""


def starting(cluster: Cluster) -> list[Object]:
    """Return the upgrades under way that wait for something before their nodes."""
    return [upgrade for _, upgrade in _under_way(cluster) if stage(upgrade)[0]]


def is_at_nodes(cluster: Cluster) -> bool:
    """Return whether an upgrade has done all that comes before the nodes."""
    return any(_is_prepared(each) for _, each in _under_way(cluster))


def _is_prepared(upgrade: Object) -> bool:
    if upgrade.kind == HARVESTER_UPGRADE.kind:
        return upgrade.is_true(_BEFORE_NODES[-1])
    phase = upgrade.at("status", "currentPhase").text
    return bool(phase) and phase not in _PLAN_BEFORE_NODES


def image(upgrade: Object) -> tuple[str, str]:
    """Return namespace and name of the image of an upgrade; empty: it names none."""
    status = upgrade["status"]
    namespace, _, name = (status["imageID"].text or status["isoImageID"].text or "").partition("/")
    return namespace, name


def waits_for(upgrade: Object) -> str:
    """Return what an upgrade waits for before its nodes, as a clause without a time."""
    name = stage(upgrade)[0]
    if upgrade.kind == UPGRADE_PLAN.kind:
        return f"its phase has been {name}"
    return f"its condition {name} has not been True"


_NODES: Final = ("status", "nodeStatuses")


def preloading(upgrade: Object) -> str:
    """Return on which nodes an upgrade loads images now, and on which it has, as an insertion;
    empty: it is not at that.

    A node takes minutes, and by default one follows the other
    (:pkg/controller/master/upgrade/job_controller.go#nodeStateImagesPreloading).
    """
    if upgrade.kind != HARVESTER_UPGRADE.kind or stage(upgrade)[0] != "NodesPrepared":
        return ""
    states = [(each["state"].text, name) for name, each in upgrade.at(*_NODES).entries()]
    now, done = (
        names(sorted(name for state, name in states if state == f"Images preload{end}"))
        for end in ("ing", "ed")
    )
    there = [f"now on {now}" if now else "", f"done on {done}" if done else ""]
    return f" ({', '.join(filter(None, there))})" if now or done else ""


def stage(upgrade: Object) -> tuple[str, datetime | None]:
    """Return the condition that an upgrade waits for before its nodes, or the phase of a plan that
    it is in before them, and since when; empty: for none.

    The condition is the first after the last that is True. A log that is switched off or fails
    (LogReady is False) stops nothing (upgrade_controller.go#OnChanged). Harvester writes no time
    into a condition that it creates, so the time of the one before counts.
    """
    if upgrade.kind == UPGRADE_PLAN.kind:
        return _phase(upgrade)
    since, waits, began = upgrade.created, "", ""
    for kind in _BEFORE_NODES:
        condition = upgrade.condition(kind)
        since, status = update_orders.since(condition) or since, condition["status"].text
        if status == "True" or (kind == _BEFORE_NODES[0] and status == "False"):
            waits = ""
        elif condition.present and not waits:
            waits, began = kind, since
    return (waits, clock.instant(began)) if waits else ("", None)


def _phase(plan: Object) -> tuple[str, datetime | None]:
    phase = plan.at("status", "currentPhase").text or ""
    if phase not in _PLAN_BEFORE_NODES:
        return "", None
    times = plan.at("status", "phaseTransitionTimestamps").items()
    since = (each["phaseTransitionTimestamp"].text for each in times if each["phase"].text == phase)
    return phase, clock.instant(next(since, plan.created))


def state(upgrade: Object, node: str) -> str:
    """Return the state of a node in the words of an upgrade; empty: it says none."""
    form = next(each for each in _FORMS if each.kind.kind == upgrade.kind)
    return upgrade.at("status", form.statuses, node, "state").text or ""


def is_before_drain(node: str, cluster: Cluster) -> bool:
    """Return whether an upgrade still waits for the VMs and volumes of a node: Rancher drains it
    afterwards, so that no budget holds that.
    """
    return any(state(own, node) in _BEFORE_DRAIN for own, _ in going(cluster))


_BEFORE_DRAIN: Final = ("Pre-draining", "PreDraining")


def _emptied(
    nodes: Mapping[str, NodeUpdate], states: Field, cluster: Cluster
) -> Iterator[tuple[str, NodeUpdate]]:
    """Yield the nodes that Rancher has drained: it has updated Kubernetes there, which the state
    does not say.
    """
    versions = {
        node.name: node.at("status", "nodeInfo", "kubeletVersion").text
        for node in cluster.known(NODE)
    }
    done = {versions.get(name) for name, each in nodes.items() if each.phase is Phase.DONE}
    old = {versions.get(name) for name, each in nodes.items() if each.phase is Phase.WAITING}
    for name, update in nodes.items():
        version = versions.get(name)
        is_new = version in done or (old and version not in old)
        drained = states[name]["state"].text in ("Pre-drained", "PreDrained")
        if drained and version and is_new and not done & old:
            yield name, replace(update, phase=Phase.UPDATING, exact=False)


def _progress(upgrade: Object, form: _Form, cluster: Cluster) -> PoolUpdate:
    states, kind = upgrade.at("status", form.statuses), form.kind.kind
    nodes: dict[str, NodeUpdate] = {}
    for node in sorted(cluster.known(NODE), key=lambda each: each.name):
        found = states[node.name]
        phase = form.phases.get(found["state"].text or "", Phase.WAITING)
        words = ": ".join(filter(None, (found["reason"].text, found["message"].text)))
        since = node_phases.cordoned_since(node) if phase in node_phases.IN_FLIGHT else None
        silent = node_phases.unready_since(node) if phase is Phase.REBOOTING else None
        exact = phase is Phase.DRAINING or silent is not None
        nodes[node.name] = NodeUpdate(kind, upgrade.name, phase, silent or since, exact, words)
    nodes |= dict(_emptied(nodes, states, cluster))
    begun = any(update.phase in node_phases.IN_FLIGHT for update in nodes.values())
    waiting = [name for name, update in nodes.items() if update.phase is Phase.WAITING]
    paused = tuple(name for name in waiting if states[name]["state"].text == form.paused)
    for name in [] if begun or paused or stage(upgrade)[0] else waiting[:1]:  # one node at a time
        nodes[name] = NodeUpdate(kind, upgrade.name, Phase.NEXT)
    began = clock.instant(upgrade.created)
    return PoolUpdate(kind, upgrade.name, nodes, began, paused=paused)
