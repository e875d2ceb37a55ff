"""What the launcher pod of a VMI requests of a node, as KubeVirt computes it.

Sources: kubevirt/kubevirt:
pkg/virt-controller/services/{template,renderresources,serialconsolelog,virtiofs}.go,
pkg/hypervisor/kvm/hypervisorbackend.go#GetMemoryOverhead, pkg/container-disk,
pkg/network/resources/memory.go. Checked against KubeVirt's own code: ``tests/upstream/launcher``.
"""

from __future__ import annotations

import functools
import marshal
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from virt_admit.model.kubernetes import json_codec
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import KUBEVIRT, NAD, VMI
from virt_admit.model.kubernetes.objects import Field
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.instances.expand import ExpandedVmi
from virt_admit.model.kubevirt.launcher.guest_resources import (
    Guest,
    autoattach,
    guest,
    has_tpm,
    interfaces,
)
from virt_admit.model.kubevirt.launcher.launcher_settings import (
    EVEN_PARITY,
    AutomaticLimits,
    LauncherSettings,
    Number,
    automatic_limits,
    exact,
    settings,
)
from virt_admit.model.kubevirt.settings import configuration
from virt_admit.model.lookups import find
from virt_admit.model.scheduler.pod_size import Container, PodSize
from virt_admit.model.scheduler.resources import CPU, MEMORY, Resources

_RESOURCE_NAME: Final = "k8s.v1.cni.cncf.io/resourceName"
_SIDECARS: Final = "hooks.kubevirt.io/hookSidecars"

READS: Final[Reads] = {
    KUBEVIRT: (),
    NAD: (f"metadata.annotations.{_RESOURCE_NAME}",),
    VMI: (
        f"metadata.annotations.{_SIDECARS}",
        f"metadata.annotations.{EVEN_PARITY}",
        "status.phase",
    ),
}
"""The fields that decide on the requests, besides the spec of the VMI."""

_STORAGE: Final = "ephemeral-storage"
_DEVICES: Final = "devices.kubevirt.io/"
_BOOT_KERNEL: Final = "kernel-boot-volume"
_MI: Final = 2**20
_GI: Final = 2**30
_OWN_STORAGE: Final = 50 * 10**6


def unseen(vmi: ExpandedVmi, cluster: Cluster) -> Iterator[str]:
    """Yield what could not be read although it may change the requests:
    without it KubeVirt's defaults count.
    """
    try:
        configuration.kubevirt_in_effect(cluster)
    except Unseen as error:
        yield error.what
    yield from vmi.unseen
    for name in _attachments(vmi):
        try:
            cluster.get(NAD, *name)
        except Unseen as error:
            yield error.what


def pod(vmi: ExpandedVmi, cluster: Cluster) -> PodSize:
    """Return the containers of the launcher pod, with the limits that KubeVirt adds because of
    quotas or the namespace.
    """
    given, automatic = settings(cluster), automatic_limits(vms.namespace_of(vmi.obj), cluster)
    size = guest(vmi, given)
    support = given.guaranteed if size.guaranteed else given.shared
    containers, init = [_compute(vmi, size, given, cluster, automatic)], []
    disks = _container_disks(vmi)
    if given.image_volumes:
        init += [support.disk] * disks
    else:
        containers += [support.disk] * disks
        init += [support.disk_binary, support.disk] if disks else []
    containers += [support.virtiofs] * _filesystems(vmi)
    containers += [support.hook] * (
        _hooks(vmi) + sum(1 for each in _plugins(vmi, given) if each["sidecarImage"].text)
    )
    console = [replace(support.console_log, is_sidecar=True)] if _logs_console(vmi, given) else []
    return PodSize(tuple(containers), (*console, *init))


def certain_requests(vmi: ExpandedVmi, cluster: Cluster) -> Resources:
    """Return what a launcher pod requests, computed once for all VMs that are made of one template.

    Raises:
        Unseen: something that may change the requests could not be read.
    """
    for what in vmi.unseen:
        raise Unseen(what)
    known, key = cluster.cached(_known_requests), sizing(vmi)
    found = known.get(key)
    if found is None:
        for what in unseen(vmi, cluster):
            raise Unseen(what)
        if len(known) >= _MOST_SIZES:
            known.clear()
        found = known[key] = pod(vmi, cluster).requests
    return found


def least_memory(vmi: ExpandedVmi, cluster: Cluster) -> Resources:
    """Return the memory that a launcher pod requests at least: that of its guest, without the
    overhead of KubeVirt. Empty: it has huge pages, or does not say.

    Raises:
        Unseen: something that may change that request could not be read.
    """
    configuration.kubevirt_in_effect(cluster)
    for what in vmi.unseen:
        raise Unseen(what)
    given = settings(cluster)
    size = guest(vmi, given)
    requests = dict(size.requests)
    if not requests.get(MEMORY):
        _request_memory(requests, size.limits, size, given)
    if size.page_size or not requests.get(MEMORY):
        return {}
    return {MEMORY: math.ceil(requests[MEMORY])}


_MOST_SIZES: Final = 256


def _known_requests(cluster: Cluster) -> dict[bytes, Resources]:
    """Return where requests are remembered, as long as nothing changes that ``pod`` reads of the
    cluster.
    """
    settings(cluster)
    automatic_limits("", cluster)
    cluster.known(NAD)
    return {}


def sizing(vmi: ExpandedVmi) -> bytes:
    """Return all that ``pod`` reads of a VMI: VMs of one template differ in names,
    addresses and volumes.
    """
    spec, domain, devices = vmi.spec.map, vmi.spec["domain"].map, vmi.devices.map
    annotations = vmi.template.at("metadata", "annotations").map
    read = (
        vms.namespace_of(vmi.obj),
        vmi.obj.at("status", "phase").present,
        (annotations.get(_SIDECARS), EVEN_PARITY in annotations),
        vmi.instancetype and vmi.instancetype.spec.value,
        vmi.preference and vmi.preference.spec.value,
        {key: value for key, value in domain.items() if key not in ("devices", "firmware")},
        vmi.spec.at("domain", "firmware", "kernelBoot").value,
        {key: value for key, value in devices.items() if key not in ("interfaces", "disks")},
        [{**each, "macAddress": None} for each in _maps(devices, "interfaces")],
        [each["lun"] for each in _maps(devices, "disks") if "lun" in each],
        [
            (
                each.get("name"),
                each.get("containerDisk") is None,
                each.get("downwardMetrics") is None,
            )
            for each in _maps(spec, "volumes")
        ],
        [spec.get(key) for key in ("networks", "architecture", "livenessProbe", "readinessProbe")],
    )
    return marshal.dumps(read, 2)  # later formats depend on which values are the same object


def _maps(parent: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    value = parent.get(key)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


# --- the container of the guest -------------------------------------------------------------------


def _compute(
    vmi: ExpandedVmi,
    size: Guest,
    given: LauncherSettings,
    cluster: Cluster,
    automatic: AutomaticLimits,
) -> Container:
    """Return the container of the guest.

    What the VMI itself sets wins over what KubeVirt derives.
    """
    own_requests, own_limits = dict(size.requests), dict(size.limits)
    requests: dict[str, Number] = {}
    limits: dict[str, Number] = {}
    own_requests[_STORAGE] = own_requests.get(_STORAGE, 0) + _OWN_STORAGE
    if _STORAGE in own_limits:
        own_limits[_STORAGE] += _OWN_STORAGE
    own_limits.update(dict.fromkeys(_of_kubevirt(vmi, given), 1))
    if not size.requests.get(MEMORY):
        _request_memory(own_requests, own_limits, size, given)
    if size.dedicated:
        _pin(own_requests, own_limits, size)
    else:
        cpus = size.vcpus + size.io_threads
        requests[CPU] = _share(cpus, given.cpu_ratio)
        if automatic.cpu and CPU not in size.limits:
            limits[CPU] = cpus
    _add_overhead(
        vmi, size, _overhead(vmi, size, given), (own_requests, own_limits), (requests, limits)
    )
    if automatic.memory is not None and MEMORY not in size.limits:
        limits[MEMORY] = int(float(math.ceil(own_requests[MEMORY])) * automatic.memory)
    for name, number in Counter(_devices(vmi, cluster)).items():
        requests[name] = limits[name] = number
    return Container.of({**requests, **own_requests}, {**limits, **own_limits}, "compute")


def _request_memory(
    requests: dict[str, Number], limits: Mapping[str, Number], size: Guest, given: LauncherSettings
) -> None:
    """Request the memory of a VMI without a request: its limit,
    else the guest's memory and its overcommit.
    """
    if limits.get(MEMORY):
        requests[MEMORY] = limits[MEMORY]
    elif MEMORY not in requests and size.memory:
        overcommit = given.overcommit
        requests[MEMORY] = (
            size.memory if overcommit == 100 else math.ceil(size.memory) * 100 // overcommit
        )


def _pin(requests: dict[str, Number], limits: dict[str, Number], size: Guest) -> None:
    """Request whole CPUs, which the guest has for itself, and limit the memory to the request."""
    cpus = size.vcpus + size.io_threads
    if size.isolated:
        threads = cpus + (size.io_threads if size.pooled else 0)
        cpus += 2 if size.even and threads % 2 == 0 else 1
    requests[CPU] = limits[CPU] = cpus
    if MEMORY in requests:
        limits[MEMORY] = requests[MEMORY]


@functools.lru_cache(maxsize=1024)
def _share(cpus: int, ratio: int) -> Number:
    """Return the CPU request of virtual CPUs.

    KubeVirt writes a float as text, and its last digit rounds up.
    """
    cores = cpus / ratio
    if cores >= 1:
        return Fraction(Decimal(repr(cores)))
    return Fraction(Decimal(repr(cores * 1000))) / 1000


_Pair = tuple[dict[str, Number], dict[str, Number]]
"""Requests and limits."""


def _add_overhead(
    vmi: ExpandedVmi, size: Guest, overhead: Number, own: _Pair, derived: _Pair
) -> None:
    """Add KubeVirt's overhead to the memory.

    The guest's own part of it goes to huge pages if it has them.
    """
    requests, limits = own
    if size.page_size:
        requested, limited = requests.get(MEMORY, 0), limits.get(MEMORY, 0)
        pages = requested if size.memory is None else min(requested, size.memory)
        derived[0][f"hugepages-{size.page_size}"] = derived[1][f"hugepages-{size.page_size}"] = (
            pages
        )
        beyond = requested if size.memory is None else size.memory
        requests[MEMORY] = max(0, requested - beyond) + overhead
        if MEMORY in limits:
            beyond = limited if size.memory is None else size.memory
            limits[MEMORY] = max(0, limited - beyond) + overhead
        return
    overcommits = vmi.spec.at("domain", "resources", "overcommitGuestOverhead").boolean is True
    requests[MEMORY] = requests.get(MEMORY, 0) + (0 if overcommits else overhead)
    if MEMORY in limits:
        limits[MEMORY] += overhead


# --- memory besides the guest's -------------------------------------------------------------------


def _overhead(vmi: ExpandedVmi, size: Guest, given: LauncherSettings) -> Number:
    """Return the memory that KubeVirt adds for its own processes, QEMU's,
    and the guest's devices.
    """
    page_table = -(-size.requests.get(MEMORY, 0) // 1000) * 1000 // 512
    # Monitor, launcher, virtlogd, virtqemud, QEMU; then each CPU, and the I/O thread
    fixed = (25 + 100 + 25 + 40 + 30 + 8 * max(1, size.vcpus) + 8) * _MI
    total: Number = page_table + fixed + _of_devices(vmi, size) + exact(_added(vmi))
    if given.overhead_ratio is not None:
        total += int(float(-(-total // 1000)) * (given.overhead_ratio - 1.0)) * 1000
    return total + _of_network(vmi, given)


def _added(vmi: ExpandedVmi) -> object:
    return vmi.spec.at("domain", "memory", "reservedOverhead", "addedOverhead").value


def _of_devices(vmi: ExpandedVmi, size: Guest) -> int:
    total = 0
    if (
        autoattach(vmi, "autoattachGraphicsDevice", "preferredAutoattachGraphicsDevice")
        is not False
    ):
        total += 32 * _MI
    if size.architecture == "arm64":
        total += 128 * _MI
    if vmi.gpus.field.value or vmi.host_devices.field.value or _has_sriov(vmi):
        total += _GI
    if any(volume.get("downwardMetrics") is not None for volume in vmi.spec["volumes"].maps):
        total += _MI
    probes = sum(
        vmi.spec.at(probe, "exec").present for probe in ("livenessProbe", "readinessProbe")
    )
    if probes:
        total += (100 + 10 * probes) * _MI
    if _has_sev(vmi):
        total += 256 * _MI
    if has_tpm(vmi):
        total += 53 * _MI
    if size.guaranteed:
        total += 100 * _MI
    return total


def _of_network(vmi: ExpandedVmi, given: LauncherSettings) -> Number:
    """Return what network bindings need: passt, and each registered plugin once."""
    passt = any(each.get("passtBinding") is not None for each in vmi.devices["interfaces"].maps)
    total: Number = 250 * _MI if passt else 0
    for plugin in _plugins(vmi, given):
        total += exact(plugin.at("computeResourceOverhead", "requests", MEMORY).value)
    return total


def _has_sriov(vmi: ExpandedVmi) -> bool:
    return any(each.get("sriov") is not None for each in vmi.devices["interfaces"].maps)


def _has_sev(vmi: ExpandedVmi) -> bool:
    security = vmi.launch_security.field
    return security["sev"].present or security["snp"].present


def _plugins(vmi: ExpandedVmi, given: LauncherSettings) -> list[Field]:
    bindings = [
        each["binding"]
        for each in vmi.devices["interfaces"].maps
        if isinstance(each.get("binding"), dict)
    ]
    return [
        given.plugins[name] for name in {Field(each).at("name").text for each in bindings} if name
    ]


# --- devices --------------------------------------------------------------------------------------


def _of_kubevirt(vmi: ExpandedVmi, given: LauncherSettings) -> Iterator[str]:
    """Yield the devices of the node that QEMU opens."""
    models = interfaces(vmi, given)
    if models or vmi.autoattach_pod_interface is not False:
        yield f"{_DEVICES}tun"
    if not given.emulation:
        if "virtio" in models:
            yield f"{_DEVICES}vhost-net"
        yield given.device
    if vmi.devices["autoattachVSOCK"].boolean:
        yield f"{_DEVICES}vhost-vsock"


def _devices(vmi: ExpandedVmi, cluster: Cluster) -> Iterator[str]:
    """Yield the resource of each network, GPU and host device;
    those of resource claims are not extended resources.
    """
    for name in _attachments(vmi):
        resource = _network_resource(*name, cluster)
        if resource:
            yield resource
    for listed in (vmi.gpus, vmi.host_devices):
        for device in listed.field.items():
            if device["deviceName"].text and not device["claimRequest"].present:
                yield device["deviceName"].value
    if _has_sev(vmi):
        yield f"{_DEVICES}sev"
    if any(
        Field(disk["lun"])["reservation"].boolean
        for disk in vmi.devices["disks"].maps
        if "lun" in disk
    ):
        yield f"{_DEVICES}pr-helper"


def _attachments(vmi: ExpandedVmi) -> Iterator[tuple[str, str]]:
    for network in vmi.spec["networks"].maps:
        name = Field(network["multus"])["networkName"].text if "multus" in network else None
        if name:
            namespace, slash, rest = name.partition("/")
            yield (namespace, rest) if slash else (vms.namespace_of(vmi.obj), name)


def _network_resource(namespace: str, name: str, cluster: Cluster) -> str:
    """Return the resource of a network: of SR-IOV devices, for example;
    none where it cannot be read.
    """
    found = find(cluster, NAD, namespace, name)
    return found.annotations.get(_RESOURCE_NAME, "") if found is not None else ""


# --- the other containers -------------------------------------------------------------------------


def _container_disks(vmi: ExpandedVmi) -> int:
    volumes = vmi.spec["volumes"].maps
    disks = sum(
        1
        for each in volumes
        if each.get("containerDisk") is not None and each.get("name") != _BOOT_KERNEL
    )
    return disks + vmi.spec.at("domain", "firmware", "kernelBoot", "container").present


def _filesystems(vmi: ExpandedVmi) -> int:
    names = {each["name"].text for each in vmi.devices["filesystems"].items()}
    return (
        sum(1 for each in vmi.spec["volumes"].items() if each["name"].text in names) if names else 0
    )


def _hooks(vmi: ExpandedVmi) -> int:
    found = json_codec.embedded(vmi.annotation(_SIDECARS))
    return len(found) if isinstance(found, list) else 0


def _logs_console(vmi: ExpandedVmi, given: LauncherSettings) -> bool:
    if autoattach(vmi, "autoattachSerialConsole", "preferredAutoattachSerialConsole") is False:
        return False
    own = vmi.devices["logSerialConsole"].boolean
    return given.logs_console if own is None else own
