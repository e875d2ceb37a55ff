"""Nodes of Karpenter that wait for their volumes to be detached: which attachments these are, and
whether they are of an earlier instance."""

from __future__ import annotations

from typing import Any

import pytest

from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import NODE, POD, VMI, VOLUME_ATTACHMENT
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.node_updates.operators import node_removals
from virt_admit.model.node_updates.operators.cordons import Cordon

NOW, DRAINED, BORN = "2026-06-01T12:00:00Z", "2026-06-01T09:01:00Z", "2026-05-01T00:00:00Z"
NODE_A: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "a",
        "creationTimestamp": BORN,
        "deletionTimestamp": "2026-06-01T09:00:00Z",
        "finalizers": ["karpenter.sh/termination"],
        "labels": {"karpenter.sh/nodepool": "metal"},
    },
    "spec": {"providerID": "aws:///z/i-new"},
    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
}
CSI = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "CSINode",
    "metadata": {"name": "a"},
    "spec": {"drivers": [{"name": "ebs", "nodeID": "i-new"}]},
}
WAITS = {"type": "VolumesDetached", "status": "Unknown", "reason": "AwaitingVolumeDetachment"}


def claim(*conditions: dict[str, str], since: str = DRAINED, **status: str) -> dict[str, Any]:
    """Return the NodeClaim of the node, which is drained."""
    every = ({"type": "Drained", "status": "True"}, *conditions)
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": "metal-1", "deletionTimestamp": "2026-06-01T09:00:00Z"},
        "status": {
            "nodeName": "a",
            "providerID": "aws:///z/i-new",
            "conditions": [{**each, "lastTransitionTime": since} for each in every],
            **status,
        },
    }


def attachment(
    name: str = "csi-1", of: str = "i-old", made: str = "2025-07-14T00:00:00Z", volume: str = "pv-1"
) -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {
            "name": name,
            "creationTimestamp": made,
            "annotations": {"csi.alpha.kubernetes.io/node-id": of},
        },
        "spec": {"attacher": "ebs", "nodeName": "a", "source": {"persistentVolumeName": volume}},
    }


def volume(phase: str = "Released", name: str = "pv-1") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "claimRef": {"namespace": "logs", "name": "data"},
            "csi": {"driver": "ebs", "volumeHandle": "vol-1"},
        },
        "status": {"phase": phase},
    }


def pod(**spec: Any) -> dict[str, Any]:
    disk = {"name": "d", "persistentVolumeClaim": {"claimName": "data"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "agent", "namespace": "logs"},
        "spec": {"nodeName": "a", "volumes": [disk], **spec},
        "status": {"phase": "Running"},
    }


def pool(**spec: str) -> dict[str, Any]:
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "metal"},
        "spec": {"template": {"spec": spec}},
    }


def removal(*objects: dict[str, Any], complete: Any = ("*",)) -> Cordon:
    own = Object(NODE_A)
    cluster = Snapshot([own, *map(Object, objects)], complete=list(complete), time=NOW)
    found = node_removals.of_node(own, cluster)
    assert found is not None
    return found


DELETE = "kubectl delete volumeattachments.storage.k8s.io --wait=false csi-1"


def test_an_attachment_of_an_earlier_instance_is_deleted_as_a_decision() -> None:
    found = removal(claim(WAITS), CSI, attachment(), volume(), pool())
    assert "awaiting the deletion of 1 VolumeAttachment bound to it" in found.waits
    assert "an earlier instance (i-old, not i-new; NodeClaim metal-1:" in found.waits
    assert "VolumesDetached is Unknown for 2 h 59" in found.waits
    assert "It is of 2025-07-14" in found.waits
    assert "pv-1 (Released), so nothing detaches csi-1" in found.waits
    assert "NodePool metal sets no terminationGracePeriod" in found.waits
    assert found.ends is False
    assert "as a decision, once the storage of ebs shows vol-1 attached to no" in found.remedy
    assert DELETE in found.remedy


def test_a_volume_that_does_not_exist_any_more_has_no_claim() -> None:
    found = removal(claim(WAITS), CSI, attachment(), pool(terminationGracePeriod="12h"))
    assert "pv-1 (does not exist)" in found.waits
    assert "ends the instance by force in 9 h at the latest" in found.waits
    assert found.ends is None
    assert "take its finalizer off, as external-attacher detaches nothing" in found.remedy
    assert found.remedy.endswith("describe volumeattachments.storage.k8s.io csi-1")


YOUNG = attachment(made="2026-05-02T00:00:00Z")
NO_ID = {**attachment(), "metadata": {"name": "csi-1", "creationTimestamp": "2025-07-14T00:00:00Z"}}


@pytest.mark.parametrize(
    "objects",
    [
        pytest.param([CSI, attachment(of="i-new"), volume()], id="the instance of this Node"),
        pytest.param([CSI, YOUNG, volume()], id="the driver gave the instance another id"),
        pytest.param([CSI, NO_ID, volume()], id="the attachment has no id"),
        pytest.param([attachment(), volume()], id="the id of the instance is not known"),
        pytest.param([CSI, attachment(), volume("Bound")], id="a claim has the volume"),
    ],
)
def test_no_attachment_is_deleted_that_may_be_of_this_instance(objects: list[Any]) -> None:
    found = removal(claim(WAITS), *objects)
    assert "csi-1 (volume pv-1 of claim logs/data" in found.waits
    assert "delete" not in found.remedy
    assert found.remedy.endswith(": kubectl describe volumeattachments.storage.k8s.io csi-1")


def test_attachments_of_two_kinds_are_told_apart() -> None:
    own = attachment("csi-2", "i-new", "2026-05-20T00:00:00Z", "pv-2")
    own["metadata"]["deletionTimestamp"] = DRAINED
    own["status"] = {"detachError": {"message": "timeout"}}
    found = removal(claim(WAITS), CSI, attachment(), own, volume(), volume("Bound", "pv-2"))
    assert "of 2 VolumeAttachments bound to it, 1 of an earlier instance" in found.waits
    assert "It also awaits csi-2 (volume pv-2 of claim logs/data, in deletion for" in found.waits
    assert ": timeout)" in found.waits
    assert "delete" not in found.remedy


STAYS = pod()
STAYS["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "name": "agent", "controller": True}]
OTHER = {"providerID": "aws:///z/i-other"}


@pytest.mark.parametrize(
    "objects",
    [
        pytest.param([attachment(), volume()], id="no NodeClaim is known"),
        pytest.param([claim(), attachment(), volume()], id="it does not wait for volumes"),
        pytest.param([claim(WAITS, **OTHER), attachment(), volume()], id="of another instance"),
        pytest.param([claim(WAITS), attachment(), volume("Bound"), pod()], id="a pod came later"),
    ],
)
def test_other_waits_are_not_for_volumes(objects: list[Any]) -> None:
    found = removal(CSI, *objects)
    assert "VolumeAttachment" not in found.waits
    assert "Karpenter waits until its pods have left" in found.waits


@pytest.mark.parametrize(
    "objects",
    [
        pytest.param([claim(WAITS)], id="the last one is gone"),
        pytest.param([claim(WAITS), attachment(), volume("Bound"), STAYS], id="a pod that stays"),
        pytest.param(
            [claim(WAITS), {**attachment(), "spec": {"nodeName": "b"}}], id="another node"
        ),
    ],
)
def test_a_node_that_no_attachment_keeps_needs_nothing(objects: list[Any]) -> None:
    found = removal(CSI, *objects)
    assert "has drained it, and no VolumeAttachment keeps it any more" in found.waits
    assert (found.remedy, found.ends) == ("", None)


def test_volumes_that_are_being_detached_need_nothing() -> None:
    young = claim(WAITS, since="2026-06-01T11:50:00Z")
    found = removal(CSI, pool(), young, attachment(), volume())
    assert "its volumes are being detached (NodeClaim metal-1: Volumes" in found.waits
    assert (found.remedy, found.ends) == ("", None)


def test_attachments_that_cannot_be_listed_are_asked_for() -> None:
    found = removal(claim(WAITS), complete=[NODE.resource, POD.resource, VMI.resource])
    assert "waits until no VolumeAttachment is bound to it (NodeClaim metal-1" in found.waits
    assert found.remedy.endswith(f"kubectl get {VOLUME_ATTACHMENT.resource} -o wide")


@pytest.mark.parametrize(("since", "late"), [(DRAINED, True), ("2026-06-01T11:30:00Z", False)])
def test_an_instance_that_the_cloud_does_not_end(since: str, late: bool) -> None:
    found = removal(claim({"type": "InstanceTerminating", "status": "True"}, since=since))
    assert "has told the cloud to end instance aws:///z/i-new, which still exists" in found.waits
    assert ("kubectl describe nodeclaim metal-1" in found.remedy) is late
    assert bool(found.remedy) is late


def test_an_attachment_in_deletion_is_not_deleted_again() -> None:
    stays = attachment()
    stays["metadata"]["deletionTimestamp"] = "2026-06-01T10:00:00Z"
    found = removal(claim(WAITS), CSI, stays, volume(), pool())
    assert "in deletion for 2 h" in found.waits
    assert "kubectl delete" not in found.remedy


def test_no_login_or_query_of_an_address_is_quoted() -> None:
    stays = attachment(of="i-new")
    message = "dial https://root:hunter2@array/x?sig=abc failed"
    stays["status"] = {"detachError": {"message": message}}
    found = removal(claim(WAITS), CSI, stays, volume("Bound"), pool())
    assert "dial https://array/x failed" in found.waits
