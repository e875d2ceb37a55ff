"""VolumeAttachments for which Karpenter keeps a node that it has drained.

It ends an instance once no VolumeAttachment names its Node, besides those of volumes that pods on
the node use which it does not evict. An attachment only has the name of its node. Where an address
is given to a later instance, whose Node then has the same name, one that was left by the former
instance holds the later one: its claim is gone, so nothing detaches it. external-attacher writes
the id of the instance as an annotation, and asks the driver to detach from the one in CSINode. A
Node that the same instance registers again keeps that id; after an update a driver may give
another id to the same instance, but its Node is then older than the attachment.

Sources: kubernetes-sigs/karpenter:pkg/controllers/node/termination/controller.go#finalize
#awaitVolumeDetachment #filterVolumeAttachments #awaitInstanceTermination, issues
kubernetes-sigs/karpenter#2169, aws/karpenter-provider-aws#9238;
kubernetes-csi/external-attacher:pkg/controller/csi_handler.go#getNodeID.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from virt_admit.model.commands import about, argument, shell, typed
from virt_admit.model.evidence import status_errors
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, entry, unlisted
from virt_admit.model.kubernetes.kinds import (
    CSI_NODE,
    KARPENTER_NODE_CLAIM,
    NODE,
    POD,
    PV,
    VOLUME_ATTACHMENT,
)
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.lookups import fields, find, grouped, is_absent
from virt_admit.model.messages import MOST_NAMES, count, cut, names
from virt_admit.model.problems import Problem
from virt_admit.model.scheduler.pods import claim_users

_NODE_ID: Final = "csi.alpha.kubernetes.io/node-id"
_SINCE: Final = "status.conditions.lastTransitionTime"
READS: Final[Reads] = union(
    clock.READS,
    {
        KARPENTER_NODE_CLAIM: (
            *(*CONDITIONS, _SINCE, "status.conditions.reason"),
            *("status.nodeName", "status.providerID"),
        ),
        NODE: ("metadata.creationTimestamp", "spec.providerID"),
        CSI_NODE: ("spec.drivers.name", "spec.drivers.nodeID"),
        VOLUME_ATTACHMENT: (
            *("metadata.creationTimestamp", f"metadata.annotations.{_NODE_ID}"),
            *("spec.attacher", "spec.nodeName", "spec.source.persistentVolumeName"),
            "status.detachError.message",
        ),
        PV: (
            *("spec.claimRef.name", "spec.claimRef.namespace", "spec.csi.volumeHandle"),
            "status.phase",
        ),
        POD: ("spec.nodeName", "spec.volumes.persistentVolumeClaim.claimName", "status.phase"),
    },
)
_PATIENCE: Final = timedelta(minutes=15)
"""Volumes are detached by force six minutes after their pods are gone."""
_ENDS: Final = timedelta(hours=1)
"""A server of bare metal takes many minutes to end."""
_UNUSED: Final = ("Available", "Failed", "Released")
"""Phases of a volume that no claim has, so that no pod may use it."""


def of_node(node: Object, cluster: Cluster, *, is_empty: bool) -> Problem | None:
    """Return what Karpenter waits for since it drained a node; None: it drains it, or that is not
    known. The reason is a whole sentence, or several, without the full stop; the remedy is empty
    where it has not waited for long.

    ``is_empty``: no pod is there that it drains. Once it has drained a node, the NodeClaim goes on
    saying so, also where it drains pods that came later (controller.go#awaitDrain).
    """
    claim = entry(cluster, _claims, node.name)
    if claim is None or not claim.is_true("Drained"):
        return None
    ids = {each.text for each in (node.at("spec", "providerID"), claim.at("status", "providerID"))}
    if len(ids - {None, ""}) > 1:
        return None
    ending = claim.condition("InstanceTerminating")
    if ending["status"].text == "True":
        return _not_ended(claim, ending["lastTransitionTime"].text, cluster)
    waits = claim.condition("VolumesDetached")
    if waits["reason"].text != "AwaitingVolumeDetachment" or waits["status"].text != "Unknown":
        return None
    since = waits["lastTransitionTime"].text
    state = f"NodeClaim {claim.name}: VolumesDetached is Unknown{clock.lasting(since, cluster)}"
    if not clock.has_lasted(since, _PATIENCE, cluster):
        detached = "Karpenter has drained it, and its volumes are being detached"
        return Problem(f"{detached} ({state})", "")
    every = entry(cluster, _attachments, node.name) or ()
    held = [each for each in every if not _is_used(each, node, cluster)]
    if held:
        return _held(node, held, state, cluster)
    if not unlisted(cluster, VOLUME_ATTACHMENT):
        if not is_empty:
            return None
        freed = "Karpenter has drained it, and no VolumeAttachment keeps it any more"
        return Problem(f"{freed} ({state})", "")  # it goes on at this moment
    see = shell("kubectl", "get", "volumeattachments.storage.k8s.io", "-o", "wide")
    return Problem(
        f"Karpenter has drained it, and waits until no VolumeAttachment is bound to it ({state})",
        typed(f"see which name {node.name}, and why they are not detached", see),
    )


def _not_ended(claim: Object, since: str | None, cluster: Cluster) -> Problem:
    instance = claim.at("status", "providerID").text or "of the node"
    asked = f"InstanceTerminating is True{clock.lasting(since, cluster)}"
    words = (
        f"Karpenter has told the cloud to end instance {cut(instance, 120)}, which still exists "
        f"(NodeClaim {claim.name}: {asked})"
    )
    if not clock.has_lasted(since, _ENDS, cluster):
        return Problem(words, "")
    see = "see in the cloud, and in the log of Karpenter, what keeps that instance"
    return Problem(words, typed(see, about("describe", claim, KARPENTER_NODE_CLAIM)))


def _claims(cluster: Cluster) -> Mapping[str, Object]:
    """Return the NodeClaims in deletion by their nodes, those of which exactly one names it."""
    every = (each for each in cluster.known(KARPENTER_NODE_CLAIM) if each.deleted)
    found = grouped(every, lambda each: each.at("status", "nodeName").text or "")
    return {name: some[0] for name, some in found.items() if len(some) == 1}


def _attachments(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    """Return the attachments of PersistentVolumes by their nodes, in the order of their names.
    Karpenter does not wait for others."""
    every = sorted(cluster.known(VOLUME_ATTACHMENT), key=lambda each: each.name)
    return grouped(filter(_volume, every), lambda each: each.at("spec", "nodeName").text or "")


def _volume(attachment: Object) -> str:
    return attachment.at("spec", "source", "persistentVolumeName").text or ""


def _claim(attachment: Object, cluster: Cluster) -> tuple[str, str]:
    """Return the namespace and the name of the claim of a volume; empty: none is known."""
    volume = find(cluster, PV, "", _volume(attachment))
    claim = volume.at("spec", "claimRef") if volume is not None else Field(None)
    return claim["namespace"].text or "", claim["name"].text or ""


def _is_used(attachment: Object, node: Object, cluster: Cluster) -> bool:
    """Return whether a pod that stays on the node uses the volume."""
    users = claim_users(*_claim(attachment, cluster), cluster)
    return any(pod.at("spec", "nodeName").text == node.name for pod in users)


def _held(node: Object, held: Sequence[Object], state: str, cluster: Cluster) -> Problem:
    former = {each.name: two for each in held if (two := _former(each, node, cluster))}
    left = [each for each in held if each.name in former]
    others = [each for each in held if each.name not in former]
    waits = (
        f"Karpenter has drained it and is awaiting the deletion of "
        f"{count(len(held), 'VolumeAttachment')} bound to it"
    )
    if not left:
        waits += f" ({state})"
    else:
        ids = [names(dict.fromkeys(each)) for each in zip(*former.values(), strict=True)]
        some = f"{len(left)} " if others else ""
        waits += f", {some}of an earlier instance ({', not '.join(ids)}; {state})"
        waits += f". {_of_former(left, node, cluster)}"
    if not others:
        return Problem(waits, _delete(left, cluster))
    shown = names([_described(each, cluster) for each in others], 400)
    return Problem(
        f"{waits}{'. It also awaits' if left else ':'} {shown}",
        typed(
            f"see why VolumeAttachment {others[0].name} stays",
            about("describe", others[0], VOLUME_ATTACHMENT),
        ),
    )


def _described(attachment: Object, cluster: Cluster) -> str:
    """Return ``csi-1 (volume pvc-a of claim shop/db, in deletion for 3 h: timeout)``."""
    space, name = _claim(attachment, cluster)
    of = f" of claim {space}/{name}" if name else ""
    phase = _phase(attachment, cluster)
    of += f", {phase}" if phase in _UNUSED else ""
    deleted = attachment.metadata["deletionTimestamp"].text
    since = f", in deletion{clock.lasting(deleted, cluster)}" if deleted else ""
    error = attachment.at("status", "detachError", "message").text or ""
    error = cut(status_errors.plain(error), 160)
    return f"{attachment.name} (volume {_volume(attachment)}{of}{since}{error and f': {error}'})"


def _former(attachment: Object, node: Object, cluster: Cluster) -> tuple[str, str] | None:
    """Return the ids of the instance to which a volume was attached, and of that of the node, if
    these are two and nothing may use the volume; None: that is not certain, or it is being
    deleted.
    """
    if attachment.deleted:
        return None
    driver = attachment.at("spec", "attacher").text or ""
    then, now = attachment.annotations.get(_NODE_ID), _node_id(node, driver, cluster)
    made, born = clock.instant(attachment.created), clock.instant(node.created)
    if not then or not now or then == now or made is None or born is None or made >= born:
        return None
    return (then, now) if _phase(attachment, cluster) in (*_UNUSED, _GONE) else None


_GONE: Final = "does not exist"


def _phase(attachment: Object, cluster: Cluster) -> str:
    volume = find(cluster, PV, "", _volume(attachment))
    if volume is not None:
        return volume.at("status", "phase").text or ""
    return _GONE if is_absent(cluster, PV, "", _volume(attachment)) else ""


def _node_id(node: Object, driver: str, cluster: Cluster) -> str:
    """Return the id that a driver has for the instance of a node; empty: it is not known."""
    drivers = fields(cluster, CSI_NODE, "", node.name).at("spec", "drivers")
    return drivers.named(driver)["nodeID"].text or ""


def _of_former(left: Sequence[Object], node: Object, cluster: Cluster) -> str:
    """Return what shows that attachments are of a former instance, and that they stay."""
    volumes = [f"{_volume(each)} ({_phase(each, cluster)})" for each in left]
    one = len(left) == 1
    made = min(each.created for each in left)
    them = names([each.name for each in left], 360)
    return (
        f"{'It is' if one else 'They are'} of {made[:10]} with another {_NODE_ID}, and this Node "
        f"is of {node.created[:10]}. No claim has {'its volume' if one else 'their volumes'} any "
        f"more: {names(volumes, 240)}, so nothing detaches {them}"
    )


def _delete(left: Sequence[Object], cluster: Cluster) -> str:
    """Return how attachments of a former instance end, once their volumes are attached nowhere.

    external-attacher detaches nothing without the PersistentVolume, which names the volume
    (csi_handler.go#csiDetach), so that the deletion of such an attachment does not end.
    """
    if gone := [each for each in left if _phase(each, cluster) == _GONE]:
        lost = names(dict.fromkeys(map(_volume, gone)), 160)
        words = (
            f"as a decision, once the storage shows the volume of {lost} attached to no machine, "
            f"delete VolumeAttachment {names([each.name for each in gone], 200)} and take its "
            "finalizer off, as external-attacher detaches nothing without the PersistentVolume"
        )
        return typed(words, about("describe", gone[0], VOLUME_ATTACHMENT))
    some = left[:MOST_NAMES]
    handles = []
    for each in some:
        volume = find(cluster, PV, "", _volume(each))
        handle = volume.at("spec", "csi", "volumeHandle").text if volume is not None else None
        handles.append(handle or _volume(each))
    drivers = names(dict.fromkeys(each.at("spec", "attacher").text or "?" for each in some))
    those = "that VolumeAttachment" if len(some) == 1 else "those VolumeAttachments"
    words = (
        f"as a decision, once the storage of {drivers} shows {names(handles, 200)} attached to no "
        f"machine, delete {those}, but remove no finalizer"
    )
    then = "Karpenter then ends the node by itself"
    delete = shell(
        *("kubectl", "delete", "volumeattachments.storage.k8s.io", "--wait=false"),
        *(argument(each.name) for each in some),
    )
    more = f"then the other {len(left) - len(some)}; " if len(left) > len(some) else ""
    return typed(words, delete, f"{more}{then}")
