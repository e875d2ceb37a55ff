"""Migrations that fail for CPU features although the nodes have the same CPU: libvirt or QEMU of
the launcher is the cause.

Where the launcher was updated, the source runs in the old one and each target in the new one. A
launcher may also describe the CPU of the host (host-model) with a feature that its own QEMU does
not give to a guest: libvirt reports it, so that virt-handler labels each node with it, and checks
it only on the target. No node and no retry helps against either. Sources: kubevirt/kubevirt#16386,
harvester/harvester#11615 (QEMU reports the feature ``ht`` in another way), #11358 (``pdcm``);
kubevirt/kubevirt:pkg/virt-handler/node-labeller/node_labeller.go#prepareLabels.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from virt_admit.forecasts.drain.failed_migrations.pair_remedies import NAMED_MODEL
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import KUBEVIRT, NODE, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import migration_failures, migrations, vmis, vms
from virt_admit.model.kubevirt.launcher.launcher_pod import CPU_FEATURE
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


def withheld(node: str, text: str, cluster: Cluster) -> str:
    """Return which CPU features the QEMU of a target did not give to the guest although its node
    has the label of each: ``pdcm, avx512ifma``; empty: the node may lack one.
    """
    features = migration_failures.missing_features(text)
    found = find(cluster, NODE, "", node) if features else None
    has = found is not None and all(
        found.labels.get(f"{CPU_FEATURE}{each}") == "true" for each in features
    )
    return ", ".join(features) if has else ""


def pair_words(node: str, text: str, cluster: Cluster) -> str:
    """Return why a node never takes the VM of a migration, instead of libvirt's sentence."""
    features = withheld(node, text, cluster)
    if not features:
        return migration_failures.pair_words(text)
    return (
        f"QEMU in its virt-launcher does not give the guest {features}, which the node has (label "
        f"{CPU_FEATURE}{features.partition(',')[0]})"
    )


def remedy_of_withheld(vmi: Object, impossible: Mapping[str, str], cluster: Cluster) -> str:
    """Return what helps where QEMU gives the guest on no node a feature of its CPU model; empty: a
    node may lack one.
    """
    found = [withheld(node, text, cluster) for node, text in impossible.items()]
    if not found or not all(found):
        return ""
    features = ", ".join(dict.fromkeys(found))
    host = vmi.at("spec", "domain", "cpu", "model").text in (None, "host-model")
    return (
        f"update KubeVirt to a release whose virt-launcher gives guests {features}; until then "
        f"{NAMED_MODEL}{' instead of host-model' if host else ''}, or {features} with policy "
        "disable in domain.cpu.features, and restart the VM"
    )


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
