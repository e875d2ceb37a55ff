"""The virt-launcher pod of a VMI: what KubeVirt would ask of kube-scheduler for a fresh one.

Sources: kubevirt/kubevirt:pkg/virt-controller/services/template.go#renderLaunchManifest,
nodeselectorrenderer.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import NAMESPACE, NODE
from virt_admit.model.kubernetes.nodes import NAMESPACE_SELECTOR, SCHEDULABLE
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.selectors import DOES_NOT_EXIST, Requirement
from virt_admit.model.kubevirt.instances import tsc, vms
from virt_admit.model.kubevirt.instances.cpu_models import OFFERED, TARGET
from virt_admit.model.kubevirt.instances.expand import ExpandedVmi, architecture
from virt_admit.model.kubevirt.launcher import machine_types
from virt_admit.model.kubevirt.settings import configuration
from virt_admit.model.kubevirt.settings.configuration import known_or_none
from virt_admit.model.kubevirt.settings.versions import Gate, Version, gate_is_known_on, has_release
from virt_admit.model.lookups import find
from virt_admit.model.scheduler.node_selectors import NodeSelector, Term, parse_node_selector
from virt_admit.model.scheduler.pod_terms import REQUIRED, pod_terms
from virt_admit.model.scheduler.pods import Pod, spread_constraints
from virt_admit.model.scheduler.resources import Resources

CREATED_BY: Final = "kubevirt.io/created-by"
"""Label of a launcher pod: the uid of its VMI."""
_COMPONENT: Final = "kubevirt.io"
_LAUNCHER: Final = "virt-launcher"
MIGRATION_JOB: Final = "kubevirt.io/migrationJobUID"
"""Label of the target pod of a migration: the uid of the migration."""
NAME: Final = "vm.kubevirt.io/name"
"""Label of a launcher pod: the host name of its VMI, else its name."""
UNSERVED: Final = "virt-handler is not serving it"
"""Why a node without the label ``SCHEDULABLE`` takes no VM."""
ARCH: Final = "kubernetes.io/arch"
CPU_FEATURE: Final = "cpu-feature.node.kubevirt.io/"
CPU_VENDOR: Final = "cpu-vendor.node.kubevirt.io/"
HYPERV: Final = "hyperv.node.kubevirt.io/"
TSC: Final = tsc.SELECTED
OBSOLETE_HOST_MODEL: Final = "node-labeller.kubevirt.io/obsolete-host-model"
_ISTIO: Final = "sidecar.istio.io/inject"
"""Annotation of a VMI that becomes a label of its pod."""

CPU_MANAGER: Final = "kubevirt.io/cpumanager"
_OLD_CPU_MANAGER: Final = "cpumanager"
"""The label up to 1.7. Since 1.8 virt-handler writes both and virt-controller demands the new one
(staging/src/kubevirt.io/api/core/v1/types.go#DeprecatedCPUManager)."""
_CPU_MANAGER_SINCE: Final = Version(1, 8)

_HYPERV_FEATURES: Final = (
    "vpindex", "runtime", "reset", "synic", "synictimer", "frequencies", "reenlightenment",
    "tlbflush", "ipi",
)  # fmt: skip
"""nodeselectorrenderer.go#makeHVFeatureLabelTable; demanded of nodes only while gate
HypervStrictCheck is on.
"""


def cpu_manager_label(cluster: Cluster) -> str:
    """Return the label that dedicated CPUs demand of a node in the running release."""
    return CPU_MANAGER if has_release(cluster, _CPU_MANAGER_SINCE) else _OLD_CPU_MANAGER


@dataclass(slots=True)
class _Selector:
    """A node selector in the making: labels with their values, and what the labels stand for."""

    labels: dict[str, str]
    meanings: dict[str, str]

    def demand(self, label: str, words: str, value: str = "true") -> None:
        self.labels[label] = value
        self.meanings[label] = words


def is_launcher(pod: Object) -> bool:
    """Return whether a VM runs in a pod, has run in it or is to run there."""
    return pod.labels.get(_COMPONENT) == _LAUNCHER


def pod_labels(vmi: Object) -> Mapping[str, str]:
    """Return the labels of the launcher pod of a VMI,
    or of the VMI that another object would make.
    """
    template = vms.vmi_template(vmi)
    labels = {**template.at("metadata", "labels").texts, _COMPONENT: _LAUNCHER}
    labels[NAME] = template.at("spec", "hostname").text or vmi.name.partition(".")[0][:63]
    labels["vmi.kubevirt.io/id"] = _short(vmi.name)
    injects = template.at("metadata", "annotations").map.get(_ISTIO)
    if isinstance(injects, str):
        labels[_ISTIO] = injects
    uid = vmi.metadata["uid"].text
    return {**labels, CREATED_BY: uid} if uid else labels


def _short(name: str) -> str:
    """Return a name as a label value
    (pkg/apimachinery/labels.go#CalculateVirtualMachineInstanceID).
    """
    if len(name) <= _LONGEST_ID:
        return name
    import hashlib  # noqa: PLC0415 - loading OpenSSL takes time, and long names are rare

    digest = hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()[:8]
    return f"{name[: _LONGEST_ID - 9]}-{digest}"


_LONGEST_ID: Final = 63


def fresh_pod(vmi: ExpandedVmi, cluster: Cluster, requests: Resources) -> Pod:
    """Return the pod that KubeVirt would create to start the VMI again."""
    linked = linked_pod(vmi.obj)
    return replace(
        node_demand(vmi, cluster, moment=True),
        labels=linked.labels,
        requests=requests,
        affinity=linked.affinity,
        anti_affinity=linked.anti_affinity,
        unsearched=linked.unsearched,
        spread=linked.spread,
        claims=tuple(claims(vmi.spec)),
    )


def linked_pod(obj: Object) -> Pod:
    """Return what a launcher pod of a VMI demands of other pods."""
    spec, labels, namespace = vms.vmi_spec(obj), pod_labels(obj), vms.namespace_of(obj)
    terms = pod_terms(spec["affinity"], namespace, obj.name, labels)
    return Pod(
        namespace=namespace,
        name=obj.name,
        labels=labels,
        affinity=terms.affinity,
        anti_affinity=terms.anti_affinity,
        unsearched=terms.unsearched,
        spread=spread_constraints(spec["topologySpreadConstraints"], labels),
    )


def node_demand(vmi: ExpandedVmi, cluster: Cluster, *, moment: bool) -> Pod:
    """Return that pod with what it demands of the name, labels and taints of its node alone.

    ``moment``: whether the node must be served by virt-handler just now (the label's value
    flickers), and whether labels that no node carries are demanded. Without it, data that cannot be
    read demands nothing.
    """
    selector = _node_selector(vmi, cluster, moment=moment)
    required = vmi.spec.at("affinity", "nodeAffinity", REQUIRED)
    forbidden = dict(_forbidden(vmi, cluster, moment=moment))
    return Pod(
        namespace=vms.namespace_of(vmi.obj),
        name=vmi.obj.name,
        node_selector=selector.labels if moment else _conclusive(selector, cluster),
        meanings={**selector.meanings, **forbidden},
        node_affinity=_node_affinity(required, tuple(forbidden)),
        forbidden_labels=tuple(forbidden),
        tolerations=vmi.spec["tolerations"].value,
    )


def written_later(demanded: Iterable[str], labels: Mapping[str, object]) -> frozenset[str]:
    """Return the demanded labels that a node lacks only until the virt-handler of the running
    release runs on it.

    While a release is rolled out, nodes with the virt-handler before 1.6 have no machine type, and
    those with the one before 1.8 have only the old label of dedicated CPUs.
    """
    return frozenset(
        key
        for key in demanded
        if (key.startswith(machine_types.LABEL) and not machine_types.any_in(labels))
        or (
            key == CPU_MANAGER
            and CPU_MANAGER not in labels
            and labels.get(_OLD_CPU_MANAGER) == "true"
        )
    )


_FAMILIES: Final = (
    ARCH,
    OFFERED,
    TARGET,
    machine_types.LABEL,
    CPU_FEATURE,
    CPU_VENDOR,
    HYPERV,
    TSC,
    CPU_MANAGER,
    _OLD_CPU_MANAGER,
    "kubevirt.io/realtime",
    "kubevirt.io/sev",
    "kubevirt.io/tdx",
    "kubevirt.io/s390-pv",
)
"""Prefixes of labels that KubeVirt and the kubelet write on nodes."""


def _conclusive(selector: _Selector, cluster: Cluster) -> Mapping[str, str]:
    """Return the labels without those that KubeVirt demands of families of which no node has any
    label: the node labeller may not have run, so nothing can be concluded.
    """
    if not selector.meanings:
        return selector.labels
    seen = cluster.cached(_families_on_nodes)
    return {
        key: value
        for key, value in selector.labels.items()
        if key not in selector.meanings or key.startswith(seen)
    }


def _families_on_nodes(cluster: Cluster) -> tuple[str, ...]:
    labels = {label for node in cluster.known(NODE) for label in node.metadata["labels"].map}
    return tuple(
        prefix for prefix in _FAMILIES if any(label.startswith(prefix) for label in labels)
    )


def _node_affinity(required: Field, forbidden: tuple[str, ...]) -> NodeSelector | None:
    """Return the required node affinity.

    An empty term matches no node, until KubeVirt adds forbidden labels to it.
    """
    if not required.is_map:
        return None
    selector = parse_node_selector(required.value)
    if not forbidden:
        return selector
    only = Term(frozenset({Requirement(forbidden[0], DOES_NOT_EXIST)}), frozenset())
    return selector._replace(
        terms=tuple(term if term.labels or term.fields else only for term in selector.terms)
    )


def claims(spec: Field) -> Iterator[str]:
    """Yield the claims that the launcher pod of a VMI spec mounts."""
    for volume in spec["volumes"].items():
        if not is_hotplugged(volume):
            yield from claims_of(volume)


def attached_claims(spec: Field) -> Iterator[str]:
    """Yield the claims of hotplugged volumes,
    which a pod of its own attaches on the node of the launcher pod.
    """
    for volume in spec["volumes"].items():
        if is_hotplugged(volume):
            yield from claims_of(volume)
    for volume in spec["utilityVolumes"].items():
        name = volume["claimName"].text
        if name:
            yield name


def all_claims(spec: Field) -> tuple[str, ...]:
    """Return the claims that the launcher pod of a VMI spec mounts, then those attached to it."""
    return (*claims(spec), *attached_claims(spec))


def is_hotplugged(volume: Field) -> bool:
    """Return whether a pod of its own attaches a volume to the node of the launcher pod."""
    hotpluggable = (
        volume.at(source, "hotpluggable").boolean
        for source in ("persistentVolumeClaim", "dataVolume")
    )
    return any(hotpluggable) or volume["memoryDump"].present


def claims_of(volume: Field) -> Iterator[str]:
    """Yield the claim of a volume, if it has one."""
    for path in (
        ("persistentVolumeClaim", "claimName"),
        ("dataVolume", "name"),
        ("memoryDump", "claimName"),
        _EPHEMERAL,
    ):
        name = volume.at(*path).text
        if name:
            yield name


_EPHEMERAL: Final = ("ephemeral", "persistentVolumeClaim", "claimName")


# --- the node selector ----------------------------------------------------------------------------


def _node_selector(vmi: ExpandedVmi, cluster: Cluster, *, moment: bool) -> _Selector:
    selector = _Selector({}, {})
    if moment:
        selector.demand(SCHEDULABLE, UNSERVED)
    arch = architecture(vmi, cluster, certain=True)
    if arch:
        selector.demand(ARCH, f"architecture {arch}", arch.lower())
    selector.labels.update(_of_kubevirt(cluster))
    selector.labels.update(vmi.node_selector.field.texts)
    selector.labels.update(_of_namespace(vms.namespace_of(vmi.obj), cluster))
    _demand_cpu(selector, vmi, cluster)
    if (machine := machine_types.of(vmi)) and cluster.cached(machine_types.are_demanded):
        selector.demand(machine_types.LABEL + machine, f"machine type {machine}")
    _demand_security(selector, vmi.launch_security.field, arch)
    hyperv = vmi.spec.at("domain", "features", "hyperv")
    if hyperv.present and gate_is_known_on(cluster, Gate.HYPERV_STRICT_CHECK):
        _demand_hyperv(selector, hyperv)
    frequency = vmi.obj.at("status", "topologyHints", "tscFrequency").integer
    if frequency and _needs_tsc(vmi):
        selector.demand(f"{TSC}{frequency}", f"{tsc.DEMANDED}{frequency}")
    return selector


def _of_kubevirt(cluster: Cluster) -> Mapping[str, str]:
    found = known_or_none(configuration.kubevirt, cluster)
    if found is None:
        return {}
    return found.at("spec", "configuration", "developerConfiguration", "nodeSelectors").texts


def _of_namespace(namespace: str, cluster: Cluster) -> Mapping[str, str]:
    """Return the labels that OpenShift demands for every pod of a namespace;
    none where it cannot be read.
    """
    found = find(cluster, NAMESPACE, "", namespace)
    text = found.annotations.get(NAMESPACE_SELECTOR, "") if found is not None else ""
    pairs = (part.partition("=") for part in text.split(",") if part.strip())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _demand_cpu(selector: _Selector, vmi: ExpandedVmi, cluster: Cluster) -> None:
    """CPU model, features, dedicated and real-time CPUs.

    KubeVirt looks at features only where a model is set, which its defaults always do.
    """
    model = _model(vmi, cluster)
    if model and model not in (configuration.HOST_MODEL, configuration.HOST_PASSTHROUGH):
        selector.demand(OFFERED + model, f"CPU model {model}")
    cpus = [
        vmi.spec.at("domain", "cpu"),
        *([vmi.instancetype.spec["cpu"]] if vmi.instancetype else []),
    ]
    cpu_manager = cpu_manager_label(cluster)
    for cpu in cpus:
        if cpu["dedicatedCpuPlacement"].boolean or cpu["dedicatedCPUPlacement"].boolean:
            selector.demand(
                cpu_manager,
                f"dedicated CPUs (dedicatedCpuPlacement needs node label {cpu_manager}=true)",
            )
        if cpu["realtime"].present:
            selector.demand("kubevirt.io/realtime", "real-time CPUs")
    for name, policy in _features(vmi).items():
        if policy in ("", "require"):
            selector.demand(CPU_FEATURE + name, f"CPU feature {name}")


def _features(vmi: ExpandedVmi) -> dict[str, str]:
    """Return the policy of each CPU feature;
    the preference adds those that the VMI does not name.
    """
    preferred = (
        vmi.preference.spec.at("cpu", "preferredCPUFeatures").items() if vmi.preference else ()
    )
    listed = (*preferred, *vmi.spec.at("domain", "cpu", "features").items())
    return {name: each["policy"].text or "" for each in listed if (name := each["name"].text)}


def _needs_tsc(vmi: ExpandedVmi) -> bool:
    """Return whether the frequency of the time stamp counter binds the VMI (topology/tsc.go)."""
    reenlightenment = vmi.reenlightenment.field
    if reenlightenment.is_map and reenlightenment["enabled"].boolean is not False:
        return True
    return _features(vmi).get("invtsc") in ("require", "force")


def restarted(pod: Pod, vmi: ExpandedVmi) -> Pod:
    """Return the pod of a running VMI as that of its next VMI, which has no status yet: its machine
    type is that of its spec, often an alias."""
    running, named = machine_types.of(vmi), machine_types.named(vmi)
    label = f"{machine_types.LABEL}{running}"
    if running == named or label not in pod.node_selector:
        return pod
    labels = {key: word for key, word in pod.node_selector.items() if key != label}
    own = _Selector(labels, dict(pod.meanings))
    if named:
        own.demand(machine_types.LABEL + named, f"machine type {named}")
    return replace(pod, node_selector=own.labels, meanings=own.meanings)


def _demand_security(selector: _Selector, launch: Field, arch: str | None) -> None:
    if launch.present and arch == "s390x":
        selector.demand("kubevirt.io/s390-pv", "IBM Secure Execution")
    if launch["sev"].present or launch["snp"].present:
        selector.demand("kubevirt.io/sev", "AMD SEV")
    if launch.at("sev", "policy", "encryptedState").boolean:
        selector.demand("kubevirt.io/sev-es", "AMD SEV-ES")
    if launch["snp"].present:
        selector.demand("kubevirt.io/sev-snp", "AMD SEV-SNP")
    if launch["tdx"].present:
        selector.demand("kubevirt.io/tdx", "Intel TDX")


def _demand_hyperv(selector: _Selector, hyperv: Field) -> None:
    for feature in _HYPERV_FEATURES:
        if hyperv[feature].is_map and hyperv[feature]["enabled"].boolean is not False:
            selector.demand(HYPERV + feature, f"Hyper-V {feature}")
    if hyperv["evmcs"].is_map and hyperv.at("evmcs", "enabled").boolean is not False:
        selector.demand(f"{CPU_VENDOR}Intel", "an Intel processor")


def _forbidden(vmi: ExpandedVmi, cluster: Cluster, *, moment: bool) -> Iterator[tuple[str, str]]:
    """Yield labels that the node must not have,
    which KubeVirt adds to every term of the node affinity.
    """
    if (
        uses_host_model(vmi, cluster)
        if moment
        else _model(vmi, cluster) == configuration.HOST_MODEL
    ):
        yield OBSOLETE_HOST_MODEL, "its host model is obsolete"
    for name, policy in _features(vmi).items():
        if policy == "forbid":
            yield CPU_FEATURE + name, f"it has the forbidden CPU feature {name}"


def uses_host_model(vmi: ExpandedVmi, cluster: Cluster) -> bool:
    """Return whether the VMI runs with ``host-model``,
    which is also KubeVirt's default (defaults.go).

    False if that cannot be read: then nothing is demanded because of it.
    """
    model = _model(vmi, cluster)
    if model or vmi.instancetype_unseen or configuration.is_unread(cluster):
        return model == configuration.HOST_MODEL
    return True


def _model(vmi: ExpandedVmi, cluster: Cluster) -> str:
    """Return the CPU model of the VMI or the default; empty: it cannot be determined."""
    name = vmi.cpu_model.field.text
    if name or vmi.instancetype_unseen:
        return name or ""
    try:
        arm = (vmi.architecture or configuration.default_architecture(cluster)) == "arm64"
        return configuration.HOST_PASSTHROUGH if arm else configuration.default_cpu_model(cluster)
    except Unseen:
        return ""
