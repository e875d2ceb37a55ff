"""Disks whose place keeps a VM from starting: who chose it, and what corrects it."""

import pytest

from tests.forecasts.drain.test_start_obstacles import stuck
from tests.forecasts.drain.test_unplaced import tainted
from tests.healthy.clusters import plain
from tests.healthy.machines import claim
from tests.healthy.parts import obj
from tests.incidents.machines import find
from tests.incidents.starts import starting
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.settings.running_release import may_be_managed

# --- a disk where the VM may not run --------------------------------------------------------------

AT_ONCE = "cdi.kubevirt.io/storage.bind.immediate.requested"
HONORED = ("HonorWaitForFirstConsumer",)


def misplaced(mode, gates=HONORED, disk=(), own=(), change=None):
    """Return what keeps a VM off w1, where its disk is: it demands a label that w2 has.

    ``disk``, ``own``: annotations of the DataVolume and of its claim.
    """
    items = plain()
    find(items, "Node", "w2")["metadata"]["labels"]["os"] = "windows"
    starts = [
        each
        for each in starting("web", "Scheduling")
        if not each["kind"].startswith("PersistentVolume")
    ]
    demand = {"key": "os", "operator": "In", "values": ["windows"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [demand]}]}
    vmi = find(starts, "VirtualMachineInstance", "web")
    vmi["spec"]["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
    }
    filled, cdi = imported(*gates)[1], imported(*gates)[0]
    filled["metadata"]["annotations"] = dict.fromkeys(disk, "")
    claimed = on_node("web", "w1")
    claimed[0]["metadata"]["annotations"] = dict.fromkeys(own, "")
    classes = [
        obj("StorageClass", "storage.k8s.io/v1", name, provisioner="csi.example.com", **fields)
        for name, fields in (("local", {"volumeBindingMode": mode}), ("shared", {}))
    ]
    everywhere = claim("other", modes=("ReadWriteMany",), storage_class="shared")
    items = [*items, *starts, filled, cdi, *claimed, *classes, *everywhere]
    if change is not None:
        change(items)
    return stuck(items, "web")


def test_cdi_was_asked_not_to_wait_for_the_vm():
    found = misplaced("WaitForFirstConsumer", disk=[AT_ONCE], own=[AT_ONCE])

    assert found.reason == (
        "its claim web is on node w1 alone, where no node can run it (w1: node affinity): a pod of "
        f"CDI chose that place before the VM started, as DataVolume web has the annotation "
        f"{AT_ONCE}, so that StorageClass local (WaitForFirstConsumer) does not wait for the VM. "
        "It does not start before one can"
    )
    assert found.remedy == (
        f"leave out the annotation {AT_ONCE} and make disk web again for the VM, under another "
        "name: its pod may then go to w2: kubectl get datavolume web -n vms -o yaml; import, "
        "upload or restore its data before you delete the old one; or use StorageClass shared, "
        "whose volumes every node reaches; or, if such VMs may run on w1, label it so "
        "(kubectl label node w1 os=windows)"
    )


@pytest.mark.parametrize(
    ("mode", "gates", "own", "says"),
    [
        ("Immediate", HONORED, (), "StorageClass local chooses where a volume lies before"),
        ("WaitForFirstConsumer", (), (AT_ONCE,), "(HonorWaitForFirstConsumer is off)"),
    ],
    ids=["by its class", "as for each disk"],
)
def test_a_place_was_chosen_without_the_vm(mode, gates, own, says):
    found = misplaced(mode, gates, own=own)

    assert says in found.reason
    assert AT_ONCE not in found.reason


def full(items):
    """Let the VM demand nothing that w1 lacks but memory."""
    find(items, "Node", "w1")["metadata"]["labels"]["os"] = "windows"
    find(items, "Node", "w1")["status"]["allocatable"]["memory"] = "1Gi"


def dedicated(items):
    """Let a taint alone keep the VM off w1: it may pass."""
    find(items, "Node", "w1")["metadata"]["labels"]["os"] = "windows"
    tainted("dedicated", "w1")(items)


def other(items):
    """Let w1 have another value of the label, which nothing may change."""
    find(items, "Node", "w1")["metadata"]["labels"]["os"] = "linux"


def networked(items):
    """Let the VM demand what a controller writes to nodes with a network."""
    key = "network.harvesterhci.io/vlan10"
    affinity = find(items, "VirtualMachineInstance", "web")["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    term["matchExpressions"] = [{"key": key, "operator": "In", "values": ["true"]}]
    find(items, "Node", "w2")["metadata"]["labels"][key] = "true"


@pytest.mark.parametrize(("change", "hint"), [(other, False), (networked, True)])
def test_a_label_with_another_value_or_of_a_controller_is_not_set(change, hint):
    found = misplaced("WaitForFirstConsumer", disk=[AT_ONCE], change=change)

    label = "network.harvesterhci.io/vlan10=true"
    why = f"or see why w1 has no label {label}, which a controller may write"
    assert found.remedy.endswith(why) is hint
    assert "a pod of CDI chose that place" in found.reason
    assert "kubectl label" not in found.remedy


@pytest.mark.parametrize(
    ("disk", "change"),
    [((), None), ((AT_ONCE,), full), ((AT_ONCE,), dedicated)],
    ids=["not asked", "w1 is full", "w1 has a taint"],
)
def test_the_vm_chose_the_place_of_its_disk_or_lacks_room_there(disk, change):
    found = misplaced("WaitForFirstConsumer", disk=disk, change=change)

    assert "is on node w1 alone, where no node can run it (" in found.reason
    assert "chose" not in found.reason
    assert "restore the disk on another node" in found.remedy


# --- disks on different nodes ---------------------------------------------------------------------


def on_node(name, node):
    """Return a claim of a class, bound to a volume of one node."""
    return claim(
        name,
        modes=("ReadWriteOnce",),
        affinity={"kubernetes.io/hostname": node},
        storage_class="local",
    )


def apart(mode, *more):
    """Return what keeps a VM from starting whose two disks are on different nodes."""
    own = [
        each
        for each in starting("web", "Scheduling")
        if not each["kind"].startswith("PersistentVolume")
    ]
    for kind in ("VirtualMachine", "VirtualMachineInstance"):
        spec = find(own, kind, "web")["spec"]
        spec = spec["template"]["spec"] if kind == "VirtualMachine" else spec
        spec["volumes"] = [
            {"name": name, "persistentVolumeClaim": {"claimName": name}}
            for name in ("web", "web-data")
        ]
    local = obj("StorageClass", "storage.k8s.io/v1", "local", volumeBindingMode=mode)
    return stuck(
        [*plain(), *own, local, *on_node("web", "w1"), *on_node("web-data", "w2"), *more], "web"
    )


def imported(*gates):
    """Return CDI with these feature gates, and the DataVolumes of both disks."""
    cdi = obj(
        "CDI", "cdi.kubevirt.io/v1beta1", "cdi", spec={"config": {"featureGates": list(gates)}}
    )
    return [
        cdi,
        *(
            obj("DataVolume", "cdi.kubevirt.io/v1beta1", name, "vms")
            for name in ("web", "web-data")
        ),
    ]


def test_cdi_placed_each_disk_of_a_vm():
    found = apart("WaitForFirstConsumer", *imported("WebhookPvcRendering"))

    assert (
        "its claim web is on node w1 alone, its claim web-data is on node w2 alone" in found.reason
    )
    assert "WaitForFirstConsumer of StorageClass local has no effect" in found.reason
    assert found.remedy.startswith(
        "turn the feature gate HonorWaitForFirstConsumer of CDI on: kubectl patch cdi cdi "
    )
    assert "; then make disk web-data again, which is to lie where web does" in found.remedy
    assert (
        "delete its DataVolume while the VM is stopped, if its data can be imported" in found.remedy
    )
    assert '"featureGates":["WebhookPvcRendering","HonorWaitForFirstConsumer"]' in found.remedy


def test_a_class_that_binds_at_once_placed_each_disk_of_a_vm():
    found = apart("Immediate")

    assert "StorageClass local chooses where a volume lies before the pod of" in found.reason
    assert found.remedy.startswith(
        "use a StorageClass with WaitForFirstConsumer and make disk web-data again"
    )


def test_a_disk_of_a_template_is_made_again_after_its_template_is_changed():
    own = {"kind": "VirtualMachine", "name": "web", "controller": True}
    made = imported()[1:]
    for each in made:
        each["metadata"]["ownerReferences"] = [own]
    waits = obj("StorageClass", "storage.k8s.io/v1", "late")
    waits["volumeBindingMode"] = "WaitForFirstConsumer"
    found = apart("Immediate", *made, waits)

    assert found.remedy == (
        "use a StorageClass with WaitForFirstConsumer (late) for disk web-data in the "
        "dataVolumeTemplates of the VM: kubectl edit vm web -n vms; then stop the VM, delete "
        "DataVolume web-data if its data can be imported or restored, and start the VM: KubeVirt "
        "makes it again, to lie where web does (node w1)"
    )


def test_cdi_was_asked_not_to_wait_for_one_disk():
    *rest, data = imported(*HONORED)
    data["metadata"]["annotations"] = {AT_ONCE: ""}
    found = apart("WaitForFirstConsumer", *rest, data)

    assert f"DataVolume web-data has the annotation {AT_ONCE}" in found.reason


@pytest.mark.parametrize("more", [[], imported("HonorWaitForFirstConsumer"), imported()[:2]])
def test_no_setting_is_blamed_for_disks_that_were_placed_otherwise(more):
    found = apart("WaitForFirstConsumer", *more)

    assert found.reason.endswith(
        "its claim web-data is on node w2 alone. It does not start before that changes"
    )
    assert found.remedy.startswith(
        "make disk web-data again, which is to lie where web does (node w1)"
    )


def test_hyperconverged_that_was_not_read_may_write_the_objects():
    cdi, kubevirt = Object(imported()[0]), Object(find(plain(), "KubeVirt", "kubevirt"))
    read = Snapshot([cdi, kubevirt], ["*"])
    unread = Snapshot([cdi, kubevirt], ["kubevirts.kubevirt.io", "cdis.cdi.kubevirt.io"])

    for written in (cdi, kubevirt):
        assert not may_be_managed(written, read)
        assert may_be_managed(written, unread)
