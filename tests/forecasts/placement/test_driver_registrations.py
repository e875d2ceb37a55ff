"""A driver whose controller does not know a node: the object that is missing is named,
and the pod that makes it.
"""

import pytest

from tests.advice import risky
from tests.builders import NAMESPACE, complete, manifest, node
from tests.forecasts.drain.test_target_pods import warning
from virt_admit.forecasts.placement import volume_attachments
from virt_admit.forecasts.placement.components import driver_registrations
from virt_admit.forecasts.placement.starts import pod_starts
from virt_admit.model.kubernetes.cluster import Snapshot

DRIVER = "csi.acme.example.com"
ERROR = "rpc error: code = NotFound desc = node w3 was not found"


def csi_node(name):
    return manifest("storage.k8s.io/v1", "CSINode", name, spec={"drivers": [{"name": DRIVER}]})


def own(name, group="acme.io"):
    return manifest(f"{group}/v1", "AcmeNode", name, "acme")


def plugin(name="acme-csi-node-x", on="w3", ready="True"):
    owner = {"kind": "DaemonSet", "name": "acme-csi-node", "controller": True}
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}
    metadata = {"ownerReferences": [owner]}
    return manifest(
        "v1", "Pod", name, "acme", metadata=metadata, spec={"nodeName": on}, status=status
    )


NODES = [item for name in ("w1", "w2", "w3") for item in (node(name), csi_node(name))]


def unknown(*objects, error=ERROR, cluster=complete):
    return driver_registrations.unknown(DRIVER, "w3", error, cluster(*NODES, *objects))


def test_the_object_that_the_other_nodes_have_is_named():
    found = unknown(own("w1"), own("w2"), plugin())

    assert found.reason == (
        f"driver {DRIVER} does not know w3 (node w3 was not found), so no volume is attached "
        "there: no AcmeNode w3 exists, as "
        "one does for w1, w2, although pod acme-csi-node-x of it runs there"
    )
    assert found.remedy.startswith(
        "delete pod acme-csi-node-x, whose successor registers w3 when it starts; if it does not"
    )
    assert found.remedy.endswith(": kubectl delete pod acme-csi-node-x -n acme")
    assert not risky(found.remedy)


def test_a_pod_that_is_broken_is_repaired_first():
    found = unknown(own("w1"), own("w2"), plugin(ready="False"))

    assert "pod acme-csi-node-x is not ready" in found.reason
    assert "delete pod" not in found.remedy


def test_without_such_objects_only_the_error_says_so():
    for objects in (
        (plugin(),),
        (own("w1"), plugin()),
        (own("w1", "other.io"), own("w2", "other.io"), plugin()),
    ):
        found = unknown(*objects)
        assert "exists, as one does" not in found.reason
        assert found.remedy.startswith(
            "see whether pod acme-csi-node-x registered w3 with the controller of the driver"
        )


def test_objects_that_may_exist_unread_are_not_missing():
    assert (
        "exists, as"
        not in unknown(own("w1"), own("w2"), plugin(), cluster=lambda *some: Snapshot(some)).reason
    )


def test_another_error_is_no_fault_of_the_node():
    assert unknown(own("w1"), own("w2"), own("w3"), plugin(), error="w3: no space left") is None
    assert unknown(own("w1"), own("w2"), plugin(), error="no space left") is None


def attachment(number, error=ERROR):
    spec = {"attacher": DRIVER, "nodeName": "w3", "source": {"persistentVolumeName": f"pv{number}"}}
    status = {"attached": not error, **({"attachError": {"message": error}} if error else {})}
    own_claim = {"volumeName": f"pv{number}"}
    return [
        manifest(
            "storage.k8s.io/v1", "VolumeAttachment", f"csi-{number}", spec=spec, status=status
        ),
        manifest("v1", "PersistentVolumeClaim", f"disk{number}", NAMESPACE, spec=own_claim),
    ]


@pytest.mark.parametrize(("other", "like"), [(ERROR, f", like {NAMESPACE}/disk2,"), ("", "")])
def test_a_fault_of_an_attachment_names_the_claims_that_it_hits(other, like):
    objects = [*NODES, own("w1"), own("w2"), plugin(), *attachment(1), *attachment(2, other)]

    fault = volume_attachments.fault("w3", NAMESPACE, ["disk1"], complete(*objects), overdue=False)

    assert fault.of_node
    begin = f"claim disk1{like} cannot be attached to w3: driver {DRIVER} does not know w3"
    assert fault.words.startswith(begin)


def test_an_event_alone_tells_it_too():
    pod = manifest(
        "v1", "Pod", "launcher", NAMESPACE, spec={"nodeName": "w3"}, status={"phase": "Pending"}
    )
    said = warning(
        pod, "FailedAttachVolume", f'AttachVolume.Attach failed for volume "pv" : {ERROR}'
    )
    volume = manifest("v1", "PersistentVolume", "pv", spec={"csi": {"driver": DRIVER}})
    cluster = complete(*NODES, own("w1"), own("w2"), plugin(), pod, volume, said)

    fault = pod_starts.fault(pod, cluster)
    assert fault.words.startswith(
        f"volume pv cannot be attached to w3: driver {DRIVER} does not know"
    )
    assert fault.remedy.startswith("delete pod acme-csi-node-x")
    assert fault.of_node
