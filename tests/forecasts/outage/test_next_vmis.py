"""When KubeVirt creates the next VMI of a lost VM.

``tests/upstream/restarts.py`` compares the same with its controllers.
"""

import pytest

from tests.forecasts.outage.losses import claim, disk, flat, lose, manifest, nhc, node, snapshot, vm
from virt_admit.model.kubernetes.kinds import VMIRS

NODES = [node("n1"), node("n2"), node("n3"), node("n4"), node("n5")]


def rows(*parts, loses=("n1",)):
    (one,) = lose(snapshot(NODES, *parts), *loses).outages
    return one.vms


def part(row, what):
    return next(((each.low, each.high) for each in row.parts if each.what == what), None)


def starting(strategy, failed=0, **more):
    """Return a VM whose guest has not run yet, after so many failed starts."""
    made = vm("db", "n1", strategy=strategy, status={"phase": "Scheduled"}, **more)
    made[1]["status"] = {"startFailure": {"consecutiveFailCount": failed}} if failed else {}
    return made


@pytest.mark.parametrize(
    ("strategy", "failed", "waits"),
    [
        ("Always", 0, (10, 15)),
        ("RerunOnFailure", 2, (90, 135)),
        ("Always", 4, (250, 300)),
        ("Always", 9, (300, 300)),
    ],
)
def test_a_vm_that_never_ran_waits_for_the_back_off(strategy, failed, waits):
    (row,) = rows(starting(strategy, failed), nhc())

    assert row.outcome == "restarts"
    assert part(row, "start back-off") == waits


def test_a_vm_that_ran_does_not_wait():
    (row,) = rows(vm("db", "n1"), nhc())

    assert part(row, "start back-off") is None


def test_volumes_are_detached_during_the_back_off():
    made = starting("Always", 4, volumes=[disk("data")])
    (row,) = rows(made, claim("data"), nhc(remediator="FenceAgentsRemediation"))

    assert part(row, "detached") == (60, 110)


# --- storage that fails over ----------------------------------------------------------------------


def replicated(copies="3"):
    """Return a VM with a LINSTOR volume, and the agents of the HA controller."""
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "db"}
    root = {"name": "root", "persistentVolumeClaim": {"claimName": "root"}}
    image = "quay.io/piraeusdatastore/piraeus-ha-controller:v1.3.1"
    made = vm("db", "n1")
    uid = next(each for each in made if each["kind"] == "VirtualMachineInstance")["metadata"]
    uid["uid"] = "v"
    csi = {"driver": "linstor.csi.linbit.com"}
    return [
        *made,
        manifest(
            "v1",
            "Pod",
            "virt-launcher-db",
            "default",
            metadata={"ownerReferences": [owner | {"uid": "v", "controller": True}]},
            spec={"nodeName": "n1", "volumes": [root]},
            status={"phase": "Running"},
        ),
        manifest("v1", "PersistentVolumeClaim", "root", "default", spec={"volumeName": "pv"}),
        manifest("v1", "PersistentVolume", "pv", spec={"csi": csi, "storageClassName": "s"}),
        manifest("storage.k8s.io/v1", "StorageClass", "s", parameters={"autoPlace": copies}),
        manifest(
            "apps/v1",
            "DaemonSet",
            "ha-controller",
            "piraeus",
            spec={"template": {"spec": {"containers": [{"image": image}]}}},
            status={"desiredNumberScheduled": 5, "numberReady": 5},
        ),
    ]


def test_storage_frees_a_vm_that_no_health_check_watches():
    (row,) = rows(replicated())
    assert (row.outcome, part(row, "failed over")) == ("restarts", (0, 30))
    assert "Piraeus' HA controller (DaemonSet piraeus/ha-controller) acts" in row.reason
    assert rows(replicated(copies="1"))[0].outcome == "never restarts"
    (unsure,) = rows(replicated(), loses=("n1", "n2"))
    assert "not known whether its volumes keep a quorum" in unsure.reason


# --- replica sets ---------------------------------------------------------------------------------


def replica(**spec):
    owner = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceReplicaSet",
        "name": "web",
        "uid": "rs",
    }
    made = vm("web-1", "n1", strategy=None, **spec)
    made[0]["metadata"]["ownerReferences"] = [owner | {"controller": True}]
    return made


def test_a_replica_set_needs_no_health_check():
    (row,) = rows(replica())

    assert row.outcome == "restarts"
    assert (
        row.reason
        == "its replica set makes another; it does once the old pod is marked for deletion"
    )
    assert part(row, "old pod marked for deletion") == (300, 300)
    assert row.at == (50 + 300 + 10, 55 + 300 + 120)


def test_a_replica_set_does_not_wait_for_a_slower_health_check():
    (row,) = rows(replica(), nhc())

    assert row.at.low == 50 + 300 + 10


FOREVER = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("parts", "loses"),
    [
        ([replica(tolerations=[FOREVER])], ("n1",)),
        ([replica(volumes=[disk("data")]), claim("data")], ("n1",)),
        ([replica()], ("n1", "n2", "n3")),
    ],
    ids=["its pod tolerates the taint", "its volume stays attached", "its zone is in trouble"],
)
def test_a_replica_set_waits_forever(parts, loses):
    (row,) = rows(*parts, loses=loses)

    assert row.outcome == "never restarts"


@pytest.mark.parametrize(("paused", "outcome"), [(True, "stays off"), (False, "restarts")])
def test_a_paused_replica_set_makes_no_other(paused, outcome):
    (row,) = rows(
        replica(),
        manifest("kubevirt.io/v1", VMIRS.kind, "web", "shop", spec={"paused": paused}),
        nhc(),
    )

    assert row.outcome == outcome


# --- pods that have ended, VMIs that are being deleted --------------------------------------------


def test_virt_controller_removes_a_pod_that_has_ended():
    made = vm("db", "n1")
    made[-1]["status"]["phase"] = "Failed"
    larger = node("n6")
    # what a pod that KubeVirt renders asks for, too
    larger["status"]["allocatable"]["ephemeral-storage"] = "50Gi"
    (row,) = rows(made, larger)

    assert row.outcome == "restarts"
    assert row.from_now
    assert part(row, "ended pod removed") == (0, 366)


def test_a_pod_that_has_ended_among_pods_that_are_not_all_read():
    made = vm("db", "n1")
    made[-1]["status"]["phase"] = "Failed"
    (one,) = lose(snapshot(NODES, made, unreadable=("pods",)), "n1").outages

    assert part(one.vms[0], "ended pod removed") is None


def test_a_pod_that_runs_waits_for_a_health_check():
    (row,) = rows(vm("db", "n1"))

    assert row.outcome == "never restarts"


@pytest.mark.parametrize(
    ("strategy", "asked", "outcome"),
    [
        ("Always", (), "restarts"),
        ("RerunOnFailure", (), "stays off"),
        ("RerunOnFailure", ("Start",), "restarts"),
        ("Manual", (), "stays off"),
        ("Manual", ("Start",), "restarts"),
        ("Once", (), "restarts"),
        ("Halted", (), "stays off"),
    ],
)
def test_a_vmi_that_was_deleted_before_the_loss(strategy, asked, outcome):
    made = list(flat(vm("db", "n1", strategy=strategy)))
    made[0]["metadata"]["deletionTimestamp"] = "2026-11-01T00:00:00Z"
    made[1]["status"] = {"stateChangeRequests": [{"action": action} for action in asked]}
    (row,) = rows(made, nhc())

    assert row.outcome == outcome
