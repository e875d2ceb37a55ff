"""What the KubeVirt resource says about the size of launcher pods, read once for a cluster.

A KubeVirt that cannot be read counts as one without settings; ``launcher_resources.unseen`` says
so. Sources: kubevirt/kubevirt: pkg/virt-config/configuration.go#defaultClusterConfig,
virt-config.go.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from virt_admit.model.kubernetes.cluster import Cluster, cached
from virt_admit.model.kubernetes.kinds import NAMESPACE, RESOURCE_QUOTA
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.quantities import parse_quantity
from virt_admit.model.kubernetes.selectors import Selector, parse
from virt_admit.model.kubevirt.settings import configuration, versions
from virt_admit.model.kubevirt.settings.configuration import known_or_none
from virt_admit.model.kubevirt.settings.versions import Gate, gate_is_known_on
from virt_admit.model.scheduler.pod_size import Container
from virt_admit.model.scheduler.resources import CPU, MEMORY

Number = int | Fraction
"""An exact amount: cores of ``cpu``, units of all others."""

EVEN_PARITY: Final = "alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity"
"""Annotation of KubeVirt and of a VMI: an isolated emulator thread gets a second CPU where the sum
would be odd.
"""
_MEMORY_RATIO: Final = "alpha.kubevirt.io/auto-memory-limits-ratio"
_USUAL_CPU_REQUEST: Final = Fraction(1, 10)


@functools.lru_cache(maxsize=4096)
def _exact(text: str) -> Number:
    try:
        found = parse_quantity(text)
    except ValueError:
        return 0
    found = max(Fraction(-_LARGEST), min(Fraction(_LARGEST), found))
    return found.numerator if found.denominator == 1 else found


_LARGEST: Final = 2**63 - 1


def exact(quantity: object) -> Number:
    """Return the number that a quantity means; 0 if it is not valid."""
    if isinstance(quantity, int) and not isinstance(quantity, bool):
        return max(-_LARGEST, min(_LARGEST, quantity))
    return _exact(quantity) if isinstance(quantity, str) else 0


@dataclass(frozen=True, slots=True)
class Support:
    """The containers that KubeVirt puts next to the one that runs the guest."""

    disk: Container
    """Of each container disk and of a boot kernel, first as an init container."""
    disk_binary: Container
    virtiofs: Container
    hook: Container
    console_log: Container


@dataclass(frozen=True, slots=True)
class LauncherSettings:
    """KubeVirt's settings, with its defaults."""

    overcommit: int
    """Guest memory in percent of the memory that the pod requests."""
    cpu_ratio: int
    cpu_request: Number | None
    """The request of VMs without one; None: KubeVirt derives it from the number of virtual CPUs."""
    emulation: bool
    overhead_ratio: float | None
    default_architecture: str
    default_interface: str
    device: str
    image_volumes: bool
    even_parity: bool
    logs_console: bool
    plugins: Field
    """The network binding plugins."""
    cpu_limited: Selector | None
    """The namespaces in which pods get CPU limits."""
    attachment: Container
    """Of the pod that attaches hotplugged volumes."""
    shared: Support
    guaranteed: Support
    """The same of VMs with dedicated CPUs, or with limits equal to requests."""


@cached
def settings(cluster: Cluster) -> LauncherSettings:
    """Return KubeVirt's settings as far as they are known."""
    kubevirt = known_or_none(configuration.kubevirt_in_effect, cluster) or Object({})
    found = kubevirt.at("spec", "configuration")
    developer = found["developerConfiguration"]
    request = (
        exact(found["cpuRequest"].value) if found["cpuRequest"].present else _USUAL_CPU_REQUEST
    )
    hypervisor = (
        found.at("hypervisors", 0, "name").text
        if gate_is_known_on(cluster, Gate.CONFIGURABLE_HYPERVISOR)
        else ""
    )
    return LauncherSettings(
        overcommit=_positive(developer["memoryOvercommit"], 100),
        cpu_ratio=_positive(developer["cpuAllocationRatio"], 10),
        cpu_request=None if request == _USUAL_CPU_REQUEST else request,
        emulation=developer["useEmulation"].boolean is True,
        overhead_ratio=_ratio(found["additionalGuestMemoryOverheadRatio"].text or ""),
        default_architecture=kubevirt.at("status", "defaultArchitecture").text or "amd64",
        default_interface=found.at("network", "defaultNetworkInterface").text or "bridge",
        device="devices.kubevirt.io/" + ("mshv" if hypervisor == "hyperv-direct" else "kvm"),
        image_volumes=gate_is_known_on(cluster, Gate.IMAGE_VOLUME),
        even_parity=EVEN_PARITY in kubevirt.annotations
        and gate_is_known_on(cluster, Gate.ALIGN_CPUS),
        logs_console=not found.at("virtualMachineOptions", "disableSerialConsoleLog").present,
        plugins=found.at("network", "binding"),
        cpu_limited=_selector(found["autoCPULimitNamespaceLabelSelector"]),
        attachment=_container(
            found["supportContainerResources"],
            "hotplug-disk",
            _attachment_requests(cluster),
            (_milli(100), 80 * _M),
        ),
        shared=_support(found["supportContainerResources"], guaranteed=False),
        guaranteed=_support(found["supportContainerResources"], guaranteed=True),
    )


def _attachment_requests(cluster: Cluster) -> _Usual:
    """Return what the pod that attaches volumes requests: in 1.0 and 1.1 as much as its limits.

    Source:
    kubevirt/kubevirt:pkg/virt-controller/services/renderresources.go#hotplugContainerRequests of
    each release.
    """
    release = versions.kubevirt_version(cluster)
    if release is not None and release[:2] in ((1, 0), (1, 1)):
        return _milli(100), 80 * _M
    return _milli(10), 2 * _M


def _positive(field: Field, default: int) -> int:
    value = field.integer
    return value if value is not None and value > 0 else default


def _ratio(text: str) -> float | None:
    try:
        ratio = float(text)
    except ValueError:
        return None
    return ratio if math.isfinite(ratio) else None


def _selector(field: Field) -> Selector | None:
    if not field.is_map:
        return None
    found = parse(field.value)
    return None if found.errors else found


# --- the other containers -------------------------------------------------------------------------

_M: Final = 10**6
_Usual = tuple[Number | None, Number | None]
"""CPU and memory."""


def _support(given: Field, *, guaranteed: bool) -> Support:
    def container(kind: str, requests: _Usual, limits: _Usual, storage: int = 0) -> Container:
        limited = _amounts(given, kind, "limits", limits)
        requested = {**limited} if guaranteed else _amounts(given, kind, "requests", requests)
        if storage:
            requested["ephemeral-storage"] = storage
        return Container.of(requested, limited)

    none = (None, None)
    return Support(
        disk=container("container-disk", (_milli(1), _M), (_milli(10), 40 * _M), storage=50 * _M),
        disk_binary=container(
            "container-disk", (_milli(10), _M), (_milli(10 if guaranteed else 100), 40 * _M)
        ),
        virtiofs=container("virtiofs", (_milli(10), _M), (_milli(100), 80 * _M)),
        hook=container("sidecar", none, (_milli(200), 64 * _M) if guaranteed else none),
        console_log=container("guest-console-log", (_milli(5), 35 * _M), (_milli(15), 60 * _M)),
    )


def _container(given: Field, kind: str, requests: _Usual, limits: _Usual) -> Container:
    return Container.of(
        _amounts(given, kind, "requests", requests), _amounts(given, kind, "limits", limits), kind
    )


def _milli(number: int) -> Number:
    return Fraction(number, 1000)


def _amounts(given: Field, kind: str, side: str, usual: _Usual) -> dict[str, Number]:
    """Return what ``supportContainerResources`` sets for a kind of container, else the usual
    amounts; 0 counts as unset.
    """
    found: dict[str, Number] = {}
    for name, default in zip((CPU, MEMORY), usual, strict=True):
        own = (
            exact(item.at("resources", side, name).value)
            for item in given.items()
            if item["type"].text == kind
        )
        value = next((amount for amount in own if amount), default)
        if value is not None:
            found[name] = value
    return found


# --- namespaces -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AutomaticLimits:
    """Which limits KubeVirt writes by itself into the pods of a namespace."""

    cpu: bool = False
    memory: float | None = None
    """The limit as a multiple of the request; None: no limit."""


def automatic_limits(namespace: str, cluster: Cluster) -> AutomaticLimits:
    """Return the limits of a namespace, for VMs without their own,
    as far as quotas and namespaces are known.
    """
    return cluster.cached(_automatic_limits).get(namespace, _NO_LIMITS)


_NO_LIMITS: Final = AutomaticLimits()


def _automatic_limits(cluster: Cluster) -> Mapping[str, AutomaticLimits]:
    quotas: dict[str, set[str]] = {}
    for quota in cluster.known(RESOURCE_QUOTA):
        quotas.setdefault(quota.namespace or "default", set()).update(quota.at("spec", "hard").map)
    labels = {namespace.name: namespace.labels for namespace in cluster.known(NAMESPACE)}
    selector = settings(cluster).cpu_limited
    found = {}
    for name in {*quotas, *labels}:
        own, hard = labels.get(name, {}), quotas.get(name, ())
        selected = selector is not None and name in labels and selector.matches(own)
        memory = _memory_ratio(own.get(_MEMORY_RATIO, "")) if "limits.memory" in hard else None
        found[name] = AutomaticLimits("limits.cpu" in hard or selected, memory)
    return found


def _memory_ratio(text: str) -> float:
    ratio = _ratio(text)
    return ratio if ratio is not None and ratio >= 1 else 2.0
