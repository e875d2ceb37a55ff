"""A volume that a second node cannot open: where it is open, and what its storage lacks."""

import pytest

from tests.builders import NAMESPACE, complete, manifest
from tests.forecasts.drain.test_target_pods import warning
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.placement import volume_attachments
from virt_admit.forecasts.placement.components import busy_volumes
from virt_admit.forecasts.placement.starts import pod_starts
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.messages import command_of
from virt_admit.reports.drain import text as drain_text
from virt_admit.reports.explain import loss
from virt_admit.reports.outage import text as outage_text

ERROR = "MapVolume.MapPodDevice failed: cannot open /dev/x: Device or resource busy"
LINSTOR = "linstor.csi.linbit.com"


def pod(name, on, image="", owner="", namespace=NAMESPACE):
    metadata = (
        {"ownerReferences": [{"kind": "DaemonSet", "name": owner, "controller": True}]}
        if owner
        else {}
    )
    spec = {"nodeName": on, "containers": [{"name": "csi", "image": image}]}
    return manifest("v1", "Pod", name, namespace, metadata=metadata, spec=spec)


def plugin(release="v0.18.0"):
    return pod(
        "plugin",
        "b",
        f"quay.io/piraeusdatastore/piraeus-csi:{release}",
        "linstor-csi-node",
        "piraeus",
    )


def busy(*objects, driver=LINSTOR, error=ERROR, on="a", parameters=()):
    spec = {"csi": {"driver": driver, "volumeHandle": "handle"}, "storageClassName": "two"}
    kind = manifest(
        "storage.k8s.io/v1", "StorageClass", "two", provisioner=driver, parameters=dict(parameters)
    )
    cluster = complete(manifest("v1", "PersistentVolume", "pv", spec=spec), kind, *objects)
    return busy_volumes.of("pv", "b", error, [pod("guest", on)], cluster)


def test_a_class_of_linstor_allows_one_primary():
    found = busy(plugin())

    assert found.lasts
    assert found.words == (
        "the volume is open on a, where pod guest uses it, and DRBD has one primary, because "
        "class two does not set "
        "DrbdOptions/Net/allow-two-primaries and linstor-csi 0.18.0 does not set it for a "
        "migration, as 0.22.0 and later do"
    )
    assert "set-property handle DrbdOptions/Net/allow-two-primaries yes" in found.remedy


@pytest.mark.parametrize(
    ("change", "objects"),
    [
        ({}, [plugin("v0.22.0")]),
        ({}, []),  # its release is not known
        ({"parameters": [("DrbdOptions/Net/allow-two-primaries", "yes")]}, [plugin()]),
        ({"driver": "csi.example"}, [plugin()]),
    ],
)
def test_another_cause_is_not_guessed(change, objects):
    found = busy(*objects, **change)

    assert not found.lasts
    assert found.words == (
        "the volume is open on a, where pod guest uses it, and its storage does not let b open "
        "it as well"
    )
    assert found.remedy.startswith(
        "see what the driver logs about it on b, and whether its storage lets two nodes open"
    )


@pytest.mark.parametrize("change", [{"error": "no such device"}, {"on": "b"}])
def test_a_volume_that_is_open_nowhere_else_is_not_busy(change):
    assert busy(plugin(), **change) is None


@pytest.mark.parametrize(
    ("volume", "called"),
    [("pv-of-a-long-name", "claim disk (volume pv-of-a-long-name)"), ("ca", 'volume "ca"')],
)
def test_a_long_error_keeps_the_names_of_its_volume(volume, called):
    guest = pod("guest", "b")
    guest.data["spec"]["volumes"] = [
        {"name": "root", "persistentVolumeClaim": {"claimName": "disk"}}
    ]
    bound = {"volumeName": "pv-of-a-long-name"}
    claim = manifest("v1", "PersistentVolumeClaim", "disk", NAMESPACE, spec=bound)
    error = (
        f'MapVolume.MapPodDevice failed for volume "{volume}" : {"first words " * 20}: the last '
        "ones"
    )
    cluster = complete(guest, claim, warning(guest, "FailedMapVolume", error))

    said = pod_starts.words(guest, cluster)

    assert said.startswith(f"MapVolume.MapPodDevice failed for {called}: first words")
    assert said.endswith("the last ones")


RBD = "MountVolume.MountDevice failed: rbd image pool/image is still being used"


def lost(ready="Unknown", volumes=("kubernetes.io/csi/csi.example^handle",), taints=()):
    status = {"conditions": [{"type": "Ready", "status": ready}], "volumesInUse": list(volumes)}
    return manifest("v1", "Node", "a", spec={"taints": list(taints)}, status=status)


def without_pod(node):
    spec = {"csi": {"driver": "csi.example", "volumeHandle": "handle"}}
    volume = manifest("v1", "PersistentVolume", "pv", spec=spec)
    return busy_volumes.of("pv", "b", RBD, [pod("new", "b")], complete(volume, node))


def test_a_lost_node_had_it_in_use_at_last():
    found = without_pod(lost())
    assert found.lasts
    assert found.words.startswith("node a, which does not report and is not fenced, had it in use")
    assert "make sure that a is off; a taint out-of-service, as a decision once" in found.remedy
    assert "ends all its pods (the taint has an effect from Kubernetes 1.26 on" in found.remedy
    assert "kubectl taint" not in found.remedy
    assert command_of(found.remedy) == "virt-admit explain node/a"


@pytest.mark.parametrize(
    "node",
    [
        lost("True"),
        lost(volumes=["kubernetes.io/csi/csi.example^other"]),
        lost(taints=[{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]),
        lost(taints=[{"key": "medik8s.io/fence-agents-remediation", "effect": "NoExecute"}]),
    ],
    ids=["it reports", "another volume", "fenced by hand", "fenced by an agent"],
)
def test_a_node_that_is_well_or_fenced_is_not_named(node):
    assert without_pod(node) is None


def left_in_use(phase="Pending"):
    """Return a cluster whose lost node had a volume in use at last that a pod of another node
    needs.
    """
    volume = manifest(
        "v1",
        "PersistentVolume",
        "pv",
        spec={"csi": {"driver": "csi.example", "volumeHandle": "handle"}},
    )
    spec = {"volumeName": "pv", "accessModes": ["ReadWriteOnce"]}
    claim = manifest("v1", "PersistentVolumeClaim", "disk", NAMESPACE, spec=spec)
    waiting = pod("new", "b")
    waiting.data["spec"]["volumes"] = [{"persistentVolumeClaim": {"claimName": "disk"}}]
    waiting.data["status"] = {"phase": phase}
    return complete(volume, claim, waiting, lost())


def test_the_lost_node_itself_is_named():
    (found,) = volume_attachments.left_in_use("a", left_in_use())
    assert f"claim {NAMESPACE}/disk was in use on a when it reported last" in found.words("a")
    assert not list(volume_attachments.left_in_use("a", left_in_use("Running")))


@pytest.mark.parametrize(("phase", "doubt"), [("Pending", True), ("Running", False)])
def test_no_report_says_that_nothing_runs_where_a_guest_may(phase, doubt):
    cluster = left_in_use(phase)
    drained = drain_text.text(drain_plan.plan(cluster, "a"), None)
    lost_node = "\n".join(outage_text.of_loss(loss.of_node("a", cluster)))
    assert ("But a guest may still run there: see the note." in drained) is doubt
    assert ("nothing to evict" in drained) is not doubt
    assert ("no VM is recorded there, but a guest may still run there" in lost_node) is doubt
    assert ("no VM runs there" in lost_node) is not doubt


CEPH = "rook-ceph.rbd.csi.ceph.com"


def lost_client(name="a", since="2026-12-01T11:00:00Z", ready="Unknown", taints=()):
    """Return a node that does not report, with the pod of Ceph's driver."""
    said = {"type": "Ready", "status": ready, "lastTransitionTime": since}
    addresses = [{"type": "InternalIP", "address": "10.0.0.4"}]
    status = {"conditions": [said], "addresses": addresses}
    node = manifest("v1", "Node", name, spec={"taints": list(taints)}, status=status)
    return [node, pod(f"plugin-{name}", name, owner="csi-rbdplugin", namespace="rook-ceph")]


def watched(*objects, driver=CEPH, error=RBD, complete_kinds=("*",)):
    volume = manifest("v1", "PersistentVolume", "pv", spec={"csi": {"driver": driver}})
    waiting = pod("new", "b")
    waiting.data["metadata"]["creationTimestamp"] = "2026-12-01T11:30:00Z"
    cluster = Snapshot([volume, waiting, *objects], complete_kinds, time="2026-12-01T12:00:00Z")
    return busy_volumes.of("pv", "b", error, [], cluster, waiting)


def test_a_lost_client_of_ceph_most_likely_has_the_image_open():
    found = watched(*lost_client())

    assert not found.lasts
    assert found.words == (
        "node a, which has not reported for 60 min and is not fenced, most likely still has it "
        "open: a guest may still run there"
    )
    assert found.remedy.startswith("make sure that a is off, after which Ceph lets the image go")
    assert "kubectl taint" not in found.remedy
    assert command_of(found.remedy) == "virt-admit explain node/a"


def test_one_of_several_lost_clients():
    words = watched(*lost_client(), *lost_client("c")).words
    assert words.startswith("one of the nodes a, c, which do not report and are not fenced, most")


OFF = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
FENCE = manifest(
    *("csiaddons.openshift.io/v1alpha1", "NetworkFence", "f"),
    spec={"cidrs": ["10.0.0.4/32"], "fenceState": "Fenced", "driver": CEPH},
)


@pytest.mark.parametrize(
    ("objects", "change"),
    [
        (lost_client(ready="True"), {}),
        (lost_client(since="2026-12-01T11:45:00Z"), {}),
        (lost_client("b"), {}),
        (lost_client(taints=[OFF]), {}),
        ([*lost_client(), FENCE], {}),
        (lost_client()[:1], {}),
        (lost_client(), {"driver": "csi.example"}),
        (lost_client(), {"error": "MountVolume.MountDevice failed: device is already in use"}),
        (lost_client(), {"complete_kinds": ()}),
    ],
    ids=["reports", "later", "own", "tainted", "fenced", "client", "driver", "error", "unread"],
)
def test_what_else_keeps_an_image_open_is_not_guessed(objects, change):
    assert watched(*objects, **change) is None
