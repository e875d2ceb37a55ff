"""Why a pod that has a node does not start: its container states, events about the pod, and
attachments that fail.

Events are only in snapshots that hold them. Sources:
kubernetes/kubernetes:pkg/kubelet/images/types.go, :pkg/kubelet/container/sync_result.go,
:pkg/kubelet/events/event.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from virt_admit.forecasts.placement import volume_attachments
from virt_admit.forecasts.placement.components import (
    broken_pods,
    busy_volumes,
    driver_registrations,
    longhorn_nodes,
    longhorn_starts,
    missing_objects,
    network_plugins,
    node_drivers,
    node_pods,
    unpullable_images,
)
from virt_admit.forecasts.placement.components.busy_volumes import BusyVolume
from virt_admit.forecasts.placement.components.driver_registrations import UnknownNode
from virt_admit.forecasts.placement.components.longhorn_nodes import LonghornReport
from virt_admit.forecasts.placement.components.longhorn_starts import LonghornCause
from virt_admit.forecasts.placement.volume_attachments import AttachmentFault
from virt_admit.model import address_pools
from virt_admit.model.address_pools import FullRange
from virt_admit.model.commands import about, argument, kubectl, shell, typed
from virt_admit.model.evidence import full_ranges, sandbox_errors
from virt_admit.model.evidence.full_ranges import UsedUpRange
from virt_admit.model.kubernetes import clock, events
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import LONGHORN_VOLUME, POD, PV, PVC
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import capital, cut_middle
from virt_admit.model.scheduler.pods import CONTAINERS, claim_names

READS: Final[Reads] = union(
    volume_attachments.READS,
    longhorn_nodes.READS,
    longhorn_starts.READS,
    busy_volumes.READS,
    full_ranges.READS,
    {POD: ("metadata.creationTimestamp", *(f"status.{kind}.state.waiting" for kind in CONTAINERS))},
)

_FAILURES: Final = frozenset(
    (
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImageInspectError",
        "ImagePullBackOff",
        "InvalidImageName",
        "RegistryUnavailable",
        "RunContainerError",
    )
)
"""Reasons of a waiting container that are not a step of a normal start."""

_EVENTS: Final = (
    "FailedCreatePodSandBox",
    "FailedMount",
    "FailedMapVolume",
    "FailedAttachVolume",
    "Failed",
)
"""The kubelet repeats these as long as the cause lasts, at the latest after two minutes; the attach
controller does not.
"""
_OF_VOLUMES: Final = ("FailedMount", "FailedMapVolume", "FailedAttachVolume")
_VOLUME: Final = re.compile(r'(?:Attach|Mount|Map)Volume\.\w+ failed for volume "([\w.-]{1,250})"')
"""How the kubelet and the attach controller name a volume with which they fail,
which may be a PersistentVolume.
"""
_CALL: Final = re.compile(r"rpc error: code = (?:Internal|Unknown) desc = ")
"""The frame of an error, which says something only if the code does."""
_CODE: Final = re.compile(r"rpc error: code = (\w+) desc = ")
_FAILED: Final = re.compile(r'(\w+Volume)\.\w+ failed for volume "[\w.-]{1,250}" ?: ')
_WORDS: Final = 200
_BRIEF: Final = 80
_DETACHED: Final = timedelta(minutes=10)
"""kube-controller-manager detaches the volumes of pods that are gone within six minutes."""
_RECENT: Final = timedelta(minutes=5)


def failure(pod: Object, cluster: Cluster, *, brief: bool = False) -> str:
    """Return why a pod does not start, in about 200 characters, or 80 if ``brief``; empty:
    nothing says so.

    Only what a program says is shortened, never the words around it.
    """
    said, on = _said(pod, cluster), pod.at("spec", "nodeName").text or ""
    full, missing = (
        _full(said, on, cluster),
        missing_objects.of_pod(pod, said, cluster),
    )
    if missing is not None:
        return missing.what
    if full is not None:
        return full.what
    if image := unpullable_images.of_start(pod, said, cluster):
        return cut_middle(image.what, _BRIEF) if brief else image.what
    unregistered = node_drivers.named_by(said, on)
    if unregistered is not None and said.startswith(_BY_KUBELET):
        node, driver = unregistered
        why = node_drivers.because(driver, node, cluster)
        if brief and why:
            return (
                f"{node} lacks driver {driver}: {why.strip(' ()').removeprefix('no pod there: ')}"
            )
        return f"driver {driver} is not registered on {node}{why}"
    attachment = attachment_fault(pod, cluster)
    if found := _awaited(said, attachment, on, cluster):
        code = _CODE.search(attachment.error if attachment is not None else said)
        what = (
            attachment.what
            if attachment is not None
            else f"volume {_VOLUME.findall(said)[0]} cannot be attached"
        )
        return f"{what}{f' ({code[1]})' if code is not None else ''}: {found.words}"
    if attachment is not None and said == attachment.words:
        error = "" if brief else cut_middle(_CALL.sub("", attachment.error).rstrip(". "), _WORDS)
        words = f"{attachment.what}: {error}" if error else attachment.what
    else:
        words = (
            cut_middle(_FAILED.sub(r"\1: ", said).rstrip(". "), _BRIEF)
            if brief
            else _shown(said, pod, cluster)
        )
    if (plugin := network_plugins.NAMED.search(said)) is not None:
        broken = network_plugins.broken_agent(plugin[1], pod, None, cluster)
        why = broken.full_words if broken is not None and broken.why else ""
        return why if why and brief else f"{words}, because {why}" if why else words
    if unknown := _unknown(said, on, cluster):
        return f"volume {_VOLUME.findall(said)[0]} cannot be attached to {on}: {unknown.words}"
    if busy := _busy(said, pod, cluster):
        return busy.words if brief else f"{words}. {capital(busy.words)}"
    report = _report(said, on, cluster)
    if report is None:
        return words
    return report.words if brief else f"{words}. {report.words}"


def remedy(pod: Object, cluster: Cluster, since: datetime | None = None) -> str:
    """Return what repairs the start of a pod, with a command: the part of the cluster that fails,
    where it is named.

    ``since``: when the pods before it began to fail in the same way; None: there were none.
    """
    said = _said(pod, cluster)
    attachment = attachment_fault(pod, cluster)
    if attachment is not None and attachment.remedy and said == attachment.words:
        return attachment.remedy
    on = pod.at("spec", "nodeName").text or ""
    if found := _awaited(said, attachment, on, cluster):
        return found.remedy
    if full := _full(said, on, cluster):
        return full.remedy
    if missing := missing_objects.of_pod(pod, said, cluster) or unpullable_images.of_start(
        pod, said, cluster
    ):
        return missing.remedy
    if unregistered := node_drivers.named_by(said, on):
        return node_drivers.remedy(unregistered[1], unregistered[0], cluster)
    if (
        fault := _unknown(said, on, cluster)
        or _busy(said, pod, cluster)
        or _report(said, on, cluster)
    ):
        return fault.remedy
    if plugin := network_plugins.NAMED.search(said):
        return network_plugins.remedy(plugin[1], pod, since, cluster, said)
    if named := _VOLUME.search(said):
        driver = _driver(named[1], cluster)
        by_kubelet = said.startswith(_BY_KUBELET)
        if driver and by_kubelet and (served := _served(driver, named[1], on, cluster)):
            return served
        if driver:
            return _ask_driver(driver, named[1], on if by_kubelet else "", cluster)
    if (
        attachment is not None
        and attachment.awaits
        and (driver := _driver(attachment.awaits, cluster))
    ):
        return _ask_driver(driver, attachment.awaits, "", cluster)
    return sandbox_errors.remedy(said, on) or typed(
        "see in the events of the pod what fails", kubectl("describe", POD, pod.name, pod.namespace)
    )


def _full(said: str, on: str, cluster: Cluster) -> FullRange | UsedUpRange | None:
    """Return which addresses are used up, so that a pod gets none; None: it lacks none."""
    return address_pools.full_range(said, cluster) or full_ranges.of(said, on, cluster)


def lasting_fault(pod: Object, cluster: Cluster) -> bool:
    """Return whether a pod that replaces this one certainly meets the same cause on each node."""
    on = pod.at("spec", "nodeName").text or ""
    found = _awaited(_said(pod, cluster), attachment_fault(pod, cluster), on, cluster)
    busy = _busy(_said(pod, cluster), pod, cluster)
    attachment = attachment_fault(pod, cluster)
    if attachment is not None and attachment.lasts:
        return True
    return (found is not None and found.lasts) or (busy is not None and busy.lasts)


def _shown(said: str, pod: Object, cluster: Cluster) -> str:
    """Return what keeps a pod from starting, shortened without its volume and the claim of that."""
    framed = _FRAME.match(said)
    if framed is None:
        return cut_middle(said.rstrip(". "), _WORDS)
    claim = _claim(pod, framed[2], cluster)
    called = f"claim {claim} (volume {framed[2]})" if claim else f'volume "{framed[2]}"'
    error = cut_middle(said[framed.end() :].rstrip(". "), _WORDS)
    return f"{framed[1]} failed for {called}: {error}"


_FRAME: Final = re.compile(r'(\w+Volume\.\w+) failed for volume "([\w.-]{1,250})" ?: ')


def _claim(pod: Object, volume: str, cluster: Cluster) -> str:
    """Return the claim of a pod that is bound to a volume; empty: none is, as far as is known."""
    for claim in claim_names(pod):
        found = find(cluster, PVC, pod.namespace, claim)
        if found is not None and found.at("spec", "volumeName").text == volume:
            return claim
    return ""


def _unknown(said: str, on: str, cluster: Cluster) -> UnknownNode | None:
    """Return that a driver does not know the node of a pod, where only an event tells its error."""
    framed = _FRAME.match(said) if said.startswith("AttachVolume.") else None
    if framed is None:
        return None
    return driver_registrations.unknown(
        _driver(framed[2], cluster), on, said[framed.end() :], cluster
    )


def _busy(said: str, pod: Object, cluster: Cluster) -> BusyVolume | None:
    """Return which node has a volume open that the kubelet cannot open on the node of a pod."""
    named = _VOLUME.match(said) if said.startswith(_BY_KUBELET) else None
    claim = _claim(pod, named[1], cluster) if named is not None else ""
    if named is None or not claim:
        return None
    users = volume_attachments.users(pod.namespace, claim, cluster)
    return busy_volumes.of(named[1], pod.at("spec", "nodeName").text or "", said, users, cluster)


def _ask_driver(driver: str, volume: str, on: str, cluster: Cluster) -> str:
    """Return where the cause of an error of a driver is to be found:
    whether its volume is whole is not known.

    ``on``: the node whose kubelet met the error; empty: the controller of the driver did.
    """
    if _of_longhorn(volume, cluster) is not None:
        return typed(f"repair the volume in its storage ({driver})", _of_storage(volume, cluster))
    pod = (
        node_pods.of_driver(driver, node_pods.of_node(on, cluster))
        if on
        else node_pods.controller_of(driver, cluster)
    )
    who = (
        f"driver {driver} logs about it on {on}"
        if on
        else f"the controller of driver {driver} logs about it"
    )
    return typed(
        f"see what {who}", node_pods.logs(pod) if pod is not None else _of_storage(volume, cluster)
    )


def _awaited(
    said: str, attachment: AttachmentFault | None, on: str, cluster: Cluster
) -> LonghornCause | None:
    """Return for what Longhorn waits, if what keeps a pod from starting is a volume that is not
    attached to its node.
    """
    if attachment is not None:
        volume = attachment.awaits if said == attachment.words else ""
    else:
        named = _VOLUME.match(said)
        volume = named[1] if named is not None and said.startswith("AttachVolume.") else ""
    return longhorn_starts.cause(volume, on, cluster) if volume else None


def fails_on_its_node(pod: Object, cluster: Cluster) -> bool:
    """Return whether a pod is kept from starting by a part of its node,
    so that it may start on another one.
    """
    said = _said(pod, cluster)
    if address_pools.full_range(said, cluster) is not None:
        return False  # the range is that of all nodes
    on = pod.at("spec", "nodeName").text or ""
    if full_ranges.of(said, on, cluster) is not None:
        return True
    driver = node_drivers.named_by(said, on)
    attachment = attachment_fault(pod, cluster)
    told = attachment is not None and attachment.of_node and said == attachment.words
    unknown = told or _unknown(said, on, cluster) is not None
    named = network_plugins.NAMED.search(said) is not None or driver is not None
    return named or unknown or _report(said, on, cluster) is not None


_BY_KUBELET: Final = ("MountVolume.", "MapVolume.")
"""How errors begin that the kubelet meets on the node; a volume is attached before."""


def _driver(volume: str, cluster: Cluster) -> str:
    found = find(cluster, PV, "", volume)
    return (found.at("spec", "csi", "driver").text or "") if found is not None else ""


def _report(said: str, on: str, cluster: Cluster) -> LonghornReport | None:
    """Return what Longhorn reports of a node that explains why a volume of it cannot be attached or
    mounted there.
    """
    named = _VOLUME.search(said)
    if named is None or _driver(named[1], cluster) != longhorn_nodes.DRIVER:
        return None
    return longhorn_nodes.report(on, said, cluster)


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


def terminations(pod: Object) -> Iterator[tuple[str, Field]]:
    """Yield how containers of a pod ended, the present state of each before the last one,
    with the container's name.
    """
    for status in pod.at("status", "containerStatuses").items():
        for state in ("state", "lastState"):
            yield status["name"].text or "?", status.at(state, "terminated")


def _of_storage(volume: str, cluster: Cluster) -> str:
    own = _of_longhorn(volume, cluster)
    return (
        about("describe", own, LONGHORN_VOLUME)
        if own is not None
        else kubectl("describe", PV, volume)
    )


def _of_longhorn(volume: str, cluster: Cluster) -> Object | None:
    return next((each for each in cluster.known(LONGHORN_VOLUME) if each.name == volume), None)


def _said(pod: Object, cluster: Cluster) -> str:
    """Return the whole text of what keeps a pod from starting."""
    for kind in CONTAINERS:
        for status in pod.at("status", kind).items():
            waiting = status.at("state", "waiting")
            reason = waiting["reason"].text or ""
            if reason in _FAILURES:
                words = " ".join((waiting["message"].text or "").split())
                return f"{reason}: {words}" if words else reason
    created = clock.instant(pod.metadata["creationTimestamp"].text)
    since = max(filter(None, (created, clock.ago(_RECENT, cluster))), default=None)
    attachment = attachment_fault(pod, cluster)  # its event does not say which node has the volume
    for reason in _EVENTS:
        words = events.last_warning(pod, reason, since, cluster)
        if words and (attachment is None or reason not in _OF_VOLUMES):
            return _CALL.sub("", words)
    return attachment.words if attachment is not None else ""


def said(pod: Object, cluster: Cluster) -> str:
    """Return the whole text of what keeps a pod from starting; empty: nothing says so."""
    return _said(pod, cluster)


def attachment_fault(pod: Object, cluster: Cluster) -> AttachmentFault | None:
    """Return why a volume of a pod cannot be attached to its node; None: nothing says so."""
    age = clock.since(pod.metadata["creationTimestamp"].text, cluster)
    overdue = age is not None and age > _DETACHED
    return volume_attachments.fault(
        pod.at("spec", "nodeName").text or "-",
        pod.namespace,
        list(claim_names(pod)),
        cluster,
        overdue=overdue,
    )
