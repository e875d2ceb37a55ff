"""Disks whose owner virt-handler may not change: an NFS export maps root to another user.

virt-handler gives ``disk.img`` to user and group 107 (qemu), unless it has them already, and tries
again all the time. Sources:
kubevirt/kubevirt:pkg/ephemeral-disk-utils/utils.go#UnsafeSetFileOwnership,
:pkg/host-disk/host-disk.go, issue kubevirt/kubevirt#9022;
kubernetes-csi/csi-driver-nfs:docs/driver-parameters.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from virt_admit.model.commands import kubectl, typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import PV, PVC
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import migratability, vms
from virt_admit.model.lookups import find, volume_of
from virt_admit.model.problems import Problem

READS: Final[Reads] = {
    PVC: ("spec.storageClassName", "spec.volumeName"),
    PV: ("spec.csi.driver", "spec.csi.volumeAttributes", "spec.nfs"),
}
_REFUSED: Final = re.compile(r"(?i)\bchown\b.*(?:operation not permitted|permission denied)")
_UNREADABLE: Final = re.compile(r"(?i)/vmi-disks/[^/]{1,63}/.*permission denied")
"""What qemu says of a file that it may not open."""
_DISK: Final = re.compile(r"/vmi-disks/([^/]{1,63})/")
_OWNER: Final = "107 (qemu)"


class _Disk(NamedTuple):
    volume: str
    claim: Object
    pv: Object


def of(vmi: Object, said: str, cluster: Cluster) -> Problem | None:
    """Return the volume on which virt-handler may not change the owner, or qemu not open a file, as
    ``volume root (claim web, class nfs) is on NFS 192.0.2.1:/export, which lets root …``; None:
    none is known.
    """
    refused = _REFUSED.search(said) is not None
    if not refused and not _UNREADABLE.search(said):
        return None
    named, disks = _DISK.search(said), list(_disks(vmi, cluster))
    if named is None:
        disks = [each for each in disks if _export(each.pv)]
    found = [each for each in disks if named is None or each.volume == named[1]]
    if len(found) != 1:
        return None
    disk = found[0]
    name = disk.claim.at("spec", "storageClassName").text
    called = f"volume {disk.volume} (claim {disk.claim.name}{f', class {name}' if name else ''})"
    described = kubectl("describe", PV, disk.pv.name)
    export = _export(disk.pv)
    if not refused:  # on other storage, SELinux may be the cause as well
        words = f"{called} is on NFS {export}, where user {_OWNER} may not open its file"
        ways = f"give the files there to user and group {_OWNER}; KubeVirt tries again"
        return Problem(words, typed(ways, described)) if export else None
    if export:
        words = (
            f"{called} is on NFS {export}, which lets root change no owner, as an export with "
            "root_squash does"
        )
        ways = (
            "export that path with no_root_squash, or give the files there to user and group "
            f"{_OWNER}; virt-handler tries again"
        )
        return Problem(words, typed(ways, described))
    ways = (
        f"let the storage allow that, or give the file to user and group {_OWNER}; virt-handler "
        "tries again"
    )
    return Problem(f"the storage of {called} lets root change no owner", typed(ways, described))


def _disks(vmi: Object, cluster: Cluster) -> Iterator[_Disk]:
    """Yield the volumes of a VMI that have a claim with a known PersistentVolume."""
    for volume in vms.vmi_spec(vmi)["volumes"].items():
        named = migratability.claim_of(volume)
        name = named.text if named is not None else None
        claim = find(cluster, PVC, vms.namespace_of(vmi), name)
        pv = volume_of(claim, cluster)
        if claim is not None and pv is not None:
            yield _Disk(volume["name"].text or "", claim, pv)


def _export(pv: Object) -> str:
    """Return server and path of a PersistentVolume on NFS; empty: it is on something else."""
    nfs, attributes = pv.at("spec", "nfs"), pv.at("spec", "csi", "volumeAttributes")
    if nfs.is_map:
        return f"{nfs['server'].text}:{nfs['path'].text}"
    server, share = attributes["server"].text, attributes["share"].text
    if server and share:
        return f"{server}:{share}"
    driver = pv.at("spec", "csi", "driver").text or ""
    return f"of driver {driver}" if "nfs" in driver else ""
