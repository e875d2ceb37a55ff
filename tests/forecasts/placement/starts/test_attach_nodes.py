"""A driver that attaches volumes only to nodes of another system than the one that waits."""

import pytest

from tests.builders import manifest
from virt_admit.forecasts.placement.starts import attach_nodes
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.nodes import SCHEDULABLE

DRIVER = "linstor.csi.linbit.com"
OLD, NEW = "Talos (v1.8.4)", "Talos (v1.9.0)"


def node(name, system, *, ready="True", cordoned=False, schedulable="true"):
    return manifest(
        "v1",
        "Node",
        name,
        metadata={"labels": {SCHEDULABLE: schedulable}},
        spec={"unschedulable": cordoned},
        status={
            "nodeInfo": {"osImage": system, "kubeletVersion": "v1.31.4"},
            "conditions": [{"type": "Ready", "status": ready}],
        },
    )


def attachment(name, on, driver=DRIVER, error=""):
    status = {"attached": not error} | ({"attachError": {"message": error}} if error else {})
    spec = {"attacher": driver, "nodeName": on, "source": {"persistentVolumeName": name}}
    return manifest(
        "storage.k8s.io/v1", "VolumeAttachment", f"{name}-{on}", spec=spec, status=status
    )


FAILS = attachment("pv-db", "w2", error="could not determine device path")

STORAGE = attachment("pv-db", "w2", error="volume definition pv-db not found")


def world(*more, system=OLD, listed=("*",), **state):
    nodes = [node("w1", NEW), node("w2", NEW), node("w3", system, **state)]
    return Snapshot([*nodes, FAILS, attachment("pv-web", "w3"), *more], list(listed))


def launcher(phase, *, owned=True):
    owner = {"kind": "VirtualMachine", "name": "db", "controller": True}
    vmi = manifest(
        "kubevirt.io/v1",
        "VirtualMachineInstance",
        "db",
        "shop",
        metadata={"ownerReferences": [owner] if owned else []},
        status={"phase": phase},
    )
    labels = {"kubevirt.io": "virt-launcher"}
    owners = [{"kind": "VirtualMachineInstance", "name": "db", "controller": True}]
    metadata = {"labels": labels, "ownerReferences": owners}
    return vmi, manifest("v1", "Pod", "virt-launcher-db-1", "shop", metadata=metadata)


def test_the_system_of_the_node_is_told():
    assert attach_nodes.of("w2", DRIVER, world()).words == (
        f"Volumes of {DRIVER} are attached only on other nodes (w3), unlike which w2 has osImage "
        f"{NEW} (there {OLD}), like w1"
    )


@pytest.mark.parametrize(
    "cluster",
    [
        world(system=NEW),
        world(attachment("pv-files", "w2")),
        world(attachment("pv-files", "w1")),
        world(attachment("pv-files", "w3", error="no space")),
        Snapshot([node("w2", NEW), node("w3", OLD), STORAGE, attachment("pv-web", "w3")], ["*"]),
        world(listed=["Node"]),
        Snapshot([node("w2", NEW), node("w3", OLD), FAILS], ["*"]),
        Snapshot([node("w2", NEW), node("w3", OLD), FAILS, attachment("x", "w3", "other")], ["*"]),
    ],
    ids=[
        "same",
        "attaches here",
        "attaches alike",
        "fails there",
        "the storage",
        "unseen",
        "nowhere",
        "other",
    ],
)
def test_what_shows_that_the_system_is_not_to_blame(cluster):
    assert attach_nodes.of("w2", DRIVER, cluster) is None


def test_several_volumes_that_fail_alone_there_show_it_too():
    more = attachment("pv-files", "w2", error="volume definition pv-files not found")
    nodes = node("w2", NEW), node("w3", OLD)
    cluster = Snapshot([*nodes, STORAGE, more, attachment("pv-web", "w3")], ["*"])
    assert attach_nodes.of("w2", DRIVER, cluster) is not None


@pytest.mark.parametrize(
    ("system", "begin"),
    [
        (OLD, "update no other node, and give w2"),
        ("Talos (v1.10.2)", "give w2"),  # the others were updated already
        ("Flatcar", "give w2"),
    ],
)
def test_a_roll_out_is_not_stopped_that_may_repair_it(system, begin):
    assert attach_nodes.of("w2", DRIVER, world(system=system)).repair.startswith(begin)


@pytest.mark.parametrize(
    ("phase", "state", "told"),
    [
        ("Scheduling", {}, True),
        ("Running", {}, False),  # the pod is the target of a migration
        ("Scheduling", {"cordoned": True}, False),
        ("Scheduling", {"ready": "Unknown"}, False),
        ("Scheduling", {"schedulable": "false"}, False),  # its virt-handler does not report
    ],
)
def test_a_vm_that_does_not_run_may_start_where_the_driver_works(phase, state, told):
    vmi, pod = launcher(phase)
    cluster = world(vmi, pod, **state)
    way = attach_nodes.of("w2", DRIVER, cluster).meanwhile(pod, cluster)
    assert ("can start on w3" in way) is told
    assert bool(way) is told
