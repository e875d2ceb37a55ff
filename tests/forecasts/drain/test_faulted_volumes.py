"""VMs that do not start because all copies of a Longhorn volume have failed,
so that no node can attach it.
"""

import pytest

from tests.builders import complete
from tests.forecasts.drain.test_start_obstacles import stuck
from tests.healthy.clusters import plain
from tests.healthy.machines import storage_class
from tests.healthy.parts import ago, obj
from tests.incidents.machines import find
from tests.incidents.starts import FAULTED, replica, with_longhorn
from virt_admit.forecasts.drain.starts import longhorn_room
from virt_admit.model.kubernetes.objects import Object


def waiting(*replicas, change=lambda _: None, **status):
    items = (
        plain()
        + storage_class("longhorn", "driver.longhorn.io")
        + with_longhorn("web", *replicas, **status)
    )
    change(items)
    return stuck(items, "web")


def test_all_copies_have_failed():
    found = waiting(replica("w1", failed=141), replica("w2", failed=150))

    assert found.reason == (
        f"Longhorn volume {FAULTED} of claim web is faulted: both its copies (w1, w2) failed 2 h "
        "21 ago, so no node can attach it. This does not end by itself"
    )
    assert found.remedy.startswith(
        "check the disks of w1, w2, then salvage the volume in Longhorn with its newest copy, or"
    )
    assert found.remedy.endswith(
        f"kubectl describe volumes.longhorn.io {FAULTED} -n longhorn-system"
    )


def auto_salvage(value):
    api, where = "longhorn.io/v1beta2", "longhorn-system"
    return obj("Setting", api, "auto-salvage", where, value=value)


@pytest.mark.parametrize("value", ["true", "false"])
def test_longhorn_may_be_told_to_salvage_nothing(value):
    found = waiting(
        replica("w1", failed=141), change=lambda items: items.append(auto_salvage(value))
    )

    assert ("its setting auto-salvage is false" in found.reason) is (value == "false")
    assert ("kubectl patch settings.longhorn.io auto-salvage" in found.remedy) is (value == "false")


def lose(items):
    for condition in find(items, "Node", "w1")["status"]["conditions"]:
        condition["status"] = "Unknown"


def test_a_copy_on_a_node_that_does_not_report_may_come_back():
    found = waiting(replica("w1", failed=141), change=lose)

    assert "its only copy (w1) failed 2 h 21 ago" in found.reason
    assert found.reason.endswith("Longhorn may salvage it once w1 reports again")
    assert found.remedy.startswith("repair w1: kubectl")


def test_a_node_that_comes_back_does_not_suffice_where_nothing_is_salvaged():
    def change(items):
        lose(items)
        items.append(auto_salvage("false"))

    found = waiting(replica("w1", failed=141), change=change)

    assert found.reason.endswith(
        "and Longhorn salvages none even once w1 reports again, as its setting auto-salvage is "
        "false. This does not end by itself"
    )
    assert found.remedy.startswith(
        "repair w1, then let Longhorn salvage volumes by itself: kubectl patch settings.longhorn.io"
    )


@pytest.mark.parametrize(
    ("nodes", "kept", "begin"),
    [
        (["w8"], [], "restore a backup, or bring w8 back with the former disks and name: kubectl"),
        (["w8", "w9"], [], "restore a backup, or bring w8, w9 back with the former disks and name"),
        (["w1", "w8"], [], "check the disks of w1, then salvage the volume"),
        (["w8"], ["w8"], "check the disks of w8, then salvage the volume"),
    ],
)
def test_copies_on_nodes_that_are_gone(nodes, kept, begin):
    known = [obj("Node", "longhorn.io/v1beta2", each, "longhorn-system") for each in kept]
    found = waiting(
        *(replica(each, failed=141) for each in nodes), change=lambda items: items.extend(known)
    )

    assert found.remedy.startswith(begin)
    gone = begin.startswith("restore")
    assert ("gone from the cluster, so that no copy can be salvaged" in found.reason) is gone


def unplaced(number):
    """Return copies for which Longhorn has found no disk."""
    fields = {"volumeName": FAULTED, "nodeID": "", "healthyAt": "", "failedAt": ""}
    name = f"{FAULTED}-r-{number}"
    return obj("Replica", "longhorn.io/v1beta2", name, "longhorn-system", spec=fields)


def not_scheduled(message):
    return [
        {
            "type": "Scheduled",
            "status": "False",
            "reason": "ReplicaSchedulingFailure",
            "message": message,
        }
    ]


@pytest.mark.parametrize("robustness", ["faulted", "unknown"])
def test_copies_that_were_never_placed(robustness):
    said = not_scheduled("insufficient storage;precheck new replica failed")
    found = waiting(unplaced(1), unplaced(2), robustness=robustness, conditions=said)

    assert found.reason == (
        f"Longhorn has placed none of the 2 copies of volume {FAULTED} (claim web) on a disk: "
        "insufficient storage;precheck new replica failed. No node can attach it before that. This "
        "does not end by itself"
    )
    assert found.remedy.startswith("give Longhorn more room on 2 nodes: another disk or node")
    assert found.remedy.endswith("kubectl describe nodes.longhorn.io -n longhorn-system")
    assert "salvage" not in found.remedy
    assert "?" not in f"{found.reason}{found.remedy}"


def longhorn_node(name, scheduled, **disk):
    """Return a node with a disk of 260 GiB of which 60 GiB are reserved."""
    spec = {"allowScheduling": True, "storageReserved": 60 * 2**30, **disk}
    status = {"storageMaximum": 260 * 2**30, "storageScheduled": scheduled * 2**30}
    return obj(
        "Node",
        "longhorn.io/v1beta2",
        name,
        "longhorn-system",
        spec={"allowScheduling": True, "disks": {"d": spec}},
        status={"diskStatus": {"d": status | {"storageAvailable": 120 * 2**30}}},
    )


@pytest.mark.parametrize(
    ("disks", "says"),
    [
        (
            [("w1", 190, {}), ("w2", 195, {})],
            "at most 10 GiB are left (w1: 190 of 200 GiB scheduled",
        ),
        (
            [("w1", 10, {"allowScheduling": False}), ("w2", 195, {})],
            "at most 5 GiB are left (w2: 195 of 200 GiB",
        ),
        ([("w1", 190, {}), ("w2", 20, {})], ""),
        ([], ""),
    ],
)
def test_the_room_that_longhorn_counts(disks, says):
    """Free space of a disk does not count, but the sizes of the volumes that are placed there."""
    setting = obj(
        "Setting",
        "longhorn.io/v1beta2",
        "storage-over-provisioning-percentage",
        "longhorn-system",
        value="100",
    )
    nodes = [longhorn_node(name, scheduled, **disk) for name, scheduled, disk in disks]
    cluster = complete(*map(Object, [setting, *nodes]))
    found = longhorn_room.words(100 * 2**30, "longhorn-system", cluster)
    assert says in found
    assert bool(says) == bool(found)
    assert "60 of 260 GiB reserved)" in found or not says


def resting(name, claim, state="detached", node="w1"):
    """Return a volume of Longhorn of 40 GiB with a copy."""
    seen = {"namespace": "vms", "pvcName": claim}
    status = {"state": state, "robustness": "unknown", "kubernetesStatus": seen}
    api, where = "longhorn.io/v1beta2", "longhorn-system"
    copy = {"volumeName": name, "nodeID": node}
    return [
        obj("Volume", api, name, where, spec={"size": str(40 * 2**30)}, status=status),
        obj("Replica", api, f"{name}-r", where, spec=copy),
    ]


def named_by(claim):
    volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": claim}}]
    vm = {"template": {"spec": {"volumes": volumes}}}
    return [
        obj("VirtualMachine", "kubevirt.io/v1", "off", "vms", spec=vm),
        obj("Pod", "v1", "job", "vms", spec={"volumes": []}, status={"phase": "Running"}),
    ]


def replaced(*claims, another=False):
    """Return a restore of Harvester whose backup held these claims."""
    restores = [{"volumeBackupName": f"bak-{each}"} for each in claims]
    api = "harvesterhci.io/v1beta1"
    own = {"spec": {"newVM": another}, "status": {"restores": restores}}
    return [
        obj("VirtualMachineRestore", api, "restore-web", "vms", **own),
        *(
            obj(
                "VolumeSnapshot",
                "snapshot.storage.k8s.io/v1",
                f"bak-{each}",
                "vms",
                spec={"source": {"persistentVolumeClaimName": each}},
            )
            for each in claims
        ),
    ]


def templated(kind, claim):
    volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": claim}}]
    spec = {"replicas": 0, "template": {"spec": {"volumes": volumes}}}
    return [obj(kind, "apps/v1", "off", "vms", spec=spec)]


def source(claim):
    spec = {"source": {"pvc": {"name": claim, "namespace": "vms"}}}
    return [obj("DataSource", "cdi.kubevirt.io/v1beta1", "image", "elsewhere", spec=spec)]


LEFT = resting("v-1", "left") + replaced("left")


@pytest.mark.parametrize(
    ("objects", "told"),
    [
        (LEFT, "claim vms/left, which a restore has replaced, together 40 GiB: check what it"),
        (
            resting("v-1", "left") + resting("v-2", "old") + replaced("left", "old"),
            "claims vms/left, vms/old, which a restore has replaced, together 80 GiB: check what",
        ),
        (LEFT + named_by("left"), ""),
        (LEFT + templated("StatefulSet", "left"), ""),
        (LEFT + templated("Deployment", "left"), ""),
        (LEFT + source("left"), ""),
        (resting("v-1", "left"), ""),
        (resting("v-1", "left") + replaced("left", another=True), ""),
        (resting("v-1", "left", state="attached") + replaced("left"), ""),
        (resting("v-1", "left", node="") + replaced("left"), ""),
        (resting("v-1", "") + replaced(""), ""),
    ],
    ids=[
        *("one", "two", "a VM that is off names it", "a StatefulSet without replicas"),
        *("a Deployment without replicas", "a DataSource", "no restore", "another VM"),
        *("attached", "no copy", "no claim"),
    ],
)
def test_claims_that_a_restore_has_replaced_take_room_too(objects, told):
    said = not_scheduled("insufficient storage")
    found = waiting(unplaced(1), conditions=said, change=lambda items: items.extend(objects))

    assert told in found.remedy
    assert ("no VM and no pod uses" in found.remedy) is bool(told)


def halted(claim, strategy="Halted"):
    volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": claim}}]
    spec = {"runStrategy": strategy, "template": {"spec": {"volumes": volumes}}}
    return [obj("VirtualMachine", "kubevirt.io/v1", "old", "vms", spec=spec)]


@pytest.mark.parametrize(
    ("objects", "told"),
    [
        (resting("v-1", "left") + halted("left"), True),
        (resting("v-1", "left") + halted("left", "Always"), False),
        (resting("v-1", "left") + halted("other"), False),
        (resting("v-1", "left", state="attached") + halted("left"), False),
    ],
)
def test_volumes_of_stopped_vms_take_room_too(objects, told):
    said = not_scheduled("insufficient storage")
    found = waiting(unplaced(1), conditions=said, change=lambda items: items.extend(objects))

    of_them = (
        "(stopped VMs have vms/old 40 GiB: as a decision, since their data goes with a volume)"
    )
    assert (of_them in found.remedy) is told
    assert "or, as a decision, a larger storage-over-provisioning-percentage" in found.remedy


@pytest.mark.parametrize("harvester", [True, False])
def test_the_setting_with_the_share_of_a_disk(harvester):
    def change(items):
        labels = {"harvesterhci.io/managed": "true"} if harvester else {}
        find(items, "Node", "w1")["metadata"]["labels"] |= labels
        name = "storage-over-provisioning-percentage"
        items.append(obj("Setting", "longhorn.io/v1beta2", name, "longhorn-system", value="100"))

    found = waiting(unplaced(1), conditions=not_scheduled("insufficient storage"), change=change)

    assert "storage-over-provisioning-percentage (100 now)" in found.remedy
    assert ("Harvester's setting overcommit-config" in found.remedy) is harvester


@pytest.mark.parametrize(
    ("reader", "read", "objects"),
    [
        (longhorn_room.unused, "_replaced", LEFT),
        (longhorn_room.of_stopped, "_resting", resting("v-1", "left") + halted("left")),
    ],
)
def test_what_rests_is_read_once_for_all_vms(reader, read, objects, monkeypatch):
    cluster, runs = complete(*map(Object, objects)), []
    of = getattr(longhorn_room, read)
    monkeypatch.setattr(longhorn_room, read, lambda known: runs.append(1) or of(known))

    assert reader(cluster) == reader(cluster) != ""
    assert runs == [1]


def test_copies_that_no_disk_may_take():
    found = waiting(unplaced(1), conditions=not_scheduled("tags not fulfilled"))
    assert "no copy of volume" in found.reason
    assert found.remedy.startswith("give Longhorn nodes and disks that may take the copies")


def test_copies_that_wait_for_a_node_which_reboots():
    said = not_scheduled("disks are unavailable;nodes are unavailable")
    found = waiting(unplaced(1), conditions=[said[0] | {"lastTransitionTime": ago(minutes=20)}])
    assert found.reason.endswith("This ends when a node can take it")

    assert (
        waiting(unplaced(1), conditions=[said[0] | {"lastTransitionTime": ago(seconds=20)}]) is None
    )


def test_a_copy_without_a_node_beside_one_that_failed():
    found = waiting(
        unplaced(1), replica("w1", failed=141), conditions=not_scheduled("insufficient storage")
    )
    assert "its only copy (w1) failed 2 h 21 ago" in found.reason


def test_a_new_volume_whose_copies_are_placed_is_no_obstacle():
    placed = [{"type": "Scheduled", "status": "True"}]
    found = waiting(unplaced(1), robustness="unknown", conditions=placed)
    assert found is None or "Longhorn" not in found.reason


@pytest.mark.parametrize("copies", [(), (replica("w1", failed=141), replica("w2"))])
def test_copies_that_are_not_known_to_have_failed(copies):
    found = waiting(*copies)

    assert (
        found.reason
        == f"Longhorn volume {FAULTED} of claim web is faulted, so no node can attach it"
    )
    assert "salvage" not in found.remedy


@pytest.mark.parametrize("status", [{"robustness": "unknown"}, {"state": "attached"}])
def test_a_volume_that_is_detached_or_comes_back_is_no_obstacle(status):
    found = waiting(replica("w1", failed=141), **status)
    assert found is None or "Longhorn" not in found.reason


def test_a_volume_of_another_driver_has_no_copies():
    other = obj(
        "PersistentVolume", "v1", "pv-web", spec={"csi": {"driver": "rbd", "volumeHandle": FAULTED}}
    )

    def swap(items):
        items[:] = [each for each in items if each["kind"] != "PersistentVolume"] + [other]

    found = waiting(replica("w1", failed=141), change=swap)
    assert found is None or "Longhorn" not in found.reason
