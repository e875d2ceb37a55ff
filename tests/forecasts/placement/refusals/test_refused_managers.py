"""Nodes whose kubelet refuses Longhorn's instance manager."""

import pytest

from tests.builders import NAMESPACE, complete, manifest
from tests.forecasts.drain.test_vm_states import MIGRATES, UNKNOWN
from tests.forecasts.drain.vm_motion import cluster, vmi
from tests.forecasts.placement.test_longhorn_starts import CLAIM, LONGHORN, own, volume
from virt_admit.forecasts.drain import drain_plan, vm_downtime
from virt_admit.forecasts.drain.guests import restart_guard
from virt_admit.forecasts.drain.vm_outcomes import VmOutcome
from virt_admit.forecasts.placement.refusals import refused_managers
from virt_admit.forecasts.upgrade import vm_interruptions

MIGRATABLE = {"accessMode": "rwx", "migratable": True}


def manager(on, engine="v1", reason="OutOfcpu", said="no CPU", phase="Failed"):
    """An instance manager that does not run, with its pod."""
    spec, name = {"nodeID": on, "dataEngine": engine}, f"im-{engine}-{on}-{phase.lower()}"
    status = {"phase": phase} | ({"reason": reason, "message": said} if phase == "Failed" else {})
    return [
        own("InstanceManager", name, spec, status={"currentState": "error"}),
        manifest("v1", "Pod", name, LONGHORN, spec={"nodeName": on}, status=status),
    ]


def doubt(nodes, *managers, engine="v1"):
    spec = {**MIGRATABLE, "dataEngine": engine}
    every = [each for some in managers for each in some]
    cluster = complete(volume()[0], own("Volume", "v1", spec), CLAIM, *every)
    problem = refused_managers.doubt(NAMESPACE, ["disk"], nodes, cluster)
    return problem.reason if problem is not None else ""


@pytest.mark.parametrize("engine", ["v1", "v2"])
def test_only_the_managers_of_its_data_engine_start_its_engine(engine):
    other = "v2" if engine == "v1" else "v1"
    starts = manager("b", engine, phase="Pending")

    assert not doubt("b", manager("b", other), starts, engine=engine)
    assert not doubt("b", manager("b", engine), starts, engine=engine)
    found = doubt("b", manager("b", engine), manager("b", other, phase="Pending"), engine=engine)
    assert f"instance manager im-{engine}-b-failed does not run: OutOfcpu: no CPU" in found


def test_each_node_has_its_own_cause():
    found = doubt("bc", manager("b"), manager("c", reason="OutOfpods", said="full"))

    assert found == (
        "only b, c can take it, and Longhorn attaches no volume there: on b instance manager "
        "im-v1-b-failed does not run: OutOfcpu: no CPU, on c instance manager im-v1-c-failed does "
        "not run: OutOfpods: full"
    )


@pytest.mark.parametrize(
    ("spec", "nodes", "doubtful"),
    [
        ({"accessMode": "rwx", "migratable": True}, ("b",), True),
        ({"accessMode": "rwo"}, ("b",), True),
        ({"accessMode": "rwx"}, ("b",), False),
        ({"accessMode": "rwx", "migratable": True}, ("b", "c"), False),
        ({"accessMode": "rwx", "migratable": True}, (), False),
    ],
    ids=["migrates", "one node", "shared by a server", "another node takes it", "no node takes it"],
)
def test_the_only_node_left_is_one_that_refuses_the_instance_manager(spec, nodes, doubtful):
    status = {"phase": "Failed", "reason": "OutOfcpu", "message": "no CPU"}
    cluster = complete(
        volume()[0],
        own("Volume", "v1", spec),
        CLAIM,
        own("InstanceManager", "im-b", {"nodeID": "b"}, status={"currentState": "error"}),
        manifest("v1", "Pod", "im-b", LONGHORN, spec={"nodeName": "b"}, status=status),
    )
    problem = refused_managers.doubt(NAMESPACE, ["disk"], nodes, cluster)

    assert (problem is not None) is doubtful
    assert problem is None or problem.reason == (
        "only b can take it, and Longhorn attaches no volume there: instance manager im-b does "
        "not run: OutOfcpu: no CPU"
    )


def left(strategy, *nodes):
    root = {"name": "root", "persistentVolumeClaim": {"claimName": "disk"}}
    spec = {"volumes": [root], "evictionStrategy": strategy}
    disk = [CLAIM, volume()[0], own("Volume", "v1", MIGRATABLE)]
    (plan,) = drain_plan.plan(cluster(vmi(spec=spec), *disk, *manager("b"), nodes=nodes), "a").nodes
    return plan, plan.forecasts[0]


def test_a_migration_to_the_only_node_left_that_refuses_the_manager_is_not_promised():
    assert left("LiveMigrate", "a", "b", "c")[1].outcome == MIGRATES
    assert left("LiveMigrate", "a", "b")[1].outcome == UNKNOWN


def test_a_vm_that_is_shut_down_leaves_but_may_be_down_without_limit():
    for nodes, ends in ((("a", "b"), False), (("a", "b", "c"), True)):
        plan, row = left("None", *nodes)
        assert (plan.drainable, row.outcome) == (True, VmOutcome.RESTARTS)
        assert ("Longhorn attaches no volume there" in row.reason) is not ends
        for found in (vm_downtime.of(row), vm_interruptions.downtime(row, 1, 600)):
            assert (found.high is not None) is ends


NEW, OLD = "longhornio/longhorn-instance-manager:v2", "longhornio/longhorn-instance-manager:v1"


def former(on, engine="v1", image=OLD):
    """An instance manager that runs, beside the one that does not."""
    spec = {"nodeID": on, "dataEngine": engine, "image": image}
    return own("InstanceManager", f"im-old-{on}", spec, status={"currentState": "running"})


def setting(value=NEW):
    return manifest(
        "longhorn.io/v1beta2", "Setting", "default-instance-manager-image", LONGHORN, value=value
    )


@pytest.mark.parametrize(
    ("engine", "known", "doubtful"),
    [("v1", [setting()], True), ("v2", [setting()], False), ("v1", [], False)],
    ids=["it gets no new volume", "v2 takes any", "the image is not known"],
)
def test_a_former_manager_that_runs(engine, known, doubtful):
    found = doubt("b", [*manager("b", engine), former("b", engine), *known], engine=engine)
    assert bool(found) is doubtful
    assert not found or "which that of the former release keeps" in found


def test_no_remedy_frees_room_by_the_former_manager():
    """The disks of VMs run in it: kubectl delete of its pod would break them."""
    there = complete(
        volume()[0], own("Volume", "v1", MIGRATABLE), CLAIM, setting(), former("b"), *manager("b")
    )
    problem = refused_managers.doubt(NAMESPACE, ["disk"], ("b",), there)
    assert "delete no instance manager" in problem.remedy
    assert "free" not in problem.remedy


@pytest.mark.parametrize("held", [True, False], ids=["the new one is refused", "it runs"])
def test_a_vm_is_not_restarted_before_its_volume_is_attached_again(held):
    root = {"name": "root", "persistentVolumeClaim": {"claimName": "disk"}}
    running = vmi(spec={"volumes": [root], "evictionStrategy": "LiveMigrate"})
    disk = [CLAIM, volume()[0], own("Volume", "v1", MIGRATABLE), setting()]
    beside = [former("a"), *manager("a")] if held else [former("a", image=NEW)]
    there = cluster(running, *disk, *beside, nodes=("a",))
    restart = "virtctl restart db -n shop"
    remedy = f"set it, which takes effect after its restart ({restart}): kubectl patch vm db"
    said = restart_guard.guarded(remedy, running, there)
    assert ("but not before Longhorn's new instance managers run" in said) is held
