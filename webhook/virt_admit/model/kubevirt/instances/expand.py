"""The VMI that KubeVirt will create from an object, its instance type and its preference.

Nothing is copied or merged as a whole. Each value is looked up where KubeVirt would read it, and
comes with the path to change it. Sources: kubevirt/kubevirt: pkg/instancetype/find,
pkg/instancetype/apply, pkg/instancetype/preference/apply.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import AbsentObject, Cluster, Unseen
from virt_admit.model.kubernetes.kinds import (
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
from virt_admit.model.kubernetes.objects import Field, Object, Path
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubernetes.units import show
from virt_admit.model.kubevirt.instances import data_sources, vms
from virt_admit.model.kubevirt.settings import configuration
from virt_admit.model.messages import names

REVISION_OF: Final = "instancetype.kubevirt.io/object-name"
"""Label of a ControllerRevision: the instance type or preference of which it is a copy."""
_OF_TYPE: Final = (
    "annotations cpu gpus hostDevices ioThreads ioThreadsPolicy launchSecurity memory nodeSelector"
)
_OF_PREFERENCE: Final = (
    "devices features machine preferSpreadSocketToCoreRatio preferredArchitecture "
    "preferredLaunchSecurity volumes"
)

READS: Final[Reads] = {
    # Revisions of other owners hold whole pod templates
    CONTROLLER_REVISION: (
        "metadata.labels",
        "data.metadata.name",
        *(f"data.spec.{key}" for key in f"{_OF_TYPE} {_OF_PREFERENCE}".split()),
    ),
    INSTANCETYPE: (),
    CLUSTER_INSTANCETYPE: (),
    PREFERENCE: (),
    CLUSTER_PREFERENCE: (),
    **data_sources.READS,
}
"""The fields that ``effective`` reads."""

STRATEGY_READS: Final[Reads] = {KUBEVIRT: (), HCO: ()}
"""The fields that ``strategy`` reads."""


class Given(NamedTuple):
    """A value and its source."""

    field: Field
    """The value; its path is the field of the object under review that determines it."""
    source: str = ""
    """``instance type 'u1.gpu'`` or ``preference 'windows'``; empty: the object itself."""


class Inherited(NamedTuple):
    """An instance type or a preference: its ``spec``, and the path at which the object names it."""

    spec: Field
    path: Path
    source: str

    def give(self, *steps: str) -> Given:
        """Return the value at these steps of its spec."""
        return Given(Field(self.spec.at(*steps).value, self.path), self.source)


class ExpandedVmi(NamedTuple):
    """The VMI spec of an object (``T``) with what its instance type and preference add."""

    obj: Object
    template: Field
    """The metadata and spec of the future VMI."""
    spec: Field
    devices: Field
    """``domain.devices`` of the VM itself."""
    disk_templates: Field
    """``dataVolumeTemplates`` of the VM; absent if the object has none."""
    instancetype: Inherited | None = None
    preference: Inherited | None = None
    instancetype_unseen: str = ""
    """What could not be read of the instance type; empty: it is known, or the object names none."""
    preference_unseen: str = ""

    @property
    def unseen(self) -> tuple[str, ...]:
        """What could not be read of instance type and preference. They may add anything."""
        return tuple(what for what in (self.instancetype_unseen, self.preference_unseen) if what)

    @property
    def gpus(self) -> Given:
        """The list of GPUs. A VM with its own list must not use an instance type with one."""
        own = self.devices["gpus"]
        return self._else_of_type(own, own.value, "gpus")

    @property
    def host_devices(self) -> Given:
        """The list of host devices.

        A VM with its own list must not use an instance type with one.
        """
        own = self.devices["hostDevices"]
        return self._else_of_type(own, own.value, "hostDevices")

    @property
    def launch_security(self) -> Given:
        """``launchSecurity``: any map, even an empty one, makes the guest a confidential one."""
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
        """The CPU model of the VM or its instance type; absent: the cluster's default applies."""
        own = self.spec.at("domain", "cpu", "model")
        return self._else_of_type(own, own.text, "cpu", "model")

    @property
    def cpu_features(self) -> list[Field]:
        """The CPU features of the VM, and those of the preference that the VM does not list
        (applyCPUPreferences).
        """
        own = list(self.spec.at("domain", "cpu", "features").items())
        names = {feature["name"].text for feature in own}
        preferred = self._preferred("cpu", "preferredCPUFeatures")
        return own + [feature for feature in preferred.items() if feature["name"].text not in names]

    @property
    def node_selector(self) -> Given:
        """The node selector. A VM with its own must not use an instance type with one."""
        own = self.spec["nodeSelector"]
        return self._else_of_type(own, own.present, "nodeSelector")

    @property
    def architecture(self) -> str | None:
        """The architecture of the VM or its preference; None: the cluster's default applies."""
        return self.spec["architecture"].text or self._preferred("preferredArchitecture").text

    @property
    def autoattach_pod_interface(self) -> bool | None:
        """Whether a VM without networks gets one; None: neither VM nor preference says it."""
        own = self.devices["autoattachPodInterface"].boolean
        preferred = self._preferred("devices", "preferredAutoattachPodInterface")
        return preferred.boolean if own is None else own

    @property
    def prefers_masquerade(self) -> bool:
        """Whether interfaces on the pod network without a binding get masquerade."""
        return self._preferred("devices", "preferredInterfaceMasquerade").is_map

    @property
    def preferred_storage_class(self) -> str | None:
        """The storage class of data volume templates that name none."""
        return self._preferred("volumes", "preferredStorageClassName").text

    def annotated(self, key: str) -> bool:
        """Whether the VMI will have the annotation, whatever its value and source."""
        return any(key in each for each in self._annotations())

    def annotation(self, key: str) -> str:
        """Return the value of an annotation of the VMI: its own, its instance type's, its
        preference's, else empty.
        """
        values = (each.get(key) for each in self._annotations())
        return next((value for value in values if isinstance(value, str)), "")

    def _annotations(self) -> Iterator[Mapping[str, Any]]:
        yield self.template.at("metadata", "annotations").map
        for each in (self.instancetype, self.preference):
            if each is not None:
                yield each.spec["annotations"].map

    def _else_of_type(self, own: Field, is_set: object, *steps: str) -> Given:
        """Return the value of the object if it sets one, else that of its instance type."""
        return Given(own) if is_set or self.instancetype is None else self.instancetype.give(*steps)

    def _preferred(self, *steps: str) -> Field:
        """Return a value of the preference, which is absent without one."""
        return self.preference.give(*steps).field if self.preference else Field(None)


def expand(obj: Object, cluster: Cluster) -> ExpandedVmi:
    """Return the VMI that KubeVirt will create from an object.

    Never raises: ``unseen`` has what could not be read.
    """
    template, vm_spec = vms.vmi_template(obj), vms.vm_spec(obj)
    spec = template["spec"]
    own = ExpandedVmi(
        obj, template, spec, spec.at("domain", "devices"), vm_spec["dataVolumeTemplates"]
    )
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


def architecture(vmi: ExpandedVmi, cluster: Cluster, *, certain: bool = False) -> str | None:
    """Return the architecture of the VMI: its own, its preference's, its DataSource's,
    else the cluster's.

    None: unknown.

    Args:
        vmi: the VMI.
        cluster: the cluster.
        certain: return None instead of the likely architecture if KubeVirt does not report one.
    """
    if vmi.architecture or vmi.preference_unseen:
        return vmi.architecture
    default = configuration.reported_architecture if certain else configuration.default_architecture
    try:
        labelled = data_sources.architecture(vmi.disk_templates, vms.namespace_of(vmi.obj), cluster)
        return labelled or default(cluster)
    except Unseen:
        return None


class _Matcher(NamedTuple):
    """How objects refer to instance types, or to preferences."""

    word: str
    status: str
    """The field of a VM's status with the revision that KubeVirt uses since the first start."""
    namespaced: Kind
    clusterwide: Kind


_INSTANCETYPE: Final = _Matcher(
    "instance type", "instancetypeRef", INSTANCETYPE, CLUSTER_INSTANCETYPE
)
_PREFERENCE: Final = _Matcher("preference", "preferenceRef", PREFERENCE, CLUSTER_PREFERENCE)


class AbsentType(NamedTuple):
    """An instance type or a preference that does not exist: the field that names it, what lacks
    where, and what helps.
    """

    path: Path
    words: str
    remedy: str


def absent(obj: Object, cluster: Cluster) -> Iterator[AbsentType | Unseen]:
    """Yield the instance type and the preference that an object names and that do not exist.

    A VM that has started keeps a copy of both, which KubeVirt uses from then on.
    """
    for key, matcher in (("instancetype", _INSTANCETYPE), ("preference", _PREFERENCE)):
        named = vms.vm_spec(obj)[key]
        name = named["name"].text or ""
        kind = _kind(named["kind"].text or "", matcher)
        if not name or kind is None or named["revisionName"].text or _used(obj, matcher):
            continue
        try:
            if cluster.get(kind, vms.namespace_of(obj), name) is None:
                namespace = vms.namespace_of(obj) if kind.namespaced else None
                place, path = f" in namespace {namespace}" if namespace else "", named["name"].path
                words = f"{matcher.word} {show(name)} does not exist{place}"
                others = sorted(each.name for each in cluster.known(kind, namespace))
                other = f"set {path} to one that exists ({names(others, 60)})"
                yield AbsentType(
                    path, words, f"create it, or {other if others else f'correct {path}'}"
                )
        except Unseen as unseen:
            yield unseen


def other_copies(obj: Object, cluster: Cluster) -> Iterator[tuple[Path, str, str] | Unseen]:
    """Yield the ``revisionName`` of an object that is a copy of another instance type or preference
    than it names.

    With the field: the words of what it names, and the name of what the copy was made of.
    """
    for key, matcher in (("instancetype", _INSTANCETYPE), ("preference", _PREFERENCE)):
        named = vms.vm_spec(obj)[key]
        name, revision = named["name"].text or "", named["revisionName"].text or ""
        if not name or not revision:
            continue
        try:
            copy = _revision(obj, revision, cluster)
        except Unseen as unseen:
            yield unseen
            continue
        made_of = copy.labels.get(REVISION_OF) or copy.at("data", "metadata", "name").text
        if made_of and made_of != name:
            yield named["revisionName"].path, f"{matcher.word} {show(name)}", made_of


def _used(obj: Object, matcher: _Matcher) -> str:
    """Return the copy that KubeVirt uses since the first start of a VM; empty: none."""
    named = obj.at("status", matcher.status, "controllerRevisionRef", "name").text
    return named or "" if kinds.of(obj) is VM else ""


def _find(
    obj: Object, named: Field, matcher: _Matcher, cluster: Cluster
) -> tuple[Inherited | None, str]:
    """Return the instance type or preference of the object, else what could not be read."""
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
        return _readable(
            _revision(obj, revision, cluster).at("data", "spec"), f"{matcher.word} {revision}"
        )
    if not name:
        raise Unseen(f"{matcher.word} {named.path}")
    used = _used(obj, matcher)
    if used:
        stored = _revision(obj, used, cluster)
        # find/revision.go#Find ignores a revision without the label
        if stored.labels.get(REVISION_OF) == name:
            return _readable(stored.at("data", "spec"), f"{matcher.word} {used}")
    kind = _kind(named["kind"].text or "", matcher)
    if kind is None:
        raise Unseen(f"{matcher.word} {name}")
    return _readable(_get(kind, obj, name, cluster)["spec"], f"{matcher.word} {name}")


def _kind(word: str, matcher: _Matcher) -> Kind | None:
    """Return the kind that a matcher names: in any case or number, cluster-wide by default."""
    word = word.lower() or matcher.clusterwide.plural
    for kind in (matcher.clusterwide, matcher.namespaced):
        if word in (kind.kind.lower(), kind.plural):
            return kind
    return None


def _revision(obj: Object, name: str, cluster: Cluster) -> Object:
    return _get(CONTROLLER_REVISION, obj, name, cluster)


def _get(kind: Kind, obj: Object, name: str, cluster: Cluster) -> Object:
    """Return the object of that name in the namespace of ``obj``.

    Raises:
        Unseen: it cannot be read, or does not exist (yet).
    """
    found = cluster.get(kind, vms.namespace_of(obj), name)
    if found is None:
        full_name = f"{vms.namespace_of(obj)}/{name}" if kind.namespaced else name
        raise Unseen(AbsentObject(f"{kind} {full_name}, which does not exist"))
    return found


def _readable(spec: Field, what: str) -> Field:
    if not spec.is_map:
        raise Unseen(what)
    return spec


# --- eviction strategy ----------------------------------------------------------------------------


class Strategy(NamedTuple):
    """The effective eviction strategy of an object."""

    value: str
    origin: str
    """The source for messages: ``KubeVirt``, ``KubeVirt's default``; empty: the object itself."""
    path: Path
    """The field of the object that sets it, or would set it."""

    @property
    def phrase(self) -> str:
        """The strategy for messages: ``LiveMigrate``,
        or ``LiveMigrate from KubeVirt`` if inherited.
        """
        return f"{self.value} from {self.origin}" if self.origin else self.value


_BUILT_IN: Final = "KubeVirt's default"


def strategy(obj: Object, cluster: Cluster) -> Strategy:
    """Return the eviction strategy of the object, else the cluster's.

    In a running VMI it is frozen.

    Raises:
        Unseen: it is the cluster's, which is unknown.
    """
    own = vms.vmi_spec(obj)["evictionStrategy"]
    if own.present:
        return Strategy(own.text or "", "", own.path)
    inherited = configuration.eviction_strategy(cluster)
    if inherited.value is None:
        raise Unseen("the eviction strategy of the cluster")
    return Strategy(inherited.value, inherited.origin or _BUILT_IN, own.path)
