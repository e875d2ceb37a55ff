"""What ends a detach that fails again and again.

external-attacher calls ControllerUnpublishVolume until it succeeds, and keeps its finalizer until
then. A driver that takes an absent volume as an error repeats that without end: older releases of
linstor-csi do so with 404. Without the finalizer Kubernetes attaches the volume to another node,
so that the storage must have no user of it on this one. Sources:
kubernetes-csi/external-attacher:README.md (CSI error and timeout handling);
piraeusdatastore/linstor-csi:pkg/client/linstor.go#Detach, issue piraeusdatastore/linstor-csi#52;
kubernetes/api:core/v1/types.go#NodeStatus (volumesInUse).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.placement.components import busy_volumes, node_pods
from virt_admit.forecasts.placement.components.linstor import lost_quorums
from virt_admit.model.commands import about, kubectl, typed
from virt_admit.model.kubernetes import clock, node_health
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import NODE, POD, PV, VOLUME_ATTACHMENT
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find

READS: Final[Reads] = union(
    busy_volumes.READS,
    node_pods.READS,
    lost_quorums.READS,
    {
        VOLUME_ATTACHMENT: (
            "spec.attacher",
            "spec.nodeName",
            "spec.source.persistentVolumeName",
            "status.detachError.message",
        )
    },
)
_GONE: Final = r"(?:\b404\b|not (?:be )?found|wasn't found|does not exist|no such (?:volume|disk))"
_ABSENT: Final = re.compile(rf"(?i){_GONE}")
_VOLUME: Final = "\N{REPLACEMENT CHARACTER}"
"""Stands for the name of the volume, which may contain any word."""
_VOLUME_ABSENT: Final = re.compile(
    r"(?i)\b(?:volume|disk)(?: [\"'(]?[\w./-]{1,200}[\"')]?)? (?:was |is |could )?"
    r"(?:not (?:be )?found|does not exist)|no such (?:volume|disk)"
)
_OTHER: Final = re.compile(
    r"(?i)\b(?:account|array|backend|certificate|cluster|config|credential|device|endpoint|file|"
    r"group|key|method|namespace|page|path|pool|portal|project|region|route|secret|service|session|"
    r"snapshot|subscription|target|tenant|token|user|zone)s?\b"
)
"""Of any of these the error may say that it is absent."""
_MACHINE: Final = (
    r"(?:compute|droplet|guest|host|hypervisor|instance|linode|machine|node|server|"
    r"virtual ?machine|vm)s?"
)
_OF_MACHINE: Final = re.compile(
    rf"(?i)\b{_MACHINE}\b[^:]{{0,80}}{_GONE}|\b{_MACHINE}\b[^:]{{0,80}}(?:: ?){{1,3}}{_GONE}"
    rf"|{_GONE}\W{{0,3}}(?:(?:for|the) ){{0,2}}{_MACHINE}\b|://\S{{0,400}}/{_MACHINE}/"
)
"""The driver does not find the machine: its volume may be attached there."""
_FRAME: Final = re.compile(r"(?i)\brpc error: code = \w{1,40} desc = |\bcode: \w{1,40}\b")
_URL: Final = re.compile(r"\bhttps?://\S{1,1000}")
_LASTING: Final = timedelta(minutes=10)
"""external-attacher has tried several times by then (retry-interval-max: 5 minutes)."""


def remedy(attachment: Object, pods: Sequence[Object], cluster: Cluster) -> str:
    """Return what ends it; the finalizer is named only where nothing is known to use the volume on
    the node.

    ``pods``: those on its node that use the volume.
    """
    node = attachment.at("spec", "nodeName").text or ""
    described = about("describe", attachment, VOLUME_ATTACHMENT)
    if pods:
        return typed(
            f"end pod {pods[0].full_name} first, which uses it", about("describe", pods[0], POD)
        )
    volume = find(cluster, PV, "", attachment.at("spec", "source", "persistentVolumeName").text)
    own, silent = find(cluster, NODE, "", node), node_health.silence_now(node, cluster)
    if own is None or silent:
        return typed(f"see whether {node} still uses it", described)
    if volume is not None and busy_volumes.is_in_use(volume, own):
        words = f"see why the kubelet of {node} does not unmount it, which still has it in use"
        return typed(words, kubectl("describe", NODE, node))
    driver = attachment.at("spec", "attacher").text or "?"
    error = attachment.at("status", "detachError", "message").text or ""
    age = clock.since(attachment.metadata["deletionTimestamp"].text, cluster)
    absent = volume is not None and _is_absent(volume, error) and not unlisted(cluster, POD)
    if not (absent and volume is not None and age is not None and age >= _LASTING):
        pod = node_pods.controller_of(driver, cluster)
        if pod is None:
            return typed("repair the driver", described)
        return typed(
            f"see what the controller of driver {driver} logs about it", node_pods.logs(pod)
        )
    return _without_finalizer(attachment, volume, node, driver, cluster)


def _is_absent(volume: Object, error: str) -> bool:
    """Return whether a driver says of this very volume that the storage does not find it.

    A URL does not name it: what answers 404 may be another server.
    """
    for name in filter(None, (volume.at("spec", "csi", "volumeHandle").text, volume.name)):
        error = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", _VOLUME, error)
    if _OF_MACHINE.search(_FRAME.sub("", error)):
        return False
    said = _FRAME.sub("", _URL.sub("", error))
    absent = _VOLUME_ABSENT.search(said) or (_VOLUME in said and _ABSENT.search(said))
    return bool(absent) and not _OTHER.search(said)


def _without_finalizer(
    attachment: Object, volume: Object, node: str, driver: str, cluster: Cluster
) -> str:
    """Return what ends the detach of a volume that the storage does not find on the node."""
    handle = volume.at("spec", "csi", "volumeHandle").text or volume.name
    linstor = driver == lost_quorums.DRIVER
    check = lost_quorums.client(cluster, "-r", handle) if linstor else ""
    storage = "LINSTOR" if linstor else f"the storage of driver {driver}"
    words = (
        f"once {storage} shows no user of it on {node}, remove, as a decision, the finalizers of "
        f"VolumeAttachment {attachment.name}; the driver does not find it there and repeats the "
        f"detach without end{', so update linstor-csi' if linstor else ''}"
    )
    return typed(words, check or about("edit", attachment, VOLUME_ATTACHMENT))
