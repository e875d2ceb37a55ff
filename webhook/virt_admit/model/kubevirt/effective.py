"""The VMI that KubeVirt will make: what an object says, filled up from instance type and preference.

Nothing is copied or merged as a whole. Each fact that somebody asks for is looked up where KubeVirt would take it
from, and comes with the place to change it. Sources: kubevirt/kubevirt: pkg/instancetype/find,
pkg/instancetype/apply, pkg/instancetype/preference/apply.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from virt_admit.model import kinds
from virt_admit.model.cluster import Cluster, Unseen
from virt_admit.model.kinds import (
    CLUSTER_INSTANCETYPE,
    CLUSTER_PREFERENCE,
    CONTROLLER_REVISION,
    HCO,
    INSTANCETYPE,
    KUBEVIRT,
    PREFERENCE,
    VM,
    Kind,
)
from virt_admit.model.kubevirt import configuration, vms
from virt_admit.model.objects import Field, Object, Path
from virt_admit.model.reads import Reads
from virt_admit.model.units import show

REVISION_OF: Final = "instancetype.kubevirt.io/object-name"
"""Label of a ControllerRevision: the instance type or preference that it keeps a copy of."""


_INHERITED: Final = (  # of an instance type; then of a preference
    *("annotations", "cpu", "gpus", "hostDevices", "launchSecurity", "memory", "nodeSelector"),
    *("devices", "features", "preferredArchitecture", "preferredLaunchSecurity", "volumes"),
)

READS: Final[Reads] = {
    # Revisions of other owners hold whole pod templates
    CONTROLLER_REVISION: ("metadata.labels", *(f"data.spec.{key}" for key in _INHERITED)),
    INSTANCETYPE: (),
    CLUSTER_INSTANCETYPE: (),
    PREFERENCE: (),
    CLUSTER_PREFERENCE: (),
}
"""What ``effective`` looks up."""

STRATEGY_READS: Final[Reads] = {KUBEVIRT: (), HCO: ()}
"""What ``strategy`` looks up."""


class Given(NamedTuple):
    """A value and who gives it."""

    field: Field
    """The value; its path is the place in the object under review that decides on it."""
    source: str = ""
    """``instance type 'u1.gpu'``, ``preference 'windows'``; empty: the object says it itself."""


class Inherited(NamedTuple):
    """An instance type or a preference: its ``spec``, and where the object names it."""

    spec: Field
    path: Path
    source: str

    def give(self, *steps: str) -> Given:
        """What it says at that place of its spec."""
        return Given(Field(self.spec.at(*steps).value, self.path), self.source)


class Effective(NamedTuple):
    """The VMI spec of an object (``T``), with what its instance type and its preference add to it."""

    obj: Object
    template: Field
    """What becomes the VMI, with its metadata."""
    spec: Field
    devices: Field
    """``domain.devices`` of the VM itself."""
    disk_templates: Field
    """``dataVolumeTemplates`` of the VM; absent where the object has none."""
    instancetype: Inherited | None = None
    preference: Inherited | None = None
    instancetype_unseen: str = ""
    """What could not be seen of the instance type; empty: it is here, or there is none."""
    preference_unseen: str = ""

    @property
    def unseen(self) -> tuple[str, ...]:
        """What could not be seen of instance type and preference: they may add anything."""
        return tuple(what for what in (self.instancetype_unseen, self.preference_unseen) if what)

    @property
    def gpus(self) -> Given:
        """The list of graphics cards; a VM that has its own must not take those of an instance type."""
        return self._devices("gpus")

    @property
    def host_devices(self) -> Given:
        """The list of host devices, likewise."""
        return self._devices("hostDevices")

    def _devices(self, key: str) -> Given:
        own = self.devices[key]
        return Given(own) if own.value or self.instancetype is None else self.instancetype.give(key)

    @property
    def launch_security(self) -> Given:
        """``launchSecurity``: a map, be it an empty one, makes the guest a confidential one."""
        own = Given(self.spec.at("domain", "launchSecurity"))
        if own.field.present:
            return own
        given = self.instancetype.give("launchSecurity") if self.instancetype else own
        if not given.field.present and self.preference:
            return self.preference.give("preferredLaunchSecurity")
        return given

    @property
    def reenlightenment(self) -> Given:
        """The Hyper-V feature ``reenlightenment``."""
        own = Given(self.spec.at("domain", "features", "hyperv", "reenlightenment"))
        if own.field.present or self.preference is None:
            return own
        return self.preference.give("features", "preferredHyperv", "reenlightenment")

    @property
    def cpu_model(self) -> Given:
        """The CPU model that the VM or its instance type names; absent: the cluster's default holds."""
        own = Given(self.spec.at("domain", "cpu", "model"))
        return own if own.field.text or self.instancetype is None else self.instancetype.give("cpu", "model")

    @property
    def node_selector(self) -> Given:
        """The node selector; a VM that has its own must not take that of an instance type."""
        own = Given(self.spec["nodeSelector"])
        return own if own.field.present or self.instancetype is None else self.instancetype.give("nodeSelector")

    @property
    def architecture(self) -> str | None:
        """The architecture that the VM or its preference names; None: the cluster's default holds."""
        own = self.spec["architecture"].text
        return own or (self.preference.spec["preferredArchitecture"].text if self.preference else None)

    @property
    def autoattach_pod_interface(self) -> bool | None:
        """Whether a VM without networks gets one, as the VM or its preference says; None: neither does."""
        own = self.devices["autoattachPodInterface"].boolean
        if own is not None or self.preference is None:
            return own
        return self.preference.spec.at("devices", "preferredAutoattachPodInterface").boolean

    @property
    def prefers_masquerade(self) -> bool:
        """Whether interfaces on the pod network that name no binding get masquerade."""
        preference = self.preference
        return preference is not None and preference.spec.at("devices", "preferredInterfaceMasquerade").is_map

    @property
    def preferred_storage_class(self) -> str | None:
        """The storage class of data volume templates that name none."""
        return self.preference.spec.at("volumes", "preferredStorageClassName").text if self.preference else None

    def annotated(self, key: str) -> bool:
        """Whether the VMI will carry the annotation, whatever its value and wherever it comes from."""
        if key in self.template.at("metadata", "annotations").map:
            return True
        return any(each is not None and key in each.spec["annotations"].map for each in self._inherited)

    @property
    def _inherited(self) -> tuple[Inherited | None, Inherited | None]:
        return self.instancetype, self.preference


def effective(obj: Object, cluster: Cluster) -> Effective:
    """The VMI that KubeVirt will make of an object. Never raises: what could not be seen is in ``unseen``."""
    template, vm_spec = vms.vmi_template(obj), vms.vm_spec(obj)
    spec = template["spec"]
    own = Effective(obj, template, spec, spec.at("domain", "devices"), vm_spec["dataVolumeTemplates"])
    if not vm_spec["instancetype"].present and not vm_spec["preference"].present:
        return own
    instancetype, instancetype_unseen = _find(obj, vm_spec["instancetype"], _INSTANCETYPE, cluster)
    preference, preference_unseen = _find(obj, vm_spec["preference"], _PREFERENCE, cluster)
    return own._replace(
        instancetype=instancetype,
        preference=preference,
        instancetype_unseen=instancetype_unseen,
        preference_unseen=preference_unseen,
    )


def architecture(vmi: Effective, cluster: Cluster, *, certain: bool = False) -> str | None:
    """The architecture that the VMI will have: its own, its preference's, else the cluster's; None: unknown.

    ``certain``: what KubeVirt does not say is unknown, and not the likely one.
    """
    if vmi.architecture or vmi.preference_unseen:
        return vmi.architecture
    default = configuration.reported_architecture if certain else configuration.default_architecture
    try:
        return default(cluster)
    except Unseen:
        return None


class _Matcher(NamedTuple):
    """How instance types, or preferences, are named and found."""

    word: str
    status: str
    """The field of a VM's status that says what KubeVirt really uses since the first start."""
    namespaced: Kind
    clusterwide: Kind


_INSTANCETYPE: Final = _Matcher("instance type", "instancetypeRef", INSTANCETYPE, CLUSTER_INSTANCETYPE)
_PREFERENCE: Final = _Matcher("preference", "preferenceRef", PREFERENCE, CLUSTER_PREFERENCE)


def _find(obj: Object, named: Field, matcher: _Matcher, cluster: Cluster) -> tuple[Inherited | None, str]:
    """What the object names, or what of it could not be seen."""
    if not named.present:
        return None, ""
    name = named["name"].text or ""
    try:
        spec = _spec(obj, named, name, matcher, cluster)
    except Unseen as unseen:
        return None, unseen.what
    return Inherited(spec, named.path, f"{matcher.word} {show(name)}"), ""


def _spec(obj: Object, named: Field, name: str, matcher: _Matcher, cluster: Cluster) -> Field:
    revision = named["revisionName"].text
    if revision:
        return _readable(_revision(obj, revision, cluster).at("data", "spec"), f"{matcher.word} {revision}")
    if not name:
        raise Unseen(f"{matcher.word} {named.path}")
    used = obj.at("status", matcher.status, "controllerRevisionRef", "name").text if kinds.of(obj) is VM else None
    if used:
        stored = _revision(obj, used, cluster)
        if stored.labels.get(REVISION_OF, name) == name:
            return _readable(stored.at("data", "spec"), f"{matcher.word} {used}")
    kind = _kind(named["kind"].text or "", matcher)
    if kind is None:
        raise Unseen(f"{matcher.word} {name}")
    return _readable(_get(kind, obj, name, cluster)["spec"], f"{matcher.word} {name}")


def _kind(word: str, matcher: _Matcher) -> Kind | None:
    """The kind that a matcher means: without case, singular or plural; cluster-wide if it says nothing."""
    word = word.lower() or matcher.clusterwide.plural
    for kind in (matcher.clusterwide, matcher.namespaced):
        if word in (kind.kind.lower(), kind.plural):
            return kind
    return None


def _revision(obj: Object, name: str, cluster: Cluster) -> Object:
    return _get(CONTROLLER_REVISION, obj, name, cluster)


def _get(kind: Kind, obj: Object, name: str, cluster: Cluster) -> Object:
    """The object of that name beside ``obj``. One that is not there (yet) tells no more than one out of sight."""
    found = cluster.get(kind, vms.namespace_of(obj), name)
    if found is None:
        raise Unseen(f"{kind} {vms.namespace_of(obj)}/{name}" if kind.namespaced else f"{kind} {name}")
    return found


def _readable(spec: Field, what: str) -> Field:
    if not spec.is_map:
        raise Unseen(what)
    return spec


# --- eviction strategy ---------------------------------------------------------------------------------------------


class Strategy(NamedTuple):
    """The eviction strategy that counts for an object."""

    value: str
    origin: str
    """Who says it, for texts: ``KubeVirt``, ``KubeVirt's default``; empty: the object says it itself."""
    path: Path
    """Where the object says it, or would say it."""

    @property
    def phrase(self) -> str:
        """``LiveMigrate``, or ``LiveMigrate from KubeVirt`` where the object itself does not show it."""
        return f"{self.value} from {self.origin}" if self.origin else self.value


_BUILT_IN: Final = "KubeVirt's default"


def strategy(obj: Object, cluster: Cluster) -> Strategy:
    """The eviction strategy that the object says, else the cluster's. In a running VMI it is frozen.

    Raises:
        Unseen: it is the cluster's, and that is unknown.
    """
    own = vms.vmi_spec(obj)["evictionStrategy"]
    if own.present:
        return Strategy(own.text or "", "", own.path)
    inherited = configuration.eviction_strategy(cluster)
    if inherited.value is None:
        raise Unseen("the eviction strategy of the cluster")
    return Strategy(inherited.value, inherited.origin or _BUILT_IN, own.path)
