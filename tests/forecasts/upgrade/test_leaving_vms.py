"""VMs that are left on a node excuse a long drain only as long as something of them moves."""

import pytest

from tests.forecasts.drain import vm_motion
from tests.forecasts.upgrade import test_standing_nodes as world
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.model.kubernetes.cluster import Snapshot

HOUR = 3600
DRAIN = {"key": "kubevirt.io/drain", "value": "draining", "effect": "NoSchedule"}


def node(name, **spec):
    found = vm_motion.node(name, **spec)
    found.data["metadata"]["labels"]["kubernetes.io/hostname"] = name
    found.data["status"]["nodeInfo"] = {"kubeletVersion": "v1"}
    return found


def answer(*objects, hours=10):
    """Return the answer about an update for which ``a`` was cordoned so long ago."""
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    taint["timeAdded"] = vm_motion.ago(hours * HOUR)
    own = [node("a", unschedulable=True, taints=[taint, DRAIN]), node("b"), node("c")]
    items = [*own, *vm_motion.cluster(*objects, nodes=())]
    return rehearse(Snapshot(items, ["*"], time=vm_motion.NOW), Options())


def of_plan(*objects, hours=10):
    return answer(*world.plan(vm_motion.ago(hours * HOUR)), *objects, hours=hours)


def vm(name="db", on="a", **fields):
    """Return a VM without a mark, or with the state of its last migration."""
    return vm_motion.vmi(name, on, **fields), vm_motion.launcher(name, on)


def asked(hours):
    stamp = vm_motion.ago(hours * HOUR)
    return {"type": "EvictionRequested", "status": "True", "lastTransitionTime": stamp}


def left(hours):
    """Return a VM that has left ``a``."""
    end = {"sourceNode": "a", "targetNode": "b", "completed": True}
    return vm("web", "b", migrationState={**end, "endTimestamp": vm_motion.ago(hours * HOUR)})


STANDS = [[*vm()], [*vm(), *left(3)]]
GOES_ON = [
    [*vm(evacuationNodeName="a", conditions=[asked(0.01)])],
    [*vm(), *left(0.3)],
    [
        *vm(evacuationNodeName="a", conditions=[asked(9)]),
        vm_motion.migration(phase="Running", age=200, since={"Running": 100}, sourceNode="a"),
        vm_motion.launcher(on="b", suffix="2", job="uid-evacuation-1", age=190),
    ],
]


@pytest.mark.parametrize("objects", STANDS, ids=["no mark", "left long ago"])
def test_a_vm_that_nothing_moves_does_not_explain_a_drain_of_hours(objects):
    result = of_plan(*objects)

    assert result.possible is None
    (said,) = [each for each in result.unseen if "goes on with a" in each]
    assert "it has been draining for 10 h" in said
    assert said.endswith("nothing moves shop/db")


@pytest.mark.parametrize("objects", GOES_ON, ids=["a young mark", "one has left", "one migrates"])
def test_a_long_drain_that_goes_on(objects):
    assert of_plan(*objects).unseen == ()


def test_a_mark_for_which_no_migration_is_made_is_told_by_the_vm():
    (said,) = of_plan(*vm(evacuationNodeName="a", conditions=[asked(9)])).unseen

    assert said.startswith("shop/db: has been marked for evacuation for 9 h")


def test_a_young_drain():
    assert of_plan(*vm(), hours=0.5).possible is True


def test_a_vm_that_blocks_the_drain_is_the_answer():
    result = of_plan(*vm(spec={"nodeSelector": {"disk": "local"}}))

    assert result.possible is False
    assert result.unseen == ()


@pytest.mark.parametrize(
    ("state", "objects", "stands"),
    [
        *(("Pre-draining", each, True) for each in STANDS),
        *(("Pre-draining", each, False) for each in GOES_ON),
        *(("Post-draining", each, True) for each in (*STANDS, *GOES_ON)),
    ],
)
def test_an_upgrade_of_harvester(state, objects, stands):
    """After the drain, the VMs of a node say nothing about it."""
    result = answer(world.upgrade(state), *objects)

    assert result.possible is (None if stands else True)
    assert any("Upgrade harvester-system/hvst stands at a" in each for each in result.unseen) is (
        stands
    )


def test_the_logs_of_a_job():
    job = world.job(start=vm_motion.ago(10 * HOUR))
    (said,) = answer(world.upgrade("Post-draining"), job, *vm()).unseen

    assert "kubectl logs job/hvst-post-drain-a -n harvester-system --tail=50" in said


def test_a_vmi_that_does_not_end_where_the_eviction_strategy_is_not_known():
    own = vm_motion.vmi(spec={"evictionStrategy": None})
    own.data["metadata"] |= {"deletionTimestamp": vm_motion.ago(26 * HOUR), "finalizers": ["x"]}
    result = rehearse(Snapshot([node("a"), node("b"), own], ["*"], time=vm_motion.NOW), Options())

    assert result.possible is False
    assert "should have ended" in str(result.stops)
