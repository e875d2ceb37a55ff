"""The settings of the cluster's KubeVirt and HyperConverged resources, with their defaults.

A cluster has one KubeVirt and one HyperConverged. If a list contains several, the oldest counts.
Source: kubevirt/kubevirt:pkg/virt-config/virt-config.go.

Functions raise ``Unseen`` if a setting cannot be determined. A resource that does not exist (yet)
is treated like one that cannot be read.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from virt_admit.model.kubernetes import kinds, nodes
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, cached
from virt_admit.model.kubernetes.kinds import CDI, HCO, KUBEVIRT, Kind
from virt_admit.model.kubernetes.nodes import WORKER
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.settings import invalid_configuration

# --- where a setting lives ------------------------------------------------------------------------


class Setting(enum.Enum):
    """A setting whose path differs between HyperConverged, KubeVirt and CDI."""

    UPDATES = "update methods and batches"
    MIGRATIONS = "migration limits"
    EVICTION_STRATEGY = "eviction strategy"
    OBSOLETE_CPU_MODELS = "obsolete CPU models"
    MIN_CPU_MODEL = "minimum CPU model"
    DEFAULT_CPU_MODEL = "default CPU model"
    CERTIFICATES = "certificates"
    TLS = "TLS profile"


HCO_V1BETA1_PATHS: Final[Mapping[Setting, str]] = {
    Setting.UPDATES: "spec.workloadUpdateStrategy",
    Setting.MIGRATIONS: "spec.liveMigrationConfig",
    Setting.EVICTION_STRATEGY: "spec.evictionStrategy",
    Setting.OBSOLETE_CPU_MODELS: "spec.obsoleteCPUs.cpuModels",
    Setting.MIN_CPU_MODEL: "spec.obsoleteCPUs.minCPUModel",
    Setting.DEFAULT_CPU_MODEL: "spec.defaultCPUModel",
    Setting.CERTIFICATES: "spec.certConfig",
    Setting.TLS: "spec.tlsSecurityProfile",
}
HCO_V1_PATHS: Final[Mapping[Setting, str]] = {
    Setting.UPDATES: "spec.virtualization.workloadUpdateStrategy",
    Setting.MIGRATIONS: "spec.virtualization.liveMigrationConfig",
    Setting.EVICTION_STRATEGY: "spec.virtualization.evictionStrategy",
    Setting.OBSOLETE_CPU_MODELS: "spec.virtualization.obsoleteCPUModels",
    Setting.DEFAULT_CPU_MODEL: "spec.virtualization.virtualMachineOptions.defaultCPUModel",
    Setting.CERTIFICATES: "spec.security.certConfig",
    Setting.TLS: "spec.security.tlsSecurityProfile",
}
KUBEVIRT_PATHS: Final[Mapping[Setting, str]] = {
    Setting.UPDATES: "spec.workloadUpdateStrategy",
    Setting.MIGRATIONS: "spec.configuration.migrations",
    Setting.EVICTION_STRATEGY: "spec.configuration.evictionStrategy",
    Setting.OBSOLETE_CPU_MODELS: "spec.configuration.obsoleteCPUModels",
    Setting.MIN_CPU_MODEL: "spec.configuration.minCPUModel",
    Setting.DEFAULT_CPU_MODEL: "spec.configuration.cpuModel",
    Setting.CERTIFICATES: "spec.certificateRotateStrategy.selfSigned",
    Setting.TLS: "spec.configuration.tlsConfiguration",
}
CDI_PATHS: Final[Mapping[Setting, str]] = {
    Setting.CERTIFICATES: "spec.certConfig",
    Setting.TLS: "spec.config.tlsSecurityProfile",
}


def setting(obj: Object, what: Setting) -> Field:
    """Return the field of a setting, by the kind and version of the object;
    absent if it has no such setting.

    Field names inside the blocks are equal in all kinds. Only obsolete models differ: they are a
    list in HyperConverged and a map in KubeVirt.
    """
    kind = kinds.of(obj)
    if kind is KUBEVIRT:
        places = KUBEVIRT_PATHS
    elif kind is HCO:
        places = HCO_V1BETA1_PATHS if obj.version == "v1beta1" else HCO_V1_PATHS
    else:
        places = CDI_PATHS if kind is CDI else {}
    place = places.get(what)
    return obj.at(*place.split(".")) if place else obj["-"]


# --- the two resources ----------------------------------------------------------------------------


def kubevirt(cluster: Cluster) -> Object | None:
    """Return the KubeVirt resource, or None if it does not exist.

    Raises:
        Unseen: none is known, but one may exist.
    """
    return _seen(cluster.cached(_kubevirt))


def hyperconverged(cluster: Cluster) -> Object | None:
    """Return the HyperConverged resource, or None if it does not exist.

    Raises:
        Unseen: none is known, but one may exist.
    """
    return _seen(cluster.cached(_hyperconverged))


def _seen(found: Object | Unseen | None) -> Object | None:
    if isinstance(found, Unseen):
        raise Unseen(found.what)
    return found


def _kubevirt(cluster: Cluster) -> Object | Unseen | None:
    return _oldest(cluster, KUBEVIRT)


def _hyperconverged(cluster: Cluster) -> Object | Unseen | None:
    return _oldest(cluster, HCO)


def _oldest(cluster: Cluster, kind: Kind) -> Object | Unseen | None:
    found = cluster.known(kind)
    if found:
        return min(found, key=_age)
    try:
        return next(cluster.list(kind), None)
    except Unseen as unseen:
        return unseen


def _age(obj: Object) -> tuple[str, str]:
    """Return a sort key, oldest first.

    RFC 3339 in UTC sorts as text; objects not created yet sort last.
    """
    return obj.created or "~", obj.full_name


def kubevirt_in_effect(cluster: Cluster) -> Object | None:
    """Return the KubeVirt resource whose settings apply, or None if it does not exist.

    Raises:
        Unseen: none is known, or it is not valid, so that KubeVirt keeps the last valid one as a
            whole.
    """
    return _seen(cluster.cached(_in_effect))


def _in_effect(cluster: Cluster) -> Object | Unseen | None:
    found = cluster.cached(_kubevirt)
    if isinstance(found, Object) and any(invalid_configuration.invalid_settings(found)):
        return Unseen("the last valid configuration of KubeVirt")
    return found


def is_unread(cluster: Cluster) -> bool:
    """Return whether KubeVirt's settings cannot be determined.

    If it does not exist (yet), its defaults count.
    """
    return isinstance(cluster.cached(_in_effect), Unseen)


def require_kubevirt(cluster: Cluster) -> Object:
    """Return the KubeVirt resource, for settings that cannot be determined without one.

    Raises:
        Unseen: it cannot be read, does not exist (yet), or is not valid.
    """
    found = kubevirt_in_effect(cluster)
    if found is None:
        raise Unseen(str(KUBEVIRT))
    return found


def known_or_none(read: Callable[[Cluster], Object | None], cluster: Cluster) -> Object | None:
    try:
        return read(cluster)
    except Unseen:
        return None


# --- eviction strategy, availability --------------------------------------------------------------


class ClusterStrategy(NamedTuple):
    """The eviction strategy of VMs that do not set their own."""

    value: str | None
    """The value as written, valid or not; None: unknown."""
    origin: str
    """The kind of the resource that sets it, for messages; empty if no resource does."""
    explicit: bool
    """Whether a resource sets it; False: it is KubeVirt's built-in None, or unknown."""


UNKNOWN_STRATEGY: Final = ClusterStrategy(None, "", explicit=False)
BUILT_IN_STRATEGY: Final = ClusterStrategy("None", "", explicit=False)


def eviction_strategy(cluster: Cluster, subject: Object | None = None) -> ClusterStrategy:
    """Return the cluster's eviction strategy; never raises.

    The first of these that sets one wins: ``subject``, KubeVirt, HyperConverged, the choice of
    HyperConverged by the number of its nodes (``status.infrastructureHighlyAvailable``), and
    KubeVirt's built-in None. If neither resource is known, the strategy is unknown.

    Args:
        cluster: the cluster.
        subject: a KubeVirt or HyperConverged under review, which replaces the stored object of its
            kind.
    """
    if subject is None:
        return cluster.cached(_eviction_strategy)
    kind = kinds.of(subject)
    kubevirt_ = subject if kind is KUBEVIRT else known_or_none(kubevirt_in_effect, cluster)
    hyperconverged_ = subject if kind is HCO else known_or_none(hyperconverged, cluster)
    order = (hyperconverged_, kubevirt_) if kind is HCO else (kubevirt_, hyperconverged_)
    return _strategy(order, hyperconverged_)


def _eviction_strategy(cluster: Cluster) -> ClusterStrategy:
    hyperconverged_ = known_or_none(hyperconverged, cluster)
    return _strategy((known_or_none(kubevirt_in_effect, cluster), hyperconverged_), hyperconverged_)


def _strategy(order: tuple[Object | None, ...], hyperconverged_: Object | None) -> ClusterStrategy:
    there = [obj for obj in order if obj is not None]
    if not there:
        return UNKNOWN_STRATEGY
    for obj in there:
        value = setting(obj, Setting.EVICTION_STRATEGY).text
        if value is not None:
            return ClusterStrategy(value, obj.kind, explicit=True)
    if hyperconverged_ is not None:
        available = _infrastructure(hyperconverged_)
        if available is not None:
            value = "LiveMigrate" if available else "None"
            return ClusterStrategy(value, hyperconverged_.kind, explicit=True)
    return BUILT_IN_STRATEGY


def _infrastructure(hyperconverged_: Object) -> bool | None:
    return hyperconverged_.at("status", "infrastructureHighlyAvailable").boolean


def highly_available(cluster: Cluster, subject: Object | None = None) -> bool | None:
    """Return whether VMs have a second node to migrate to; None if unknown.

    The status of HyperConverged has the answer. Otherwise at least two nodes are needed: those with
    KubeVirt's label ``schedulable`` if any node has it, else the workers if any node has that role.
    virt-controller sets the label to false while virt-handler is silent: such a node comes back.

    Raises:
        Unseen: HyperConverged does not report it and no node is known, but nodes may exist.
    """
    hyperconverged_ = (
        subject
        if subject is not None and kinds.of(subject) is HCO
        else known_or_none(hyperconverged, cluster)
    )
    said = _infrastructure(hyperconverged_) if hyperconverged_ is not None else None
    if said is not None:
        return said
    schedulable = nodes.of_kubevirt(cluster)
    if schedulable:
        return len(schedulable) >= 2
    workers = sum(WORKER in node.labels for node in nodes.every(cluster))
    return workers >= 2 if workers else None


# --- CPU models -----------------------------------------------------------------------------------

_OLD_MODELS: Final = (
    "486", "pentium", "pentium2", "pentium3", "pentiumpro", "coreduo", "n270", "core2duo", "Conroe",
    "athlon",
    "phenom", "qemu64", "qemu32", "kvm64", "kvm32", "Opteron_G1", "Opteron_G2",
)  # fmt: skip

PREDEFINED_OBSOLETE: Final = frozenset(_OLD_MODELS) | {f"{model}-v1" for model in _OLD_MODELS}
"""kubevirt/kubevirt:pkg/virt-handler/node-labeller/util/util.go#DefaultObsoleteCPUModels;
compared exactly.
"""

HOST_MODEL: Final = "host-model"
HOST_PASSTHROUGH: Final = "host-passthrough"


def own_obsolete_models(obj: Object) -> frozenset[str]:
    """Return the models that are obsolete if this KubeVirt or HyperConverged is applied.

    HyperConverged adds to the predefined ones. The keys of KubeVirt's map *replace* them, whatever
    their values. An empty map counts as absent.
    """
    models = setting(obj, Setting.OBSOLETE_CPU_MODELS)
    if kinds.of(obj) is KUBEVIRT:
        return frozenset(models.map) or PREDEFINED_OBSOLETE
    return PREDEFINED_OBSOLETE | {item.text for item in models.items() if item.text}


@cached
def obsolete_models(cluster: Cluster) -> frozenset[str]:
    """Return the known models that the node labeller removes from all nodes; never raises."""
    kubevirt_ = known_or_none(kubevirt_in_effect, cluster)
    if kubevirt_ is not None and setting(kubevirt_, Setting.OBSOLETE_CPU_MODELS).map:
        return own_obsolete_models(kubevirt_)
    hyperconverged_ = known_or_none(hyperconverged, cluster)
    return PREDEFINED_OBSOLETE if hyperconverged_ is None else own_obsolete_models(hyperconverged_)


def demand_obsolete_models(cluster: Cluster) -> None:
    """Raise unless every obsolete model is known.

    Raises:
        Unseen: KubeVirt or HyperConverged may name more models.
    """
    kubevirt_ = kubevirt_in_effect(cluster)
    if kubevirt_ is None or not setting(kubevirt_, Setting.OBSOLETE_CPU_MODELS).map:
        hyperconverged(cluster)


def default_cpu_model(cluster: Cluster) -> str:
    """Return the model of VMs that name none: KubeVirt's ``cpuModel``, else ``host-model``
    (passthrough on arm64).

    Raises:
        Unseen: KubeVirt cannot be read.
    """
    return setting(require_kubevirt(cluster), Setting.DEFAULT_CPU_MODEL).text or HOST_MODEL


# --- what decides on migrations -------------------------------------------------------------------


def default_binding(cluster: Cluster) -> str:
    """Return how VMs without networks are connected to the pod network.

    It is KubeVirt's ``defaultNetworkInterface``, else ``bridge``. HyperConverged sets
    ``masquerade`` there.

    Raises:
        Unseen: neither resource can be read.
    """
    kubevirt_ = known_or_none(kubevirt_in_effect, cluster)
    if kubevirt_ is not None:
        return (
            kubevirt_.at("spec", "configuration", "network", "defaultNetworkInterface").text
            or "bridge"
        )
    if known_or_none(hyperconverged, cluster) is not None:
        return "masquerade"
    raise Unseen(str(KUBEVIRT))


def binding_migrates(cluster: Cluster, plugin: str) -> bool:
    """Whether KubeVirt has a network binding plugin of that name that is registered as migratable.

    Raises:
        Unseen: KubeVirt cannot be read.
    """
    bindings = require_kubevirt(cluster).at("spec", "configuration", "network", "binding")
    return bindings[plugin]["migration"].present


def mediated_devices(cluster: Cluster) -> frozenset[str]:
    """Return the resource names of the mediated devices that VMs may use.

    Raises:
        Unseen: KubeVirt cannot be read.
    """
    devices = require_kubevirt(cluster).at(
        "spec", "configuration", "permittedHostDevices", "mediatedDevices"
    )
    return frozenset(name for item in devices.items() if (name := item["resourceName"].text))


def minimum_tsc_frequency(cluster: Cluster) -> int | None:
    """Return the configured minimum frequency in hertz of every node's time stamp counter,
    even an invalid one.

    Raises:
        Unseen: KubeVirt cannot be read.
    """
    developer = require_kubevirt(cluster).at("spec", "configuration", "developerConfiguration")
    return developer["minimumClusterTSCFrequency"].integer


def reported_architecture(cluster: Cluster) -> str | None:
    """Return the architecture of VMs that name none, as KubeVirt's operator reports it; None:
    not reported (yet).

    Raises:
        Unseen: KubeVirt cannot be read.
    """
    return require_kubevirt(cluster).at("status", "defaultArchitecture").text or None


def default_architecture(cluster: Cluster) -> str:
    """Return the reported architecture, else the likely ``amd64``.

    Raises:
        Unseen: KubeVirt cannot be read.
    """
    return reported_architecture(cluster) or "amd64"


MACHINE_READS: Final[Reads] = {
    KUBEVIRT: (
        "metadata.creationTimestamp",
        "spec.configuration.architectureConfiguration",
        "spec.configuration.emulatedMachines",
        "status.defaultArchitecture",
    )
}
"""The fields that ``emulated_machines`` reads."""
_OWN_MACHINES: Final = ("arm64", "ppc64le", "s390x")
"""Architectures with machine types of their own: every other one has those of amd64."""


def emulated_machines(cluster: Cluster, architecture: str | None) -> list[str] | None:
    """Return the configured patterns of the machine types that KubeVirt accepts (``filepath.Match``
    of the whole name): those for all architectures, which alone count then, or those of this one
    (None: KubeVirt's default); None: those of its release.

    Raises:
        Unseen: KubeVirt cannot be read, so that the machine type may be configured.
    """
    resource = kubevirt(cluster)
    if resource is None:
        raise Unseen(str(KUBEVIRT))
    settings = resource.at("spec", "configuration")
    found = settings["emulatedMachines"]
    if not found.present:
        name = architecture or resource.at("status", "defaultArchitecture").text
        own = name if name in _OWN_MACHINES else "amd64"
        found = settings.at("architectureConfiguration", own, "emulatedMachines")
    return [item.text for item in found.items() if item.text] if found.present else None
