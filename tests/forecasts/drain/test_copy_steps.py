"""Copies of CDI that do not get further: the object that their step waits for."""

import pytest

from tests.forecasts.drain.test_unfinished_disks import CDI, CLASS, WFFC, claim, event, obj
from tests.healthy.parts import ago
from virt_admit.forecasts.drain.starts import unfinished_disks
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object

SNAPSHOTS = "volumesnapshots.snapshot.storage.k8s.io"
OWNER = {"kind": "DataVolume", "name": "root", "uid": "d1", "controller": True}
TAKING = "SnapshotForSmartCloneInProgress"
OWNED = "cdi.kubevirt.io/ownedByDataVolume"
BASE = obj("PersistentVolumeClaim", "v1", "base", status={"phase": "Bound"})


def copy(phase=TAKING, minutes=40, of=None):
    return obj(
        "DataVolume",
        CDI,
        "root",
        minutes,
        metadata={"uid": "d1"},
        spec={"source": {"pvc": of or {"name": "base", "namespace": "shop"}}},
        status={"phase": phase, "progress": "N/A", "conditions": []},
    )


def snapshot(name="root", minutes=600, namespace="shop", status=None, **metadata):
    return obj(
        "VolumeSnapshot",
        "snapshot.storage.k8s.io/v1",
        name,
        minutes,
        metadata={"namespace": namespace, **metadata},
        spec={"source": {"persistentVolumeClaimName": "former"}},
        status=status or {},
    )


def target(**fields):
    """Return the claim of the disk, which a populator fills."""
    made = claim(**fields)
    made["spec"]["dataSourceRef"] = {"apiGroup": "cdi.kubevirt.io", "kind": "VolumeCloneSource"}
    return made


def temporary(phase="Pending", minutes=30, **fields):
    """Return the claim that a populator fills for the other."""
    made = obj("PersistentVolumeClaim", "v1", "tmp-pvc-u1", minutes, spec=claim()["spec"])
    return made | {"status": {"phase": phase, **fields}}


def cluster(*items, disk, unread=()):
    return Snapshot([Object(each) for each in (disk, BASE, *items)], ["*"], unread, time=ago())


def found(*items, disk=None):
    disk = disk or copy()
    return unfinished_disks.of_disk(Object(disk), Object(disk), cluster(*items, disk=disk))


# --- a snapshot with the name of the disk ---------------------------------------------------------


def test_a_snapshot_of_another_maker_has_the_name_that_cdi_needs():
    cdi = {"apiVersion": CDI, "kind": "CDI", "metadata": {"name": "cdi"}}
    taken = found(snapshot(), cdi | {"status": {"observedVersion": "v1.55.2"}})

    assert taken.reason == (
        "its disk root is not filled (SnapshotForSmartCloneInProgress): VolumeSnapshot shop/root "
        "has the name that CDI v1.55.2 gives its own snapshot of claim shop/base, and is not CDI's "
        f"(of claim former, made 9 h 20 before the disk, without the annotation {OWNED})."
        " CDI makes no other one for DataVolume root, so this does not end by itself"
    )
    assert taken.remedy.startswith("create the DataVolume under another name: kubectl get dat")
    assert "if nothing needs that snapshot any more, delete it (kubectl delete vol" in taken.remedy


def test_a_disk_of_a_template_gets_another_name_there():
    disk = copy()
    disk["metadata"]["ownerReferences"] = [OWNER | {"kind": "VirtualMachine", "name": "web"}]
    taken = found(snapshot(), disk=disk)

    assert taken.remedy.startswith("give the disk another name in the dataVolumeTemplates and vol")
    assert "kubectl edit vm web -n shop" in taken.remedy


YOUNG = {"minutes": 3}
POPULATING = {"apiVersion": CDI, "kind": "CDI", "metadata": {"name": "cdi"}}
POPULATING |= {"status": {"observedVersion": "v1.60.3"}}


@pytest.mark.parametrize(
    ("items", "fields"),
    [
        ([snapshot(annotations={OWNED: "shop/root"}, **YOUNG)], {}),
        ([snapshot(ownerReferences=[OWNER], **YOUNG)], {}),
        ([snapshot(deletionTimestamp=ago())], {}),
        ([snapshot()], {"disk": copy(minutes=3)}),
        ([snapshot()], {"disk": copy("CloneScheduled")}),
        ([snapshot()], {"disk": copy(of={"name": "base", "namespace": "images"})}),
        ([snapshot(), target(), CLASS, snapshot("tmp-snapshot-u1", **YOUNG)], {}),
        ([snapshot(), claim(phase="Bound")], {}),
        ([snapshot(), POPULATING], {}),
    ],
    ids=[
        *("annotated", "owned", "being deleted", "young", "another step"),
        *("of another namespace", "of a populator", "the claim exists"),
        "a release with other names",
    ],
)
def test_a_snapshot_that_does_not_stop_a_copy(items, fields):
    said = found(*items, **fields)

    assert said is None or "has the name" not in said.reason


def test_snapshots_that_were_not_read_say_nothing():
    volumes = [{"name": "root", "dataVolume": {"name": "root"}}]
    vm = obj("VirtualMachine", "kubevirt.io/v1", "web")
    vm["spec"] = {"template": {"spec": {"volumes": volumes}}}
    unread = cluster(disk=copy(), unread=[SNAPSHOTS])

    assert unfinished_disks.problem(Object(vm), unread) is None
    assert unfinished_disks.problem(Object(vm), cluster(disk=copy())) is not None


# --- the objects that CDI makes -------------------------------------------------------------------


def of(name="tmp-snapshot-u1", **status):
    return [target(), CLASS, snapshot(name, minutes=30, status=status)]


SOURCE = copy("ImportInProgress") | {"metadata": {"name": "base", "namespace": "shop"}}
RESIZE = {
    "type": "ControllerResizeError",
    "status": "True",
    "lastTransitionTime": ago(minutes=20),
    "message": "no space left in the pool",
}
SMALL = {"storage": "4Gi"}
VOLUME = {
    "apiVersion": "v1",
    "kind": "PersistentVolume",
    "metadata": {"name": "pv1"},
    "spec": {"claimRef": {"namespace": "shop", "name": "root"}},
    "status": {"phase": "Available"},
}


def bound(**fields):
    made = temporary("Bound", **fields)
    made["spec"] = made["spec"] | {"volumeName": "pv1"}
    return made


@pytest.mark.parametrize(
    ("phase", "items", "says"),
    [
        (
            TAKING,
            of(error={"message": "driver lacks the right"}, readyToUse=False),
            "VolumeSnapshot shop/tmp-snapshot-u1, which is not ready: driver lacks the right",
        ),
        (TAKING, of(), "which is not ready for 30 min: it has no VolumeSnapshotContent"),
        (
            TAKING,
            of(boundVolumeSnapshotContentName="snapcontent-1", readyToUse=False),
            "which is not ready for 30 min, and reports no error",
        ),
        (TAKING, [target(), CLASS], "CDI has not made VolumeSnapshot shop/tmp-snapshot-u1"),
        (TAKING, [SOURCE], "DataVolume shop/base, which it copies, is ImportInProgress"),
        (
            "CSICloneInProgress",
            [target(), CLASS, temporary()],
            "CDI waits for claim shop/tmp-pvc-u1, which is Pending for 30 min",
        ),
        (
            "CloneFromSnapshotSourceInProgress",
            of(readyToUse=True),
            "CDI has not made claim shop/tmp-pvc-u1",
        ),
        (
            "CloneFromSnapshotSourceInProgress",
            of(error={"message": "quota of the pool"}),
            "VolumeSnapshot shop/tmp-snapshot-u1, which is not ready: quota of the pool",
        ),
        (
            "PrepClaimInProgress",
            [target(), CLASS, temporary("Bound", conditions=[RESIZE], capacity=SMALL)],
            "claim tmp-pvc-u1 is stuck in a resize (ControllerResizeError for 20 min)",
        ),
        (
            "RebindInProgress",
            [target(), CLASS, bound(), VOLUME],
            "claim shop/root is bound to it: PersistentVolume pv1 is Available, and its claimRef",
        ),
    ],
)
def test_a_step_that_stays_names_what_it_waits_for(phase, items, says):
    assert says in found(*items, disk=copy(phase)).reason


def test_the_login_in_an_address_of_the_storage_is_not_quoted():
    error = {"message": "GET https://admin:s3cret@san.example.com/api?sid=9: timeout"}
    said = found(*of(error=error)).reason
    assert "https://san.example.com/api" in said
    assert "s3cret" not in said


def test_why_the_temporary_claim_gets_no_volume():
    failed = event("ProvisioningFailed", "rpc error: pool is full")
    failed["involvedObject"]["name"] = "tmp-pvc-u1"
    said = found(target(), CLASS, temporary(), failed, disk=copy("CSICloneInProgress"))

    assert "claim root is Pending, as CDI's tmp-pvc-u1 gets no volume: " in said.reason
    assert "pool is full" in said.reason


@pytest.mark.parametrize(
    ("phase", "items", "minutes"),
    [
        (TAKING, of(readyToUse=True), 40),
        (TAKING, [target(), CLASS], 8),
        ("CSICloneInProgress", [target(), WFFC, temporary()], 40),
        ("CSICloneInProgress", [target(), CLASS, temporary(minutes=2)], 8),
        ("CSICloneInProgress", [target(), CLASS, temporary("Bound")], 40),
        ("CSICloneInProgress", [target(), CLASS, temporary(minutes=1)], 40),
        ("PrepClaimInProgress", [target(), CLASS, temporary("Bound")], 40),
        ("RebindInProgress", [target(phase="Bound"), CLASS, temporary("Bound")], 40),
        ("CloneInProgress", [target(), CLASS], 40),
    ],
)
def test_a_step_that_goes_on_is_not_blamed(phase, items, minutes):
    assert found(*items, disk=copy(phase, minutes)) is None


def just_started():
    user = obj("Pod", "v1", "virt-launcher-web-x", 2)
    user["spec"] = {"volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "root"}}]}
    return [user]


@pytest.mark.parametrize(
    ("items", "conditions"),
    [
        ([obj("VirtualMachineInstance", "kubevirt.io/v1", "web", 2)], []),
        (just_started(), []),
        ([], [{"type": "Running", "status": "False", "lastHeartbeatTime": ago(minutes=2)}]),
    ],
    ids=["its VM", "a pod of another VM", "it says so"],
)
@pytest.mark.parametrize("phase", [TAKING, "CSICloneInProgress", "RebindInProgress"])
def test_a_disk_of_days_whose_copy_has_just_begun_is_not_blamed(phase, items, conditions):
    disk = copy(phase, minutes=3 * 24 * 60)
    disk["metadata"]["ownerReferences"] = [OWNER | {"kind": "VirtualMachine", "name": "web"}]
    parts = [target(), CLASS, *([bound(), VOLUME] if phase == "RebindInProgress" else [])]
    assert found(*parts, disk=disk) is not None

    disk["status"]["conditions"] = conditions
    assert found(*parts, *items, disk=disk) is None
