"""Whether a VMI can be live-migrated: yes, no (with every reason), or unknown.

KubeVirt evaluates the running VMI and publishes the first reason as condition ``LiveMigratable``.
This module finds all reasons before the VMI exists. Sources: kubevirt/kubevirt:
pkg/virt-handler/vm.go#calculateLiveMigrationCondition,
pkg/network/vmispec/interface.go#VerifyVMIMigratable, pkg/virt-controller/watch/topology/tsc.go.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT, PVC, VM, VMI
from virt_admit.model.kubernetes.objects import Field, Object, Path
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.kubernetes.units import show
from virt_admit.model.kubevirt.instances import expand, storage, tsc, vms
from virt_admit.model.kubevirt.instances.expand import ExpandedVmi, Given
from virt_admit.model.kubevirt.settings import configuration, versions
from virt_admit.model.kubevirt.settings.versions import Feature, Gate
from virt_admit.model.lookups import find
from virt_admit.model.messages import count

BRIDGE_OPT_IN: Final = "kubevirt.io/allow-pod-bridge-network-live-migration"
"""Annotation, of any value, of a VMI that may migrate with a bridge on the pod network."""

READS: Final = union(
    expand.READS, storage.READS, tsc.READS, {KUBEVIRT: (), HCO: (), PVC: ("spec.storageClassName",)}
)
"""The fields that ``assess`` reads."""


SHARE_CLAIM: Final = "make it ReadWriteMany"
"""The remedy for a claim that is not shared, while it does not exist."""


class Migratable(enum.Enum):
    """Whether something can be migrated."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Reason(NamedTuple):
    """One fact that rules out a migration."""

    name: str
    """The reason in KubeVirt's condition: ``DisksNotLiveMigratable``."""
    path: Path
    what: str
    """The cause, most important part first: ``ReadWriteOnce claim 'spool'``."""
    remedy: str = ""
    """The remedy, if one exists: ``make it ReadWriteMany``."""
    value: object = None
    """The offending value: the reason counts as unchanged while it stays. None:
    ``path`` identifies the reason.
    """


class Assessment(NamedTuple):
    """Whether a VMI can be migrated, and why not."""

    migratable: Migratable
    reasons: tuple[Reason, ...] = ()
    """All reasons why not, in KubeVirt's order."""
    unseen: tuple[str, ...] = ()
    """What could not be read; it may hide further reasons."""


def assess(obj: Object, cluster: Cluster) -> Assessment:
    """Return whether the VMI of an object can be migrated; never raises.

    The condition of a running VMI decides. Otherwise the checks are independent: one that lacks
    data does not discard the reasons of the others.
    """
    status = obj.condition("LiveMigratable")["status"].text if kinds.of(obj) is VMI else None
    if status == "True":
        return Assessment(Migratable.YES)
    vmi = expand.expand(obj, cluster)
    reasons: list[Reason] = []
    unseen = list(vmi.unseen)
    for check in _checks(cluster):
        try:
            for item in check(vmi, cluster):
                if isinstance(item, Reason):
                    reasons.append(item)
                else:
                    unseen.append(item.what)
        except Unseen as blind:
            unseen.append(blind.what)
    if status == "False" and not reasons:
        reasons.append(_published(vmi))
    migratable = Migratable.UNKNOWN if unseen else Migratable.YES
    if reasons:
        migratable = Migratable.NO
    return Assessment(migratable, tuple(reasons), tuple(dict.fromkeys(unseen)))


def _published(vmi: ExpandedVmi) -> Reason:
    """Return the reason that KubeVirt published for a running VMI."""
    condition = vmi.obj.condition("LiveMigratable")
    what = condition["message"].text or "KubeVirt says so"
    return Reason(condition["reason"].text or "NotLiveMigratable", vmi.spec.path, what)


_Found = Iterator[Reason | Unseen]


# --- the network ----------------------------------------------------------------------------------


def _interfaces(vmi: ExpandedVmi, cluster: Cluster) -> _Found:
    """Check the interface on the pod network; others do not matter."""
    interfaces = list(vmi.devices["interfaces"].items())
    networks = list(vmi.spec["networks"].items())
    if not interfaces:
        if not networks:
            yield from _default_interface(vmi, cluster)
        return
    pod = next((network for network in networks if network["pod"].is_map), None)
    if pod is None:
        return
    name = pod["name"].value
    primary = next((interface for interface in interfaces if interface["name"].value == name), None)
    if primary is None:
        yield _interface(
            vmi.devices, f"no interface for the pod network {show(name)}", "add one with masquerade"
        )
    elif not (primary["masquerade"].is_map or primary["passtBinding"].is_map):
        yield from _other_binding(primary, vmi, cluster)


def _default_interface(vmi: ExpandedVmi, cluster: Cluster) -> _Found:
    """Check the default interface.

    KubeVirt adds a pod network before it evaluates the preference's masquerade, but the preference
    may disable it.
    """
    attach = vmi.autoattach_pod_interface
    if attach is False or (attach is None and vmi.preference_unseen):
        return
    try:
        binding = configuration.default_binding(cluster)
    except Unseen:
        # bridge then migrates, as masquerade does, and there is no third one
        if _may_have_opted_in(vmi, cluster) and vmi.annotated(BRIDGE_OPT_IN):
            return
        raise
    if binding == "masquerade" or (binding == "bridge" and _may_have_opted_in(vmi, cluster)):
        return
    yield _interface(
        vmi.devices,
        f"no interface is given and the cluster's default is {show(binding)}",
        "add one with masquerade",
    )


def _other_binding(primary: Field, vmi: ExpandedVmi, cluster: Cluster) -> _Found:
    binding = primary["binding"]
    if primary["bridge"].is_map:
        if not _may_have_opted_in(vmi, cluster):
            yield _interface(primary, _bridge(vmi), value="bridge")
    elif binding.is_map:
        plugin = binding["name"].text or ""
        if not configuration.binding_migrates(cluster, plugin):
            yield _interface(
                primary,
                f"binding plugin {show(plugin)} is not registered for migration",
                value=plugin,
            )
    elif method := next(
        (key for key in ("sriov", "slirp", "macvtap", "passt") if primary[key].present), ""
    ):
        yield _interface(primary, f"{method} on the pod network", value=method)
    elif not (vmi.prefers_masquerade or vmi.unseen):
        yield _interface(primary, "no binding on the pod network")


def _interface(
    place: Field, what: str, remedy: str = "use masquerade", value: object = None
) -> Reason:
    return Reason("InterfaceNotLiveMigratable", place.path, what, remedy, value)


def _may_have_opted_in(vmi: ExpandedVmi, cluster: Cluster) -> bool:
    """Whether the annotation exists, or a type or preference that was not read may add it, and the
    release knows it.
    """
    known = versions.has_release(cluster, Feature.BRIDGE_OPT_IN.since)
    return known and (bool(vmi.unseen) or vmi.annotated(BRIDGE_OPT_IN))


def _bridge(vmi: ExpandedVmi) -> str:
    if vmi.obj.annotation(BRIDGE_OPT_IN).present:
        return "bridge, its opt-in annotation counts in the template only"
    return "bridge on the pod network"


# --- devices --------------------------------------------------------------------------------------


def _host_devices(vmi: ExpandedVmi, cluster: Cluster) -> _Found:
    devices = vmi.host_devices
    if devices.field.is_list and devices.field.value:
        yield _device(devices, count(len(devices.field.value), "host device"))
    gpus = vmi.gpus
    if gpus.field.is_list and gpus.field.value:
        what, remedy = _stuck_gpu(gpus.field, cluster)
        if what:
            yield _device(gpus, what, remedy)


def _device(given: Given, what: str, remedy: str = "") -> Reason:
    devices = tuple(tuple(device[key].value for key in _DEVICE) for device in given.field.items())
    if given.source:
        what, remedy = f"{given.source} brings {what}", "choose another"
    elif not remedy:
        remedy = "remove it" if len(devices) == 1 else "remove them"
    return Reason("HostDeviceNotLiveMigratable", given.field.path, what, remedy, devices)


_DEVICE: Final = ("deviceName", "claimName", "requestName")
"""The fields that identify a host device or a GPU: a resource of the node,
or a request of a resource claim.
"""


def _stuck_gpu(gpus: Field, cluster: Cluster) -> tuple[str, str]:
    """Return why the GPUs cannot migrate, empty: they can; and the remedy,
    if another than to remove them.

    Only a single mediated device can migrate, and no GPU that is passed through as a whole ever
    does.
    """
    if len(gpus.value) > 1:
        return count(len(gpus.value), "GPU"), ""
    gate = Gate.VGPU_LIVE_MIGRATION
    name = gpus[0]["deviceName"].text
    try:
        if name not in configuration.mediated_devices(cluster):
            return (
                f"GPU {show(name)}, not a mediated device"
                if name
                else "a GPU that is not a mediated device"
            ), ""
        switch = f"switch on feature gate {gate.gate}"
        if not versions.has_release(cluster, gate.since):
            return (
                f"vGPU {show(name)}, before KubeVirt {gate.since}",
                f"update KubeVirt to {gate.since} and {switch}",
            )
        if versions.gate_is_on(cluster, gate):
            return "", ""
        return f"vGPU {show(name)}, {gate.gate} is off", switch
    except Unseen:
        return f"a GPU (feature gate {gate.gate} is off by default)", ""


def _virtiofs(vmi: ExpandedVmi, cluster: Cluster) -> _Found:
    """Check for file systems that the cluster's KubeVirt cannot migrate yet."""
    version = versions.kubevirt_version(cluster)
    if version is not None and version < Feature.VIRTIOFS.since:
        for filesystem in vmi.devices["filesystems"].items():
            if filesystem["virtiofs"].is_map:
                name, what = filesystem["name"].value, f"KubeVirt {version} cannot move virtiofs"
                yield Reason("VirtIOFSNotLiveMigratable", filesystem.path, what, value=name)


def _persistent_reservations(vmi: ExpandedVmi, cluster: Cluster) -> _Found:
    """Check for disks that the cluster's KubeVirt cannot migrate yet."""
    version = versions.kubevirt_version(cluster)
    if version is not None and version < Feature.PERSISTENT_RESERVATION.since:
        for disk in vmi.devices["disks"].items():
            reservation = disk["lun"]["reservation"]
            if reservation.boolean:
                name = disk["name"].value
                what = f"KubeVirt {version} cannot move a persistent reservation"
                yield Reason(
                    "PersistentReservationNotLiveMigratable", reservation.path, what, value=name
                )


def _state(vmi: ExpandedVmi, cluster: Cluster) -> _Found:
    """Check vTPM and EFI state, which had to be on shared storage once."""
    if versions.has_release(cluster, Feature.PERSISTENT_STATE.since) or not vms.keeps_state(
        vmi.obj
    ):
        return
    name = storage.state_claim(vmi.obj)
    claim = find(cluster, PVC, vms.namespace_of(vmi.obj), name) if name else None
    modes = claim.at("spec", "accessModes") if claim is not None else Field(None)
    if claim is None or not any(modes.items()):
        yield Unseen("the storage of vTPM and EFI state")
    elif all(mode.text != storage.SHARED for mode in modes.items()):
        since = "{}.{}".format(*Feature.PERSISTENT_STATE.since)
        what = (
            f"{modes[0].text} claim {show(name)} of its vTPM or EFI state, which KubeVirt before "
            f"{since} does not move"
        )
        remedy = f"update KubeVirt to {since}{storage.move_of_state(claim, cluster)}"
        path = _keeping(vmi).path
        yield Reason(_NOT_SHARED, path, what, remedy, name)


def _keeping(vmi: ExpandedVmi) -> Field:
    efi = vmi.spec.at("domain", "firmware", "bootloader", "efi", "persistent")
    return efi if efi.boolean else vmi.devices["tpm"]["persistent"]


# --- the processor --------------------------------------------------------------------------------


def _launch_security(vmi: ExpandedVmi, cluster: Cluster) -> _Found:
    security, source = vmi.launch_security
    if not security.is_map:
        return
    brings = f" ({source} asks for it)" if source else ""
    what = f"the guest's memory is encrypted{brings}"
    if security["sev"].present or security["snp"].present:
        yield Reason("SEVNotLiveMigratable", security.path, what, value=sorted(security.map))
    elif security["tdx"].present:
        yield Reason("TDXNotLiveMigratable", security.path, what)
    architecture = expand.architecture(vmi, cluster)
    if architecture == "s390x":
        yield Reason("SecureExecutionNotLiveMigratable", security.path, what)
    elif architecture is None and not any(security[key].present for key in ("sev", "snp", "tdx")):
        yield Unseen("the cluster's default architecture")


def _clock(vmi: ExpandedVmi, cluster: Cluster) -> _Found:
    """Check the clock: reenlightenment needs the TSC frequency of the target node."""
    feature, source = vmi.reenlightenment
    if not feature.is_map or feature["enabled"].boolean is False or _needs_invtsc_to_boot(vmi):
        return
    if vmi.preference_unseen:  # it may bring invtsc
        return
    brings = f" ({source} brings reenlightenment)" if source else ""
    architecture = expand.architecture(vmi, cluster)
    if architecture not in (None, "amd64"):
        what = f"no TSC frequency on {show(architecture)}{brings}"
    elif not tsc.frequency_is_known(cluster):
        what = f"no node exposes its TSC frequency{brings}"
    elif architecture is None:
        raise Unseen("the cluster's default architecture")
    else:
        return
    yield Reason("NoTSCFrequencyNotLiveMigratable", feature.path, what, "drop reenlightenment")


def _needs_invtsc_to_boot(vmi: ExpandedVmi) -> bool:
    return any(
        feature["name"].value == "invtsc" and feature["policy"].value in ("require", "force")
        for feature in vmi.cpu_features
    )


def _hyperv_passthrough(vmi: ExpandedVmi, _: Cluster) -> _Found:
    passthrough = vmi.spec.at("domain", "features", "hypervPassthrough")
    if passthrough.is_map and passthrough["enabled"].boolean is not False:
        what = "Hyper-V features of this node's kernel"
        yield Reason(
            "HypervPassthroughNotLiveMigratable", passthrough.path, what, "name the features singly"
        )


# --- disks ----------------------------------------------------------------------------------------

_NOT_SHARED: Final = "DisksNotLiveMigratable"


def _disks(vmi: ExpandedVmi, cluster: Cluster) -> _Found:
    """Check the volumes: every claim must be shared, whatever its use.

    Of the other volumes only host disks matter.
    """
    migrating = _migrating_volumes(vmi.obj)
    for volume in vmi.spec["volumes"].items():
        claim = claim_of(volume)
        if claim is not None and claim.value != "" and volume["name"].value in migrating:
            continue
        if claim is not None:
            yield from _claim(claim, vmi, cluster)
        elif volume["hostDisk"].is_map and volume["hostDisk"]["shared"].boolean is not True:
            what, remedy = "a host disk that is not shared", "use a ReadWriteMany claim"
            disk = volume["hostDisk"]
            yield Reason(_NOT_SHARED, disk.path, what, remedy, disk["path"].value)


def _migrating_volumes(obj: Object) -> tuple[object, ...]:
    """Return the names of the volumes that a volume migration copies now:
    their claims need not be shared.

    It starts with ``updateVolumesStrategy: Migration``
    (pkg/storage/types/volume.go#IsMigratedVolume). KubeVirt still has to find the claim
    (pkg/virt-handler/vm.go#checkVolumesForMigration).
    """
    state = ("volumeUpdateState", "volumeMigrationState") if kinds.of(obj) is VM else ()
    copied = obj.at("status", *state, "migratedVolumes")
    return tuple(each["volumeName"].value for each in copied.items())


def claim_of(volume: Field) -> Field | None:
    """Return the field that names the claim of a volume, also as a data volume; None: no claim."""
    for source, name in (("persistentVolumeClaim", "claimName"), ("dataVolume", "name")):
        if isinstance(volume.map.get(source), dict):
            return volume.at(source, name)
    return None


def _claim(claim: Field, vmi: ExpandedVmi, cluster: Cluster) -> _Found:
    if claim.value == "":  # KubeVirt finds no claim of that name
        yield Reason(
            _NOT_SHARED, claim.path, "a claim without a name", "name a ReadWriteMany claim"
        )
        return
    if not claim.text:
        yield Unseen(f"the name of the claim at {claim.path}")
        return
    try:
        access = storage.access(vmi, claim.text, cluster)
    except Unseen as unseen:
        yield unseen
        return
    if not access.shared:
        by = f" by storage class {show(access.storage_class)}" if access.storage_class else ""
        what = f"{', '.join(access.modes)[:60]} claim {show(claim.text)}{by}"
        yield Reason(_NOT_SHARED, claim.path, what, SHARE_CLAIM, claim.text)


_Checks = tuple[Callable[[ExpandedVmi, Cluster], _Found], ...]

_CHECKS: Final[_Checks] = (
    _interfaces,
    _virtiofs,
    _host_devices,
    _launch_security,
    _persistent_reservations,
    _clock,
    _hyperv_passthrough,
    _disks,
    _state,
)


def _checks(cluster: Cluster) -> _Checks:
    """Return the checks in the order in which KubeVirt makes them:
    it publishes the first reason alone.

    Before 1.6 it checked the disks first (pkg/virt-handler/vm.go#calculateLiveMigrationCondition).
    """
    if versions.has_release(cluster, Feature.DISKS_LAST.since):
        return _CHECKS
    return (_disks, *(check for check in _CHECKS if check is not _disks))
