"""Access modes of the claims of a VMI, including claims that do not exist yet.

Sources: kubevirt/containerized-data-importer: pkg/controller/datavolume/util.go,
pkg/controller/common/util.go#GetStorageClassByNameWithVirtFallback,
#GetPlatformDefaultStorageClass.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, unlisted
from virt_admit.model.kubernetes.kinds import (
    DATA_VOLUME,
    POOL,
    PVC,
    STORAGE_CLASS,
    STORAGE_PROFILE,
    Kind,
)
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.instances.expand import ABSENT, ExpandedVmi
from virt_admit.model.lookups import find

SHARED: Final = "ReadWriteMany"
"""The only access mode that lets two nodes write at once, as a migration requires."""

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
"""The fields that ``access`` reads."""


class Access(NamedTuple):
    """The access modes of a claim."""

    modes: tuple[str, ...]
    storage_class: str = ""
    """The storage class whose profile determines them; empty: they are explicit."""

    @property
    def shared(self) -> bool:
        return SHARED in self.modes


def access(vmi: ExpandedVmi, claim: str, cluster: Cluster) -> Access:
    """Return the access modes of a claim of a VMI.

    The sources are, in this order, the claim itself, the template of the object that creates it,
    and the data volume that creates it. Each member of a pool gets its own claims from the
    templates of the pool, ``<template>-<index>``. A claim with exactly the name of the template
    therefore does not belong to the pool.

    Raises:
        Unseen: no source is known, or it refers to an object that cannot be read.
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
        if template.at("metadata", "name").value == name:
            return template
    return None


def _claim(obj: Object, name: str, cluster: Cluster) -> Access | None:
    existing = _look_up(PVC, obj, name, cluster)
    modes = _modes(existing.at("spec", "accessModes")) if existing is not None else ()
    return Access(modes) if modes else None


def _look_up(kind: Kind, obj: Object, name: str, cluster: Cluster) -> Object | None:
    """Return the object; None if it does not exist or cannot be read,
    so that the caller tries the next source.
    """
    return find(cluster, kind, vms.namespace_of(obj), name)


def _modes(field: Field) -> tuple[str, ...]:
    return tuple(item.text for item in field.items() if item.text)


def _of_data_volume(spec: Field, vmi: ExpandedVmi | None, claim: str, cluster: Cluster) -> Access:
    """Return the modes of the claim that a data volume creates: explicit ones,
    or those of a storage profile.

    ``vmi`` is the owner of the template, whose preference may name a storage class.
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


def _preferred_class(vmi: ExpandedVmi) -> str | None:
    if vmi.preference_unseen:
        raise Unseen(vmi.preference_unseen)
    return vmi.preferred_storage_class


def _of_profile(storage_class: str, volume_mode: str | None, cluster: Cluster) -> tuple[str, ...]:
    """Return the modes of the profile's first set, or of its first one with the volume mode."""
    profile = cluster.get(STORAGE_PROFILE, "", storage_class)
    if profile is not None:
        for each in profile.at("status", "claimPropertySets").items():
            if volume_mode is None or each["volumeMode"].value == volume_mode:
                modes = _modes(each["accessModes"])
                if modes:
                    return modes
                break
    raise Unseen(
        f"access modes of {STORAGE_PROFILE} "
        f"{storage_class}{NONE_THERE if profile is not None else ''}"
    )


NONE_THERE: Final = ", which names none"
"""How the words about an object end that was read, and does not say what is sought."""


NO_DEFAULT: Final = f"a default {STORAGE_CLASS.kind}{ABSENT}"
"""What a claim without a class lacks where the classes were read, and none of them is marked."""


class _Defaults(NamedTuple):
    for_vms: str | None
    for_all: str | None


def _default_class(vm_disk: bool, cluster: Cluster) -> str:
    defaults = cluster.cached(_defaults)
    name = (defaults.for_vms if vm_disk else None) or defaults.for_all
    if name is None:
        raise Unseen(
            f"the default among {STORAGE_CLASS}" if unlisted(cluster, STORAGE_CLASS) else NO_DEFAULT
        )
    return name


def _defaults(cluster: Cluster) -> _Defaults:
    """Return the default classes.

    Storage classes are read all or none, so the known ones count as all.
    """
    return _Defaults(marked(DEFAULT_FOR_VMS, cluster), marked(DEFAULT_FOR_ALL, cluster))


def marked(annotation: str, cluster: Cluster) -> str | None:
    """Return the newest class with this annotation, of equally old ones the first by name."""
    marked = [
        each for each in cluster.known(STORAGE_CLASS) if each.annotations.get(annotation) == "true"
    ]
    marked.sort(key=lambda each: each.name)
    newest = max(
        marked, key=lambda each: each.metadata["creationTimestamp"].text or "", default=None
    )
    return newest.name if newest is not None else None
