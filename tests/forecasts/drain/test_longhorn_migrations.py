"""Volumes that Longhorn still migrates although their VM has arrived:
an idle engine keeps the old node from draining.
"""

import pytest

from tests.advice import risky
from tests.builders import manifest
from tests.forecasts.drain import operator_clusters as world
from tests.forecasts.drain.operator_clusters import LONGHORN
from tests.forecasts.drain.test_stuck_operators import engine, manager
from tests.forecasts.drain.vm_motion import NOW, ago, launcher, migration, vm, vmi
from virt_admit.forecasts.drain.budgets.drain_obstacles import Wait
from virt_admit.forecasts.drain.drain_plan import plan
from virt_admit.model.kubernetes.cluster import Snapshot


def volume(source="a", target="b"):
    """Return a volume with its engines, which Longhorn migrates from one node to the other."""
    used = {"namespace": "shop", "pvcName": "disk", "pvName": "pv-disk"}
    status = {
        "currentNodeID": source,
        "currentMigrationNodeID": target,
        "kubernetesStatus": used,
        "state": "attached",
    }
    found = manifest(
        "longhorn.io/v1beta2", "Volume", "v1", LONGHORN, spec={"numberOfReplicas": 2}, status=status
    )
    return [found, engine("v1-e-0", source), engine("v1-e-1", target)]


def attached(on):
    spec = {
        "nodeName": on,
        "source": {"persistentVolumeName": "pv-disk"},
        "attacher": "driver.longhorn.io",
    }
    return manifest(
        "storage.k8s.io/v1", "VolumeAttachment", f"csi-{on}", spec=spec, status={"attached": True}
    )


def guest(on="b", ended=7200, name="db", **state):
    disk = {"volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "disk"}}]}
    state = {
        "migrationUid": "uid-evacuation-1",
        "completed": True,
        "endTimestamp": ago(ended),
    } | state
    state |= {"sourceNode": "a", "targetNode": "b"}
    return [vm(name), vmi(name, on, spec=disk, migrationState=state), launcher(name, on)]


def drained(of, *objects, time=NOW, unreadable=(), to="ab"):
    """Return what a drain of one node meets at the budget of its instance manager."""
    managers = [manager("a", "v1-e-0"), manager("b", "v1-e-1")]
    copies = [world.replica("v1", on) for on in "bc"]
    attachments = [attached(on) for on in to]
    everything = [*world.longhorn(*copies), *managers, *attachments, *objects]
    return (
        plan(Snapshot(everything, complete=["*"], unreadable=unreadable, time=time), of)
        .nodes[0]
        .pods
    )


DONE = migration(phase="Succeeded", age=8000)


def test_the_migration_of_a_volume_that_nothing_ends_keeps_the_budget():
    (found,) = drained("a", *volume(), *guest(), DONE).blockers

    assert found.now
    assert found.subject == f"PodDisruptionBudget {LONGHORN}/instance-manager-a"
    assert "its engine still runs on a, though VM shop/db runs on b alone" in found.reason
    assert found.remedy.endswith(
        "not that of b: kubectl delete volumeattachments.storage.k8s.io csi-a"
    )
    assert not risky(f"{found.reason}: {found.remedy}")


@pytest.mark.parametrize("why", ["", "PausedIOError"])
def test_without_an_attachment_of_the_old_node_only_a_stop_of_the_vm_ends_it(why):
    """Longhorn waits for the engine of the new node, which has lost its replicas."""
    users = guest()
    if why:
        since = {"lastTransitionTime": ago(3600), "reason": why, "status": "True"}
        users[1].data["status"]["conditions"].append({"type": "Paused"} | since)
    (found,) = drained("a", *volume(), *users, DONE, to="b").blockers

    assert ("(its guest is paused by an I/O error for 60 min)" in found.reason) is bool(why)
    assert "No VolumeAttachment names a, " in found.reason
    assert "VolumeAttachment" not in found.remedy
    assert ": virtctl stop db -n shop; once the volume is detached, start it" in found.remedy
    assert not risky(f"{found.reason}: {found.remedy}")


def test_attachments_that_cannot_be_read_are_looked_at_first():
    unread = ["volumeattachments.storage.k8s.io"]
    (found,) = drained("a", *volume(), *guest(), DONE, to="b", unreadable=unread).blockers

    assert found.remedy.endswith(": kubectl get volumeattachments.storage.k8s.io")
    assert "No VolumeAttachment" not in found.reason


def test_an_engine_names_its_instance_manager_too():
    """The map of the instance manager is written later than the status of the engine."""
    disk, source, migrated = volume()
    source.data["status"]["instanceManagerName"] = "instance-manager-a"
    copies = [world.replica("v1", on) for on in "bc"]
    items = [
        *world.longhorn(*copies),
        manager("a"),
        disk,
        source,
        migrated,
        attached("a"),
        *guest(),
        DONE,
    ]
    (found,) = plan(Snapshot(items, complete=["*"], time=NOW), "a").nodes[0].pods.blockers

    assert (
        "Longhorn has not ended the migration of volume v1: its engine still runs on a"
        in found.reason
    )


def test_one_that_nothing_rolls_back_keeps_the_budget_of_its_target():
    """The VM has stayed: its migration failed."""
    (found,) = drained(
        "b", *volume(), *guest(on="a", failed=True), migration(phase="Failed", age=8000)
    ).blockers

    assert "its engine still runs on b, though VM shop/db runs on a alone" in found.reason


@pytest.mark.parametrize(
    ("objects", "time"),
    [
        pytest.param(
            [*volume(), *guest(ended=60), DONE], NOW, id="Kubernetes is still detaching it"
        ),
        pytest.param([*volume(), *guest(), DONE], None, id="the time is not known"),
        pytest.param(
            [*volume(), *guest(), DONE, migration("again", "Scheduling")],
            NOW,
            id="the VM migrates again",
        ),
        pytest.param(
            [*volume(), *guest(), DONE, launcher(suffix="0")], NOW, id="its old pod still runs"
        ),
        pytest.param(
            [*volume(target=""), *guest(on="a"), DONE], NOW, id="the volume does not migrate"
        ),
        pytest.param([*volume(), *guest(on="a")], NOW, id="the VM is still here"),
    ],
)
def test_a_volume_that_leaves_in_time_keeps_no_budget(objects, time):
    found = drained("a", *objects, time=time)

    assert found.blockers == ()
    assert [type(each) for each in found.waits] == [Wait]


@pytest.mark.parametrize(
    "plural", ["volumes.longhorn.io", "virtualmachineinstancemigrations.kubevirt.io"]
)
def test_what_cannot_be_read_is_not_taken_for_good(plural):
    found = [
        each
        for each in (*volume(), *guest(), DONE)
        if each.kind not in ("VirtualMachineInstanceMigration", "Volume")
    ]
    kept = volume()[:1] if plural.startswith("virtual") else []
    result = drained("a", *found, *kept, unreadable=[plural])

    assert result.blockers == ()
    assert any(plural in each for each in result.unseen), result.unseen


def of_another_node(release, *objects):
    """Return what a drain of one node meets where the budget of another one's instance manager
    selects its pod.
    """
    items = world.longhorn(*(world.replica("v1", on) for on in "bc"), *objects)
    by_name = {(each.kind, each.name): each for each in items}
    wrong = by_name["PodDisruptionBudget", "instance-manager-b"]
    wrong.data["spec"]["selector"]["matchLabels"]["longhorn.io/node"] = "a"
    items.remove(by_name["PodDisruptionBudget", "instance-manager-a"])
    for each in (each for each in items if each.kind == "InstanceManager"):
        each.data["spec"]["image"] = f"longhornio/longhorn-instance-manager:{release}"
    (found,) = plan(Snapshot(items, complete=["*"], time=NOW), "a").nodes[0].pods.blockers
    return found


@pytest.mark.parametrize(
    ("release", "begin"),
    [
        ("v1.4.1", "Update Longhorn (fixed in 1.3.3 and 1.4.2). Until then cordon b, wait until"),
        ("v1.6.2", "Cordon b, wait until Longhorn has removed the budget, and uncordon b: "),
        ("v1_20221003", "Cordon b, wait until"),
    ],
)
def test_only_an_old_longhorn_is_to_be_updated(release, begin):
    found = of_another_node(release, manager("a"), manager("b"))

    assert "Longhorn wrote it for the instance manager of b, but it selects that of a" in (
        found.reason
    )
    assert found.remedy.startswith(begin)


@pytest.mark.parametrize(
    ("users", "said"),
    [
        (guest(), "migrate VM shop/db off it, or stop what cannot migrate, as Longhorn keeps"),
        (
            [],
            "migrate what uses its volumes off it, or stop what cannot migrate, as Longhorn keeps",
        ),
    ],
)
def test_a_cordon_alone_frees_no_budget_of_a_node_with_engines(users, said):
    disk, *engines = volume(source="b", target="")
    engines = [manager("a"), manager("b", "v1-e-0"), *engines]
    found = of_another_node("v1.6.2", disk, *engines, *users)

    assert found.remedy.startswith(f"Cordon b, {said} the budget while engine v1-e-0 runs there. ")
    assert found.remedy.endswith("; then virtctl migrate db -n shop") is bool(users)
    assert not risky(f"{found.reason}: {found.remedy}")


def with_other_disk(users):
    other = [{"name": "root", "persistentVolumeClaim": {"claimName": "new"}}]
    users[0].data["spec"]["template"] = {"spec": {"domain": {}, "volumes": other}}
    return users


def test_a_vm_whose_next_start_boots_another_disk_is_not_stopped_before_it_names_its_own():
    (found,) = drained("a", *volume(), *with_other_disk(guest()), DONE, to="b").blockers

    assert found.remedy.startswith("Do not restart it, or let a drain shut it down: its next start")
    assert found.remedy.endswith(
        "; after that, stop VM shop/db, so that Longhorn detaches the volume from both nodes; once "
        "the volume is detached, start it again"
    )
    assert "virtctl" not in found.remedy
    assert not risky(f"{found.reason}: {found.remedy}")


def test_each_vm_of_a_volume_names_the_disks_of_its_guest_before_the_stop():
    users = [*guest(name="app"), *with_other_disk(guest()), *with_other_disk(guest(name="web"))]
    (found,) = drained("a", *volume(), *users, DONE, to="b").blockers

    own, further = found.remedy.split("; after that, ")
    assert ": kubectl patch vm db -n shop " in own
    assert "app" not in own
    begin, _, stop = further.partition("; then ")
    assert begin.startswith("name the disks of its guest in VM shop/web too (kubectl patch vm web ")
    assert stop.startswith("stop VM shop/app, shop/db, shop/web, so that Longhorn detaches")
    assert stop.endswith("; once the volume is detached, start them again")
    assert "virtctl" not in found.remedy
