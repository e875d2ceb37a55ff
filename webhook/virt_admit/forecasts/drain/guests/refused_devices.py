"""Devices of a guest that QEMU or libvirt refuses, each with its field in the VM and the value.

- A serial of a SCSI disk: QEMU once showed the guest its first 36 characters, and refuses a longer
  one since 9.1 (qemu/qemu:hw/scsi/scsi-disk.c#scsi_realize; kubevirt/kubevirt#13858). Bus virtio
  cuts it, and KubeVirt gives a LUN none (:pkg/virt-launcher/virtwrap/converter/storage/disk.go).
- Hotplugged disks on bus virtio: each takes a PCIe slot, and the guest has those that were free
  when it started. On bus scsi one controller takes all. KubeVirt kept four slots less its
  interfaces up to 1.5, and 3 to 16 since (kubevirt/kubevirt:pkg/virt-launcher/virtwrap/
  nichotplug.go (v1.4.0), manager.go#calculateHotplugPortCountV2; kubevirt/kubevirt#14180).
- Any other device that they name: KubeVirt gives each the alias ``ua-NAME``
  (:pkg/virt-launcher/virtwrap/api/schema.go#NewUserDefinedAlias).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.guests import changed_disks, restart_guard
from virt_admit.model.commands import about, json_patch, kubectl, typed, virtctl
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.json_patch import Patch
from virt_admit.model.kubernetes.kinds import VM, VMI
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import vmis, vms
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.kubevirt.settings.versions import Feature, Version
from virt_admit.model.messages import count, names
from virt_admit.model.problems import Problem, ProblemCause

READS: Final[Reads] = union(
    changed_disks.READS,
    restart_guard.READS,
    {
        VM: ("spec.template",),
        VMI: (f"metadata.labels.{vmis.OUTDATED}", "spec", "status.phase", "status.volumeStatus"),
    },
)
_SERIAL: Final = re.compile(r"The serial number can't be longer than (\d{1,4}) characters")
_SLOTS: Final = re.compile(r"(?:internal error: )?No more available PCIe? slots")
_ALIAS: Final = re.compile(
    r"\bdevice (?:host)?ua-(?:hostdevice-|gpu-|sriov-|dra-)?([\w.-]{1,253})(?=: )"
)
"""A device as ``libvirt_errors.legible`` leaves it."""
_LISTS: Final = ("disks", "interfaces", "hostDevices", "gpus", "filesystems", "inputs")
_TYPES: Final = ("disk", "lun", "cdrom")
_SHOWN: Final = 60
_LONGEST_SERIAL: Final = 36
_REFUSES_LONG: Final = Version(1, 5)


class LongSerial(NamedTuple):
    """A serial of a hotplugged disk that QEMU refuses."""

    field: Field
    limit: int
    shorter: str
    """One that it takes; empty: another disk may have it."""


def of(vmi: Object, said: str, cluster: Cluster) -> Problem | None:
    """Return why a device of a VMI is refused, and what ends that; None: the cause is not known.

    ``said``: the error, legible.
    """
    limit, slots = _SERIAL.search(said), _SLOTS.search(said)
    found = None
    if limit is not None:
        found = _of_serial(vmi, said, int(limit[1]), cluster)
    elif slots is not None:
        found = _of_slots(vmi, slots[0], cluster)
    if found is None:
        return None
    return found._replace(remedy=changed_disks.safe(found.remedy, vmi, cluster))


def of_target(vmi: Object, failure: str, cluster: Cluster) -> Problem | None:
    """Return which device of a guest the QEMU of each target refuses, which its own took; None: no
    such refusal is known.

    ``failure``: why its migration failed.
    """
    found = of(vmi, failure, cluster) if _SERIAL.search(failure) else None
    if found is None:
        return None
    reason = f"{found.reason}: no target takes it"
    return found._replace(reason=reason, cause=ProblemCause.MIGRATION_FAILS)


def named(vmi: Object, said: str, cluster: Cluster) -> str:
    """Return which device of a VMI an error is about, with its field; empty: it names none."""
    alias = _ALIAS.search(said)
    device = _device(vmi, alias[1]) if alias is not None else None
    if device is None:
        return ""
    return f"{_words(device)} in {_source(vmi, device, cluster).path}"


def of_volume(vmi: Object, volume: str, said: str, cluster: Cluster) -> Problem | None:
    """Return why the disk of a hotplugged volume is refused; None: that is not known."""
    bus = _bus(_disk(vmi, volume))
    if _SLOTS.search(said) and bus != _VIRTIO:
        return None
    limit = _SERIAL.search(said)
    if limit is not None and _disk(vmi, volume) not in _too_long(vmi, int(limit[1]), bus):
        return None
    return of(vmi, said, cluster) if limit is not None or _SLOTS.search(said) else None


def long_serial(vmi: Object, volume: str, said: str, cluster: Cluster) -> LongSerial | None:
    """Return the serial for which QEMU does not take a hotplugged disk into a guest that runs;
    None: that is not known.

    ``said``: why its spec is not applied; empty where virt-launcher alone logs that
    (kubevirt/kubevirt#18734), so that its QEMU has to be new enough.
    """
    disk, told = _disk(vmi, volume), _SERIAL.search(said)
    if told is None and (said or not _refuses_long(vmi, cluster)):
        return None
    limit = int(told[1]) if told is not None else _LONGEST_SERIAL
    serial, runs = disk["serial"].text or "", vmi.at("status", "phase").text == "Running"
    if len(serial) <= limit or disk["disk"]["bus"].text != "scsi" or not runs:
        return None
    others = vms.vmi_spec(vmi).at("domain", "devices", "disks").items()
    taken = {
        _end(each["serial"].text or "", limit) for each in others if each["name"].text != volume
    }
    shorter = _end(serial, limit)
    return LongSerial(disk["serial"], limit, "" if shorter in taken else shorter)


def _end(serial: str, limit: int) -> str:
    """Return the end of a serial, in which names of volumes differ more often."""
    return serial[max(len(serial) - limit, 0) :].lstrip("-_.+ ")


def _refuses_long(vmi: Object, cluster: Cluster) -> bool:
    """Return whether the QEMU of a VMI is known to be one that refuses a long serial: that of
    KubeVirt 1.5 and later is 9.1 at least (kubevirt/kubevirt:hack/rpm-deps.sh).
    """
    release = versions.kubevirt_version(cluster)
    return release is not None and release >= _REFUSES_LONG and vmis.OUTDATED not in vmi.labels


def _device(vmi: Object, name: str) -> Field | None:
    devices = vms.vmi_spec(vmi).at("domain", "devices")
    found = (devices[kind].named(name) for kind in _LISTS)
    return next((each for each in found if each.present), None)


def _disk(vmi: Object, name: str) -> Field:
    return vms.vmi_spec(vmi).at("domain", "devices", "disks").named(name)


def _bus(disk: Field) -> str:
    return next((bus for kind in _TYPES if (bus := disk[kind]["bus"].text)), "")


def _words(device: Field) -> str:
    """Return a device as ``disk data (bus scsi)``."""
    kind = str(device.path[-2]).removesuffix("s")
    bus, model = _bus(device), device["model"].text or device["deviceName"].text
    about_it = f" (bus {bus})" if bus else f" ({model})" if model else ""
    return f"{kind} {device['name'].text}{about_it}"


def _source(vmi: Object, device: Field, cluster: Cluster) -> Field:
    """Return the field of a device in the VM, else in the VMI itself."""
    vm = vmis.known_vm(vmi, cluster) if vmi.kind == VMI.kind else None
    if vm is None:
        return device
    devices = vms.vmi_spec(vm).at("domain", "devices")
    found = devices[str(device.path[-2])].named(device["name"].text or "")
    return found if found.present else device


# --- serials --------------------------------------------------------------------------------------


def _too_long(vmi: Object, limit: int, bus: str) -> Sequence[Field]:
    """Return the disks of a bus whose serial is too long; without one, those on bus scsi."""
    disks = vms.vmi_spec(vmi).at("domain", "devices", "disks").items()
    return [
        each
        for each in disks
        if len(each["serial"].text or "") > limit and _bus(each) == (bus or "scsi")
    ]


def _of_serial(vmi: Object, said: str, limit: int, cluster: Cluster) -> Problem | None:
    named = _ALIAS.search(said)
    bus = _bus(_disk(vmi, named[1])) if named is not None else ""
    disks = _too_long(vmi, limit, bus)
    if not disks:
        return None
    each_one = (f"{_words(each)} has {len(each['serial'].text or '')}" for each in disks)
    values = names(each["serial"].text or "" for each in disks)
    reason = (
        f"QEMU refuses a serial number longer than {limit} characters, and that of "
        f"{names(each_one)} ({values})"
    )
    restart = virtctl("restart", vmi.name, vms.namespace_of(vmi))
    own = (_source(vmi, each, cluster)["serial"] for each in disks)
    fields = [each for each in own if len(each.text or "") > limit]
    if not fields:
        shorter = "its VM has a shorter one, or none, from its next start on"
        return Problem(
            f"{reason}; {shorter}", typed(f"restart the VM{_later(vmi, cluster)}", restart)
        )
    paths = names((str(each.path) for each in fields), 200)
    return Problem(
        reason,
        typed(
            f"set {paths} to at most {limit} characters (former releases of QEMU showed the guest "
            f"the first {limit}), or remove it",
            _shorten(vmi, fields, limit, cluster),
            f"then restart the VM{_later(vmi, cluster)}: {restart}",
        ),
    )


def _later(vmi: Object, cluster: Cluster) -> str:
    runs = vmi.at("status", "phase").text == "Running"
    return restart_guard.later(vmi, cluster) if runs else ""


def _shorten(vmi: Object, serials: Sequence[Field], limit: int, cluster: Cluster) -> str:
    """Return the command that cuts serials, or edits the VM where they would not differ then."""
    vm = vmis.known_vm(vmi, cluster) if vmi.kind == VMI.kind else vmi
    if vm is None:
        return kubectl("describe", VMI, vmi.name, vms.namespace_of(vmi))
    disks = vms.vmi_spec(vm).at("domain", "devices", "disks").items()
    cut = [(each["serial"].text or "")[:limit] for each in disks if each["serial"].text]
    if len(set(cut)) < len(cut) or not all("template" in each.path for each in serials):
        return about("edit", vm, VM)
    steps = [
        step
        for each in serials
        for step in (
            Patch("test", each.path, each.text),
            Patch("replace", each.path, (each.text or "")[:limit]),
        )
    ]
    return json_patch(VM, vm.name, vm.namespace, steps)


# --- slots ----------------------------------------------------------------------------------------

_VIRTIO: Final = "virtio"


def _of_slots(vmi: Object, said: str, cluster: Cluster) -> Problem | None:
    status = vmi.at("status", "volumeStatus")
    disks = [name for name in _hotpluggable(vmi) if _bus(_disk(vmi, name)) == _VIRTIO]
    if not disks:
        return None
    has = sum(bool(status.named(name)["target"].text) for name in disks)
    reason = (
        f'libvirt says "{said}", and each hotpluggable disk on bus virtio takes one '
        f"({count(len(disks), 'such disk')}, {has} in the guest)"
    )
    more = Feature.MORE_SLOTS.since
    old = not versions.has_release(cluster, more)
    update = f"KubeVirt {more} and later keep more slots free" if old else ""
    vm = vmis.known_vm(vmi, cluster) if vmi.kind == VMI.kind else vmi
    words = (
        "set disk.bus of its hotpluggable disks to scsi, whose controller takes all (sdX in the "
        f"guest), and restart the VM{_later(vmi, cluster)}; or make their volumes not "
        "hotpluggable before the restart"
    )
    edit = about("edit", vm, VM) if vm is not None else ""
    return Problem(reason, typed(words, edit, update))


def _hotpluggable(vmi: Object) -> Sequence[str]:
    """Return the volumes of a VMI that are plugged in while it runs."""
    return [
        volume["name"].text or ""
        for volume in vms.vmi_spec(vmi)["volumes"].items()
        if any(
            volume[kind]["hotpluggable"].boolean is True
            for kind in ("dataVolume", "persistentVolumeClaim")
        )
    ]
