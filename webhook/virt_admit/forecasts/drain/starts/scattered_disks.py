"""Disks of one VM whose volumes are on different nodes: why each was placed on its own,
and how they come together.

A class with the binding mode Immediate chooses a node or a zone before any pod exists. With
WaitForFirstConsumer the first pod of a claim chooses it, and without its feature gate
HonorWaitForFirstConsumer that is CDI's own pod for each disk. Sources:
kubevirt/containerized-data-importer:doc/waitforfirstconsumer-storage-handling.md,
:pkg/feature-gates/feature-gates.go; kubevirt/kubevirt issues 4764 and 5362.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from virt_admit.model.commands import kubectl, merge_patch, typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import CDI, DATA_VOLUME, HCO, PVC, STORAGE_CLASS, VM
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import NAME, Reads
from virt_admit.model.kubevirt.settings.running_release import may_be_managed
from virt_admit.model.lookups import find
from virt_admit.model.messages import names
from virt_admit.model.scheduler.volumes import VolumePlace

READS: Final[Reads] = {
    CDI: ("spec.config.featureGates",),
    DATA_VOLUME: ("metadata.ownerReferences",),
    HCO: NAME,
    PVC: ("spec.storageClassName",),
    STORAGE_CLASS: ("provisioner", "volumeBindingMode"),
}
_GATE: Final = "HonorWaitForFirstConsumer"
_WAITS: Final = "WaitForFirstConsumer"


class ScatterCause(NamedTuple):
    """Why the disks of a VM are apart."""

    why: str = ""
    """A clause; empty: nothing says it."""
    first: str = ""
    """What keeps the next disks from it."""
    command: str = ""


def cause(namespace: str, claims: Sequence[str], cluster: Cluster) -> ScatterCause:
    """Return why the volumes of these claims were made on different nodes,
    as far as that is known.
    """
    classes = {
        claim: found for claim in claims if (found := _class(namespace, claim, cluster)) is not None
    }
    at_once = next(
        (
            each
            for each in classes.values()
            if each["volumeBindingMode"].text in (None, "Immediate")
        ),
        None,
    )
    if at_once is not None:
        why = (
            f"StorageClass {at_once.name} chooses where a volume lies before the pod of the VM has "
            "a node (volumeBindingMode Immediate)"
        )
        others = sorted(each.name for each in cluster.known(STORAGE_CLASS) if _waits(each, at_once))
        like = f" ({names(others)})" if others else ""
        return ScatterCause(why, f"use a StorageClass with {_WAITS}{like}")
    filled = [claim for claim in claims if find(cluster, DATA_VOLUME, namespace, claim) is not None]
    cdi = next(iter(cluster.known(CDI)), None)
    waiting = [claim for claim, each in classes.items() if each["volumeBindingMode"].text == _WAITS]
    if cdi is None or len(set(filled) & set(waiting)) < 2 or _GATE in _gates(cdi):
        return ScatterCause()
    name = classes[waiting[0]].name
    why = (
        f"{_WAITS} of StorageClass {name} has no effect: CDI fills each disk in a pod of its own "
        f"({_GATE} is off)"
    )
    if may_be_managed(cdi, cluster):  # HyperConverged writes this setting itself
        return ScatterCause(why, f"turn the feature gate {_GATE} of CDI on")
    patch = merge_patch(
        CDI, cdi.name, "", {"spec": {"config": {"featureGates": [*_gates(cdi), _GATE]}}}
    )
    return ScatterCause(why, f"turn the feature gate {_GATE} of CDI on", patch)


def _waits(storage_class: Object, other: Object) -> bool:
    """Return whether a class of the same provisioner waits for the pod."""
    same = storage_class["provisioner"].text == other["provisioner"].text
    return same and storage_class["volumeBindingMode"].text == _WAITS


def remedy(
    namespace: str, places: Mapping[str, VolumePlace], found: ScatterCause, cluster: Cluster
) -> str:
    """Return what brings the disks together.

    The data of a disk on one node cannot be moved to another by the API alone.
    """
    first, *others = places
    again = others[-1] if others else first
    filled = find(cluster, DATA_VOLUME, namespace, again)
    vm, where = "", places[first].words.removeprefix("on ")
    if filled is not None and found.first and not found.command:
        vm = filled.owned_by(VM.kind)
    if vm:  # KubeVirt makes a disk again as its template says
        words = f"{found.first} for disk {again} in the dataVolumeTemplates of the VM"
        further = (
            f"then stop the VM, delete DataVolume {again} if its data can be imported or restored, "
            f"and start the VM: KubeVirt makes it again, to lie where {first} does ({where})"
        )
        return typed(words, kubectl("edit", VM, vm, namespace), further)
    kind = DATA_VOLUME.kind if filled is not None else "claim"
    begin = f"{found.first} and " if found.first else ""
    words = f"{begin}make disk {again} again, which is to lie where {first} does ({where})"
    how = (
        f"{words}: delete its {kind} while the VM is stopped, if its data can be imported or "
        "restored"
    )
    shown = kubectl(
        "get", DATA_VOLUME if filled is not None else PVC, again, namespace, "-o", "yaml"
    )
    return typed(how, found.command or shown)


def _class(namespace: str, claim: str, cluster: Cluster) -> Object | None:
    found = find(cluster, PVC, namespace, claim)
    name = found.at("spec", "storageClassName").text if found is not None else None
    return find(cluster, STORAGE_CLASS, "", name)


def _gates(cdi: Object) -> list[str]:
    return [gate.text for gate in cdi.at("spec", "config", "featureGates").items() if gate.text]
