"""A CSI driver that attaches no volume: one cause for all VMs with its volumes, on every node."""

import pytest

from tests.advice import risky
from tests.builders import complete, manifest
from tests.healthy.clusters import plain
from tests.healthy.parts import ago
from tests.incidents.component_faults import claim
from tests.incidents.machines import find, guest
from virt_admit.forecasts.drain.vm_outcomes import VmOutcome, forecast
from virt_admit.forecasts.placement import volume_attachments
from virt_admit.forecasts.placement.components.drivers import driver_faults
from virt_admit.forecasts.placement.starts import pod_starts
from virt_admit.forecasts.repair import vm_options
from virt_admit.forecasts.repair.wishes import Wishes
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import VMI
from virt_admit.model.kubernetes.objects import Object

ACME = "csi.acme.example.com"
CEPH = "rook-ceph.rbd.csi.ceph.com"
TRIDENT = "csi.trident.netapp.io"
LOGIN = "cannot publish {handle} for a check: login: connection refused"
NO_KEY = "failed to find {handle}: connecting failed: rados: ret=-22, Invalid argument"
OFFLINE = "backend nas is not Online or Deleting"


def volume(name, driver=ACME, **attributes):
    """Return a claim in the namespace ``vms`` with its volume."""
    csi = {"driver": driver, "volumeHandle": f"h-{name}", "volumeAttributes": attributes}
    spec = {"csi": csi, "claimRef": {"namespace": "vms", "name": name}, "storageClassName": "fast"}
    return [
        manifest("v1", "PersistentVolumeClaim", name, "vms", spec={"volumeName": f"pv-{name}"}),
        manifest("v1", "PersistentVolume", f"pv-{name}", "", spec=spec),
    ]


def attachment(name, error=LOGIN, node="w2", since=20, last=1):
    """Return the attachment of a volume, which fails unless the error is empty."""
    said = f"rpc error: code = Internal desc = {error.format(handle=f'h-{name}')}"
    status = {"attached": not error}
    if error:
        status["attachError"] = {"message": said, "time": ago(minutes=last)}
    return manifest(
        "storage.k8s.io/v1",
        "VolumeAttachment",
        f"csi-{name}",
        "",
        metadata={"creationTimestamp": ago(minutes=since)},
        spec={"nodeName": node, "source": {"persistentVolumeName": f"pv-{name}"}},
        status=status,
    )


def controller(driver="acme", image="acme:1"):
    owner = {"kind": "ReplicaSet", "name": f"{driver}-csi-5f7d", "controller": True}
    containers = [{"name": "driver", "image": image}, {"name": "csi-attacher"}]
    return manifest(
        "v1",
        "Pod",
        f"{driver}-csi-5f7d-x",
        "storage",
        metadata={"ownerReferences": [owner]},
        spec={"containers": containers},
        status={"phase": "Running"},
    )


def ceph_cluster(key="aes256k", allowed=(), external=False, **metadata):
    cephx = {"csi": {"keyType": key, "keyGeneration": 2, "keepPriorKeyCountMax": 1}}
    security = {"cephx": {**cephx, "allowedCiphers": list(allowed)}}
    status = {"cephx": {"csi": {"keyType": key, "keyGeneration": 2, "priorKeyCount": 1}}}
    spec = {"security": security, "external": {"enable": external}}
    return manifest(
        *("ceph.rook.io/v1", "CephCluster", "store", "rook-ceph"),
        metadata=metadata,
        spec=spec,
        status=status,
    )


def backend(state="failed", uuid="u-1"):
    own = {"backendName": "nas", "backendUUID": uuid, "state": state}
    return Object(manifest("trident.netapp.io/v1", "TridentBackend", "tbe-1", "trident").data | own)


def cluster(*objects):
    """Return these objects in a cluster with a VM on w1 whose disk is of the first driver."""
    driver = next(
        (
            each.at("spec", "csi", "driver").text
            for each in objects
            if each.kind == "PersistentVolume"
        ),
        ACME,
    )
    items = plain()
    own = guest("web", "w1")
    items += [each for each in own if not each["kind"].startswith("PersistentVolume")]
    items += claim("web", driver=driver)
    named = find(items, "PersistentVolume", items[-1]["metadata"]["name"])
    named["spec"]["storageClassName"] = "fast"
    attributes = next(
        (
            each.at("spec", "csi", "volumeAttributes").value
            for each in objects
            if each.kind == "PersistentVolume"
        ),
        {},
    )
    named["spec"]["csi"]["volumeAttributes"] = attributes
    return Snapshot([*map(Object, items), *objects], ["*"])


def drained(found):
    return forecast(found.get(VMI, "vms", "web"), found)


def test_volumes_that_fail_alike_block_the_drain_of_each_vm_with_the_driver():
    found = drained(
        cluster(
            *volume("a"), *volume("b"), attachment("a"), attachment("b", node="w3"), controller()
        )
    )

    assert found.outcome is VmOutcome.BLOCKS
    assert f"CSI driver {ACME} has attached no volume for 19 min: login: connection" in found.reason
    assert found.remedy.endswith(": kubectl logs acme-csi-5f7d-x -n storage --all-containers")


@pytest.mark.parametrize(
    "others",
    [
        [attachment("a", since=2), attachment("b", node="w3", since=2)],
        [attachment("a", last=20), attachment("b", node="w3", last=20)],
        [attachment("a"), attachment("b", node="w3"), *volume("c"), attachment("c", "", since=10)],
        [attachment("a", "h-{handle} is in use"), attachment("b", "h-{handle} is in use", "w3")],
        [attachment("a", "no route to host w2"), attachment("b", "no route to host w2")],
    ],
    ids=["young", "over", "another-one-attached", "of-the-volume", "of-the-node"],
)
def test_other_failures_of_volumes_are_not_those_of_the_driver(others):
    assert drained(cluster(*volume("a"), *volume("b"), *others)).outcome is VmOutcome.MIGRATES


OWN_NAME = "host esx-7.acme: permission denied"
KMS = "UnauthorizedOperation: KMS key"


@pytest.mark.parametrize(
    "attachments",
    [
        [attachment("a")],
        [attachment("a"), attachment("b")],
        [attachment("a", OWN_NAME), attachment("b", OWN_NAME)],
        [attachment("a", KMS), attachment("b", KMS, node="w3")],
    ],
    ids=["one-volume", "one-node", "one-node-by-its-own-name", "own-settings"],
)
def test_one_volume_or_one_node_leaves_it_open(attachments):
    found = drained(cluster(*volume("a"), *volume("b"), *attachments))

    assert found.outcome is VmOutcome.UNKNOWN
    assert "its volumes may not be attached elsewhere: " in found.reason


def test_another_class_of_the_driver_is_not_concerned():
    other = [*volume("a"), *volume("b")]
    for each in other:
        if each.kind == "PersistentVolume":
            each.data["spec"]["storageClassName"] = "slow"
    found = cluster(*other, attachment("a"), attachment("b", node="w3"))

    assert drained(found).outcome is VmOutcome.MIGRATES
    assert (
        f"{ACME} has attached no volume of slow for" in driver_faults.of_driver(ACME, found).reason
    )


def of_ceph(*objects, image="quay.io/cephcsi/cephcsi:v3.17.0"):
    return cluster(
        *volume("a", CEPH, clusterID="rook-ceph"),
        attachment("a", NO_KEY),
        controller("rook-ceph.rbd.csi.ceph.com", image),
        *objects,
    )


def test_keys_that_ceph_csi_cannot_read_are_named_with_what_makes_others():
    found = drained(of_ceph(ceph_cluster()))

    assert found.outcome is VmOutcome.BLOCKS
    assert (
        "the CSI keys of CephCluster rook-ceph/store are of type aes256k (generation 2), which "
        "ceph-csi v3.17.0 cannot read (connecting failed: rados: ret=-22, Invalid argument)"
    ) in found.reason
    assert '"keyGeneration":3,"keepPriorKeyCountMax":2,"keyType":"aes"' in found.remedy
    assert not risky(found.remedy)


@pytest.mark.parametrize(
    "found",
    [
        of_ceph(ceph_cluster("aes")),
        of_ceph(ceph_cluster(external=True)),
        of_ceph(ceph_cluster(), image="quay.io/cephcsi/cephcsi:v3.17.1"),
        of_ceph(ceph_cluster(), image="quay.io/cephcsi/cephcsi:v3.16.3"),
        of_ceph(),
    ],
    ids=["old-keys", "external", "new-release", "backport", "no-cluster"],
)
def test_other_keys_are_not_accused(found):
    assert "key" not in drained(found).reason


def test_a_cipher_that_is_not_allowed_is_allowed_first():
    found = drained(of_ceph(ceph_cluster(allowed=["aes256k"])))

    assert "allow aes in spec.security.cephx.allowedCiphers" in found.remedy
    assert found.remedy.endswith(": kubectl edit cephcluster store -n rook-ceph")


OCS = {"apiVersion": "ocs.openshift.io/v1", "kind": "StorageCluster", "name": "ocs"}


@pytest.mark.parametrize(
    ("metadata", "where", "command"),
    [
        (
            {"ownerReferences": [OCS | {"controller": True}]},
            "to be set by its owner StorageCluster ocs, whose operator takes other changes back",
            "kubectl describe storagecluster ocs -n rook-ceph",
        ),
        (
            {"annotations": {"meta.helm.sh/release-name": "store"}},
            "to be set in its Git repository or chart: Helm release store writes it",
            "kubectl describe cephcluster store -n rook-ceph",
        ),
    ],
)
def test_a_ceph_cluster_is_changed_where_it_is_written(metadata, where, command):
    found = drained(of_ceph(ceph_cluster(**metadata)))

    assert f"keyGeneration 3, keepPriorKeyCountMax 2, keyType aes, {where}" in found.remedy
    assert found.remedy.endswith(f": {command}")


def deployment(owner=False):
    owners = [{"kind": "TridentOrchestrator", "name": "trident", "controller": True}]
    metadata = {"ownerReferences": owners} if owner else {}
    return manifest("apps/v1", "Deployment", "trident-csi", "storage", metadata=metadata)


@pytest.mark.parametrize(
    ("objects", "command"),
    [
        (
            [controller("trident"), deployment()],
            "rollout restart deployment trident-csi -n storage",
        ),
        ([controller("trident"), deployment(True)], "delete pod trident-csi-5f7d-x -n storage"),
        ([], "describe tridentbackend tbe-1 -n trident"),
    ],
)
def test_the_backend_that_an_error_names_is_shown_with_its_state(objects, command):
    found = drained(
        cluster(
            *volume("a", TRIDENT, backendUUID="u-1"), attachment("a", OFFLINE), backend(), *objects
        )
    )

    assert found.outcome is VmOutcome.BLOCKS
    assert "TridentBackend trident/tbe-1 (backend nas) is failed, not online" in found.reason
    assert found.remedy.endswith(f": kubectl {command}")


def test_a_backend_that_is_not_online_is_a_doubt_before_a_volume_fails():
    found = drained(cluster(*volume("a", TRIDENT, backendUUID="u-1"), backend("offline")))
    other = drained(cluster(*volume("a", TRIDENT, backendUUID="u-1"), backend("failed", "u-2")))

    assert found.outcome is VmOutcome.UNKNOWN
    assert "and while it is so CSI driver csi.trident.netapp.io attaches no volume" in found.reason
    assert other.outcome is VmOutcome.MIGRATES


def test_an_error_is_shown_without_the_long_handle_of_its_volume():
    items = volume("a")
    handle = "0001-0009-rook-ceph-0000000000000002-72677db6-10e4-5c16-a914-64a091c62de8"
    items[1].data["spec"]["csi"]["volumeHandle"] = handle
    items.append(attachment("a", f'no image "{handle}" in pool vms'))

    fault = volume_attachments.fault("w2", "vms", ["a"], complete(*items), overdue=False)

    assert fault.error.endswith('no image "…" in pool vms')


def test_a_plan_does_not_restart_a_vm_that_would_stay_down():
    found = of_ceph(ceph_cluster())
    vmi = found.get(VMI, "vms", "web")

    ways = vm_options.ways(vmi, (), found, Wishes())

    assert not ways.options
    assert "do not stop it before its volumes can be attached again" in ways.refused[0]


def test_a_target_pod_that_meets_it_fails_again():
    pod = manifest(
        "v1",
        "Pod",
        "target",
        "vms",
        spec={"nodeName": "w2", "volumes": [{"persistentVolumeClaim": {"claimName": "a"}}]},
        status={"phase": "Pending"},
    )
    found = of_ceph(ceph_cluster(), pod)

    fault = pod_starts.fault(pod, found)
    assert fault.lasts
    assert fault.words.startswith("claim a cannot be attached: CSI driver ")
    assert '"keyType":"aes"' in fault.remedy


def test_many_storages_of_a_driver_are_told_apart_in_time(monkeypatch):
    """Each of them once looked at all volumes for its name."""
    items = [each for at in range(60) for each in volume(f"v{at}", clusterID=f"c{at:02}" * 40)]
    items += [attachment(f"v{at}") for at in range(60)]
    known, asked = cluster(*items), []
    of = driver_faults._scope
    monkeypatch.setattr(driver_faults, "_scope", lambda each: asked.append(each) or of(each))

    faults = driver_faults.by_scope(known)

    assert len(faults) == 60
    assert len(asked) < 60 * 4
    assert all(len(each.reason) < 200 for each in faults.values())
