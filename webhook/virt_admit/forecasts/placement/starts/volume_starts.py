"""Why a pod does not get a volume: what the storage says beside the kubelet and the attach
controller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from virt_admit.forecasts.placement import volume_attachments
from virt_admit.forecasts.placement.components import (
    broken_pods,
    busy_volumes,
    driver_registrations,
    longhorn_starts,
    node_pods,
)
from virt_admit.forecasts.placement.components.busy_volumes import HeldVolume
from virt_admit.forecasts.placement.components.drivers import (
    node_services,
    refused_mounts,
    refusing_storage,
    stale_block_files,
)
from virt_admit.forecasts.placement.components.drivers.refused_mounts import RefusedMount
from virt_admit.forecasts.placement.components.longhorn import (
    longhorn_nodes,
    shared_volumes,
    unfinished_clones,
)
from virt_admit.forecasts.placement.starts import attach_nodes, started_pods
from virt_admit.forecasts.placement.starts.started_pods import (
    BY_KUBELET,
    CODE,
    FAILED,
    FRAME,
    VOLUME,
    PodStart,
    StartFault,
)
from virt_admit.model.commands import about, argument, kubectl, shell, typed
from virt_admit.model.evidence import network_fences
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import LONGHORN_VOLUME, NODE, POD, PV
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find, find_named
from virt_admit.model.messages import capital
from virt_admit.model.problems import Problem

READS: Final[Reads] = union(
    attach_nodes.READS,
    longhorn_nodes.READS,
    longhorn_starts.READS,
    node_services.READS,
    unfinished_clones.READS,
    busy_volumes.READS,
    shared_volumes.READS,
    refused_mounts.READS,
    stale_block_files.READS,
    network_fences.READS,
)
_NO_CAUSE: Final = ("Internal", "Unknown")


def stopped_claim(pod: Object, cluster: Cluster) -> str:
    """Return the claim of a pod for which a call hangs, as its storage takes no reads or writes;
    empty: there is none."""
    start = started_pods.of(pod, cluster)
    return start.claim(VOLUME.findall(start.said)[0]) if _stopped(start) is not None else ""


def refused_mount(pod: Object, cluster: Cluster) -> RefusedMount | None:
    """Return that an NFS server refuses the node of a pod, and not others; None: none does."""
    start = started_pods.of(pod, cluster)
    mount = refused_mounts.of(start.said, start.on, cluster)
    return mount if mount is not None and mount.of_node else None


def awaited(start: PodStart) -> StartFault | None:
    """Return for what Longhorn waits, if what keeps a pod from starting is a volume that is not
    attached to its node.
    """
    own, cluster = start.attachment, start.cluster
    if own is not None:
        volume = own.awaits if start.attaches else ""
    else:
        named = VOLUME.match(start.said)
        volume = named[1] if named is not None and start.said.startswith("AttachVolume.") else ""
    error = own.error if own is not None else start.said
    clone = unfinished_clones.of(volume, error, cluster) if volume else None
    found = clone or (longhorn_starts.cause(volume, start.on, cluster) if volume else None)
    if found is None:
        return None
    code = CODE.search(error)
    what = own.what if own is not None else f"volume {volume} cannot be attached"
    # a refusal says its cause itself
    shown = f" ({code[1]})" if code is not None and code[1] not in _NO_CAUSE else ""
    told = f"{what}{shown}: {found.words}"
    return StartFault(
        told,
        told,
        (own.remedy if own is not None else "") or found.remedy,
        of_node=found.of_node or (own is not None and own.of_node),
        lasts=found.lasts or (own is not None and own.lasts),
    )


def _attached(start: PodStart) -> StartFault | None:
    """Return why a volume cannot be attached."""
    own = start.attachment
    if own is None or not start.attaches:
        return None
    driver = start.driver(own.awaits) if own.awaits else ""
    remedy = own.remedy or (
        _ask_driver(driver, own.awaits, "", start.cluster)
        if driver
        else typed(
            "see in the events of the pod what fails",
            kubectl("describe", POD, start.pod.name, start.pod.namespace),
        )
    )
    compared = attach_nodes.of(start.on, driver, start.cluster) if driver else None
    if compared is None or own.remedy:
        return StartFault(start.words, start.brief, remedy, of_node=own.of_node, lasts=own.lasts)
    meanwhile = compared.meanwhile(start.pod, start.cluster)
    steps = (remedy, f"if that tells no cause, {compared.repair}", meanwhile)
    return StartFault(
        f"{start.words}. {compared.words}",
        f"{start.brief}. {compared.words}",
        "; ".join(filter(None, steps)),
        of_node=own.of_node,
        lasts=own.lasts,
    )


def _stopped(start: PodStart) -> StartFault | None:
    """Return that the storage of a volume takes no reads or writes, so that a call about the volume
    hangs; None: another error is said, or its storage says nothing.
    """
    named, framed = VOLUME.search(start.said), FAILED.search(start.said)
    hangs = refusing_storage.HANGS.search(start.said)
    claim = start.claim(named[1]) if named is not None and hangs is not None else ""
    fault = refusing_storage.problem(start.pod.namespace, claim, start.cluster) if claim else None
    if fault is None or framed is None:
        return None
    code = CODE.search(start.said)
    call = f"{framed[1]} of claim {claim} hangs{f' ({code[1]})' if code is not None else ''}"
    told = f"{call}, as {fault.reason}"
    return StartFault(told, f"{call}, as {fault.brief or fault.reason}", fault.remedy)


def _fenced(start: PodStart) -> StartFault | None:
    """Return that the storage refuses the node of a pod, which a fence of another node names."""
    named = VOLUME.match(start.said) if start.said.startswith(BY_KUBELET) else None
    node = find(start.cluster, NODE, "", start.on) if named is not None else None
    if named is None or node is None or not network_fences.is_of_fence(start.said):
        return None
    driver = start.driver(named[1])
    fence = next(network_fences.wrong(node, driver, start.cluster), None) if driver else None
    if fence is None:
        return None
    words = fence.words(node.name)
    return StartFault(f"{start.words}. {words}", words, fence.remedy, of_node=True)


def _unserved(start: PodStart) -> StartFault | None:
    """Return that a service of its node, which the driver of a volume needs, does not run."""
    named = VOLUME.search(start.said) if start.said.startswith(BY_KUBELET) else None
    driver = start.driver(named[1]) if named is not None else ""
    found = node_services.missing(start.said, driver, start.on, start.cluster) if driver else None
    if found is None:
        return None
    told = f"{start.words}. {found.what}"
    return StartFault(told, found.what, found.remedy, of_node=found.of_node)


def _unknown(start: PodStart) -> StartFault | None:
    """Return that a driver does not know the node of a pod, where only an event tells its error."""
    framed = FRAME.match(start.said) if start.said.startswith("AttachVolume.") else None
    if framed is None:
        return None
    driver, error = start.driver(framed[2]), start.said[framed.end() :]
    found = driver_registrations.unknown(driver, start.on, error, start.cluster)
    if found is None:
        return None
    told = f"volume {framed[2]} cannot be attached to {start.on}: {found.reason}"
    return StartFault(told, told, found.remedy, of_node=True)


def _busy(start: PodStart) -> StartFault | None:
    """Return which node has a volume open that the kubelet cannot open on the node of a pod, or
    why no further node can mount it.
    """
    found = _holder(start)
    if found is None:
        return None
    told = f"{start.words}. {capital(found.words)}"
    if found.by_other:
        told = f"{found.words} ({start.brief})"
    return StartFault(told, found.words, found.remedy, lasts=found.lasts)


def _holder(start: PodStart) -> HeldVolume | None:
    named = VOLUME.match(start.said) if start.said.startswith(BY_KUBELET) else None
    if named is None:
        return None
    if unserved := shared_volumes.without_address(named[1], start.cluster):
        return unserved
    claim = start.claim(named[1])
    if not claim:
        return None
    users = volume_attachments.users(start.pod.namespace, claim, start.cluster)
    return busy_volumes.of(named[1], start.on, start.said, users, start.cluster, start.pod)


def _refused(start: PodStart) -> StartFault | None:
    """Return that an NFS server refuses a mount, or what Longhorn reports of the node."""
    mount = refused_mounts.of(start.said, start.on, start.cluster)
    found = mount or _report(start)
    if found is None:
        return None
    framed = FRAME.match(start.said)
    claim = start.claim(framed[2]) if framed is not None else ""
    begin = f"{start.said.partition(' ')[0]}{f' of claim {claim}' if claim else ''} fails"
    return StartFault(
        f"{start.words}. {found.reason}",
        f"{begin}: {found.reason}",
        found.remedy,
        of_node=mount is None or mount.of_node,
    )


def _report(start: PodStart) -> Problem | None:
    """Return what Longhorn reports of a node that explains why a volume of it cannot be attached or
    mounted there.
    """
    named = VOLUME.search(start.said)
    if named is None or start.driver(named[1]) != longhorn_nodes.DRIVER:
        return None
    return longhorn_nodes.report(start.on, start.said, start.cluster)


def _failing(start: PodStart) -> StartFault | None:
    """Return that the kubelet or the attach controller fails with a volume, and where to look."""
    named = VOLUME.search(start.said)
    if named is None:
        return None
    (volume, on), cluster = (named[1], start.on), start.cluster
    driver, by_kubelet = start.driver(volume), start.said.startswith(BY_KUBELET)
    if driver:
        served = _served(driver, volume, on, cluster) if by_kubelet else ""
        remedy = served or _ask_driver(driver, volume, on if by_kubelet else "", cluster)
    elif by_kubelet and find(cluster, PV, "", volume) is not None:
        way = f"correct what the error names, in the storage of the volume or on {on}"
        remedy = typed(way, kubectl("describe", PV, volume))
    else:
        return None
    return StartFault(start.words, start.brief, remedy)


def _plain_file(start: PodStart) -> StartFault | None:
    """Return that the node of a pod has a plain file for a block volume of it."""
    found = stale_block_files.of_pod(start.pod, start.said, start.cluster)
    if found is None:
        return None
    return StartFault(found.what, found.brief, found.remedy, of_node=found.of_node)


READERS: Final[tuple[Callable[[PodStart], StartFault | None], ...]] = (
    *(_attached, _stopped, _fenced, _unserved, _unknown, _busy, _refused, _failing, _plain_file),
)
"""The most telling first, after ``awaited``."""


def _ask_driver(driver: str, volume: str, on: str, cluster: Cluster) -> str:
    """Return where the cause of an error of a driver is to be found:
    whether its volume is whole is not known.

    ``on``: the node whose kubelet met the error; empty: the controller of the driver did.
    """
    if find_named(cluster, LONGHORN_VOLUME, volume) is not None:
        return typed(f"repair the volume in its storage ({driver})", _of_storage(volume, cluster))
    if on:
        pod = node_pods.of_driver(driver, node_pods.of_node(on, cluster))
        who = f"driver {driver} logs about it on {on}"
    else:
        pod = node_pods.controller_of(driver, cluster)
        who = f"the controller of driver {driver} logs about it"
    see = node_pods.logs(pod) if pod is not None else _of_storage(volume, cluster)
    return typed(f"see what {who}", see)


def _of_storage(volume: str, cluster: Cluster) -> str:
    own = find_named(cluster, LONGHORN_VOLUME, volume)
    if own is not None:
        return about("describe", own, LONGHORN_VOLUME)
    return kubectl("describe", PV, volume)


def _served(driver: str, volume: str, on: str, cluster: Cluster) -> str:
    """Return what to look at where the driver fails on a node although the volume is whole; empty:
    its pod is not known.
    """
    pod = node_pods.of_driver(driver, node_pods.of_node(on, cluster))
    broken = broken_pods.of_pod(pod, cluster) if pod is not None else None
    if broken is not None:
        return broken.remedy
    if not longhorn_nodes.is_whole(volume, on, cluster):
        return ""
    logs = (
        node_pods.logs(pod)
        if pod is not None
        else shell("kubectl", "describe", "node", argument(on))
    )
    return typed(f"see why {on} cannot mount the volume, which is attached and has its data", logs)
