"""Who chose where the volume of a disk lies, if that was not the pod of its VM.

A class with the binding mode Immediate chooses a node or a zone before any pod exists. With
WaitForFirstConsumer the first pod that uses the claim chooses it. That is a pod of CDI if the
DataVolume has an annotation for it, which CDI writes into each claim itself without its feature
gate HonorWaitForFirstConsumer. Sources: kubevirt/containerized-data-importer:
doc/waitforfirstconsumer-storage-handling.md, :pkg/controller/common/util.go#AnnImmediateBinding
#AddImmediateBindingAnnotationIfWFFCDisabled, :pkg/controller/populators/util.go
#claimReadyForPopulation, :pkg/feature-gates/feature-gates.go, issue #4275; kubevirt/kubevirt issues
4764 and 5362.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from virt_admit.model.commands import merge_patch
from virt_admit.model.kubernetes.cluster import Cluster, cached
from virt_admit.model.kubernetes.kinds import CDI, DATA_VOLUME, HCO, PV, PVC, STORAGE_CLASS
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import NAME, Reads
from virt_admit.model.kubevirt.settings.running_release import may_be_managed
from virt_admit.model.lookups import fields, find
from virt_admit.model.messages import names

AT_ONCE: Final = "cdi.kubevirt.io/storage.bind.immediate.requested"
"""CDI asks whether the annotation is present. Its value does not matter."""
READS: Final[Reads] = {
    CDI: ("spec.config.featureGates",),
    DATA_VOLUME: (f"metadata.annotations.{AT_ONCE}",),
    HCO: NAME,
    PVC: (f"metadata.annotations.{AT_ONCE}", "spec.storageClassName"),
    PV: ("spec.nodeAffinity", "spec.storageClassName"),
    STORAGE_CLASS: ("provisioner", "volumeBindingMode"),
}
_GATE: Final = "HonorWaitForFirstConsumer"
_WAITS: Final = "WaitForFirstConsumer"


class PlaceChoice(NamedTuple):
    """Why volumes lie where they do, and what lets the pod of the VM choose."""

    why: str = ""
    """A clause; empty: nothing says it."""
    first: str = ""
    """What keeps the next disks from it."""
    command: str = ""
    brief: str = ""
    """``why`` in short."""


def of_claim(namespace: str, claim: str, cluster: Cluster) -> PlaceChoice:
    """Return what chose the place of one claim; empty: the pod of its VM may have done so."""
    return _at_once([claim], namespace, cluster) or _by_cdi([claim], namespace, 1, cluster)


def of_claims(namespace: str, claims: Sequence[str], cluster: Cluster) -> PlaceChoice:
    """Return what chose different places for the claims of one VM, as far as that is known.

    Without the feature gate CDI fills each disk in a pod of its own, and one of them alone would
    have had the others follow it.
    """
    return _at_once(claims, namespace, cluster) or _by_cdi(claims, namespace, 2, cluster)


def _at_once(claims: Sequence[str], namespace: str, cluster: Cluster) -> PlaceChoice | None:
    """Return that the class of a claim waits for no pod; None: it does, or is not known."""
    for claim in claims:
        chosen = _class(namespace, claim, cluster)
        if chosen is None or chosen["volumeBindingMode"].text not in (None, "Immediate"):
            continue
        why = (
            f"StorageClass {chosen.name} chooses where a volume lies before the pod of the VM has "
            "a node (volumeBindingMode Immediate)"
        )
        others = sorted(each.name for each in cluster.known(STORAGE_CLASS) if _waits(each, chosen))
        like = f" ({names(others)})" if others else ""
        brief = f"StorageClass {chosen.name} chose that place (Immediate)"
        return PlaceChoice(why, f"use a StorageClass with {_WAITS}{like}", brief=brief)
    return None


def _waits(storage_class: Object, other: Object) -> bool:
    """Return whether a class of the same provisioner waits for the pod."""
    same = storage_class["provisioner"].text == other["provisioner"].text
    return same and storage_class["volumeBindingMode"].text == _WAITS


def _by_cdi(claims: Sequence[str], namespace: str, least: int, cluster: Cluster) -> PlaceChoice:
    """Return that a pod of CDI was the first one to use a claim of a class that waits for it.

    ``least``: so many disks show the effect of the feature gate.
    """
    waiting = {
        claim: found.name
        for claim in claims
        if (found := _class(namespace, claim, cluster)) is not None
        and found["volumeBindingMode"].text == _WAITS
    }
    cdi = next(iter(cluster.known(CDI)), None)
    filled = [each for each in waiting if find(cluster, DATA_VOLUME, namespace, each) is not None]
    for claim, name in waiting.items():
        if (asked := _asks(namespace, claim, cluster, cdi)) is not None:
            why = (
                f"a pod of CDI chose that place before the VM started, as {asked.kind} {claim} has "
                f"the annotation {AT_ONCE}, so that StorageClass {name} ({_WAITS}) does not wait "
                "for the VM"
            )
            brief = f"CDI chose that place ({AT_ONCE})"
            return PlaceChoice(why, f"leave out the annotation {AT_ONCE}", brief=brief)
    if cdi is None or len(filled) < least or _GATE in _gates(cdi):
        return PlaceChoice()
    why = (
        f"{_WAITS} of StorageClass {waiting[filled[0]]} has no effect: CDI fills each disk in a "
        f"pod of its own ({_GATE} is off)"
    )
    first = f"turn the feature gate {_GATE} of CDI on"
    brief = f"CDI chose that place ({_GATE} is off)"
    if may_be_managed(cdi, cluster):  # HyperConverged writes this setting itself
        return PlaceChoice(why, first, brief=brief)
    patch = merge_patch(
        CDI, cdi.name, "", {"spec": {"config": {"featureGates": [*_gates(cdi), _GATE]}}}
    )
    return PlaceChoice(why, first, patch, brief)


def unbound(namespace: str, claim: str, cluster: Cluster) -> Sequence[str]:
    """Return the StorageClasses of the same provisioner whose volumes are bound to no place."""
    own = _class(namespace, claim, cluster)
    found = (find(cluster, STORAGE_CLASS, "", name) for name in _free(cluster))
    return [
        each.name
        for each in found
        if each is not None
        and own is not None
        and each["provisioner"].text == own["provisioner"].text
    ]


@cached
def _free(cluster: Cluster) -> Sequence[str]:
    """Return the names of classes of whose volumes none has a node affinity, and one is known."""
    known: dict[str, bool] = {}
    for volume in cluster.known(PV):
        name = volume.at("spec", "storageClassName").text or ""
        known[name] = known.get(name, True) and not volume.at("spec", "nodeAffinity").present
    return sorted(name for name, free in known.items() if free)


def _asks(namespace: str, claim: str, cluster: Cluster, cdi: Object | None) -> Object | None:
    """Return the DataVolume, or the claim without one, that asks CDI not to wait; None: neither.

    Without the feature gate CDI itself writes the annotation into the claim alone.
    """
    disk, own = (find(cluster, kind, namespace, claim) for kind in (DATA_VOLUME, PVC))
    if disk is not None and disk.annotations.get(AT_ONCE) is not None:
        return disk
    by_user = disk is None and cdi is not None and _GATE in _gates(cdi)
    return own if by_user and own is not None and AT_ONCE in own.annotations else None


def _class(namespace: str, claim: str, cluster: Cluster) -> Object | None:
    name = fields(cluster, PVC, namespace, claim).at("spec", "storageClassName").text
    return find(cluster, STORAGE_CLASS, "", name)


def _gates(cdi: Object) -> list[str]:
    return [gate.text for gate in cdi.at("spec", "config", "featureGates").items() if gate.text]
