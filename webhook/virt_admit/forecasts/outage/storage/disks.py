"""The volumes behind the disks of VMs, as their CSI drivers name them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import PV, PVC, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.lookups import find, volume_of

_CLUSTER: Final = "clusterID"
"""The attribute of Ceph's volumes that names their Ceph cluster."""
_POOL: Final = "pool"
_DATA: Final = "dataPool"
"""The attribute of those whose data is in another pool, which keeps no copies."""
READS: Final[Reads] = {
    PVC: ("spec.volumeName",),
    PV: (
        "spec.csi.driver",
        "spec.csi.volumeHandle",
        *(f"spec.csi.volumeAttributes.{name}" for name in (_CLUSTER, _POOL, _DATA)),
    ),
    VMI: ("spec.volumes", "spec.utilityVolumes", "status.nodeName"),
}


class DiskLoss(NamedTuple):
    """Why the volume of a disk cannot be used after a loss."""

    reason: str
    remedy: str
    certain: bool = True
    unseen: str = ""


class Disk(NamedTuple):
    """A volume that a VM uses."""

    vmi: Object
    claim: str
    """Its ``namespace/name``."""
    driver: str
    handle: str
    """The name of the volume at its driver."""
    cluster: str
    """The storage cluster that the driver finds it in; empty: it has one alone, or does not say."""
    pool: str
    """The pool of its data; empty: it does not say."""

    @property
    def node(self) -> str:
        """The node of the VM."""
        return self.vmi.at("status", "nodeName").text or ""


def of_claims(vmi: Object, claims: Sequence[str], cluster: Cluster) -> Iterator[Disk]:
    """Yield the disks behind claims of a VM, without those that are not bound or not read."""
    namespace = vms.namespace_of(vmi)
    for name in dict.fromkeys(claims):
        volume = volume_of(find(cluster, PVC, namespace, name), cluster)
        csi = volume.at("spec", "csi") if volume is not None else None
        if csi is not None and (driver := csi["driver"].text):
            more = csi["volumeAttributes"]
            pool = more[_DATA].text or more[_POOL].text or ""
            handle, where = csi["volumeHandle"].text or "", more[_CLUSTER].text or ""
            yield Disk(vmi, f"{namespace}/{name}", driver, handle, where, pool)


def by_volume(cluster: Cluster) -> Mapping[tuple[str, str], Sequence[Disk]]:
    """Return the disks of all known VMIs by driver and volume."""
    found: dict[tuple[str, str], list[Disk]] = {}
    for vmi in cluster.known(VMI):
        spec = vmi["spec"]
        for disk in of_claims(vmi, launcher_pod.all_claims(spec), cluster):
            found.setdefault((disk.driver, disk.handle), []).append(disk)
    return found
