"""Settings of KubeVirt and CDI that HyperConverged writes: the object that takes a change,
and the path of it there.

HyperConverged restores the objects that it writes within minutes, and its own fields differ between
its API versions. Sources:
kubevirt/hyperconverged-cluster-operator:controllers/handlers/kubevirt.go#getKVSpec
#hcoConfig2KvConfig, :controllers/handlers/ cdi.go#NewCDI, :api/v1beta1/conversion.go.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from virt_admit.model.commands import about, kubectl, merge_patch, nested
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import CDI, HCO, KUBEVIRT, Kind
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubevirt.settings import configuration
from virt_admit.model.kubevirt.settings.running_release import is_managed, may_be_managed


class _Paths(NamedTuple):
    kind: Kind
    own: str
    """In the object of this kind."""
    v1beta1: str
    v1: str
    """In HyperConverged."""


class WrittenSetting(enum.Enum):
    """A setting that HyperConverged has, too."""

    WORKLOADS = _Paths(
        KUBEVIRT,
        "spec.workloads.nodePlacement",
        "spec.workloads.nodePlacement",
        "spec.deployment.nodePlacements.workload",
    )
    INFRA = _Paths(
        KUBEVIRT,
        "spec.infra.nodePlacement",
        "spec.infra.nodePlacement",
        "spec.deployment.nodePlacements.infra",
    )
    STATE_CLASS = _Paths(
        KUBEVIRT,
        "spec.configuration.vmStateStorageClass",
        "spec.vmStateStorageClass",
        "spec.storage.vmStateStorageClass",
    )
    SCRATCH = _Paths(
        CDI,
        "spec.config.scratchSpaceStorageClass",
        "spec.scratchSpaceStorageClass",
        "spec.storage.scratchSpaceStorageClass",
    )
    OVERHEAD = _Paths(
        CDI,
        "spec.config.filesystemOverhead",
        "spec.filesystemOverhead",
        "spec.storage.filesystemOverhead",
    )
    WORKLOAD_RESOURCES = _Paths(
        CDI,
        "spec.config.podResourceRequirements",
        "spec.resourceRequirements.storageWorkloads",
        "spec.storage.workloadResourceRequirements",
    )


class SettingHolder(NamedTuple):
    """The object in which a setting is changed."""

    obj: Object
    kind: Kind
    field: Field

    @property
    def words(self) -> str:
        """The field and the kind, as ``spec.infra.nodePlacement of KubeVirt``."""
        return f"{self.field.path} of {self.kind.kind}"

    def patch(self, value: object, *below: str) -> str:
        """Return the command that sets the field, or one below it."""
        data = nested((*self.field.path, *below), value)
        return merge_patch(self.kind, self.obj.name, self.obj.namespace, data)

    @property
    def edit(self) -> str:
        """The command that edits the object."""
        return about("edit", self.obj, self.kind)


def holder(setting: WrittenSetting, own: Object | None, cluster: Cluster) -> SettingHolder | None:
    """Return where a setting is changed. ``own``: the object of KubeVirt or CDI, if it is known.

    None: HyperConverged may write that object and could not be read, or neither is known.
    """
    paths = setting.value
    hco = configuration.known_or_none(configuration.hyperconverged, cluster)
    if hco is not None:
        path = paths.v1beta1 if hco.version == "v1beta1" else paths.v1
        return SettingHolder(hco, HCO, hco.at(*path.split(".")))
    if own is None or may_be_managed(own, cluster):
        return None
    return SettingHolder(own, paths.kind, own.at(*paths.own.split(".")))


_OF_HCO: Final = "kubevirt-kubevirt-hyperconverged"
"""The KubeVirt object that HyperConverged writes."""


def placement(kubevirt: Object, cluster: Cluster) -> str:
    """Return the field by which KubeVirt's workloads are placed, with the kind of the object."""
    place = holder(WrittenSetting.WORKLOADS, kubevirt, cluster)
    if place is not None:
        return place.words
    written = is_managed(kubevirt) or kubevirt.name == _OF_HCO
    own = "" if written else "spec.workloads.nodePlacement of KubeVirt, or "
    return (
        f"{own}the nodePlacement of the workloads of "
        f"HyperConverged{'' if written else ' if one writes it'}"
    )


def tolerating(kubevirt: Object, tolerations: Sequence[dict[str, Any]], cluster: Cluster) -> str:
    """Return the command that adds tolerations to virt-handler and leaves those that it has; none:
    the one that edits them."""
    place = holder(WrittenSetting.WORKLOADS, kubevirt, cluster)
    if place is not None:
        given = [each.value for each in place.field["tolerations"].items()]
        return place.patch([*given, *tolerations], "tolerations") if tolerations else place.edit
    if kubevirt.name == _OF_HCO:
        return kubectl("edit", HCO, kubevirt.name.removeprefix("kubevirt-"), kubevirt.namespace)
    return about("edit", kubevirt, KUBEVIRT)
