"""CSI keys of a Ceph cluster of Rook that ceph-csi cannot read: it cannot log in to Ceph.

Keys of the type aes256k need librados 20.2.4, which ceph-csi has since 3.16.3 and 3.17.1, and
kernels that know the type: Linux 7.0, or a vendor's backport. A volume that is mapped goes on with
the key that it was mapped with, as long as Rook keeps that. Sources:
rook/rook:Documentation/Storage-Configuration/Advanced/cephx-key-rotation.md (Migrating CSI keys to
a new key type, Reverting back to an older key type); ceph/ceph-csi releases 3.16.3 and 3.17.1;
issues ceph/ceph-csi#6493, rook/rook#18254.
"""

from __future__ import annotations

import re
from typing import Final

from virt_admit.forecasts.placement.components import node_pods
from virt_admit.model.commands import about, merge_patch, nested, typed
from virt_admit.model.evidence import writers
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import CEPH_CLUSTER, NODE, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.problems import Problem

READS: Final[Reads] = union(
    node_pods.READS,
    {
        CEPH_CLUSTER: (
            *("metadata.annotations", "metadata.labels", "metadata.ownerReferences"),
            *("spec.external.enable", "spec.security.cephx", "status.cephx.csi"),
        ),
        POD: ("spec.containers.image",),
        NODE: ("status.nodeInfo.kernelVersion",),
    },
)
_OF_CEPH: Final = (".rbd.csi.ceph.com", ".cephfs.csi.ceph.com")
_NEW: Final = "aes256k"
_OLD: Final = "aes"
_NO_KEY: Final = re.compile(r"rados: ret=-22\b")
"""EINVAL: librados cannot read the key. Of a wrong key Ceph says EPERM or EACCES."""
_IMAGE: Final = re.compile(r"/cephcsi:v?((\d{1,3})\.(\d{1,3})\.(\d{1,3}))")
_READS_KEY: Final = (3, 16, 3)
_LACKS_IT: Final = (3, 17, 0)
_KERNEL: Final = re.compile(r"(\d{1,2})\.")
_KNOWS_KEY: Final = 7
_CSI: Final = ("spec", "security", "cephx", "csi")


def cause(driver: str, where: str, error: str, cluster: Cluster) -> Problem | None:
    """Return that ceph-csi cannot read its keys; None: nothing says so.

    ``where``: the cluster as the volume names it, which Rook does by the namespace.
    """
    if not driver.endswith(_OF_CEPH) or not _NO_KEY.search(error):
        return None
    ceph = next((each for each in cluster.known(CEPH_CLUSTER) if each.namespace == where), None)
    keys = ceph.at("status", "cephx", "csi") if ceph is not None else None
    if ceph is None or keys is None or keys["keyType"].text != _NEW:
        return None
    if ceph.at("spec", "external", "enable").boolean:
        return None
    release = _release(driver, cluster)
    if release is not None and release[1] >= _READS_KEY and release[1] != _LACKS_IT:
        return None
    generation = keys["keyGeneration"].integer
    of = f" (generation {generation})" if generation is not None else ""
    which = f"v{release[0]}" if release is not None else "before 3.16.3 and 3.17.0"
    words = (
        f"ceph-csi cannot log in to Ceph: the CSI keys of CephCluster {ceph.full_name} are of type "
        f"{_NEW}{of}, which ceph-csi {which} cannot read"
    )
    return Problem(words, _remedy(ceph, keys["priorKeyCount"].integer or 0, cluster))


def _release(driver: str, cluster: Cluster) -> tuple[str, tuple[int, ...]] | None:
    """Return the release of ceph-csi that the controller of a driver runs; None: not known."""
    pod = node_pods.controller_of(driver, cluster)
    for container in pod.at("spec", "containers").items() if pod is not None else ():
        if found := _IMAGE.search(container["image"].text or ""):
            return found[1], tuple(int(part) for part in found.groups()[1:])
    return None


def _remedy(ceph: Object, prior: int, cluster: Cluster) -> str:
    """Return how Rook makes keys of the former type again.

    The keys before the present ones are kept: VMs that run have their volumes mapped with them.
    """
    own = ceph.at(*_CSI)
    made = ceph.at("status", "cephx", "csi", "keyGeneration").integer or 0
    following = max(made, own["keyGeneration"].integer or 0) + 1
    kept = max(prior + 1, own["keepPriorKeyCountMax"].integer or 0, 2)
    change = {
        "keyRotationPolicy": "KeyGeneration",
        "keyGeneration": following,
        "keepPriorKeyCountMax": kept,
        "keyType": _OLD,
    }
    allowed = [each.text for each in ceph.at("spec", "security", "cephx", "allowedCiphers").items()]
    needs = f"{_NEW} needs ceph-csi 3.16.3 or 3.17.1, and Linux 7.0 on each node{_oldest(cluster)}"
    back = (
        f"let Rook make {_OLD} keys again, which keeps the {kept} generations before: VMs that run "
        "use them"
    )
    allow = f"allow {_OLD} in spec.security.cephx.allowedCiphers, then "
    first = allow if allowed and _OLD not in allowed else ""
    where, shown = writer(ceph)
    if first or where:
        values = ", ".join(f"{key} {value}" for key, value in change.items())
        words = f"{first}{back} ({values}{where}); drain no node before. {needs}"
        return typed(words, shown or about("edit", ceph, CEPH_CLUSTER))
    patch = merge_patch(CEPH_CLUSTER, ceph.name, ceph.namespace, nested(_CSI, change))
    return typed(f"{back}; drain no node before. {needs}", patch)


def writer(ceph: Object) -> tuple[str, str]:
    """Return where keys are to be set as their object is written from there, and what shows it;
    empty: nothing says so.

    ocs-operator writes the whole spec at each reconcile
    (red-hat-storage/ocs-operator:controllers/storagecluster/cephcluster.go#ensureCreated).
    """
    owner = writers.owner_above(ceph)
    if owner is not None:
        return (
            f", to be set by its owner {owner.title}, whose operator takes other changes back",
            owner.command("describe"),
        )
    if (writer := writers.of(ceph)) is not None:
        shown = about("describe", ceph, CEPH_CLUSTER)
        return f", to be set in its Git repository or chart: {writer.source} writes it", shown
    return "", ""


def _oldest(cluster: Cluster) -> str:
    """Return the oldest kernel, in brackets; empty: all know the type, or it is not known."""
    found = []
    for node in cluster.known(NODE):
        kernel = node.at("status", "nodeInfo", "kernelVersion").text or ""
        major = _KERNEL.match(kernel)
        if major is not None and int(major[1]) < _KNOWS_KEY:
            found.append((int(major[1]), node.name, kernel))
    if not found:
        return ""
    _, name, kernel = min(found)
    return f" ({name} has {kernel})"
