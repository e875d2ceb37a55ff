"""Volumes of Longhorn that several nodes mount through its NFS server, whose address is none.

The address is that of the Service of the volume. While a network of its own serves such volumes,
the Service has no cluster IP, and its name is the address. Once the setting of that network is
empty, Longhorn takes the IP again, which is the word ``None`` as long as the Service is not made
again. Sources: longhorn/longhorn-manager: controller/share_manager_controller.go
#syncShareManagerEndpoint #cleanupService; harvester/harvester#10532; harvester/docs:
versioned_docs/version-v1.8/upgrade/v1-7-x-to-v1-8-x.md (the way back).
"""

from __future__ import annotations

from typing import Final

from virt_admit.forecasts.placement.components.busy_volumes import HeldVolume
from virt_admit.model.commands import about, kubectl, merge_patch, typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import (
    HARVESTER_SETTING,
    LONGHORN_SETTING,
    LONGHORN_VOLUME,
    POD,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.lookups import fields, find, find_named

_NETWORK: Final = "endpoint-network-for-rwx-volume"
_SHARED: Final = "storage-network"
_WAS_SHARED: Final = "storage-network-for-rwx-volume-enabled"
_RWX: Final = "rwx-network"
_INITIALIZED: Final = "rwx-network.settings.harvesterhci.io/initialized"

READS: Final[Reads] = {
    LONGHORN_VOLUME: ("status.shareEndpoint",),
    LONGHORN_SETTING: ("value",),
    HARVESTER_SETTING: ("value", f"metadata.annotations.{_INITIALIZED}"),
}


def without_address(volume: str, cluster: Cluster) -> HeldVolume | None:
    """Return why no further node can mount a volume; None: its NFS server has an address, or
    it has no such server.
    """
    own = find_named(cluster, LONGHORN_VOLUME, volume)
    endpoint = own.at("status", "shareEndpoint").text or "" if own is not None else ""
    if own is None or not endpoint.startswith("nfs://None/"):
        return None
    network = find(cluster, LONGHORN_SETTING, own.namespace, _NETWORK)
    words = f"the address of its NFS server is {endpoint.partition(volume)[0]}…"
    if network is None or network["value"].text:
        see = typed(
            "see what Longhorn reports of the volume", about("describe", own, LONGHORN_VOLUME)
        )
        return HeldVolume(words, see, lasts=True)
    words += f", because Longhorn's setting {_NETWORK} is empty"
    shared = _value(_SHARED, own, cluster)
    if not shared or _value(_WAS_SHARED, own, cluster) != "true":
        see = typed(
            f"set {_NETWORK} to the network that it had, if that was not on purpose",
            about("edit", network, LONGHORN_SETTING),
        )
        return HeldVolume(words, see, lasts=True)
    words += f" while {_WAS_SHARED} is true"
    command = merge_patch(LONGHORN_SETTING, _NETWORK, own.namespace, {"value": shared})
    back = f"set {_NETWORK} back to {shared}"
    return HeldVolume(words, typed(back, command, _after_that(own, cluster)), lasts=True)


def _after_that(own: Object, cluster: Cluster) -> str:
    """Return what gives the server its address then; Harvester would clear the setting once
    more as long as its own setting counts as initialized.

    Once its server is lost, Longhorn has the pods that use a volume mount it again, by default
    (controller/kubernetes_pod_controller.go#handlePodDeletionIfVolumeRequestRemount).
    """
    server = kubectl("delete", POD, f"share-manager-{own.name}", own.namespace)
    again = (
        f"then restart the NFS server ({server}) at a time when the pods that use the volume may "
        "stop, as Longhorn deletes those that run (and so a VM)"
    )
    rwx = find(cluster, HARVESTER_SETTING, "", _RWX)
    if rwx is None or rwx["value"].text or rwx.annotations.get(_INITIALIZED) != "true":
        return again
    clear = kubectl("annotate", HARVESTER_SETTING, _RWX, "", f"{_INITIALIZED}-")
    return f"{again}; then have Harvester take over that value ({clear})"


def _value(name: str, volume: Object, cluster: Cluster) -> str:
    return fields(cluster, LONGHORN_SETTING, volume.namespace, name)["value"].text or ""
