"""Disks that QEMU cannot open, as another process has the image open: the claim, and its users.

QEMU locks the image of a disk, so that no two guests write it. A claim that several nodes may mount
does not change that; only a disk that each of its VMs marks ``shareable`` is opened without the
lock. Sources: qemu/qemu:docs/system/images.rst (Disk image file locking); kubevirt/kubevirt:pkg/
virt-launcher/virtwrap/converter/converter.go#GetFilesystemVolumePath #GetBlockDeviceVolumePath,
issue kubevirt/kubevirt#6148.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from virt_admit.forecasts.placement import volume_attachments
from virt_admit.model.commands import argument, kubectl, shell, typed
from virt_admit.model.kubernetes import node_health
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import PVC, VM, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import migratability, vmis, vms
from virt_admit.model.kubevirt.launcher import launcher_pod, vm_ledger
from virt_admit.model.lookups import find
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem, ProblemCause

_STATUS: Final = ("metadata.ownerReferences", "status.nodeName", "status.phase")
READS: Final[Reads] = union(node_health.READS, volume_attachments.READS, {VMI: ("spec", *_STATUS)})

_LOCK: Final = re.compile(r'Failed to get (?:shared )?\\*"[\w ]{1,40}\\*" lock')
_PLACE: Final = re.compile(
    r"/vmi-disks/([\w.-]{1,253})/|/hotplug-disks/([\w.-]{1,253}?)(?:\.img)?(?![\w.-])|\[/dev/"
    r"([\w.-]{1,253})\]"
)
"""The image of a volume in a launcher pod: a file, a hotplugged one, or a block device."""
_ALIAS: Final = re.compile(r"\bua-([\w.-]{1,253})")
"""KubeVirt gives a disk the name of its volume with this prefix."""


class _Holder(NamedTuple):
    """A VM or another pod that uses a claim."""

    words: str
    node: str
    vmi: Object | None


def is_lock(said: str) -> bool:
    """Return whether QEMU says that it does not get the lock of an image."""
    return _LOCK.search(said) is not None


def problem(vmi: Object, said: str, cluster: Cluster) -> Problem | None:
    """Return whose disk QEMU cannot open and who else uses it; None: the error says something else.

    ``said``: the error of virt-handler.
    """
    volume = _volume(said) if is_lock(said) else None
    claim = _claim(vmi, volume) if volume else ""
    if not volume or not claim:
        return None
    namespace = vms.namespace_of(vmi)
    begin = f"QEMU gets no lock on disk {volume} (claim {namespace}/{claim})"
    holders = tuple(_holders(vmi, claim, cluster))
    if not holders:
        described = kubectl("describe", PVC, claim, namespace)
        remedy = (
            "find what has that image open, such as a guest on a node that does not report, which "
            "is to be confirmed to be off, or fenced; or stop the VM"
        )
        reason = (
            f"{begin}: another process has it open, and no other pod that was read uses the claim"
        )
        return Problem(reason, typed(remedy, described), ProblemCause.NOT_REPORTED)
    uses = "uses" if len(holders) == 1 else "use"
    who = names(each.words for each in holders)
    alone = _unshared(volume, claim, vmi, holders)
    reason = f"{begin}, which {who} {uses} too{alone}"
    brief = f"{begin}, which {who} {uses}"
    return Problem(reason, _remedy(vmi, holders, cluster), ProblemCause.NOT_REPORTED, brief=brief)


def is_held_elsewhere(vmi: Object, said: str, cluster: Cluster) -> bool:
    """Return whether a disk is held from another node than that of a VMI,
    whose loss frees nothing.
    """
    volume, here = _volume(said) if is_lock(said) else None, vmi.at("status", "nodeName").text
    claim = _claim(vmi, volume) if volume else ""
    return bool(claim) and any(each.node != here for each in _holders(vmi, claim, cluster))


def _claim(vmi: Object, volume: str) -> str:
    """Return the claim of a volume; empty: it has none."""
    name = migratability.claim_of(vmi.at("spec", "volumes").named(volume))
    return name.text or "" if name is not None else ""


def _volume(said: str) -> str | None:
    place = _PLACE.search(said)
    if place is not None:
        return next(filter(None, place.groups()), None)
    alias = _ALIAS.search(said)
    return alias[1] if alias is not None else None


def _holders(vmi: Object, claim: str, cluster: Cluster) -> Iterator[_Holder]:
    """Yield who uses a claim beside the pod in which a VMI starts, each VM once."""
    namespace, seen = vms.namespace_of(vmi), set()
    for other in sorted(cluster.known(VMI), key=lambda each: each.full_name):
        same = vms.namespace_of(other) == namespace and other.name != vmi.name
        if same and other.at("status", "phase").text == "Running" and claim in _claims(other):
            seen.add(other.name)
            on = other.at("status", "nodeName").text or ""
            yield _Holder(f"the running VM {other.full_name}{f' on {on}' if on else ''}", on, other)
    for pod in volume_attachments.users(namespace, claim, cluster):
        name, node = vm_ledger.vmi_name(pod), pod.at("spec", "nodeName").text
        own = name == vmi.name and node in (None, vmi.at("status", "nodeName").text)
        hotplug = pod.labels.get("kubevirt.io") == _HOTPLUG  # it only mounts what a VM uses
        # an earlier pod of the VM may have a guest still: its node was lost, and the VMI started
        # again
        empty = name != vmi.name and _starts(name, namespace, cluster)
        if node and not own and not hotplug and name not in seen and not empty:
            silent = node_health.silent_for(node, cluster)
            yield _Holder(
                f"pod {pod.full_name} on {node}{f' ({silent})' if silent else ''}", node, None
            )


_HOTPLUG: Final = "hotplug-disk"


def _starts(name: str, namespace: str, cluster: Cluster) -> bool:
    """Return whether a VMI has no guest yet, which has no lock either."""
    vmi = find(cluster, VMI, namespace, name)
    phase = vmi.at("status", "phase").text if vmi is not None and not vmi.ended else None
    return phase is not None and phase != "Running"


def _claims(vmi: Object) -> Iterator[str]:
    for volume in vmi.at("spec", "volumes").items():
        yield from launcher_pod.claims_of(volume)


def _unshared(volume: str, claim: str, vmi: Object, holders: Sequence[_Holder]) -> str:
    """Return which of the disks of a claim is not shareable; empty: that is not known,
    or all are.
    """
    of_vms = [each.vmi for each in holders if each.vmi is not None]
    own = _is_shareable(vmi, volume)
    others = [_is_shareable(each, name) for each in of_vms for name in _volumes_of(each, claim)]
    if not others or (own and all(others)):
        return ""
    if own:
        return "; the disk there is not shareable"
    return "; only the disk there is shareable" if all(others) else "; neither disk is shareable"


def _volumes_of(vmi: Object, claim: str) -> Iterator[str]:
    for volume in vmi.at("spec", "volumes").items():
        if claim in launcher_pod.claims_of(volume):
            yield volume["name"].text or ""


def _is_shareable(vmi: Object, volume: str) -> bool:
    disks = vmi.at("spec", "domain", "devices", "disks")
    return disks.named(volume)["shareable"].boolean is True


def _remedy(vmi: Object, holders: Sequence[_Holder], cluster: Cluster) -> str:
    of_vms = [each.vmi for each in holders if each.vmi is not None]
    namespace, owner = vms.namespace_of(vmi), vmis.owner(vmi, VM.kind)
    lost = next((each.node for each in holders if node_health.silence_now(each.node, cluster)), "")
    if lost and not of_vms:
        words = (
            f"its guest may still run there: first make sure that {lost} is off, or has been fenced"
        )
        return typed(words, shell("virt-admit", "explain", argument(f"node/{lost}")))
    if not of_vms:
        held = holders[0].words.removeprefix("pod ").partition(" ")[0].rpartition("/")[2]
        see = shell("kubectl", "describe", "pod", argument(held), "-n", namespace)
        return typed(f"wait until {holders[0].words} has ended, or end it", see)
    words = (
        f"give each VM a disk of its own, stop {names(each.full_name for each in of_vms)} first, "
        "or set shareable: true on the disk in each of them, with a cluster file system in the "
        "guests"
    )
    if owner is None:
        return typed(words, kubectl("describe", VMI, vmi.name, namespace))
    return typed(words, kubectl("edit", VM, owner, namespace))
