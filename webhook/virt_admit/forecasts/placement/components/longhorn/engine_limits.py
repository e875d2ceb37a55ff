"""Volumes of Longhorn's v2 engine, which Longhorn before 1.8 does not move with a running VM.

Another access mode of the claim would not help. Sources: longhorn/longhorn#6361 (migration of v2
volumes), #6229 (which release brought what); harvester/docs v1.4, advanced/longhorn-v2.
"""

from __future__ import annotations

from typing import Final

from virt_admit.forecasts.placement.components.longhorn import longhorn_copies
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import LONGHORN_SETTING, LONGHORN_VOLUME, PV, PVC
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.lookups import find, find_named

READS: Final[Reads] = {
    PVC: ("spec.volumeName",),
    PV: ("spec.csi.driver", "spec.csi.volumeHandle"),
    LONGHORN_VOLUME: ("spec.backendStoreDriver", "spec.dataEngine"),
    LONGHORN_SETTING: ("value",),
}
_DRIVER: Final = "driver.longhorn.io"
_SINCE: Final = (1, 8)


def of_claim(namespace: str, name: str, cluster: Cluster) -> str:
    """Return why no migration shares the volume of a claim, as an apposition; empty: its engine is
    not the cause, or not known.
    """
    claim = find(cluster, PVC, namespace, name)
    disk = find(cluster, PV, "", claim.at("spec", "volumeName").text if claim is not None else "")
    csi = disk.at("spec", "csi") if disk is not None else None
    if csi is None or csi["driver"].text != _DRIVER:
        return ""
    volume = find_named(cluster, LONGHORN_VOLUME, csi["volumeHandle"].text or "")
    if volume is None:
        return ""
    spec = volume["spec"]
    engine = spec["dataEngine"].text or spec["backendStoreDriver"].text
    release = longhorn_copies.release(volume, cluster)
    if engine != "v2" or release[:2] >= _SINCE:
        return ""
    return "a volume of Longhorn's v2 engine, which migrates from Longhorn 1.8 on"
