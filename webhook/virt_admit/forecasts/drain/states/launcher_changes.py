"""Migrations that fail since KubeVirt's launcher was updated: the nodes have the same CPU, and
libvirt or QEMU has changed.

The source runs in the old launcher and each target in the new one, so no node and no retry helps.
Sources: kubevirt/kubevirt#16386, harvester/harvester#11615 (QEMU reports the feature ``ht`` in
another way).
"""

from __future__ import annotations

import re
from typing import Final

from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import KUBEVIRT, NODE, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import migration_failures, migrations, vmis, vms
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.lookups import find

READS: Final[Reads] = {
    KUBEVIRT: (),
    NODE: ("metadata.labels",),
    POD: ("spec.containers.image", "spec.containers.name"),
}

_CPU: Final = ("cpu-model.", "cpu-model-migration.", "cpu-feature.", "cpu-vendor.", "host-model-")
"""How the labels begin in which virt-handler describes the CPU of a node."""
_TAG: Final = re.compile(r":v?(\d+\.\d+\.\d+)[^/@]{0,100}$")


def of_cpu(vmi: Object, cluster: Cluster) -> bool:
    """Whether each migration of a VMI in an old launcher failed for CPU features between nodes with
    the same CPU.
    """
    failed = migration_failures.in_a_row(vmi, cluster)
    if vmis.OUTDATED not in vmi.labels or not failed:
        return False
    own = _cpu(vmi.at("status", "nodeName").text or "", cluster)
    same = bool(own) and all(_cpu(each.target, cluster) == own for each in failed)
    return (
        same
        and all(migration_failures.is_of_cpu(each.text) for each in failed)
        and not _reached_old(vmi, cluster)
    )


def words(vmi: Object, cluster: Cluster) -> str:
    """Return between which launchers the migrations of a VMI fail:
    ``from launcher 1.7.4 to 1.8.4``, as far as known.
    """
    release = versions.kubevirt_version(cluster)
    old = _TAG.search(vmi.at("status", "launcherContainerImageVersion").text or "")
    new = str(release) if release is not None else ""
    named = f" {old[1]}" if old is not None and old[1] != new else ""
    return f"from its old launcher{named} to the present one{f' ({new})' if new else ''}"


def _cpu(node: str, cluster: Cluster) -> frozenset[tuple[str, str]]:
    """Return the labels of the CPU of a node; empty: they are not known."""
    found = find(cluster, NODE, "", node)
    return (
        frozenset(item for item in found.labels.items() if item[0].startswith(_CPU))
        if found is not None
        else frozenset()
    )


def _reached_old(vmi: Object, cluster: Cluster) -> bool:
    """Whether a target pod that failed had the image of the source:
    then the launcher is not what differs.
    """
    own = vmi.at("status", "launcherContainerImageVersion").text
    pods = (
        each.at("status", "migrationState", "targetPod").text
        for each in migrations.own(vmi, cluster)
    )
    found = (find(cluster, POD, vms.namespace_of(vmi), name) for name in pods if name)
    boxes = (pod.at("spec", "containers") for pod in found if pod is not None)
    images = (each.named("compute")["image"].text for each in boxes)
    return own is not None and own in images
