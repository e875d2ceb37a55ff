"""Claims that another VM holds on another node: which VM, and whether anything owns it."""

import copy

import pytest

from tests.builders import warning
from tests.healthy.clusters import plain
from tests.healthy.machines import claim
from tests.healthy.parts import ago
from tests.incidents.machines import find, guest
from virt_admit.forecasts.drain import migration_doubts
from virt_admit.forecasts.drain.starts import unattached_volumes
from virt_admit.forecasts.placement import candidates
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.kubevirt.launcher.claim_holders import ClaimHolder

DRBD = (
    'MapVolume.MapPodDevice failed for volume "pvc-vms-data" : rpc error: code = Internal desc = '
    "NodePublishVolume failed for pvc-vms-data: failed to set source device readwrite: exit "
    "status 1"
)
LEFT = "VMI vms/old on w1, which nothing owns as its VirtualMachine is gone, has claim data open"
OWNED = "VM vms/old on w1 has claim data open"


def world(*, left=True, said=DRBD, modes=("ReadWriteMany",), change=lambda items: None):
    """Return a VM whose hotplugged volume waits on w2, as another VM on w1 has it, and all."""
    items = [
        *plain(),
        *guest("db", "w2", hotplugged=["data"]),
        *guest("old", "w1", hotplugged=["data"]),
        *claim("data", modes=modes),
    ]
    vmi = find(items, "VirtualMachineInstance", "db")
    vmi["status"]["volumeStatus"][-1].update({"phase": "AttachedToNode", "target": ""})
    pod = find(items, "Pod", "hp-volume-db")
    pod["metadata"]["creationTimestamp"] = ago(minutes=51)
    pod["status"] = {"phase": "Pending"}
    old = find(items, "VirtualMachineInstance", "old")
    old["metadata"].setdefault("annotations", {})[vmis.GENERATION] = "2"
    if left:
        del old["metadata"]["ownerReferences"]
        items.remove(find(items, "VirtualMachine", "old"))
    change(items)
    said_of = [warning(Object(pod), "FailedMapVolume", said, ago(minutes=1))] if said else []
    return Object(vmi), Snapshot([*map(Object, items), *said_of], ["*"], time=ago())


def told(**state):
    vmi, cluster = world(**state)
    return next((each for _, _, each in unattached_volumes.hotplugged(vmi, cluster)), None)


def doubt(**state):
    vmi, cluster = world(**state)
    return migration_doubts.doubt(vmi, candidates.target(vmi, cluster, moves=True), cluster)


def shareable(items):
    disks = find(items, "VirtualMachineInstance", "old")["spec"]["domain"]["devices"]["disks"]
    next(each for each in disks if each["name"] == "data")["shareable"] = True


def ended(items):
    find(items, "VirtualMachineInstance", "old")["status"]["phase"] = "Succeeded"


def test_a_vmi_that_is_left_of_its_vm_holds_the_volume():
    found = told()

    assert LEFT in found.reason
    assert found.remedy == (
        "check that the guest of old is not needed any more, and unplug volume data from it: "
        "virtctl removevolume old --volume-name=data -n vms; or, as a decision, delete that VMI"
    )


def test_all_volumes_that_it_holds_are_unplugged():
    volumes = ("data", "more")
    vmi = find(guest("old", "w1", hotplugged=list(volumes)), "VirtualMachineInstance", "old")
    holder = ClaimHolder(Object(vmi), Object({}), volumes, volumes, is_left=True)

    first, second = (f"virtctl removevolume old --volume-name={each} -n vms" for each in volumes)
    assert f"unplug these 2 volumes from it: {first} && {second}; or" in holder.remedy


def test_a_vm_that_is_owned_is_not_to_be_deleted():
    found = told(left=False)

    assert OWNED in found.reason
    assert "unplug volume data from VM vms/old, or from this VM" in found.remedy
    assert "delete" not in found.remedy


def deleted(kind, name):
    """Return what marks an object for deletion."""

    def change(items):
        find(items, kind, name)["metadata"]["deletionTimestamp"] = ago(minutes=1)

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            deleted("Pod", "hp-volume-old"),
            "VMI vms/old on w1 has claim data open (pod hp-volume-old, which is in deletion)",
        ),
        (
            deleted("VirtualMachineInstance", "old"),
            "VM vms/old on w1, which is being deleted, has claim data open (pod hp-volume-old)",
        ),
    ],
    ids=["its pod", "its VMI"],
)
def test_what_is_about_to_let_a_claim_go_is_waited_for(change, words):
    found = told(change=change)

    assert words in found.reason
    assert found.remedy == (
        "wait until pod hp-volume-old has ended; if that lasts, see why: kubectl describe pod "
        "hp-volume-old -n vms"
    )
    assert doubt(change=change) is None


def attached(items):
    spec = {"nodeName": "w1", "source": {"persistentVolumeName": "pvc-vms-data"}}
    items[:] = [
        each
        for each in items
        if each["kind"] != "VolumeAttachment"
        or each["spec"]["source"]["persistentVolumeName"] != "pvc-vms-data"
    ]
    items.append(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "VolumeAttachment",
            "metadata": {"name": "csi-1", "uid": "csi-1"},
            "spec": spec,
            "status": {"attached": True},
        }
    )


def test_a_volume_of_one_node_is_held_in_the_same_way():
    found = told(modes=["ReadWriteOnce"], said="", change=attached)

    assert LEFT in found.reason
    assert found.remedy.startswith("check that the guest of old is not needed any more")


@pytest.mark.parametrize(
    "state",
    [{"change": shareable}, {"change": ended}, {"said": DRBD.replace("readwrite", "encrypted")}],
    ids=["both may write it", "its guest has ended", "another error"],
)
def test_another_vm_is_not_the_cause(state):
    found = told(**state)

    assert "has claim data open" not in found.reason


def test_no_migration_is_promised_while_the_target_lacks_the_volume():
    found = doubt()

    assert found.reason == (
        f"the target needs a pod that attaches volume data, and {LEFT} (pod hp-volume-old)"
    )


@pytest.mark.parametrize(
    "state", [{"change": shareable}, {"said": ""}], ids=["both may write it", "it just waits"]
)
def test_a_volume_that_may_come_elsewhere_is_no_doubt(state):
    assert doubt(**state) is None


def test_what_is_left_of_a_vm_is_not_to_become_another_one():
    _, cluster = world()
    old = next(each for each in cluster.known(vmis.VMI) if each.name == "old")

    remedy = "create its VirtualMachine again, if its guest is still needed"
    assert vmis.comes_back(old, cluster).remedy == remedy


RWOP = "ReadWriteOncePod"
CONFLICT = (
    "0/6 nodes are available: 1 node has pod using PersistentVolumeClaim with the same name and "
    "ReadWriteOncePod access mode, 5 node(s) didn't match Pod's node affinity/selector"
)


def unplaced(items, said=CONFLICT):
    pod = find(items, "Pod", "hp-volume-db")
    del pod["spec"]["nodeName"]
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    pod["status"]["conditions"] = [condition | {"message": said}]


def own_pod(items, said=CONFLICT):
    """Let an earlier pod of the VM have the claim, and no other VM."""
    unplaced(items, said)
    earlier = copy.deepcopy(find(items, "Pod", "hp-volume-db"))
    earlier["metadata"] |= {"name": "hp-volume-earlier", "uid": "earlier"}
    earlier["spec"]["nodeName"], earlier["status"] = "w2", {"phase": "Running"}
    extra = {"name": "more", "persistentVolumeClaim": {"claimName": "more"}}
    later = find(items, "Pod", "hp-volume-db")["spec"]
    later["volumes"] = [*later["volumes"], extra]
    vmi = find(items, "VirtualMachineInstance", "db")
    vmi["spec"]["volumes"].append(extra)
    vmi["status"]["volumeStatus"].append(
        {"name": "more", "hotplugVolume": {"attachPodName": "hp-volume-db"}, "phase": "Bound"}
    )
    other = find(items, "Pod", "hp-volume-old")
    items[:] = [*(each for each in items if each is not other), earlier]


def test_an_earlier_pod_of_the_vm_keeps_a_claim_of_one_pod():
    found = told(modes=[RWOP], said="", change=own_pod)

    assert found.reason == (
        "it is not attached: pod hp-volume-db has been Pending for 51 min, because pod "
        "hp-volume-earlier of this VM keeps claim data, which is ReadWriteOncePod, until the new "
        "pod is ready. This does not end by itself"
    )
    assert found.remedy.startswith("restart the VM, which then attaches all its volumes with one")
    assert "virtctl restart db -n vms" in found.remedy


def test_another_vm_has_a_claim_of_one_pod():
    assert LEFT in told(modes=[RWOP], said="", change=unplaced).reason


@pytest.mark.parametrize(
    "state",
    [
        {"change": own_pod},
        {"modes": [RWOP], "change": lambda items: own_pod(items, "0/6 nodes are available: 1 x")},
    ],
    ids=["many pods may use it", "another reason"],
)
def test_a_claim_of_one_pod_is_not_the_cause(state):
    found = told(said="", **state)

    assert "keeps claim" not in found.reason


def dying(items):
    attached(items)
    items.remove(find(items, "VirtualMachineInstance", "old"))
    find(items, "Pod", "hp-volume-old")["metadata"]["deletionTimestamp"] = ago(minutes=40)


def test_a_pod_that_does_not_end_keeps_a_volume_of_one_node():
    found = told(modes=["ReadWriteOnce"], said="", change=dying)

    assert found.reason.endswith(
        "where pod vms/hp-volume-old uses it, which is in deletion for 40 min"
    )
    assert found.remedy.startswith("see why that pod does not end: kubectl describe pod hp-volume")


def left_in_use(items, volume="pvc-vms-data", ready="True"):
    attached(items)
    items.remove(find(items, "Pod", "hp-volume-old"))
    status = find(items, "Node", "w1")["status"]
    status["volumesInUse"] = [f"kubernetes.io/csi/rook-ceph.rbd.csi.ceph.com^{volume}"]
    status["conditions"] = [{"type": "Ready", "status": ready}]


def test_a_kubelet_has_a_volume_in_use_that_no_pod_uses():
    found = told(modes=["ReadWriteOnce"], said="", change=left_in_use)

    assert found.reason.endswith(
        "is still attached to w1, whose kubelet has it in use (status.volumesInUse) although no "
        "pod there uses it: it is not detached from a Ready node before it is unmounted"
    )
    assert "in the log of the kubelet of w1" in found.remedy
    assert found.remedy.endswith("virt-admit drain w1")


@pytest.mark.parametrize(
    "change",
    [lambda items: left_in_use(items, "other"), lambda items: left_in_use(items, ready="False")],
    ids=["another volume", "it is not Ready"],
)
def test_a_volume_that_is_detached_in_time_is_not_in_use(change):
    assert "has it in use" not in told(modes=["ReadWriteOnce"], said="", change=change).reason
