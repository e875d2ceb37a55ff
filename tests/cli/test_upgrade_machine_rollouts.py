"""``virt-admit upgrade`` with Cluster API: Machines of several namespaces and clusters,
and what was not read.
"""

from datetime import timedelta

import pytest

from tests.builders import manifest
from tests.cli.test_upgrade import kubevirt, node, vm
from tests.cli.test_upgrade_progress import NOW, cluster, progress
from tests.cli.test_upgrade_progress_of_machines import CAPI, machine
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.drain.progress import start as drain_start
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.forecasts.upgrade.rollouts import Driver
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.node_updates import cordoners
from virt_admit.reports.drain import text


def deployment(namespace="capi", **fields):
    return manifest(CAPI, "MachineDeployment", "workers", namespace, **fields)


def machine_set(name, revision, namespace="capi"):
    metadata = {
        "labels": {"cluster.x-k8s.io/deployment-name": "workers"},
        "annotations": {"machinedeployment.clusters.x-k8s.io/revision": revision},
    }
    return manifest(CAPI, "MachineSet", name, namespace, metadata=metadata)


def machine_of_set(on, owner, namespace="capi"):
    """Return a Machine of API version v1beta1, which has no condition UpToDate."""
    metadata = {
        "labels": {"cluster.x-k8s.io/deployment-name": "workers"},
        "ownerReferences": [{"kind": "MachineSet", "name": owner}],
    }
    return manifest(
        CAPI, "Machine", f"m-{on}", namespace, metadata=metadata, status={"nodeRef": {"name": on}}
    )


def test_machine_sets_that_were_not_read_do_not_make_machines_done():
    objects = [
        *map(node, "abc"),
        deployment(status={"replicas": 3, "updatedReplicas": 1}),
        machine_of_set("a", "new"),
        machine_of_set("b", "old"),
        machine_of_set("c", "old"),
        kubevirt(),
    ]
    found = Snapshot(objects, ("*",), ("machinesets.cluster.x-k8s.io",), time=NOW)
    result = rehearse(found, Options())

    assert (result.possible, result.unseen) == (None, ("machinesets.cluster.x-k8s.io",))
    assert (progress(found)["done"], progress(found)["next"]) == ([], [])
    assert rehearse(found, Options(from_start=True)).possible is True


def test_machines_of_other_clusters_are_no_upgrade_of_this_one():
    """A management cluster has the Machines of the clusters that run in its VMs."""
    machines = machine("m-1", "tenant-1"), machine("m-2", "tenant-2", up_to_date=False)
    found = cluster(*map(node, "ab"), deployment(), *machines, vm("db", "a"), kubevirt())

    done = rehearse(found, Options())
    assert (done.driver, done.possible, progress(found)) == (Driver.PLAIN, True, None)
    assert rehearse(found, Options(driver=Driver.PLAIN)).possible is True


def test_machine_deployments_of_the_same_name_in_two_namespaces():
    found = cluster(
        *map(node, "abcd"),
        deployment(),
        deployment("two"),
        machine_set("old", "1"),
        machine_set("new", "2"),
        machine_set("only", "1", "two"),
        machine_of_set("a", "new"),
        machine_of_set("b", "old"),
        machine_of_set("c", "only", "two"),
        machine_of_set("d", "only", "two"),
        kubevirt(),
    )
    result = rehearse(found, Options())

    assert result.possible is True
    assert [wave.nodes for wave in result.waves] == [("b",)]
    assert (progress(found)["done"], progress(found)["next"]) == (["a"], ["b"])


def test_a_drain_that_ended_in_an_error_of_its_controller_has_not_ended():
    deleted = machine("m-b", "b", up_to_date=False, deleting="InternalError")
    found = cluster(
        *map(node, "ab"), deployment(), machine("m-a", "a"), deleted, vm("db", "b"), kubevirt()
    )

    assert [(each["phase"], each["waits_for"]) for each in progress(found)["in_flight"]] == [
        ("draining", "shop/db")
    ]


def deleted(reason, hook=""):
    found = machine("m-b", "b", up_to_date=False, deleting=reason)
    if hook:
        found.data["metadata"]["annotations"] = {
            f"pre-drain.delete.hook.machine.cluster.x-k8s.io/{hook}": "storage-team"
        }
    return found


def waiting(minutes, **spec):
    """Return a Machine that has waited for its volumes."""
    found = deleted("WaitingForVolumeDetach")
    since = clock.stamp(clock.instant(NOW) - timedelta(minutes=minutes))
    found.data["status"]["deletion"] = {"waitForNodeVolumeDetachStartTime": since}
    return Object({**found.data, "spec": spec})


STUCK = manifest(
    "storage.k8s.io/v1",
    "VolumeAttachment",
    "csi-1",
    metadata={"deletionTimestamp": NOW},
    spec={"nodeName": "b", "source": {"persistentVolumeName": "pv-1"}},
    status={"detachError": {"message": "volume is locked"}},
)


@pytest.mark.parametrize(
    ("own", "says"),
    [
        (deleted("DrainingNode"), ""),
        (
            deleted("WaitingForPreDrainHook", "move-data"),
            "removes the pre-drain hook move-data of storage-team",
        ),
        (waiting(9), ""),
        (
            waiting(11),
            (
                "when volumes pv-1 of b are detached (volume is locked): Machine capi/m-b has "
                "waited for that for 11 min"
            ),
        ),
        (waiting(11, nodeVolumeDetachTimeout="1h"), ""),
        (waiting(11, deletion={"nodeVolumeDetachTimeoutSeconds": 60}), ""),
    ],
)
def test_a_deletion_without_a_known_end(own, says):
    found = cluster(
        *map(node, "ab"), deployment(), machine("m-a", "a"), own, STUCK, vm("db", "b"), kubevirt()
    )
    result = rehearse(found, Options())

    assert result.possible is (None if says else True)
    assert says in " ".join(result.unseen)


def test_a_pod_that_a_drain_leaves_keeps_the_volume():
    claim = manifest("v1", "PersistentVolumeClaim", "buffer", "logs", spec={"volumeName": "pv-1"})
    disks = [{"name": "b", "persistentVolumeClaim": {"claimName": "buffer"}}]
    owner = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "shipper", "controller": True}]
    held = [
        manifest(
            "v1", "Pod", f"shipper-{on}", "logs",
            metadata={"ownerReferences": owner}, spec={"nodeName": on, "volumes": disks},
            status={"phase": "Running"},
        )
        for on in "ab"
    ]  # fmt: skip
    own = waiting(11)
    items = [*map(node, "ab"), deployment(), machine("m-a", "a"), own, STUCK, *held, kubevirt()]
    result = rehearse(cluster(*items, claim), Options())
    (stop,) = result.stops

    assert (result.possible, stop.node, result.unseen) == (False, "b", ())
    assert stop.reason.startswith(
        "Pod logs/shipper-b: no drain ends it, and its volume pv-1 stays attached"
    )
    assert stop.remedy.startswith(
        "Keep pod logs/shipper-b off this node; or set nodeVolumeDetachTimeout"
    )
    (says,) = rehearse(cluster(*items), Options()).unseen  # whose claim has the volume is not known
    assert says.endswith("set its nodeVolumeDetachTimeout")
    held[1].data["metadata"]["deletionTimestamp"] = NOW
    (says,) = rehearse(cluster(*items, claim), Options()).unseen
    assert says.endswith(
        "keep pod logs/shipper-b, which uses them, off this node, or set its "
        "nodeVolumeDetachTimeout"
    )


def terminating(minutes):
    """Return a Machine whose node was drained and whose hook stays."""
    found = deleted("WaitingForPreTerminateHook")
    found.data["metadata"]["annotations"] = {
        "pre-terminate.delete.hook.machine.cluster.x-k8s.io/etcd": ""
    }
    since = clock.stamp(clock.instant(NOW) - timedelta(minutes=minutes))
    waits = {
        "type": "PreTerminateDeleteHookSucceeded",
        "status": "False",
        "lastTransitionTime": since,
    }
    found.data["status"]["conditions"].append(waits)
    return found


@pytest.mark.parametrize(
    ("own", "says"),
    [
        (waiting(9), ""),
        (waiting(11), "when volumes pv-1 of b are detached (volume is locked): Machine capi/m-b"),
        (waiting(11, nodeVolumeDetachTimeout="1h"), ""),
        (terminating(9), ""),
        (
            terminating(11),
            (
                "removes the pre-terminate hook etcd of Machine capi/m-b, which has waited for "
                "that for 11 min"
            ),
        ),
    ],
)
def test_a_machine_that_is_deleted_alone(own, says):
    """No roll-out is under way: a health check or an administrator deletes one Machine."""
    current = {"type": "UpToDate", "status": "True"}
    own.data["status"]["conditions"] = [
        current if each["type"] == "UpToDate" else each for each in own.data["status"]["conditions"]
    ]
    found = cluster(
        *map(node, "ab"), deployment(), machine("m-a", "a"), own, STUCK, vm("db", "b"), kubevirt()
    )
    result = rehearse(found, Options())

    assert (result.possible, result.progress) == (None if says else True, None)
    assert says in " ".join(result.unseen)


@pytest.mark.parametrize("minutes", [9, 11])
def test_a_machine_that_is_deleted_alone_where_nothing_rolls_out(minutes):
    """Its node is cordoned again and again, and goes in the end."""
    result = rehearse(
        cluster(*map(node, "ab"), terminating(minutes), vm("db", "a"), kubevirt()), Options()
    )

    assert (result.driver, result.possible) == (Driver.PLAIN, True if minutes == 9 else None)
    assert ("which has waited for that for 11 min" in " ".join(result.unseen)) is (minutes == 11)


def twin(namespace="capi", of="local"):
    """Return a second Machine with the node of the one that is deleted."""
    status = {"nodeRef": {"name": "b"}}
    return manifest(CAPI, "Machine", "m-new", namespace, spec={"clusterName": of}, status=status)


def stale(of="local"):
    found = terminating(11)
    return Object({**found.data, "spec": {"clusterName": of}})


def test_two_machines_with_one_node_are_said_where_the_node_has_no_vms():
    """Source: machine_controller.go#isDeleteNodeAllowed; harvester/harvester#7065."""
    found = drain_plan.plan(cluster(*map(node, "ab"), stale(), twin(), vm("db", "a"), kubevirt()))
    report = text.text(found)

    assert (
        report.count(
            "Machine capi/m-b, which is being deleted, has the same node as Machine capi/m-new"
        )
        == 1
    )
    assert report.count("  b: Machine capi/m-b is being deleted, but its node was drained") == 1


def test_a_node_that_was_installed_again_is_cordoned_for_its_old_machine():
    """Its annotation names the new Machine. Source: harvester/harvester#7065."""
    again = Object(
        {
            **node("b").data,
            "metadata": {"name": "b", "annotations": {"cluster.x-k8s.io/machine": "m-new"}},
        }
    )
    again.data["spec"] = {"unschedulable": True}
    old = stale()
    hook = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/rke-bootstrap-cleanup"
    old.data["metadata"]["annotations"] = {hook: "rke-bootstrap-controller"}
    found = cluster(node("a"), again, old, twin(), vm("db", "a"), kubevirt())
    notes = " ".join(drain_plan.node_plan("b", found).notes)

    assert (
        "Machine capi/m-b, which is being deleted, has the same node as Machine capi/m-new" in notes
    )
    assert "cordons it again until then" in notes
    assert "no other machine is joined to that server (rke.cattle.io/joined-to" in notes
    assert "Restart rke2-server on b afterwards" in notes
    assert "came back with Machine capi/m-new" in cordoners.of_node(again, found).words
    assert "removes the pre-terminate hook rke-bootstrap-cleanup" in " ".join(
        rehearse(found, Options()).unseen
    )


@pytest.mark.parametrize(
    "others",
    [
        [twin("tenant")],
        [twin(of="other")],
        [],
        [Object({**twin().data, "status": {"nodeRef": {"name": "a"}}})],
    ],
    ids=["another namespace", "another cluster", "alone", "another node"],
)
def test_a_machine_with_a_node_of_its_own(others):
    notes = drain_plan.node_plan("b", cluster(*map(node, "ab"), stale(), *others, kubevirt())).notes

    assert not any("same node" in note for note in notes)


def test_a_note_of_every_node_is_not_repeated_for_nodes_without_vms():
    api = manifest(
        "apiregistration.k8s.io/v1",
        "APIService",
        "v1beta1.metrics.k8s.io",
        status={"conditions": [{"type": "Available", "status": "False"}]},
    )
    found = drain_plan.plan(cluster(*map(node, "abc"), api, vm("db", "a"), kubevirt()))

    assert text.text(found).count("APIService v1beta1.metrics.k8s.io is not available") == 1


def test_a_hook_of_a_machine_that_is_deleted_later():
    later = machine("m-b", "b", up_to_date=False)
    later.data["metadata"]["annotations"] = {
        "pre-drain.delete.hook.machine.cluster.x-k8s.io/move-data": "storage-team"
    }
    found = cluster(
        *map(node, "ab"), deployment(), machine("m-a", "a"), later, vm("db", "b"), kubevirt()
    )
    result = rehearse(found, Options())

    assert result.possible is True
    says = (
        "the owner of the pre-drain hook move-data of storage-team removes it from capi/m-b once "
        "it is deleted"
    )
    assert result.rests_on[-1] == says


@pytest.mark.parametrize(
    ("fields", "other"),
    [
        ({"spec": {"providerID": "metal://b"}}, False),
        ({"spec": {"providerID": "metal://another"}}, True),
        ({"metadata": {"annotations": {"cluster.x-k8s.io/machine": "m-b"}}}, False),
        ({"metadata": {"annotations": {"cluster.x-k8s.io/machine": "another"}}}, True),
    ],
)
def test_a_machine_of_another_cluster_whose_node_has_the_same_name(fields, other):
    """``other``: whether the node b of this cluster is not that of the Machine,
    whose hook then holds nothing here.
    """
    own = deleted("WaitingForPreDrainHook", "move-data")
    own.data["spec"] = {"providerID": "metal://b"}
    here = node("b", **fields.get("spec", {}))
    here.data["metadata"] |= fields.get("metadata", {})
    found = cluster(
        node("a"), here, deployment(), machine("m-a", "a"), own, vm("db", "b"), kubevirt()
    )
    result = rehearse(found, Options())

    assert (result.possible, bool(result.unseen)) == ((True, False) if other else (None, True))
    notes = drain_plan.plan(found, "b").nodes[0].notes
    assert any("move-data" in note for note in notes) is not other
    assert (drain_start(here, found) is None) is other


def test_a_paused_deployment_has_no_next_node():
    paused = deployment(spec={"paused": True})
    found = cluster(
        *map(node, "ab"),
        paused,
        machine("m-a", "a"),
        machine("m-b", "b", up_to_date=False),
        kubevirt(),
    )

    assert (progress(found)["next"], progress(found)["waiting"]) == ([], ["b"])
    assert [str(stop.problem) for stop in rehearse(found, Options()).stops] == [
        "PoolPaused:capi/workers"
    ]


def test_a_paused_deployment_whose_nodes_are_done_stops_nothing():
    found = cluster(
        *map(node, "abc"),
        deployment(spec={"paused": True}),
        deployment("two"),
        machine("m-a", "a"),
        machine_set("old", "1", "two"),
        machine_set("new", "2", "two"),
        machine_of_set("b", "old", "two"),
        machine_of_set("c", "new", "two"),
        kubevirt(),
    )

    assert rehearse(found, Options()).possible is True
    assert rehearse(found, Options(from_start=True)).possible is False
