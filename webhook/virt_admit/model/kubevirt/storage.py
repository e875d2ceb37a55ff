"""Access modes of the claims that a VMI uses, also of claims that do not exist yet.

Sources: kubevirt/containerized-data-importer: pkg/controller/datavolume/util.go,
pkg/controller/common/util.go#GetStorageClassByNameWithVirtFallback, #GetPlatformDefaultStorageClass.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from virt_admit.model import kinds
from virt_admit.model.cluster import Cluster, Unseen
from virt_admit.model.kinds import DATA_VOLUME, POOL, PVC, STORAGE_CLASS, STORAGE_PROFILE, Kind
from virt_admit.model.kubevirt import vms
from virt_admit.model.kubevirt.effective import Effective
from virt_admit.model.objects import Field, Object
from virt_admit.model.reads import Reads

SHARED: Final = "ReadWriteMany"
"""The one access mode with which two nodes may write at a time, as during a migration."""

DEFAULT_FOR_VMS: Final = "storageclass.kubevirt.io/is-default-virt-class"
DEFAULT_FOR_ALL: Final = "storageclass.kubernetes.io/is-default-class"


READS: Final[Reads] = {
    PVC: ("spec.accessModes",),
    DATA_VOLUME: (
        "spec.contentType",
        *(
            f"spec.{block}.{key}"
            for block in ("pvc", "storage")
            for key in ("accessModes", "volumeMode", "storageClassName")
        ),
    ),
    STORAGE_PROFILE: (),
    STORAGE_CLASS: (),
}
"""What ``access`` looks up."""


class Access(NamedTuple):
    """The access modes of a claim."""

    modes: tuple[str, ...]
    storage_class: str = ""
    """The storage class whose profile gives them; empty: they are written down."""

    @property
    def shared(self) -> bool:
        return SHARED in self.modes


def access(vmi: Effective, claim: str, cluster: Cluster) -> Access:
    """The access modes of a claim that a VMI uses.

    The claim itself tells; else the template of the object from which it will be made; else the data volume that
    makes it. The members of a pool get claims of their own from its templates, ``<template>-<index>``, so a claim
    with the very name of the template is somebody else's.

    Raises:
        Unseen: none of them is there, or it leaves the modes to something that cannot be seen.
    """
    obj = vmi.obj
    template = _named(claim, vmi.disk_templates)
    if template is None or kinds.of(obj) is not POOL:
        existing = _claim(obj, claim, cluster)
        if existing is not None:
            return existing
    if template is not None:
        return _of_data_volume(template["spec"], vmi, claim, cluster)
    volume = _look_up(DATA_VOLUME, obj, claim, cluster)
    if volume is not None:
        return _of_data_volume(volume["spec"], None, claim, cluster)
    raise Unseen(f"{PVC} {vms.namespace_of(obj)}/{claim}")


def _named(name: str, templates: Field) -> Field | None:
    for template in templates.items():
        if template["metadata"]["name"].value == name:
            return template
    return None


def _claim(obj: Object, name: str, cluster: Cluster) -> Access | None:
    existing = _look_up(PVC, obj, name, cluster)
    modes = _modes(existing.at("spec", "accessModes")) if existing is not None else ()
    return Access(modes) if modes else None


def _look_up(kind: Kind, obj: Object, name: str, cluster: Cluster) -> Object | None:
    """The object; None: it is not there or out of sight, so the next source is asked."""
    try:
        return cluster.get(kind, vms.namespace_of(obj), name)
    except Unseen:
        return None


def _modes(field: Field) -> tuple[str, ...]:
    return tuple(item.text for item in field.items() if item.text)


def _of_data_volume(spec: Field, vmi: Effective | None, claim: str, cluster: Cluster) -> Access:
    """The modes of the claim that a data volume makes: written down, or left to the profile of a storage class.

    ``vmi``: whose template it is; its preference may name a storage class.
    """
    said = spec["pvc"] if spec["pvc"].present else spec["storage"]
    modes = _modes(said["accessModes"])
    if modes:
        return Access(modes)
    if not said.present or spec["pvc"].present:  # CDI consults no profile for spec.pvc
        raise Unseen(f"access modes of data volume {claim}")
    name = said["storageClassName"].text
    if name is None and vmi is not None:
        name = _preferred_class(vmi)
    if name is None:
        name = _default_class(spec["contentType"].value != "archive", cluster)
    return Access(_of_profile(name, said["volumeMode"].text or None, cluster), name)


def _preferred_class(vmi: Effective) -> str | None:
    if vmi.preference_unseen:
        raise Unseen(vmi.preference_unseen)
    return vmi.preferred_storage_class


def _of_profile(storage_class: str, volume_mode: str | None, cluster: Cluster) -> tuple[str, ...]:
    """The first set of the profile, or the first one with the volume mode that is asked for."""
    profile = cluster.get(STORAGE_PROFILE, "", storage_class)
    if profile is not None:
        for each in profile.at("status", "claimPropertySets").items():
            if volume_mode is None or each["volumeMode"].value == volume_mode:
                modes = _modes(each["accessModes"])
                if modes:
                    return modes
                break
    raise Unseen(f"access modes of {STORAGE_PROFILE} {storage_class}")


class _Defaults(NamedTuple):
    for_vms: str | None
    for_all: str | None


def _default_class(vm_disk: bool, cluster: Cluster) -> str:
    defaults = cluster.cached(_defaults)
    name = (defaults.for_vms if vm_disk else None) or defaults.for_all
    if name is None:
        raise Unseen(f"the default among {STORAGE_CLASS}")
    return name


def _defaults(cluster: Cluster) -> _Defaults:
    """The default classes. Storage classes are read all or none, so the known ones count as all."""
    return _Defaults(_marked(DEFAULT_FOR_VMS, cluster), _marked(DEFAULT_FOR_ALL, cluster))


def _marked(annotation: str, cluster: Cluster) -> str | None:
    """The class with this annotation; of several the newest, of equally old ones the first by name."""
    marked = [each for each in cluster.known(STORAGE_CLASS) if each.annotations.get(annotation) == "true"]
    marked.sort(key=lambda each: each.name)
    newest = max(marked, key=lambda each: each.metadata["creationTimestamp"].text or "", default=None)
    return newest.name if newest is not None else None
