"""Longhorn volumes that no node can attach, since all their copies have failed.

Longhorn salvages a copy by itself on a node that is up, where ``auto-salvage`` is on and its disk is well. Sources:
longhorn/longhorn-manager:controller/volume_controller.go#ReconcileVolumeState, :manager/volume.go#Salvage,
:csi/controller_server.go#ControllerPublishVolume; issues harvester/harvester#6279.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from virt_admit.forecasts.drain.budgets import longhorn_copies
from virt_admit.forecasts.drain.states import vm_states_times
from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes import clock, node_health
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, unlisted
from virt_admit.model.kubernetes.kinds import LONGHORN_REPLICA, LONGHORN_VOLUME, PV, PVC
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem, ProblemCause

READS: Final[Reads] = union(
    longhorn_copies.READS,
    node_health.READS,
    {
        LONGHORN_VOLUME: ("status.robustness", "status.state"),
        PVC: ("spec.volumeName",),
        PV: ("spec.csi.driver", "spec.csi.volumeHandle"),
    },
)
_DRIVER: Final = "driver.longhorn.io"


def problem(vm: Object, cluster: Cluster) -> Problem | None:
    """Return which disk of a VM that does not run can be attached nowhere; None: none, or nothing says so."""
    spec, known = vms.vmi_spec(vm), cluster.cached(_faulted)
    for claim in (*launcher_pod.claims(spec), *launcher_pod.attached_claims(spec)) if known else ():
        volume = known.get(_handle(vms.namespace_of(vm), claim, cluster))
        if volume is not None:
            return _of(volume, claim, cluster)
    return None


def _faulted(cluster: Cluster) -> dict[str, Object]:
    return {
        volume.name: volume
        for volume in cluster.known(LONGHORN_VOLUME)
        if volume.at("status", "robustness").text == "faulted" and volume.at("status", "state").text == "detached"
    }


def _handle(namespace: str, claim: str, cluster: Cluster) -> str:
    """Return the Longhorn volume behind a claim; empty: it has none, or that could not be read."""
    try:
        found = cluster.get(PVC, namespace, claim)
        volume = cluster.get(PV, "", found.at("spec", "volumeName").text or "") if found is not None else None
    except Unseen:
        return ""
    csi = volume.at("spec", "csi") if volume is not None else None
    return (csi["volumeHandle"].text or "") if csi is not None and csi["driver"].text == _DRIVER else ""


def _of(volume: Object, claim: str, cluster: Cluster) -> Problem:
    copies = cluster.cached(longhorn_copies.by_volume).get(volume.name, ())
    usable = any(map(longhorn_copies.is_healthy, copies))
    nodes = sorted({each.at("spec", "nodeID").text or "?" for each in copies})
    called = f"Longhorn volume {volume.name} of claim {claim} is faulted"
    command = about("describe", volume, LONGHORN_VOLUME)
    if usable or not copies or unlisted(cluster, LONGHORN_REPLICA):
        remedy = typed("see why Longhorn does not attach it", command)
        return Problem(f"{called}, so no node can attach it", remedy, ProblemCause.NOT_REPORTED)
    all_copies = {1: "its only copy", 2: "both its copies"}.get(len(copies), f"all its {len(copies)} copies")
    failed = f"{called}: {all_copies} ({names(nodes)}) failed{_since(copies, cluster)}, so no node can attach it"
    lost = [node for node in nodes if node_health.silence_now(node, cluster)]
    if lost:
        reason = (
            f"{failed}. Longhorn may salvage it once {names(lost)} {'reports' if len(lost) == 1 else 'report'} again"
        )
        return Problem(reason, typed(f"repair {names(lost)}", command), ProblemCause.NOT_REPORTED)
    remedy = f"check the disks of {names(nodes)}, then salvage the volume in Longhorn with its newest copy, or restore a backup"
    return Problem(f"{failed}. This does not end by itself", typed(remedy, command), ProblemCause.NOT_REPORTED)


def _since(copies: Sequence[Object], cluster: Cluster) -> str:
    """Return how long ago the last copy failed."""
    last = max((each.at("spec", "failedAt").text or "" for each in copies), default="")
    at = clock.instant(last)
    return f" {vm_states_times.clock_words(at, cluster)} ago" if at is not None and clock.now(cluster) else ""
