"""Volumes that cannot be attached to a node, or detached from one, as VolumeAttachments say.

They are a hint and never raise: a cluster whose driver attaches nothing has none. Sources:
kubernetes/kubernetes:pkg/apis/storage/types.go#VolumeAttachmentStatus;
kubernetes-csi/external-attacher:pkg/controller/csi_handler.go (writes the errors, and removes its
finalizer when a volume is detached).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from virt_admit.forecasts.placement.components import (
    busy_volumes,
    driver_registrations,
    node_drivers,
)
from virt_admit.forecasts.placement.components.drivers import (
    class_parameters,
    drbd_protocols,
    driver_faults,
    stuck_detaches,
)
from virt_admit.model import pod_owners
from virt_admit.model.commands import argument, kubectl, shell
from virt_admit.model.kubernetes import clock, node_health
from virt_admit.model.kubernetes.cluster import Cluster, entry, unlisted
from virt_admit.model.kubernetes.kinds import NODE, POD, PV, PVC, VOLUME_ATTACHMENT
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.launcher import claim_holders
from virt_admit.model.lookups import find, grouped, is_absent
from virt_admit.model.messages import names
from virt_admit.model.remediation import fence_taints
from virt_admit.model.remediation.by_hand import hand_fences
from virt_admit.model.scheduler.pods import claim_users

READS: Final[Reads] = union(
    node_health.READS,
    busy_volumes.READS,
    pod_owners.SCALED_READS,
    driver_faults.READS,
    stuck_detaches.READS,
    hand_fences.READS,
    claim_holders.READS,
    class_parameters.READS,
    drbd_protocols.READS,
    {
        VOLUME_ATTACHMENT: (
            "spec.attacher",
            "spec.nodeName",
            "spec.source.persistentVolumeName",
            "status.attached",
            "status.attachError.message",
            "status.detachError.message",
        ),
        PVC: ("spec.accessModes", "spec.volumeName"),
        NODE: ("metadata.name", "spec.taints"),
        POD: ("spec.nodeName", "spec.volumes.persistentVolumeClaim.claimName", "status.phase"),
    },
)
"""The fields that say it."""
_ONE_NODE: Final = frozenset(("ReadWriteOnce", "ReadWriteOncePod"))


def stuck(node: str, cluster: Cluster) -> Sequence[Object]:
    """Return the attachments of a node that are being deleted and fail to,
    in the order of their volumes.
    """
    return entry(cluster, _stuck, node) or ()


def attached(node: str, cluster: Cluster) -> Sequence[str]:
    """Return the volumes that are attached to a node, or are still to be detached from it."""
    return entry(cluster, _attached, node) or ()


def of_volume(name: str, cluster: Cluster) -> Mapping[str, str]:
    """Return the attachments of a PersistentVolume by the node to which it is attached."""
    known = filter(_is_attached, entry(cluster, _by_volume, name) or ())
    return {each.at("spec", "nodeName").text or "": each.name for each in known}


def volume(attachment: Object) -> str:
    """Return the name of the PersistentVolume; empty: the attachment has a volume of its own."""
    return attachment.at("spec", "source", "persistentVolumeName").text or ""


def detach_error(attachment: Object) -> str:
    """Return why the volume cannot be detached; empty: nothing says so, or nothing detaches it."""
    return _words(attachment, "detachError") if attachment.deleted else ""


def detach_remedy(attachment: Object, cluster: Cluster) -> str:
    """Return what ends that a volume cannot be detached from its node, with a command."""
    node = attachment.at("spec", "nodeName").text
    claims = entry(cluster, _claims, volume(attachment)) or ()
    pods = [
        pod
        for claim in claims
        for pod in users(claim.namespace, claim.name, cluster)
        if pod.at("spec", "nodeName").text == node
    ]
    return stuck_detaches.remedy(attachment, pods, cluster)


class AttachmentFault(NamedTuple):
    """Why a claim cannot be attached to the node of a pod."""

    what: str
    """A whole sentence. It is never shortened: half of it could say the contrary."""
    remedy: str = ""
    """Empty: what the words name has to be repaired."""
    error: str = ""
    """What the driver says, with how it is introduced."""
    awaits: str = ""
    """The PersistentVolume whose driver has not attached it to the node, and says so; empty:
    another cause is known.
    """
    of_node: bool = False
    """Whether it is certainly a fault of the node, so that another one may attach the claim."""
    lasts: bool = False
    """Whether the claim is attached on no node, so that each next pod fails alike."""

    @property
    def words(self) -> str:
        return f"{self.what}: {self.error}" if self.error else self.what


def fault(
    node: str,
    namespace: str,
    claims: Sequence[str],
    cluster: Cluster,
    *,
    overdue: bool,
    waiting: Object | None = None,
) -> AttachmentFault | None:
    """Return why the claims of a pod cannot be attached to its node; None: nothing says so.

    ``overdue``: the pod waits longer than a volume needs to leave another node.
    ``waiting``: the pod, where it is known.
    """
    for claim in claims:
        found = find(cluster, PVC, namespace, claim)
        name = found.at("spec", "volumeName").text if found is not None else None
        if found is None or not name:
            continue
        known = entry(cluster, _by_volume, name) or ()
        arrived = any(
            _is_attached(each) for each in known if each.at("spec", "nodeName").text == node
        )
        moves = is_of_one_node(found) and not arrived
        for attachment in known:
            here = attachment.at("spec", "nodeName").text == node
            if (here or moves) and (kept := _kept(attachment, claim, cluster)):
                return kept
            if here and (error := _words(attachment, "attachError")):
                return _not_attached(attachment, claim, error, cluster)
            if moves and not here and overdue and _is_attached(attachment):
                return _used(attachment, namespace, claim, cluster, waiting)
    return None


def _kept(attachment: Object, claim: str, cluster: Cluster) -> AttachmentFault | None:
    """Return that a volume does not leave a node: its driver says so, or the node is gone."""
    node, error = attachment.at("spec", "nodeName").text or "?", detach_error(attachment)
    gone = is_absent(cluster, NODE, "", node)
    if not error and not (gone and _is_attached(attachment)):
        return None
    if not gone:
        name = volume(attachment)
        which = "the volume" if name and name in error else f"volume {name}"
        what = f"{which} of claim {claim} cannot be detached from {node}"
        what += clock.lasting(attachment.metadata["deletionTimestamp"].text, cluster)
        return AttachmentFault(what, detach_remedy(attachment, cluster), error)
    command = kubectl("edit", VOLUME_ATTACHMENT, attachment.name)
    driver = attachment.at("spec", "attacher").text or "?"
    lasts = clock.lasting(attachment.metadata["deletionTimestamp"].text, cluster)
    return AttachmentFault(
        f"claim {claim} is still attached to {node}, which does not exist",
        f"check the controller of driver {driver}, which has to detach it. As a decision, once the "
        f"machine of {node} is confirmed to be gone, remove the finalizers of its "
        f"VolumeAttachment: {command}",
        f"its VolumeAttachment is in deletion{lasts}, but the detach fails: {error}"
        if error
        else "",
    )


def _not_attached(attachment: Object, claim: str, error: str, cluster: Cluster) -> AttachmentFault:
    """Return why a volume cannot be attached: the pod that registers its driver is named,
    if the driver is missing.
    """
    named, name = node_drivers.named_by(error), volume(attachment)
    on = attachment.at("spec", "nodeName").text or ""
    attacher = attachment.at("spec", "attacher").text or ""
    if named is None and (unknown := driver_registrations.unknown(attacher, on, error, cluster)):
        others = names(_fail_alike(attachment, cluster))
        what = (
            f"claim {claim}{f', like {others},' if others else ''} cannot be attached to {on}: "
            f"{unknown.reason}"
        )
        return AttachmentFault(what, unknown.remedy, of_node=True)
    if named is None and (failing := driver_faults.of_volume(name, error, cluster)) is not None:
        what = f"claim {claim} cannot be attached: {failing.reason}"
        return AttachmentFault(what, failing.remedy, lasts=True)
    if named is None:
        return _by_class(attachment, claim, error, cluster)
    node, driver = named
    because = node_drivers.because(driver, node, cluster)
    what = (
        f"claim {claim} cannot be attached: CSINode {node} does not contain driver "
        f"{driver}{because}"
    )
    return AttachmentFault(what, node_drivers.remedy(driver, node, cluster))


def _by_class(attachment: Object, claim: str, error: str, cluster: Cluster) -> AttachmentFault:
    """Return the error with which a volume cannot be attached, with the parameter of its class that
    explains it.
    """
    name = volume(attachment)
    said = driver_faults.without_handle(name, error, cluster)
    refused = drbd_protocols.of(name, error, cluster)
    if refused is not None:
        lasts = any(_is_attached(each) for each in entry(cluster, _by_volume, name) or ())
        what = f"claim {claim} cannot be attached {refused.words}"
        return AttachmentFault(what, refused.remedy, said, name, lasts=lasts)
    what = f"volume {name} of claim {claim} cannot be attached"
    parameter = class_parameters.named_by(name, said, cluster)
    explained = f" (its {parameter.words})" if parameter is not None else ""
    return AttachmentFault(f"{what}{explained}", error=said, awaits=name)


def _fail_alike(attachment: Object, cluster: Cluster) -> Iterator[str]:
    """Yield the other claims that the same driver does not attach to the same node."""
    for other in entry(cluster, _of_node, attachment.at("spec", "nodeName").text or "") or ():
        same = other.at("spec", "attacher").text == attachment.at("spec", "attacher").text
        if same and other.name != attachment.name and _words(other, "attachError"):
            yield from (claim.full_name for claim in entry(cluster, _claims, volume(other)) or ())


def _used(
    attachment: Object, namespace: str, claim: str, cluster: Cluster, waiting: Object | None
) -> AttachmentFault:
    """Return that another node still has a volume that one node alone may have."""
    node = attachment.at("spec", "nodeName").text or "?"
    if lost := _lost(attachment, claim, cluster):
        return lost
    pods = [
        pod for pod in users(namespace, claim, cluster) if pod.at("spec", "nodeName").text == node
    ]
    what = f"volume {volume(attachment)} of claim {claim} is still attached to {node}"
    other = claim_holders.of_pods(pods, waiting, cluster) if waiting is not None else None
    if other is not None:
        return AttachmentFault(other.words, other.remedy, lasts=not other.is_ending)
    if pods:
        command = kubectl("describe", POD, pods[0].name, namespace)
        if pods[0].deleted:
            lasts = clock.lasting(pods[0].metadata["deletionTimestamp"].text, cluster)
            return AttachmentFault(
                f"{what}, where pod {pods[0].full_name} uses it, which is in deletion{lasts}",
                f"see why that pod does not end: {command}",
            )
        used = f"{what}, where pod {pods[0].full_name} uses it"
        if len(pods) == 1 and (owner := pod_owners.scaled(pods[0], cluster)) is not None:
            return AttachmentFault(f"{used}, which {owner.title} makes", owner.remedy)
        return AttachmentFault(used, f"end the use by that pod: {command}")
    if kept := _in_use(attachment, what, cluster):
        return kept
    return AttachmentFault(
        what,
        f"see why it is not detached: {kubectl('describe', VOLUME_ATTACHMENT, attachment.name)}",
    )


def _in_use(attachment: Object, what: str, cluster: Cluster) -> AttachmentFault | None:
    """Return that the kubelet of a healthy node has a volume in use that no pod there uses, so that
    it is never detached; None: the kubelet does not say so, or some pods were not read.

    Only from an unhealthy node, a volume in use is detached after a time
    (pkg/controller/volume/attachdetach/reconciler/reconciler.go#reconcile).
    """
    node = attachment.at("spec", "nodeName").text or ""
    own, found = find(cluster, PV, "", volume(attachment)), find(cluster, NODE, "", node)
    if own is None or found is None or unlisted(cluster, POD) or attachment.deleted:
        return None
    if not found.is_true("Ready") or not busy_volumes.is_in_use(own, found):
        return None
    drain = shell("virt-admit", "drain", argument(node))
    return AttachmentFault(
        f"{what}, whose kubelet has it in use (status.volumesInUse) although no pod there uses it: "
        "it is not detached from a Ready node before it is unmounted",
        f"see in the log of the kubelet of {node} why it is not unmounted, or drain that node and "
        f"reboot it: {drain}",
    )


def _lost(attachment: Object, claim: str, cluster: Cluster) -> AttachmentFault | None:
    """Return that the node that still has a volume is lost; None: it reports, or is told to be
    without power already.

    A volume is detached by force six minutes after its pods are gone, unless
    kube-controller-manager must not do that (``--disable-force-detach-on-timeout``). The taint
    needs neither the time nor the end of the pods
    (pkg/controller/volume/attachdetach/reconciler/reconciler.go#reconcile).
    """
    node = attachment.at("spec", "nodeName").text or "?"
    silent, found = node_health.silent_for(node, cluster), find(cluster, NODE, "", node)
    if not silent or found is None or fence_taints.is_fenced(found):
        return None
    way = (
        f"as a decision, once {node} is confirmed to be off, taint it out-of-service or delete its "
        f"Node{hand_fences.unsure(cluster)}: {fence_taints.fence_command(node)}"
    )
    if not hand_fences.taint_works(cluster):
        way = hand_fences.way(node, cluster)
    return AttachmentFault(
        f"claim {claim} is still attached to {node}, which {silent} (volume {volume(attachment)})",
        way,
    )


class AwaitedVolume(NamedTuple):
    """A volume of a lost node for which a pod on another node waits."""

    pod: Object
    fault: AttachmentFault


def awaited(node: str, cluster: Cluster) -> Iterator[AwaitedVolume]:
    """Yield the volumes that are attached to a lost node although a pod of another node needs
    them.
    """
    for attachment in filter(_is_attached, entry(cluster, _of_node, node) or ()):
        for claim in filter(is_of_one_node, entry(cluster, _claims, volume(attachment)) or ()):
            fault = _lost(attachment, claim.name, cluster)
            for pod in users(claim.namespace, claim.name, cluster) if fault is not None else ():
                elsewhere = pod.at("spec", "nodeName").text not in (None, "", node)
                if fault is not None and elsewhere and pod.at("status", "phase").text == "Pending":
                    yield AwaitedVolume(pod, fault)


class LeftInUse(NamedTuple):
    """A volume that a lost node had in use at last although the pod of it is gone."""

    claim: Object
    waiting: Object
    """The pod of another node that needs it and does not start."""

    def words(self, node: str) -> str:
        """Why the guest may have gone on: a pod that was deleted by force does not end."""
        on = self.waiting.at("spec", "nodeName").text
        return (
            f"the volume of claim {self.claim.full_name} was in use on {node} when it reported "
            f"last, and no pod of it is there any more: {busy_volumes.MAY_RUN}. Pod "
            f"{self.waiting.full_name} needs it on {on}"
        )


def left_in_use(node: str, cluster: Cluster) -> Iterator[LeftInUse]:
    """Yield the volumes of one node that a lost node had in use at last,
    without a pod that uses them there.
    """
    for name in busy_volumes.used_by_lost(node, cluster):
        for claim in filter(is_of_one_node, entry(cluster, _claims, name) or ()):
            pods = users(claim.namespace, claim.name, cluster)
            places = {pod.at("spec", "nodeName").text for pod in pods}
            waiting = [pod for pod in pods if pod.at("status", "phase").text == "Pending"]
            if waiting and not places & {None, "", node}:
                yield LeftInUse(claim, waiting[0])


def _claims(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    return grouped(cluster.known(PVC), lambda claim: claim.at("spec", "volumeName").text or "")


def users(namespace: str, claim: str, cluster: Cluster) -> Sequence[Object]:
    """Return the known pods that use a claim and have not ended, by name."""
    return claim_users(namespace, claim, cluster)


def _is_attached(attachment: Object) -> bool:
    return attachment.at("status", "attached").boolean is True


def is_of_one_node(claim: Object) -> bool:
    """Return whether the volume of a claim has to leave its node before another one can have it."""
    modes = {mode.text for mode in claim.at("spec", "accessModes").items()}
    return bool(modes) and modes <= _ONE_NODE


def _words(attachment: Object, field: str) -> str:
    return attachment.at("status", field, "message").words


def _stuck(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    return grouped(filter(detach_error, _known(cluster)), _node)


def _attached(cluster: Cluster) -> Mapping[str, Sequence[str]]:
    found = cluster.cached(_of_node)
    return {
        node: tuple(volume(each) or each.name for each in attachments)
        for node, attachments in found.items()
    }


def _of_node(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    return grouped(_known(cluster), _node)


def _by_volume(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    return grouped(_known(cluster), volume)


def _known(cluster: Cluster) -> list[Object]:
    return sorted(cluster.known(VOLUME_ATTACHMENT), key=lambda each: (volume(each), each.name))


def _node(attachment: Object) -> str:
    return attachment.at("spec", "nodeName").text or ""
