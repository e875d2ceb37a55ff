"""Host devices and other extended resources that a VM needs,
and that no node which could take it has left.

A device plugin offers them on its node. One that offers none, as after a reboot that it did not
survive, looks to kube-scheduler like devices in use. A node that never had such a device looks so
too: only one that once reported it, or of which Harvester says so, has lost it. Harvester names a
device of a VM as the object of the device, and nothing keeps two VMs from the same one. Sources:
kubernetes/kubernetes:pkg/kubelet/cm/devicemanager/manager.go#GetCapacity;
kubevirt/kubevirt:pkg/virt-handler/device-manager/device_controller.go#updatePermittedHostDevicePlugins;
harvester/pcidevices:pkg/webhook/vm.go#generateHostDevicesPatch,
pkg/webhook/pcideviceclaim.go#Delete (no claim ends that a VM names),
pkg/controller/pcideviceclaim/pcideviceclaim_controller.go; harvester/harvester#5253, #5957.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from virt_admit.forecasts.drain.starts.devices import (
    kept_off_plugins,
    unlike_workloads,
    unreported_devices,
)
from virt_admit.forecasts.drain.starts.devices.kept_off_plugins import KeptOffPlugin
from virt_admit.forecasts.drain.starts.devices.unreported_devices import (
    HARVESTER,
    OF_KUBEVIRT,
    USB_DEVICE,
    VGPU_DEVICE,
    UnreportedDevice,
)
from virt_admit.forecasts.placement import candidates, virt_handlers
from virt_admit.forecasts.placement.candidates import SchedulingTarget
from virt_admit.forecasts.placement.components.drivers.missing_device_files import PCI_DEVICE
from virt_admit.forecasts.placement.refusals import affinity_partners
from virt_admit.model import node_bridges
from virt_admit.model.commands import logs_of, pods_on, typed
from virt_admit.model.kubernetes import node_health
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import VM
from virt_admit.model.kubernetes.nodes import SCHEDULABLE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.launcher import launcher_pod, without_kvm
from virt_admit.model.kubevirt.settings import configuration
from virt_admit.model.lookups import find
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem, ProblemCause
from virt_admit.model.scheduler.filters import FilterPipeline
from virt_admit.model.scheduler.pods import Pod
from virt_admit.model.scheduler.resources import show

READS: Final[Reads] = union(
    kept_off_plugins.READS,
    unlike_workloads.READS,
    {VM: tuple(f"spec.template.spec.domain.devices.{each}" for each in ("gpus", "hostDevices"))},
)

_OF_HARVESTER: Final = (PCI_DEVICE, USB_DEVICE, VGPU_DEVICE)
_MISSING: Final = " missing"
_WORDS: Final = 120


def problem(obj: Object, target: SchedulingTarget, cluster: Cluster) -> Problem | None:
    """Return which device keeps the pod of a VM or VMI off every node that could take it; None:
    none does, or that is not known.
    """
    placement = target.placement
    if placement.has_candidate or not placement.is_certain:
        return None
    lacking = {name: found for name, why in placement.refusals.items() if (found := _devices(why))}
    if not lacking:
        return None
    scheduler = candidates.scheduler(cluster)
    absent = [(node, device) for node, some in sorted(lacking.items()) for device in some]
    if any(
        _offered(scheduler, *each) == 0 and unreported_devices.may_start(*each, cluster)
        for each in absent
    ):
        return None  # that node may take it soon
    lost = {
        node: some
        for node, devices in sorted(lacking.items())
        if (some := _lost(node, devices, cluster))
    }
    used = [each for each in absent if _offered(scheduler, *each) and each[0] not in lost]
    none = [each for each in absent if each not in used and each[0] not in lost]
    in_use = [_in_use(scheduler, *each, target.pod.requests[each[1]]) for each in used]
    kept = [kept_off_plugins.of_device(*each, cluster) for each in none]
    if off := [each for each in kept if each is not None]:
        return _kept_off(off, in_use)
    unlike = (unlike_workloads.of_device(*each, cluster) for each in none)
    if not lost and (free := next((each for each in unlike if each is not None), None)) is not None:
        used_up = f"; {names(in_use, 2 * _WORDS)}" if in_use else ""
        return Problem(f"{free.words}{used_up}", free.remedy, _CAUSE)
    none = [each for each in none if _had(scheduler, *each, cluster)] or (
        [] if lost or used else none
    )
    said = [unreported_devices.words(node, found, cluster) for node, found in lost.items()]
    said += _none_offered(none, scheduler, cluster)
    reason = names(said + in_use, (3 if lost else 2) * _WORDS)
    if lost:
        remedy = unreported_devices.remedy(*next(iter(lost.items())), cluster)
        return Problem(reason, remedy, _CAUSE)
    users = [pod for each in used for pod in _users(scheduler, *each)]
    elsewhere = _elsewhere(lacking, placement.refusals, scheduler)
    if none:
        freed = ", or stop a VM that uses one" if users else ""
        return Problem(reason, _repair(none, f"{freed}{elsewhere}", cluster), _CAUSE)
    shared = _shared(obj, users, cluster)
    never = sorted({node for node, _ in absent} - {node for node, _ in used})
    one = len({device for _, device in absent}) == 1
    has = f"; {names(never)} {'has' if len(never) == 1 else 'have'} none" if never and one else ""
    return Problem(f"{reason}{shared}{has}", _freed(users, shared), _CAUSE)


_CAUSE: Final = ProblemCause.NO_TARGET


def _kept_off(found: Sequence[KeptOffPlugin], in_use: Sequence[str]) -> Problem:
    """Return that what offers a device is kept off nodes; their devices are free, others in use."""
    others = dict.fromkeys(each.node for each in found[1:] if each.node != found[0].node)
    also = f". {names(others)} likewise" if others else ""
    used = f"; {names(in_use, 2 * _WORDS)}" if in_use else ""
    return Problem(f"{found[0].words}{also}{used}", found[0].remedy, _CAUSE)


def _lost(node: str, devices: Sequence[str], cluster: Cluster) -> tuple[UnreportedDevice, ...]:
    """Return the devices that a node no longer reports, if a pod lacks some of them there."""
    found = unreported_devices.of_node(node, cluster)
    return found if any(each.name in devices for each in found) else ()


def _had(scheduler: FilterPipeline, node: str, device: str, cluster: Cluster) -> bool:
    """Return whether a node ever had a device: its kubelet goes on to report 0 of it when its
    plugin is gone, and Harvester knows which it passes through.
    """
    reported = device in (scheduler.state.nodes[node].allocatable or {})
    return reported or node in unreported_devices.passed_through(device, cluster)


def _devices(why: str) -> tuple[str, ...]:
    """Return the devices that a node lacks; none if more than room keeps the pod off it."""
    causes = why.split("; ")
    if not all(cause.endswith(_MISSING) for cause in causes):
        return ()
    return tuple(name for cause in causes if "/" in (name := cause.partition(": ")[0]))


def _offered(scheduler: FilterPipeline, node: str, device: str) -> int:
    return (scheduler.state.nodes[node].allocatable or {}).get(device, 0)


def _none_offered(
    absent: Sequence[tuple[str, str]], scheduler: FilterPipeline, cluster: Cluster
) -> list[str]:
    by_device: dict[str, list[str]] = {}
    for node, device in absent:
        by_device.setdefault(device, []).append(node)
    return [
        (
            f"{names(nodes)} {'offers' if len(nodes) == 1 else 'offer'} 0 of {device} "
            f"({_who(device, nodes, scheduler, cluster)}){_rebooted(nodes, cluster)}"
        )
        for device, nodes in by_device.items()
    ]


def _who(device: str, nodes: Sequence[str], scheduler: FilterPipeline, cluster: Cluster) -> str:
    if _without_kvm(device, nodes, scheduler):
        return "virt-handler offers other devices there, but finds no /dev/kvm"
    if node_bridges.bridge(device):
        return "this bridge does not exist there"
    plugin = _ready_plugin(nodes[0], device, cluster) if len(nodes) == 1 else None
    if plugin is not None:
        return f"its device plugin {plugin.full_name} runs there, and offers none"
    return (
        f"{'virt-handler' if device.startswith(OF_KUBEVIRT) else 'its device plugin'} offers none"
    )


def _ready_plugin(node: str, device: str, cluster: Cluster) -> Object | None:
    """Return the pod of a device plugin that works on a node, and finds no device there; None:
    it is not known to.
    """
    if unreported_devices.is_offered_by_kubevirt(device, cluster):
        return None
    pod = next(unreported_devices.plugins(node, device, cluster), None)
    works = pod is not None and pod.is_true("Ready")
    other = pod is not None and any(word in pod.name for word in (HARVESTER, "sriov"))
    return pod if works and not other else None


def _rebooted(nodes: Sequence[str], cluster: Cluster) -> str:
    """Return when one of these nodes was rebooted, as far as an event tells; empty:
    none was lately.

    A driver that was bound by hand is not bound any more then
    (NVIDIA/kubevirt-gpu-device-plugin#18).
    """
    said = node_health.rebooted(nodes, cluster)
    return f"; {said}" if said else ""


def _without_kvm(device: str, nodes: Sequence[str], scheduler: FilterPipeline) -> bool:
    """Return whether the device plugin of virt-handler works on these nodes,
    and has no ``/dev/kvm`` there.

    Source: kubevirt/kubevirt:pkg/virt-handler/device-manager/generic_device.go#healthCheck,
    issue 4748.
    """
    return device == _KVM and all(
        any(
            name.startswith(OF_KUBEVIRT) and number
            for name, number in (scheduler.state.nodes[node].allocatable or {}).items()
        )
        for node in nodes
    )


_KVM: Final = f"{OF_KUBEVIRT}kvm"


def _users(scheduler: FilterPipeline, node: str, device: str) -> list[Pod]:
    return [pod for pod in scheduler.state.pods.get(node, ()) if pod.requests.get(device)]


def _in_use(scheduler: FilterPipeline, node: str, device: str, needed: int) -> str:
    offered = _offered(scheduler, node, device)
    if offered < needed:
        return (
            f"{node} offers {show(device, offered)} of {device}, and it needs "
            f"{show(device, needed)}"
        )
    users = _users(scheduler, node, device)
    names_of = names(sorted(map(affinity_partners.title, users)))
    left = offered - sum(pod.requests[device] for pod in users)
    if left <= 0 and offered == 1:
        return f"the only {device} of {node} is in use by {names_of}"
    free = (
        f", {show(device, left)} left of which it needs {show(device, needed)}" if left > 0 else ""
    )
    return (
        f"{'' if free else 'all '}{show(device, offered)} of {device} on {node} are in use by "
        f"{names_of}{free}"
    )


def _shared(obj: Object, pods: Iterable[Pod], cluster: Cluster) -> str:
    """Return which device of Harvester a VM and one that uses a device both name; empty: none."""
    vms_of = (find(cluster, VM, pod.namespace, pod.labels.get(launcher_pod.NAME)) for pod in pods)
    found = (_device(_names(obj) & _names(vm), cluster) for vm in vms_of if vm is not None)
    device = next(filter(None, found), "")
    return f", and both VMs name the same device, {device}" if device else ""


def note(obj: Object, cluster: Cluster) -> str:
    """Return in a sentence which other VMs name a device of Harvester that a VM uses; empty:
    none is known to.
    """
    own = _names(obj)
    if not _device(own, cluster):
        return ""
    others = [vm for vm in cluster.known(VM) if vm.full_name != obj.full_name]
    sharing = [(vm, device) for vm in others if (device := _device(own & _names(vm), cluster))]
    if not sharing:
        return ""
    found = names(f"VM {vm.full_name}" for vm, _ in sharing)
    verb = "names" if len(sharing) == 1 else "name"
    return f"{found} {verb} {sharing[0][1]}, which this VM uses, and may not start while it runs"


def _device(called: Iterable[str], cluster: Cluster) -> str:
    """Return the first of some devices that is an object of Harvester, in words."""
    known = (find(cluster, kind, "", name) for name in sorted(called) for kind in _OF_HARVESTER)
    return next((f"{each.kind} {each.name}" for each in known if each is not None), "")


def _names(obj: Object) -> frozenset[str]:
    """Return the names of the host devices of a VM or VMI."""
    devices = vms.vmi_spec(obj).at("domain", "devices")
    every = (
        each["name"].text for kind in ("hostDevices", "gpus") for each in devices[kind].items()
    )
    return frozenset(filter(None, every))


def _elsewhere(
    lacking: Mapping[str, object], refusals: Mapping[str, str], scheduler: FilterPipeline
) -> str:
    """Return that waiting does not help, and why no other node can run it."""
    others = _others(refusals, lacking, scheduler)
    return (
        f"; no other node can run it ({others}), and waiting does not help"
        if others
        else "; waiting does not help"
    )


def _others(
    refusals: Mapping[str, str], lacking: Mapping[str, object], scheduler: FilterPipeline
) -> str:
    """Return what keeps the pod off the other nodes that run KubeVirt, apart from room."""
    nodes = scheduler.state.nodes
    causes = (
        cause
        for name, why in sorted(refusals.items())
        if name not in lacking and name in nodes and SCHEDULABLE in nodes[name].labels
        for cause in why.split("; ")
        if not cause.endswith(_MISSING)
    )
    return names(dict.fromkeys(causes), _WORDS)


# --- what offers a device -------------------------------------------------------------------------


def _freed(users: Sequence[Pod], shared: str) -> str:
    """Return what frees a device that is in use."""
    if not users:
        return "ask for fewer, or add a node that has as many"
    first = affinity_partners.title(users[0]) if len(users) == 1 else "one of them"
    other = "give one of the two VMs another device" if shared else "add a node that has one more"
    return f"stop {first}, or {other}"


def _repair(absent: Sequence[tuple[str, str]], elsewhere: str, cluster: Cluster) -> str:
    """Return what makes a node offer a device again, by what offers it.

    ``elsewhere``: what does not help.
    """
    node, device = absent[0]
    nodes = [name for name, other in absent if other == device]
    if bridge := node_bridges.bridge(device):
        return f"{node_bridges.remedy(bridge, nodes, cluster)}{elsewhere}"
    if unreported_devices.is_offered_by_kubevirt(device, cluster):
        logs = virt_handlers.logs(cluster, node)
        if _without_kvm(device, nodes, candidates.scheduler(cluster)):
            words = (
                f"{without_kvm.way(nodes, cluster)}; for tests alone, set "
                f"developerConfiguration.useEmulation of KubeVirt instead{elsewhere}"
            )
            return typed(words, logs)
        needs = (
            "hardware virtualization, kernel modules"
            if device.startswith(OF_KUBEVIRT)
            else "the device must exist there, bound to vfio-pci or created as a mediated device"
        )
        words = f"see why virt-handler on {node} offers no {device} ({needs}){elsewhere}"
        return typed(words, logs)
    plugin = next(unreported_devices.plugins(node, device, cluster), None)
    if plugin is None:
        return typed(
            f"find the device plugin for {device} on {node}, and repair or restart it{elsewhere}",
            pods_on(node),
        )
    if _ready_plugin(node, device, cluster) is not None:
        words = (
            f"see on {node} whether the device{_selected(device, cluster)} is bound to the driver "
            "that the plugin looks for, vfio-pci for passthrough (lspci -nnk), or exists as a "
            "mediated device; bind it by kernel arguments, so that a reboot keeps it, then restart "
            f"{plugin.name}{elsewhere}"
        )
        return typed(words, logs_of(plugin))
    passthrough = (
        ", or, in Harvester, stop the VM, take the host device out of it (as long as a VM names "
        "it, its passthrough stays), disable and enable its passthrough, and add it to the VM again"
        if HARVESTER in plugin.name
        else ""
    )
    words = (
        f"repair or restart the device plugin {plugin.name} on {node}, which should then "
        f"offer it{passthrough}{elsewhere}"
    )
    return typed(words, logs_of(plugin))


def _selected(device: str, cluster: Cluster) -> str:
    """Return in brackets the vendor and device id by which KubeVirt permits a device; empty:
    it is not known.
    """
    found = configuration.known_or_none(configuration.kubevirt, cluster)
    permitted = (
        found.at("spec", "configuration", "permittedHostDevices", "pciHostDevices").items()
        if found
        else ()
    )
    ids = (
        each["pciVendorSelector"].text for each in permitted if each["resourceName"].text == device
    )
    known = next(filter(None, ids), "")
    return f" ({known.lower()})" if known else ""
