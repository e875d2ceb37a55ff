"""The guest for which KubeVirt sizes a launcher pod: CPUs, memory and devices, after all defaults.

A VMI gets its values from the VM, its instance type, its preference, and from virt-api, which
writes defaults into each new VMI. Sources: kubevirt/kubevirt: pkg/instancetype/apply,
pkg/instancetype/preference/apply, pkg/defaults/defaults.go,
pkg/util/hardware/hw_utils.go#GetNumberOfVCPUs.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from virt_admit.model.kubernetes.objects import Field
from virt_admit.model.kubevirt.instances.expand import ExpandedVmi
from virt_admit.model.kubevirt.launcher.launcher_settings import (
    EVEN_PARITY,
    LauncherSettings,
    Number,
    exact,
)
from virt_admit.model.scheduler.resources import CPU, MEMORY

_MOST: Final = 2**32 - 1
"""KubeVirt counts CPUs and threads in 32 bits."""


@dataclass(frozen=True, slots=True)
class Guest:
    """What decides on the size of a launcher pod."""

    requests: Mapping[str, Number]
    limits: Mapping[str, Number]
    vcpus: int
    memory: Number | None
    page_size: str
    """Of huge pages; empty: none."""
    dedicated: bool
    """Whether the guest has its CPUs for itself."""
    isolated: bool
    """Whether the emulator thread has a CPU of its own."""
    even: bool
    """Whether an isolated emulator thread makes the number of CPUs even."""
    io_threads: int
    """In the supplemental pool, each with a CPU."""
    pooled: bool
    """Whether the disks use that pool."""
    architecture: str

    @property
    def guaranteed(self) -> bool:
        """Whether the pod is to be of class Guaranteed."""
        return self.dedicated or (_equal(self, MEMORY) and _equal(self, CPU))


def _equal(guest: Guest, resource: str) -> bool:
    request, limit = guest.requests.get(resource, 0), guest.limits.get(resource, 0)
    if not request:
        return resource == MEMORY and bool(limit)
    return request == limit


def guest(vmi: ExpandedVmi, settings: LauncherSettings) -> Guest:
    """Return the guest of a VMI, or of the VMI that a VM would start."""
    domain, cpu = vmi.spec["domain"], vmi.spec.at("domain", "cpu")
    resources = domain["resources"]
    requests = {name: exact(value) for name, value in resources["requests"].map.items()}
    limits = {name: exact(value) for name, value in resources["limits"].map.items()}
    memory, page_size = _memory(vmi, domain["memory"], requests)
    dedicated = _cpu_flag(vmi, cpu, "dedicatedCpuPlacement", "dedicatedCPUPlacement")
    isolated = _cpu_flag(vmi, cpu, "isolateEmulatorThread", "isolateEmulatorThread")
    _default_requests(requests, limits, vmi, settings, dedicated=dedicated)
    if memory is None:
        memory = requests.get(MEMORY, 0) or limits.get(MEMORY, 0) or exact(page_size) or None
    threads, policy = _io_threads(vmi, domain)
    return Guest(
        requests=requests,
        limits=limits,
        vcpus=min(_MOST, max(0, _vcpus(vmi, cpu, requests, limits))),
        memory=memory,
        page_size=page_size,
        dedicated=dedicated,
        isolated=isolated,
        even=(isolated and settings.even_parity) or vmi.annotated(EVEN_PARITY),
        io_threads=threads,
        pooled=policy == "supplementalPool",
        architecture=vmi.architecture or settings.default_architecture,
    )


def _cpu_flag(vmi: ExpandedVmi, cpu: Field, key: str, of_type: str) -> bool:
    given = vmi.instancetype.spec["cpu"][of_type].boolean if vmi.instancetype else None
    return given if given is not None else cpu[key].boolean is True


def _default_requests(
    requests: dict[str, Number],
    limits: Mapping[str, Number],
    vmi: ExpandedVmi,
    settings: LauncherSettings,
    *,
    dedicated: bool,
) -> None:
    """Write the CPU request that virt-api writes into a new VMI;
    one that runs keeps what it got when it started.
    """
    if limits.get(CPU) and not requests.get(CPU):
        requests[CPU] = limits[CPU]
    started = vmi.obj.at("status", "phase").present
    if settings.cpu_request is not None and CPU not in requests and not dedicated and not started:
        requests[CPU] = settings.cpu_request


# --- CPUs -----------------------------------------------------------------------------------------


def _vcpus(
    vmi: ExpandedVmi, cpu: Field, requests: Mapping[str, Number], limits: Mapping[str, Number]
) -> int:
    if vmi.instancetype:
        return max(1, _of_instancetype(vmi.instancetype.spec["cpu"]["guest"].integer or 0, vmi))
    own = [cpu[key].integer or 0 for key in ("cores", "sockets", "threads")]
    if any(own):
        return math.prod(each for each in own if each)
    return max(1, math.ceil(limits.get(CPU, requests.get(CPU, 1))))


def _of_instancetype(number: int, vmi: ExpandedVmi) -> int:
    """Return the CPUs of an instance type; spread over a topology that does not divide their
    number, some are lost.
    """
    preference = vmi.preference.spec if vmi.preference else Field(None)
    cpu = preference["cpu"]
    if number == 1 or cpu["preferredCPUTopology"].text not in ("spread", "preferSpread"):
        return number
    options = cpu["spreadOptions"]
    ratio = options["ratio"].integer or preference["preferSpreadSocketToCoreRatio"].integer or 2
    across = options["across"].text or "SocketsCores"
    inner = (2, ratio) if across == "SocketsCoresThreads" else (ratio,)
    return math.prod(each for each in (*inner, number // math.prod(inner)) if each)


def _io_threads(vmi: ExpandedVmi, domain: Field) -> tuple[int, str | None]:
    pool = ("ioThreads", "supplementalPoolThreadCount")
    threads, policy = domain.at(*pool).integer, domain["ioThreadsPolicy"].text
    if vmi.instancetype:
        given = vmi.instancetype.spec
        threads = threads if threads is not None else given.at(*pool).integer
        policy = policy or given["ioThreadsPolicy"].text
    return min(_MOST, max(0, threads or 0)), policy


# --- memory ---------------------------------------------------------------------------------------

_FLOAT: Final = struct.Struct("f")


def _memory(
    vmi: ExpandedVmi, memory: Field, requests: dict[str, Number]
) -> tuple[Number | None, str]:
    """Return the guest's memory and the size of its huge pages.

    Overcommit of an instance type becomes a request.
    """
    own = memory["guest"]
    page_size = memory.at("hugepages", "pageSize").text or ""
    if vmi.instancetype:
        given = vmi.instancetype.spec["memory"]
        size = exact(given["guest"].value)
        percent = min(100, given["overcommitPercent"].integer or 0)
        if percent > 0:
            requests[MEMORY] = int(
                _single(_single(size) * _single(1 - _single(_single(percent) / 100)))
            )
        return size, given.at("hugepages", "pageSize").text or page_size
    return exact(own.value) if own.present else None, page_size


def _single(value: Number | float) -> float:
    """Round to single precision, in which KubeVirt computes the overcommit of instance types."""
    rounded: float = _FLOAT.unpack(_FLOAT.pack(float(value)))[0]
    return rounded


# --- devices --------------------------------------------------------------------------------------


def autoattach(vmi: ExpandedVmi, own: str, preferred: str) -> bool | None:
    """Return whether a device is attached by itself, by the VM or its preference; None:
    neither says.
    """
    value = vmi.devices[own].boolean
    if value is None and vmi.preference is not None:
        return vmi.preference.spec["devices"][preferred].boolean
    return value


def has_tpm(vmi: ExpandedVmi) -> bool:
    """Return whether the guest has a TPM."""
    device = vmi.devices["tpm"]
    if not device.present and vmi.preference is not None:
        device = vmi.preference.spec.at("devices", "preferredTPM")
    return device.is_map and device["enabled"].boolean is not False


def interfaces(vmi: ExpandedVmi, settings: LauncherSettings) -> list[str]:
    """Return the model of each network interface.

    A VMI without networks gets an interface by itself.
    """
    found = list(vmi.devices["interfaces"].items())
    default = (
        vmi.preference.spec.at("devices", "preferredInterfaceModel").text
        if vmi.preference
        else None
    )
    models = [each["model"].text or default or "virtio" for each in found]
    lonely = (
        not models and not vmi.spec["networks"].value and vmi.autoattach_pod_interface is not False
    )
    if lonely and settings.default_interface in ("bridge", "masquerade"):
        models.append(default or "virtio")
    return models
