"""Changes of a VM that take effect at its next start, each for one reason why it cannot migrate.

Sources: kubevirt/kubevirt:pkg/network/vmispec/interface.go#VerifyVMIMigratable;
pkg/virt-controller/watch/topology/tsc.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from virt_admit.forecasts.repair.controllers import TEMPLATE
from virt_admit.forecasts.repair.repair_plan import REMOVED, CostClass, FieldEdit, OtherWay
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.kubevirt.settings.versions import Feature


class GuestChange(NamedTuple):
    """What ends a reason why a VM cannot migrate."""

    title: str
    edits: tuple[FieldEdit, ...]
    risk: str
    alternatives: tuple[OtherWay, ...] = ()


_INTERFACES: Final = (*TEMPLATE, "domain", "devices", "interfaces")
_BINDINGS: Final = ("bridge", "slirp", "macvtap", "passt", "sriov", "binding")
_RISK: Final = (
    "the guest gets another address (10.0.2.2) by DHCP, and what reaches it from outside needs a "
    "Service"
)
_OTHERS: Final = (
    OtherWay(
        "attach a layer 2 network of Multus instead of the pod network",
        CostClass.RESTART,
        "new addresses",
    ),
    OtherWay(
        "annotate the template with kubevirt.io/allow-pod-bridge-network-live-migration",
        CostClass.RESTART,
        "only where the network plugin keeps the address of a moved pod; elsewhere the guest loses "
        "its network",
        decision=True,
    ),
)


def masquerade(vm: Object, cluster: Cluster) -> GuestChange | None:
    """Return the change that connects the pod network with masquerade; None:
    the interface is not one of those.
    """
    devices = vms.vmi_spec(vm).at("domain", "devices")
    interfaces = list(devices["interfaces"].items())
    networks = list(vms.vmi_spec(vm)["networks"].items())
    title = "use masquerade on the pod network"
    if not interfaces and not networks:
        edits: tuple[FieldEdit, ...] = (
            FieldEdit((*TEMPLATE, "networks"), [{"name": "default", "pod": {}}]),
            FieldEdit(_INTERFACES, [{"name": "default", "masquerade": {}}]),
        )
        return GuestChange(title, edits, _RISK, _others(cluster))
    pod = next((network["name"].text for network in networks if network["pod"].is_map), None)
    for index, interface in enumerate(interfaces):
        if pod is not None and interface["name"].text == pod:
            kept = {key: value for key, value in interface.map.items() if key not in _BINDINGS}
            edits = (FieldEdit((*_INTERFACES, index), {**kept, "masquerade": {}}),)
            return GuestChange(title, edits, _RISK, _others(cluster))
    return None


def _others(cluster: Cluster) -> tuple[OtherWay, ...]:
    return _OTHERS if versions.has_release(cluster, Feature.BRIDGE_OPT_IN.since) else _OTHERS[:1]


def without_reenlightenment(vm: Object, _cluster: Cluster) -> GuestChange | None:
    """Return the change that removes the enlightenment which needs each node's TSC frequency."""
    path = (*TEMPLATE, "domain", "features", "hyperv", "reenlightenment")
    if not vm.at(*path).present:
        return None
    risk = "the guest may need it: Hyper-V inside the guest loses its clock when it moves"
    return GuestChange("remove Hyper-V reenlightenment", (FieldEdit(path, REMOVED),), risk)


_CHANGES: Final[Mapping[str, Callable[[Object, Cluster], GuestChange | None]]] = {
    "InterfaceNotLiveMigratable": masquerade,
    "NoTSCFrequencyNotLiveMigratable": without_reenlightenment,
}
"""By reason of the condition ``LiveMigratable``."""


def change(reason: str, vm: Object, cluster: Cluster) -> GuestChange | None:
    """Return the change of a VM that ends a reason; None: there is none."""
    made = _CHANGES.get(reason)
    return made(vm, cluster) if made is not None else None


HARDWARE: Final[Mapping[str, str]] = {
    "HostDeviceNotLiveMigratable": "a device of the host never migrates",
    "SEVNotLiveMigratable": "encrypted memory cannot be copied, and the encryption must stay",
    "TDXNotLiveMigratable": "encrypted memory cannot be copied, and the encryption must stay",
    "SecureExecutionNotLiveMigratable": (
        "encrypted memory cannot be copied, and the encryption must stay"
    ),
    "HypervPassthroughNotLiveMigratable": "it depends on the kernel of its node",
    "VirtIOFSNotLiveMigratable": "this release of KubeVirt does not move virtiofs",
    "PersistentReservationNotLiveMigratable": (
        "this release of KubeVirt does not move persistent reservations"
    ),
}
"""Reasons that only a shutdown ends, with the words for it."""


def optional_feature(vm: Object, features: tuple[str, ...]) -> GuestChange | None:
    """Return the change that makes CPU features optional which other nodes lack."""
    place = vms.vmi_spec(vm).at("domain", "cpu", "features")
    edits = tuple(_optional(place.value, features)) if place.is_list else ()
    if not edits:
        return None
    return GuestChange(
        f"make CPU features optional: {', '.join(features)}", edits, "the guest may need them"
    )


def _optional(items: list[Any], features: tuple[str, ...]) -> Iterator[FieldEdit]:
    for index, item in enumerate(items):
        if (
            isinstance(item, dict)
            and item.get("name") in features
            and item.get("policy") in (None, "require", "force")
        ):
            yield FieldEdit(
                (*TEMPLATE, "domain", "cpu", "features", index), {**item, "policy": "optional"}
            )


def cpu_model(model: str, lost: tuple[str, ...] = ()) -> GuestChange:
    """Return the change that gives a VM a named CPU model."""
    losing = (
        f"the guest loses {', '.join(lost)}"
        if lost
        else "the guest may lose features of its processor"
    )
    risk = f"{losing}; guests that run VMs themselves and Windows licences may notice"
    return GuestChange(
        f"set CPU model {model}", (FieldEdit((*TEMPLATE, "domain", "cpu", "model"), model),), risk
    )
