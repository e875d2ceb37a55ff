"""Budgets of Longhorn's instance managers that stay although every VM has left the node.

Sources: longhorn/longhorn-manager:controller/instance_manager_controller.go#syncInstanceManagerPDB,
#isResponsibleFor, #canDeleteInstanceManagerPDB (an engine process, and any attached volume, keeps
the budget), :controller/volume_attachment_controller.go#handleNodeCordoned; longhorn/longhorn#5680,
#5688, #6552, #6978, #11605.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from virt_admit.forecasts.drain.budgets import longhorn_migrations
from virt_admit.forecasts.drain.budgets.operator_eviction import OperatorAnswer, PodEviction, Way
from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import (
    LONGHORN_ATTACHMENT,
    LONGHORN_ENGINE,
    LONGHORN_MANAGER,
    LONGHORN_SETTING,
    LONGHORN_VOLUME,
    PDB,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import names

READS: Final[Reads] = union(
    longhorn_migrations.READS,
    {
        LONGHORN_MANAGER: ("spec.nodeID", "status.ownerID", "status.instanceEngines"),
        LONGHORN_ENGINE: ("spec.nodeID", "spec.volumeName", "status.currentState"),
        LONGHORN_SETTING: ("value",),
        LONGHORN_ATTACHMENT: ("spec",),
        LONGHORN_VOLUME: ("status.currentNodeID", "status.kubernetesStatus"),
    },
)


def obstacle(eviction: PodEviction) -> OperatorAnswer | None:
    """Return why Longhorn does not remove a budget after the VMs have left; None: it removes it.

    Raises:
        Unseen: instance managers, engines or attachments cannot be read.
    """
    manager = eviction.cluster.get(
        LONGHORN_MANAGER, eviction.budget.namespace, eviction.budget.name
    )
    if manager is None:  # Longhorn removes the budgets of instance managers that do not exist
        return None
    node, own = eviction.node, manager.at("spec", "nodeID").text or eviction.node
    if own != node:
        return OperatorAnswer(
            Way.NOW,
            f"Longhorn wrote it for the instance manager of {own}, but it selects that of {node} "
            f"(pod {eviction.pod.name}), so cordoning {node} does not remove "
            f"it{_unguarded(eviction)}",
            typed(
                f"Update Longhorn (fixed in 1.3.3 and 1.4.2). Until then cordon {own}, wait until "
                f"Longhorn has removed the budget, and uncordon {own}",
                shell("kubectl", "cordon", argument(own)),
            ),
        )
    keeper = manager.at("status", "ownerID").text or node
    if keeper != node and _leaves_it_to_the_node(eviction):
        return OperatorAnswer(
            Way.NOW,
            f"no longhorn-manager runs on {node}, and this release of Longhorn removes the budget "
            "only from there",
            f"Let longhorn-manager run on {node}, for example with a toleration for its taints, or "
            "update Longhorn.",
        )
    orphans = sorted(_orphans(manager, node, eviction))
    if not orphans:
        return longhorn_migrations.obstacle(manager, eviction) or _attached_by_hand(eviction)
    return OperatorAnswer(
        Way.NOW,
        f"its instance manager still runs engine {names(orphans, 80)}, whose volume is not "
        f"attached on {node}, and Longhorn keeps the budget while an engine runs",
        "Update Longhorn, which removes such orphaned engines from 1.9 on with "
        "orphan-resource-auto-deletion.",
    )


def _unguarded(eviction: PodEviction) -> str:
    """Return that Longhorn guards the pod no more, as it has removed the budget of its own; empty:
    it has one, or is unread.

    Longhorn removes it only where no attached volume and no last healthy copy needs the node
    (#canDeleteInstanceManagerPDB).
    """
    namespace, name = eviction.budget.namespace, eviction.pod.name
    manager = find(eviction.cluster, LONGHORN_MANAGER, namespace, name)
    if manager is None or manager.at("spec", "nodeID").text != eviction.node:
        return ""
    try:
        own = eviction.cluster.get(PDB, namespace, name)
    except Unseen:
        return ""
    return (
        ""
        if own is not None
        else ". No data is at stake: Longhorn has removed the pod's own budget already"
    )


_BY_HAND: Final = "longhorn-api"
"""The type of the tickets of attachments that a user made, in Longhorn's page or by its API."""


def _attached_by_hand(eviction: PodEviction) -> OperatorAnswer | None:
    """Return which volumes stay attached when the pods have left,
    since a user attached them to the node.
    """
    cluster, node, namespace = eviction.cluster, eviction.node, eviction.budget.namespace
    volumes = cluster.cached(_attachments_by_hand).get((namespace, node), ())
    if not volumes:
        if cluster.cached(_volumes_without_pods).get((namespace, node)):
            # raises Unseen unless all are known
            for _ in cluster.list(LONGHORN_ATTACHMENT, namespace):
                pass
        return None
    setting = cluster.get(
        LONGHORN_SETTING, namespace, "detach-manually-attached-volumes-when-cordoned"
    )
    if setting is not None and setting["value"].text == "true":
        return None
    return OperatorAnswer(
        Way.NOW,
        f"Longhorn volume {names(volumes, 80)} was attached to {node} by hand, and Longhorn keeps "
        "the budget while a volume is attached",
        "Detach it on Longhorn's page. From 1.6 on Longhorn does so by itself with the setting "
        "detach-manually-attached-volumes-when-cordoned: true.",
    )


def _attachments_by_hand(cluster: Cluster) -> Mapping[tuple[str, str], Sequence[str]]:
    """Return the volumes that a user attached, by namespace and node."""
    found: dict[tuple[str, str], list[str]] = {}
    for attachment in cluster.known(LONGHORN_ATTACHMENT):
        spec = attachment["spec"]
        for _, ticket in spec["attachmentTickets"].entries():
            if ticket["type"].text == _BY_HAND:
                volumes = found.setdefault((attachment.namespace, ticket["nodeID"].text or ""), [])
                volumes.append(spec["volume"].text or attachment.name)
    return {place: sorted(set(volumes)) for place, volumes in found.items()}


def _volumes_without_pods(cluster: Cluster) -> Mapping[tuple[str, str], Sequence[str]]:
    """Return the attached volumes that Longhorn sees no pod use, by namespace and node."""
    found: dict[tuple[str, str], list[str]] = {}
    for volume in cluster.known(LONGHORN_VOLUME):
        node, seen = (
            volume.at("status", "currentNodeID").text,
            volume.at("status", "kubernetesStatus"),
        )
        if node and seen.map and not any(seen["workloadsStatus"].items()):
            found.setdefault((volume.namespace, node), []).append(volume.name)
    return found


_VERSION: Final = re.compile(r"v?(\d{1,3})\.(\d{1,3})\.(\d{1,3})")
_REPAIRED: Final = {(1, 3): 3, (1, 4): 2}
"""The patch release of a minor release from which any longhorn-manager removes the budget;
later ones all do.
"""


def _leaves_it_to_the_node(eviction: PodEviction) -> bool:
    """Return whether only the longhorn-manager of the node itself removes the budget
    (longhorn/longhorn#5688).
    """
    setting = eviction.cluster.get(
        LONGHORN_SETTING, eviction.budget.namespace, "current-longhorn-version"
    )
    found = _VERSION.match((setting["value"].text if setting is not None else None) or "")
    if found is None:
        return False
    major, minor, patch = map(int, found.groups())
    return patch < _REPAIRED.get((major, minor), 0) or (major, minor) < min(_REPAIRED)


def _orphans(manager: Object, node: str, eviction: PodEviction) -> Iterator[str]:
    """Yield the engine processes that no volume on this node needs:
    they do not end when the VMs leave.
    """
    for name in manager.at("status", "instanceEngines").map:
        engine = eviction.cluster.get(LONGHORN_ENGINE, manager.namespace, name)
        if engine is None or _is_orphaned(engine, node):
            yield name


def _is_orphaned(engine: Object, node: str) -> bool:
    stopped = engine.at("status", "currentState").text == "stopped"
    return stopped or engine.at("spec", "nodeID").text not in (node, "", None)
