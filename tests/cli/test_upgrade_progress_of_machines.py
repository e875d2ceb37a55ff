"""``virt-admit upgrade`` while Cluster API replaces the Machines of nodes: what is done."""

import pytest

from tests.builders import manifest
from tests.cli.test_upgrade import kubevirt, node, vm
from tests.cli.test_upgrade_progress import AN_HOUR_AGO, cluster, progress, updaters
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse

CAPI = "cluster.x-k8s.io/v1beta2"


def machine(name, on, up_to_date=True, deleting=""):
    metadata = {"labels": {"cluster.x-k8s.io/deployment-name": "workers"}}
    conditions = [{"type": "UpToDate", "status": str(up_to_date)}]
    if deleting:
        metadata["deletionTimestamp"] = AN_HOUR_AGO
        conditions.append(
            {
                "type": "Deleting",
                "status": "True",
                "reason": deleting,
                "message": "* hook migrate-vms",
            }
        )
    return manifest(
        CAPI,
        "Machine",
        name,
        "capi",
        metadata=metadata,
        status={"nodeRef": {"name": on}, "conditions": conditions},
    )


@pytest.mark.parametrize(
    ("reason", "phase"),
    [
        ("WaitingForPreDrainHook", "draining"),
        ("DrainingNode", "draining"),
        ("WaitingForVolumeDetach", "draining"),
        ("WaitingForInfrastructureDeletion", "updating"),
    ],
)
def test_a_roll_out_of_cluster_api(reason, phase):
    found = cluster(
        *map(node, "abc"),
        manifest(CAPI, "MachineDeployment", "workers", "capi"),
        machine("m-a", "a"),
        machine("m-b", "b", up_to_date=False, deleting=reason),
        machine("m-c", "c", up_to_date=False),
        kubevirt(),
    )
    given = progress(found)

    assert (given["done"], given["waiting"], given["next"]) == (["a"], ["c"], [])
    assert given["in_flight"] == [
        {
            "node": "b",
            "phase": phase,
            "since": AN_HOUR_AGO,
            "waits_for": f"{reason}: * hook migrate-vms",
        }
    ]
    assert updaters(found)["c"]["phase"] == "waiting"


def test_machines_of_the_newest_machine_set_are_done():
    def machine_set(name, revision):
        return manifest(
            CAPI,
            "MachineSet",
            name,
            "capi",
            metadata={
                "labels": {"cluster.x-k8s.io/deployment-name": "workers"},
                "annotations": {"machinedeployment.clusters.x-k8s.io/revision": revision},
            },
        )

    def of_set(name, on, owner):
        found = machine(name, on)
        found.data["metadata"]["ownerReferences"] = [{"kind": "MachineSet", "name": owner}]
        del found.data["status"]["conditions"]
        return found

    found = cluster(
        *map(node, "ab"),
        manifest(CAPI, "MachineDeployment", "workers", "capi"),
        machine_set("old", "9"),
        machine_set("new", "10"),
        of_set("m-a", "a", "new"),
        of_set("m-b", "b", "old"),
        kubevirt(),
    )

    assert (progress(found)["done"], progress(found)["next"]) == (["a"], ["b"])


def dead(name):
    found = node(name)
    found.data["status"]["conditions"][0]["status"] = "Unknown"
    return found


def test_a_machine_that_is_deleted_for_another_reason_and_a_dead_node_are_no_roll_out():
    deployment = manifest(CAPI, "MachineDeployment", "workers", "capi")
    deleted = machine("m-b", "b", deleting="DrainingNode")
    found = cluster(
        node("a"),
        node("b"),
        dead("c"),
        deployment,
        machine("m-a", "a"),
        deleted,
        machine("m-c", "c"),
    )

    assert progress(found) is None
    assert {name: each and each["phase"] for name, each in updaters(found).items()} == {
        "a": None,
        "b": "draining",
        "c": None,
    }


def test_a_deployment_that_counts_older_machines_rolls_out():
    deployment = manifest(
        CAPI, "MachineDeployment", "workers", "capi", status={"replicas": 3, "upToDateReplicas": 2}
    )
    deleted = machine("m-b", "b", deleting="DrainingNode")
    found = cluster(
        node("a"),
        node("b"),
        dead("c"),
        deployment,
        machine("m-a", "a"),
        deleted,
        machine("m-c", "c"),
    )

    assert progress(found)["done"] == ["a"]
    assert [(each["node"], each["phase"]) for each in progress(found)["in_flight"]] == [
        ("b", "draining"),
        ("c", "returning"),
    ]


def starting(name):
    found = machine(name, "-")
    del found.data["status"]["nodeRef"]
    found.data["metadata"]["creationTimestamp"] = AN_HOUR_AGO
    return found


@pytest.mark.parametrize(("may_be_missing", "waits"), [(0, True), (1, False)])
def test_a_new_machine_that_starts_comes_before_the_old_ones(may_be_missing, waits):
    limits = {"maxSurge": 1, "maxUnavailable": may_be_missing}
    rollout = {"strategy": {"type": "RollingUpdate", "rollingUpdate": limits}}
    found = cluster(
        *map(node, "ab"),
        manifest(
            CAPI, "MachineDeployment", "workers", "capi", spec={"replicas": 2, "rollout": rollout}
        ),
        machine("m-a", "a", up_to_date=False),
        machine("m-b", "b", up_to_date=False),
        starting("m-c"),
        kubevirt(),
    )

    notes = [
        "Machine m-c starts for 60 min, and MachineDeployment workers deletes no old Machine "
        "before it is a Node: times count from then"
    ]
    given = progress(found)
    assert given["notes"] == (notes if waits else [])
    assert "a" in given["next"]


@pytest.mark.parametrize(
    ("memory", "migratable", "lost"),
    [
        ("4Gi", "True", ""),
        ("60Gi", "True", "LiveMigrate, but no other node can take it: memory: "),
        ("4Gi", "False", "LiveMigrate, but cannot migrate: "),
    ],
    ids=["it moves", "no room", "it cannot move"],
)
def test_a_vm_that_stays_until_the_time_out_of_the_drain_is_lost_and_stops_nothing(
    memory, migratable, lost
):
    own = machine("m-b", "b", up_to_date=False, deleting="DrainingNode")
    own.data["metadata"]["deletionTimestamp"] = "2027-03-01T11:58:00Z"
    own.data["spec"] = {"deletion": {"nodeDrainTimeoutSeconds": 3600}}
    objects = [
        node("a", memory="32Gi"),
        node("b"),
        manifest(CAPI, "MachineDeployment", "workers", "capi"),
        machine("m-a", "a"),
        own,
        vm("db", "b", memory=memory, migratable=migratable),
        kubevirt(),
    ]
    result = rehearse(cluster(*objects), Options())
    ends = "at 12:58 UTC: VMs that still run then are lost with the node"
    assert result.possible
    assert any(note.endswith(ends) for note in result.progress.notes)
    named = [note for note in result.progress.notes if note.startswith("Lost with b then: ")]
    assert bool(named) is bool(lost)
    (moves,) = result.vms
    assert bool(moves.shutdowns) is bool(lost)
    assert not moves.is_down_in_place
    if lost:
        assert named[0].startswith(f"Lost with b then: shop/db: {lost}")
        assert moves.downtime is None
    del own.data["spec"]
    assert rehearse(cluster(*objects), Options()).possible is (not lost)


def test_nodes_of_a_deployment_that_does_not_roll_are_not_counted_as_done():
    other = machine("g-d", "d")
    other.data["metadata"]["labels"]["cluster.x-k8s.io/deployment-name"] = "gpu"
    found = cluster(
        *map(node, "abcd"),
        *(manifest(CAPI, "MachineDeployment", name, "capi") for name in ("gpu", "workers")),
        machine("m-a", "a"),
        machine("m-b", "b", up_to_date=False, deleting="DrainingNode"),
        machine("m-c", "c", up_to_date=False),
        other,
        kubevirt(),
    )
    given = progress(found)
    assert (given["done"], given["waiting"]) == (["a"], ["c"])


@pytest.mark.parametrize(("on", "asked"), [("a", False), ("c", True)])
def test_a_vm_is_asked_about_only_where_its_node_is_left_to_do(on, asked):
    own, instance = vm("upf", on, strategy="External")
    own.data["metadata"]["labels"] = {"vnf.example.net/name": "upf"}
    found = cluster(
        *map(node, "abc"),
        manifest(CAPI, "MachineDeployment", "workers", "capi"),
        machine("m-a", "a"),
        machine("m-b", "b", up_to_date=False, deleting="DrainingNode"),
        machine("m-c", "c", up_to_date=False),
        own,
        instance,
        kubevirt(),
    )
    said = [each for each in rehearse(found, Options()).unseen if "shop/upf" in each]
    assert said == ["whether the controller that has to move shop/upf does so"] * asked
