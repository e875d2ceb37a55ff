"""Upgrades of Harvester, which updates one node after the other: an Upgrade,
or since 1.8 an UpgradePlan.

Sources: harvester/harvester:package/upgrade/upgrade_node.sh,
:pkg/apis/harvesterhci.io/v1beta1/upgrade.go#UpgradeStatus;
harvester/upgrade-toolkit:api/v1beta1/upgradeplan_types.go#NodeUpgradeState.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import HARVESTER_UPGRADE, NODE, UPGRADE_PLAN, Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.node_updates import node_phases
from virt_admit.model.node_updates.node_phases import NodeUpdate, Phase, PoolUpdate

_LATEST: Final = "harvesterhci.io/latestUpgrade"

READS: Final[Reads] = {
    HARVESTER_UPGRADE: (f"metadata.labels.{_LATEST}", "metadata.creationTimestamp", "status"),
    UPGRADE_PLAN: ("metadata.creationTimestamp", "status"),
    NODE: ("spec.taints",),
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
    """Yield the upgrade of Harvester that is under way."""
    for form in _FORMS:
        latest = _latest(form, cluster)
        if latest is not None and form.succeeded(latest) is None:
            yield _progress(latest, form, cluster)


def keeps_launchers(cluster: Cluster) -> bool:
    """Return whether an upgrade of Harvester is under way, which switches workload updates of
    KubeVirt off meanwhile.

    Its drains move the VMs
    (package/upgrade/upgrade_manifests.sh#disable_kubevirt_workload_live_migration).
    """
    return any(each.kind == HARVESTER_UPGRADE.kind for each in upgrades(cluster))


def has_failed(cluster: Cluster) -> bool:
    """Return whether the last upgrade of Harvester has ended with an error."""
    latest = ((form, _latest(form, cluster)) for form in _FORMS)
    return any(upgrade is not None and form.succeeded(upgrade) is False for form, upgrade in latest)


def _latest(form: _Form, cluster: Cluster) -> Object | None:
    known = (
        each
        for each in cluster.known(form.kind)
        if form.kind is UPGRADE_PLAN or each.labels.get(_LATEST) == "true"
    )
    return max(known, key=lambda each: each.metadata["creationTimestamp"].text or "", default=None)


_BEFORE_NODES: Final = (
    "LogReady",
    "ImageReady",
    "RepoReady",
    "NodesPrepared",
    "SystemServicesUpgraded",
)
"""The conditions that have to be True before a node is touched
(pkg/controller/master/upgrade/upgrade_controller.go).
"""


def stage(upgrade: Object) -> tuple[str, datetime | None]:
    """Return the first condition that an upgrade waits for before its nodes, and since when; empty:
    for none.

    Harvester writes no time into a condition that it creates, so the time of the one before counts.
    """
    since = upgrade.metadata["creationTimestamp"].text
    for kind in _BEFORE_NODES:
        condition = upgrade.condition(kind)
        since = condition["lastUpdateTime"].text or since
        if condition.present and condition["status"].text != "True":
            return kind, clock.instant(since)
    return "", None


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
    begun = any(update.phase in node_phases.IN_FLIGHT for update in nodes.values())
    waiting = [name for name, update in nodes.items() if update.phase is Phase.WAITING]
    paused = tuple(name for name in waiting if states[name]["state"].text == form.paused)
    for name in [] if begun or paused or stage(upgrade)[0] else waiting[:1]:  # one node at a time
        nodes[name] = NodeUpdate(kind, upgrade.name, Phase.NEXT)
    began = clock.instant(upgrade.metadata["creationTimestamp"].text)
    return PoolUpdate(kind, upgrade.name, nodes, began, paused=paused)
