"""Volumes that Longhorn does not attach to the target of a migration, as they are not healthy.

Longhorn before 1.1.3, and 1.2.0, begins a migration of healthy volumes alone; later releases also
of degraded ones. A volume is healthy with as many healthy replicas as it asks for. Sources:
longhorn/longhorn-manager:manager/volume.go#Attach #UpdateReplicaCount,
:controller/volume_controller.go#ReconcileEngineReplicaState; issue longhorn/longhorn#2805.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Final

from virt_admit.forecasts.placement.components.busy_volumes import HeldVolume
from virt_admit.forecasts.placement.components.longhorn import longhorn_copies
from virt_admit.model.commands import about, merge_patch, typed
from virt_admit.model.kubernetes.cluster import Cluster, cached, entry, unlisted
from virt_admit.model.kubernetes.kinds import (
    LONGHORN_NODE,
    LONGHORN_REPLICA,
    LONGHORN_SETTING,
    LONGHORN_VOLUME,
    NODE,
    PV,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.lookups import find, find_named
from virt_admit.model.messages import names

READS: Final[Reads] = union(
    longhorn_copies.READS,
    {
        PV: ("spec.csi.volumeHandle",),
        LONGHORN_VOLUME: (
            *("spec.migrationNodeID", "spec.numberOfReplicas"),
            *("status.robustness", "status.state"),
        ),
        LONGHORN_REPLICA: ("status.currentState",),
        LONGHORN_NODE: ("spec.allowScheduling", "status.conditions"),
        NODE: ("spec.unschedulable", *CONDITIONS),
        LONGHORN_SETTING: ("value",),
    },
)
_REFUSAL: Final = "volume must be healthy to start migration"
_TWO: Final = 2
"""With fewer replicas nothing is left when one fails."""
_FURTHER: Final = "add a storage node, or update Longhorn to 1.2.1 or later"


def of(name: str, error: str, cluster: Cluster) -> HeldVolume | None:
    """Return why Longhorn does not migrate a PersistentVolume, by the error of its attachment;
    None: the error is another one, or the volume is healthy now.
    """
    found = find(cluster, PV, "", name) if _REFUSAL in error else None
    handle = found.at("spec", "csi", "volumeHandle").text if found is not None else None
    volume = find_named(cluster, LONGHORN_VOLUME, handle) if handle else None
    robustness = volume.at("status", "robustness").text if volume is not None else None
    wanted = volume.at("spec", "numberOfReplicas").integer if volume is not None else None
    if volume is None or robustness in (None, "", "healthy") or not wanted:
        return None
    begin = f"Longhorn says {_REFUSAL}, and it is {robustness}"
    see = about("describe", volume, LONGHORN_VOLUME)
    if unlisted(cluster, LONGHORN_REPLICA):
        return HeldVolume(begin, typed("see why it is not healthy", see))
    known = replicas(volume, cluster)
    healthy = [each for each in known if is_healthy(each)]
    lost = [each for each in known if not is_healthy(each)]
    begin += f": {len(healthy)} of {wanted} replicas are healthy"
    away = _away({each.at("spec", "nodeID").text for each in healthy}, cluster)
    on = {each.at("spec", "nodeID").text for each in lost}
    rebuilt = on - away.keys() - {"", None}
    if away and not rebuilt:
        name, state = min(away.items())
        return HeldVolume(
            f"{begin}, and {name}, which stores replicas, {state}",
            typed(f"let {name} return", see, f"or {_FURTHER}"),
        )
    if robustness != "degraded" or rebuilt or not lost:
        return HeldVolume(begin, typed("let its replicas be rebuilt first", see))
    if unlisted(cluster, LONGHORN_NODE) or unlisted(cluster, NODE):
        way = typed("see whether a node that stores replicas is away", see, f"or {_FURTHER}")
        return HeldVolume(begin, way)
    words = f"{begin} as {no_place(wanted, cluster)}"
    return HeldVolume(words, _remedy(volume, len(healthy), wanted), lasts=True)


def replicas(volume: Object, cluster: Cluster) -> Sequence[Object]:
    """Return the known replicas of a volume."""
    return entry(cluster, longhorn_copies.by_volume, volume.name) or ()


def _away(used: Set[str | None], cluster: Cluster) -> Mapping[str, str]:
    """Return the nodes that may take a replica once they are back, with their state. Those that
    store a healthy one are left out: a drain cordons them, and they take no second one.
    """
    found = {}
    for own in _storing(cluster):
        node = find(cluster, NODE, "", own.name)
        if own.name in used or (node is None and unlisted(cluster, NODE)):
            continue
        if node is None:
            found[own.name] = "is not in the cluster"
        elif not node.is_true("Ready") or _says_down(own):
            found[own.name] = "is not ready"
        elif node.at("spec", "unschedulable").boolean:
            found[own.name] = "is cordoned"
    return found


def _says_down(own: Object) -> bool:
    """Return whether Longhorn takes its node as down. Up to 1.2 its conditions were a map."""
    said = (
        own.condition("Ready")["status"].text
        or own.at("status", "conditions", "Ready")["status"].text
    )
    return said in ("False", "Unknown")


@cached
def _storing(cluster: Cluster) -> Sequence[Object]:
    """Return Longhorn's nodes on which it may place replicas."""
    return [
        own
        for own in cluster.known(LONGHORN_NODE)
        if own.at("spec", "allowScheduling").boolean is not False
    ]


def is_healthy(replica: Object) -> bool:
    """Return whether a replica runs and has all data."""
    runs = replica.at("status", "currentState").text == "running"
    return runs and longhorn_copies.is_healthy(replica)


def no_place(wanted: int, cluster: Cluster) -> str:
    """Return why no node takes a further replica."""
    known = [own.name for own in _storing(cluster)]
    if not known or len(known) >= wanted or shares_nodes(cluster) is not False:
        return "no node takes a further one"
    return f"only {names(sorted(known))} store{'s' if len(known) == 1 else ''} replicas"


def shares_nodes(cluster: Cluster) -> bool | None:
    """Return whether a node takes several replicas of a volume; None: not known."""
    setting = find_named(cluster, LONGHORN_SETTING, "replica-soft-anti-affinity")
    if setting is None:
        return None if unlisted(cluster, LONGHORN_SETTING) else False
    return setting["value"].text == "true"


def fewer(volume: Object, healthy: int, wanted: int) -> str:
    """Return the command that makes a volume healthy with the replicas that are; empty: too few
    would remain, or Longhorn refuses it.

    As many replicas as are healthy remain, so none is lost. Longhorn lowers the number of an
    attached volume alone, and of none that is migrated.
    """
    idle = not volume.at("spec", "migrationNodeID").text
    attached = volume.at("status", "state").text == "attached"
    if not (_TWO <= healthy < wanted and idle and attached):
        return ""
    data = {"spec": {"numberOfReplicas": healthy}}
    return merge_patch(LONGHORN_VOLUME, volume.name, volume.namespace, data)


def _remedy(volume: Object, healthy: int, wanted: int) -> str:
    """Return what makes a volume healthy."""
    patch = fewer(volume, healthy, wanted)
    if not patch:
        return typed(_FURTHER, about("describe", volume, LONGHORN_VOLUME))
    words = f"as a decision, set numberOfReplicas of the volume to {healthy}"
    return typed(words, patch, f"raise it to {wanted} again afterwards; or {_FURTHER}")
