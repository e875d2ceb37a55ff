"""Volumes of LINSTOR that a second node does not get, by the protocol of their class."""

import pytest

from tests.builders import manifest
from virt_admit.forecasts.placement import volume_attachments
from virt_admit.forecasts.placement.components.drivers import class_parameters, drbd_protocols
from virt_admit.model.kubernetes.cluster import Snapshot

LINSTOR = "linstor.csi.linbit.com"
KEY = f"property.{LINSTOR}/DrbdOptions/Net/protocol"
REFUSED = (
    "rpc error: code = Internal desc = ControllerPublishVolume failed for pv-db: failed to set "
    "property DrbdOptions/Net/allow-two-primaries: Message: 'Resource [DRBD] adjust failed.'; "
    "Details: '(Node: 'srv2') The external command 'drbdadm' exited with error code 1: pv-db: "
    "Failure: (139) Protocol C required'"
)


def volume(name, claim, storage_class="async", driver=LINSTOR):
    spec = {
        "storageClassName": storage_class,
        "csi": {"driver": driver, "volumeHandle": name},
        "claimRef": {"namespace": "shop", "name": claim},
    }
    bound = {"volumeName": name, "accessModes": ["ReadWriteMany"]}
    return [
        manifest("v1", "PersistentVolume", name, spec=spec),
        manifest("v1", "PersistentVolumeClaim", claim, "shop", spec=bound),
    ]


def attachment(name, node, error="", driver=LINSTOR):
    status = {"attached": not error} | ({"attachError": {"message": error}} if error else {})
    spec = {"attacher": driver, "nodeName": node, "source": {"persistentVolumeName": name}}
    kind = ("storage.k8s.io/v1", "VolumeAttachment")
    return manifest(*kind, f"{name}-{node}", spec=spec, status=status)


def storage_class(name, parameters, driver=LINSTOR):
    kind = ("storage.k8s.io/v1", "StorageClass")
    return manifest(*kind, name, provisioner=driver, parameters=parameters)


def cluster(error=REFUSED, protocol="A", driver=LINSTOR):
    controller = manifest(
        "v1",
        "Pod",
        "linstor-controller-1",
        "linstor",
        metadata={"labels": {"app.kubernetes.io/component": "linstor-controller"}},
        status={"phase": "Running"},
    )
    return Snapshot(
        [
            *volume("pv-db", "db", driver=driver),
            *volume("pv-files", "files", driver=driver),
            *volume("pv-web", "web", "replicated", driver),
            storage_class("async", {KEY: protocol} if protocol else {}, driver),
            storage_class("replicated", {"autoPlace": "3"}, driver),
            storage_class("other", {}, "rbd.csi.ceph.com"),
            attachment("pv-db", "srv2", driver=driver),
            attachment("pv-db", "srv3", error, driver),
            controller,
        ],
        ["*"],
    )


def fault(**given):
    return volume_attachments.fault("srv3", "shop", ["db"], cluster(**given), overdue=False)


def test_an_attachment_that_the_protocol_of_the_class_explains():
    found = fault()
    assert found.what == (
        f'claim db cannot be attached to a second node: StorageClass async sets {KEY}: "A", '
        "unlike replicated, and DRBD needs protocol C for that"
    )
    assert found.lasts
    assert found.error.startswith("rpc error: code = Internal desc = failed to set property Drbd")
    assert found.error.endswith("exited with error code 1: Failure: (139) Protocol C required'")
    assert (
        ": kubectl exec linstor-controller-1 -n linstor -- linstor resource-definition "
        "drbd-options --protocol C pv-db; or stop the VM for the drain; or use a linstor-csi"
    ) in found.remedy


@pytest.mark.parametrize(
    "given",
    [
        {"protocol": "C"},
        {"protocol": None},
        {"driver": "other.csi"},
        {"error": "rpc error: code = Internal desc = node srv3 is offline"},
    ],
)
def test_an_attachment_that_fails_for_another_cause(given):
    found = fault(**given)
    assert "a second node" not in found.what
    assert not found.lasts
    assert not found.remedy


@pytest.mark.parametrize(("claim", "doubted"), [("files", True), ("web", False)])
def test_a_volume_of_the_same_class_is_refused_too(claim, doubted):
    found = drbd_protocols.doubt("shop", [claim], cluster())
    assert (found is not None) is doubted
    if found is not None:
        assert "claim files" in found.reason
        assert "as it refuses volume pv-db" in found.reason


def test_no_doubt_before_a_volume_was_refused():
    assert drbd_protocols.doubt("shop", ["files"], cluster(error="")) is None


@pytest.mark.parametrize(
    ("error", "named"),
    [
        ("storage pool: autoPlace 3 cannot be met", True),
        ("not enough nodes", False),
        ("path /a/autoPlace/b is missing", False),
    ],
)
def test_the_parameter_that_an_error_names(error, named):
    found = class_parameters.named_by("pv-web", error, cluster())
    assert (found is not None) is named
    if found is not None:
        assert found.words == 'StorageClass replicated sets autoPlace: "3", unlike async'
