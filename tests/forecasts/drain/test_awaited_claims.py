"""Claims that another controller is to bind: they are left alone while it works, and its object is
named when it does not."""

import pytest

from tests.healthy.parts import ago
from virt_admit.forecasts.drain.starts.storage import awaited_claims, provisioners
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import command_of

DOWNLOAD = "velero.io/v2alpha1"


def obj(kind, api, name, namespace="shop", minutes=40, **fields):
    metadata = {"name": name, "namespace": namespace, "creationTimestamp": ago(minutes=minutes)}
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": metadata | fields.pop("metadata", {}),
        **fields,
    }


def claim(selector=None, minutes=40, **spec):
    labels = {"velero.io/dynamic-pv-restore": "shop.root.x1"} if selector is None else selector
    spec = {"storageClassName": "rbd", "selector": {"matchLabels": labels}, **spec}
    return obj(
        "PersistentVolumeClaim",
        "v1",
        "root",
        minutes=minutes,
        spec=spec,
        status={"phase": "Pending"},
    )


def download(phase, minutes=40, name="restore-1-a", target="root", **status):
    owner = {"apiVersion": "velero.io/v1", "kind": "Restore", "name": "restore-1"}
    status = {"phase": phase, **status}
    if phase in ("InProgress", "Completed"):
        status.setdefault("startTimestamp", ago(minutes=minutes))
    return obj(
        "DataDownload",
        DOWNLOAD,
        name,
        "velero",
        minutes,
        metadata={"ownerReferences": [owner | {"controller": True}]},
        spec={"targetVolume": {"namespace": "shop", "pvc": target}},
        status=status,
    )


def restored(*objects, complete=("*",), of=None):
    of = of or claim()
    return awaited_claims.of(Object(of), snapshot([of, *objects], complete))


def snapshot(objects, complete=("*",)):
    return Snapshot(list(map(Object, objects)), complete, time=ago())


@pytest.mark.parametrize(
    ("phase", "minutes", "others"),
    [
        ("New", 20, ()),
        ("Prepared", 200, (download("InProgress", name="other", target="data"),)),
        ("InProgress", 200, ()),
        ("InProgress", 300, ({"itemOperationTimeout": "8h0m0s"},)),
        ("Completed", 40, ()),
    ],
)
def test_velero_goes_on(phase, minutes, others):
    others = [
        obj("Restore", "velero.io/v1", "restore-1", "velero", spec=each)
        if "kind" not in each
        else each
        for each in others
    ]
    done = {"completionTimestamp": ago(minutes=1)} if phase == "Completed" else {}
    found = restored(download(phase, minutes, **done), *others)
    assert (found.claim, found.problem) == ("root", None)
    assert "DataDownload velero/restore-1-a" in found.words


def test_how_far_it_is():
    progress = {"bytesDone": 1 << 30, "totalBytes": 4 << 30}
    found = restored(download("InProgress", 10, progress=progress))
    assert "InProgress for 10 min, 1Gi of 4Gi" in found.words
    assert "leave the claim and its selector" in found.words


@pytest.mark.parametrize(
    ("objects", "says"),
    [
        (
            [
                download(
                    "Failed", message="repository is locked", completionTimestamp=ago(minutes=5)
                )
            ],
            "DataDownload velero/restore-1-a is Failed: repository is locked",
        ),
        ([download("Canceled")], "is Canceled"),
        ([], "no DataDownload for it exists any more"),
        ([download("InProgress", 600)], "is InProgress for 10 h, longer than the 4 h"),
        ([download("New", 90)], "is New for 90 min, longer than the 30 min"),
        ([download("Completed", completionTimestamp=ago(minutes=20))], "is Completed for 20 min"),
    ],
)
def test_velero_does_not_go_on(objects, says):
    problem = restored(*objects).of_vm
    assert problem.reason.startswith("its claim root is Pending: ")
    assert says in problem.reason
    assert not command_of(problem.remedy).startswith(("kubectl delete", "kubectl patch"))


def test_cdi_would_fill_the_claim_of_a_data_volume_otherwise():
    disk = obj("DataVolume", "cdi.kubevirt.io/v1beta1", "root")
    assert "DataVolume" in restored(download("Failed"), disk).problem.remedy
    assert "DataVolume" not in restored(download("Failed")).problem.remedy


def test_what_is_not_known_is_no_problem():
    found = restored(complete=())
    assert found.problem is None
    assert "Velero is to make its volume" in found.words


def test_a_download_for_a_former_claim_does_not_count():
    earlier = download("Failed", 600, completionTimestamp=ago(minutes=500))
    assert restored(earlier, of=claim(minutes=5)).problem is None


@pytest.mark.parametrize("of", [claim(selector={"tier": "gold"}), claim(volumeName="pv-1")])
def test_other_claims_are_not_those_of_velero(of):
    assert restored(of=of) is None


def populated(minutes, group="volsync.backube", **spec):
    source = {"apiGroup": group, "kind": "ReplicationDestination", "name": "copy"}
    of = claim(minutes=minutes, dataSourceRef=source, **spec)
    of["spec"].pop("selector")
    return of


def test_the_controller_of_another_kind_fills_a_claim():
    young, old = (restored(of=populated(each)) for each in (10, 200))
    assert young.problem is None
    assert "ReplicationDestination copy (volsync.backube) is to fill its volume" in young.words
    assert "has not done so for 3 h 20" in old.problem.reason
    assert command_of(old.problem.remedy).startswith("kubectl describe replicationdestination copy")


@pytest.mark.parametrize("group", ["", "snapshot.storage.k8s.io", "cdi.kubevirt.io"])
def test_a_provisioner_fills_a_claim(group):
    assert restored(of=populated(200, group)) is None


def first_consumer(of, chosen):
    mode = {"provisioner": "rbd.example", "volumeBindingMode": "WaitForFirstConsumer"}
    notes = {"volume.kubernetes.io/selected-node": "a"} if chosen else {}
    of["metadata"]["annotations"] = notes
    return of, obj("StorageClass", "storage.k8s.io/v1", "rbd", "", **mode)


@pytest.mark.parametrize("chosen", [False, True])
def test_a_node_is_chosen_first(chosen):
    of, storage = first_consumer(populated(200), chosen)
    found = restored(storage, of=of)
    assert found.awaits_node is not chosen
    assert (found.problem is None) is not chosen
    assert ("as soon as a node is chosen for the first pod" in found.words) is not chosen


@pytest.mark.parametrize(
    ("phase", "chosen", "late"),
    [("Accepted", False, False), ("Accepted", True, True), ("New", False, True)],
)
def test_velero_waits_for_the_first_pod(phase, chosen, late):
    of, storage = first_consumer(claim(minutes=90), chosen)
    found = restored(storage, download(phase, 90), of=of)
    assert (found.problem is not None) is late


@pytest.mark.parametrize(("minutes", "late"), [(1, False), (90, True)])
def test_a_volume_of_a_first_consumer_is_filled_from_its_start_on(minutes, late):
    of, storage = first_consumer(populated(900), chosen=True)
    disk = {"name": "root", "persistentVolumeClaim": {"claimName": "root"}}
    vmi = obj("VirtualMachineInstance", "kubevirt.io/v1", "web", minutes=minutes)
    vmi["spec"] = {"volumes": [disk]}
    found = awaited_claims.waiting(Object(vmi), snapshot([of, storage, vmi]))
    assert (found.problem is not None) is late
    assert ("for 90 min" in found.words) is late


def test_another_selector_is_not_to_be_taken_out():
    of = claim(selector={"tier": "gold"})
    said = 'failed to provision volume with StorageClass "rbd": claim Selector is not supported'
    about = {"kind": "PersistentVolumeClaim", "name": "root", "namespace": "shop"}
    event = obj("Event", "v1", "e1", minutes=2)
    event |= {"type": "Warning", "reason": "ProvisioningFailed", "message": said}
    event |= {"involvedObject": about, "lastTimestamp": ago(minutes=2)}
    storage = obj("StorageClass", "storage.k8s.io/v1", "rbd", "", provisioner="rbd.example")
    cluster = snapshot([of, event, storage])
    problem = provisioners.problem(Object(of), Object(storage), None, cluster)
    assert "PersistentVolume with the labels of its spec.selector tier=gold" in problem.reason
    assert "an empty one" in problem.remedy
    assert command_of(problem.remedy).startswith("kubectl get pvc root -n shop -o yaml")
