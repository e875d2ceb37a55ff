"""The paths of specs and templates in KubeVirt's kinds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.objects import Field, Object, Path

RUN_STRATEGIES: Final = ("Always", "Halted", "Manual", "RerunOnFailure", "Once", "WaitAsReceiver")
"""kubevirt.io/api/core/v1 types.go#VirtualMachineRunStrategy; compared exactly."""

EVICTION_STRATEGIES: Final = ("None", "LiveMigrate", "LiveMigrateIfPossible", "External")
"""kubevirt.io/api/core/v1 types.go#EvictionStrategy; compared exactly."""


def namespace_of(obj: Object) -> str:
    """Return the namespace of an object and of the objects that it names; manifests may omit it."""
    return obj.namespace or "default"


_NOWHERE: Final = ("-",)


def vm_spec(obj: Object) -> Field:
    """Return ``S``, the spec of a VM or of the template of a pool; absent for other kinds."""
    return obj.cached(_vm_spec)


def _vm_spec(obj: Object) -> Field:
    kind = kinds.of(obj)
    if kind is kinds.VM:
        return obj["spec"]
    if kind is kinds.POOL:
        return obj.at("spec", "virtualMachineTemplate", "spec")
    return Field(None, Path(*_NOWHERE))


def vmi_template(obj: Object) -> Field:
    """Return the template of the VMI (``metadata`` and ``spec``); for a VMI, the object itself."""
    return obj.cached(_vmi_template)


def vmi_spec(obj: Object) -> Field:
    """Return ``T``, the VMI spec inside the object.

    Rules skip one that is not a map, because the schema rejects it.
    """
    return obj.cached(_vmi_spec)


def _vmi_template(obj: Object) -> Field:
    return obj.at(*_template_steps(obj))


def _vmi_spec(obj: Object) -> Field:
    return obj.at(*_template_steps(obj), "spec")


def _template_steps(obj: Object) -> tuple[str, ...]:
    kind = kinds.of(obj)
    if kind is kinds.VM or kind is kinds.VMIRS:
        return ("spec", "template")
    if kind is kinds.POOL:
        return ("spec", "virtualMachineTemplate", "spec", "template")
    return () if kind is kinds.VMI else _NOWHERE


def disk_template(vm: Object, disk: str) -> Field | None:
    """Return the template of a data volume in a VM, which knows its path; None: it has none."""
    templates = vm_spec(vm)["dataVolumeTemplates"].items()
    return next((each for each in templates if each.at("metadata", "name").text == disk), None)


def keeps_state(vmi: Object) -> bool:
    """Return whether the vTPM or EFI state of a VMI outlives a restart, in a claim of its own."""
    domain = vmi_spec(vmi)["domain"]
    efi = domain.at("firmware", "bootloader", "efi", "persistent")
    return domain.at("devices", "tpm", "persistent").boolean is True or efi.boolean is True


def run_strategy(spec: Field) -> str | None:
    """Return the run strategy of a VM spec, derived from ``running`` if needed;
    None if neither is set, or both.
    """
    running, strategy = spec.map.get("running"), spec.map.get("runStrategy")
    if strategy is not None:
        return strategy if running is None and isinstance(strategy, str) else None
    return ("Always" if running else "Halted") if isinstance(running, bool) else None


MOVER_LABELS: Final = ("capk.cluster.x-k8s.io/", "cluster.x-k8s.io/role")
"""Prefixes of label keys of VMs whose evictions a controller outside KubeVirt handles: Cluster API
provider KubeVirt drains the guest's own node for at most 10 minutes, then deletes the VMI
(kubernetes-sigs/cluster-api-provider-kubevirt: pkg/kubevirt/machine.go#DrainNodeIfNeeded);
kubermatic/machine-controller:…/provider/kubevirt/provider.go.
"""
MOVER_OWNERS: Final = ("cluster.x-k8s.io",)
"""Parts of the apiVersion of an owner that is such a controller's object."""


def has_mover(
    obj: Object,
    labels: Iterable[str],
    prefixes: tuple[str, ...] = MOVER_LABELS,
    owners: tuple[str, ...] = MOVER_OWNERS,
) -> bool:
    """Whether labels or an owner of a VM or VMI show that a controller handles evictions."""
    if any(label.startswith(prefixes) for label in labels):
        return True
    versions = (owner["apiVersion"].text or "" for owner in obj.metadata["ownerReferences"].items())
    return any(part in version for version in versions for part in owners)


def is_worker(obj: Object) -> bool:
    """Return whether a VM or VMI is a node of a guest cluster, which its Machine makes again."""
    labels = (*obj.labels, *vmi_template(obj)["metadata"]["labels"].map)
    return any(label.startswith(KUBEVIRT_MACHINE) for label in labels)


_COMMON_DOMAINS: Final = (
    *(
        "kubernetes.io",
        "k8s.io",
        "kubevirt.io",
        "openshift.io",
        "cattle.io",
        "harvesterhci.io",
        "helm.sh",
    ),
    *("argoproj.io", "fluxcd.io", "velero.io", "x-k8s.io", "coreos.com", "cncf.io", "istio.io"),
)
"""Domains of keys of platforms and delivery tools, which name no controller that moves VMs."""


def own_marks(obj: Object, what: str) -> Iterator[str]:
    """Yield each ``label`` or ``annotation`` of a VM or VMI whose domain is not common:
    it may name a controller.
    """
    for key in sorted(obj.metadata[f"{what}s"].map):
        domain, slash, _ = key.partition("/")
        if slash and not is_common(domain):
            yield f"{what} {key}"


def is_common(domain: str) -> bool:
    """Return whether a domain is one of platforms and delivery tools."""
    return any(domain == each or domain.endswith(f".{each}") for each in _COMMON_DOMAINS)


KUBEVIRT_MACHINE: Final = "capk.cluster.x-k8s.io/kubevirt-machine-"
"""Begins the keys of two labels: the name and the namespace of the KubevirtMachine of a VM."""


def mover_name(labels: Mapping[str, str]) -> str:
    """Return the controller, and its object if known, that the labels of a VM or VMI name."""
    if not any(label.startswith(MOVER_LABELS) for label in labels):
        return "the controller of its owner"
    name, namespace = (
        labels.get(f"{KUBEVIRT_MACHINE}{part}", "") for part in ("name", "namespace")
    )
    machine = f", KubevirtMachine {namespace}/{name}" if name and namespace else ""
    if machine or any(label.startswith(MOVER_LABELS[0]) for label in labels):
        return f"Cluster API provider KubeVirt (CAPK){machine}"
    return "the controller that its labels name (cluster.x-k8s.io/role)"
