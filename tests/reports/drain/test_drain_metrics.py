"""Drains over time, as a process that watches them counts them."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from prometheus_client import CollectorRegistry

from tests import builders
from tests.builders import EVERY_NODE, manifest
from tests.forecasts.drain import vm_motion
from tests.forecasts.drain.vm_motion import NOW, ago, failed, launcher, migration, node, vmi
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.drain.ongoing_drains import ongoing
from virt_admit.forecasts.drain.progress import DrainCause
from virt_admit.forecasts.drain.states.vm_states_kinds import State
from virt_admit.forecasts.upgrade.durations import Range
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubevirt.instances import down_vms
from virt_admit.model.node_updates import updaters
from virt_admit.reports.drain.drain_metrics import BUCKETS, DrainMetrics

STARTED = "virt_admit_drain_started_timestamp_seconds"
PROGRESS = "virt_admit_drain_last_progress_timestamp_seconds"
VMS = "virt_admit_drain_vms"
STUCK = "virt_admit_drain_stuck_vms"
DURATION = "virt_admit_drain_duration_seconds"
DOWNTIME = "virt_admit_vm_downtime_seconds_total"


def time(seconds: float) -> datetime:
    """Return the time so many seconds after ``NOW``."""
    now = clock.instant(NOW)
    assert now is not None
    return now + timedelta(seconds=seconds)


def cordoned(since: float = 60, **spec):
    """Return the node a, cordoned so many seconds before ``NOW``."""
    taint = {
        "key": "node.kubernetes.io/unschedulable",
        "effect": "NoSchedule",
        "timeAdded": ago(since),
    }
    return node("a", unschedulable=True, taints=[taint, *spec.pop("taints", [])], **spec)


class Watched:
    """The metrics of a watch, which sees a cluster at several times."""

    def __init__(self):
        self.registry = CollectorRegistry()
        self.metrics = DrainMetrics(self.registry)

    def look(self, at, *objects, complete=("*",), forecasts=None):
        cluster = vm_motion.cluster(*objects, time=clock.stamp(time(at)))
        cluster = Snapshot(list(cluster), list(complete), time=clock.stamp(time(at)))
        plan = drain_plan.plan(cluster)
        self.metrics.follow(
            tuple(ongoing(plan, cluster)),
            [found.name for found in plan.nodes],
            forecasts or {},
            updaters.phases(cluster),
            time(at),
        )
        self.metrics.follow_guests(down_vms.runs(cluster), time(at))

    def samples(self, name):
        """Return the values of one metric, by the values of its labels."""
        return {
            tuple(sample.labels.values()): sample.value
            for family in self.registry.collect()
            for sample in family.samples
            if sample.name == name
        }


@pytest.fixture
def watched():
    return Watched()


MOVING = (
    vmi(
        evacuationNodeName="a",
        migrationState={"migrationUid": "uid-evacuation-1", "sourceNode": "a", "targetNode": "b"},
    ),
    launcher(),
    launcher(on="b", suffix="2", job="uid-evacuation-1", age=40),
    migration(phase="Running", since={"Pending": 45, "Running": 30}),
)
LEFT = (vmi(on="b"), launcher(on="b", suffix="2", age=40))


def test_a_drain_that_starts_moves_and_ends(watched):
    watched.look(0, cordoned(), vmi(evacuationNodeName="a"), launcher())
    assert watched.samples(STARTED) == {("a", "cordon"): time(-60).timestamp()}
    assert watched.samples(PROGRESS) == {("a",): time(-60).timestamp()}
    assert watched.samples(VMS) == {("a", "marked"): 1}
    assert watched.samples(STUCK) == {("a",): 0}
    assert watched.metrics.under_way

    watched.look(10, cordoned(), *MOVING)
    assert watched.samples(PROGRESS) == {("a",): time(-30).timestamp()}
    assert watched.samples(VMS) == {("a", "running"): 1}
    assert not watched.samples(f"{DURATION}_count")

    watched.look(240, cordoned(), *LEFT)
    assert watched.samples(f"{DURATION}_sum") == {("cordon", "emptied"): 300}
    for gauge in (STARTED, PROGRESS, VMS, STUCK):
        assert not watched.samples(gauge), gauge
    assert not watched.metrics.under_way
    watched.look(300, cordoned(), *LEFT)
    watched.look(360, node("a"), *LEFT)
    assert watched.samples(f"{DURATION}_count") == {("cordon", "emptied"): 1}, (
        "a drain is counted once"
    )


def test_a_restart_loses_no_gauge(watched):
    watched.look(0, cordoned(), *MOVING)
    again = Watched()
    again.look(0, cordoned(), *MOVING)
    for gauge in (STARTED, PROGRESS, VMS, STUCK):
        assert again.samples(gauge) == watched.samples(gauge) != {}


def test_a_vm_that_leaves_is_progress(watched):
    watched.look(
        0, cordoned(), vmi(evacuationNodeName="a"), launcher(), vmi("web"), launcher("web")
    )
    watched.look(100, cordoned(), *LEFT, vmi("web"), launcher("web"))
    assert watched.samples(PROGRESS) == {("a",): time(100).timestamp()}


def test_a_drain_that_is_given_up(watched):
    watched.look(0, cordoned(), *MOVING)
    watched.look(60, node("a"), *MOVING)
    assert watched.samples(f"{DURATION}_sum") == {("cordon", "given_up"): 120}
    assert not watched.samples(STARTED)


def test_a_node_that_is_deleted_while_it_is_drained(watched):
    watched.look(0, cordoned(), *MOVING)
    watched.metrics.follow([], ["b", "c"], {}, {}, time(60))
    assert watched.samples(f"{DURATION}_count") == {("cordon", "node_deleted"): 1}


def test_a_cordon_of_which_nothing_is_evicted_is_not_a_drain(watched):
    watched.look(0, cordoned(), vmi(), launcher())
    assert watched.samples(STARTED) == {("a", "cordon"): time(-60).timestamp()}
    assert not watched.samples(PROGRESS), "an alert about progress asks for this series"
    assert not watched.metrics.under_way, "waits that end are judged again each minute"
    watched.look(60, node("a"), vmi(), launcher())
    assert not watched.samples(f"{DURATION}_count")


def test_a_migration_since_the_cordon_shows_a_drain_also_after_a_restart(watched):
    """The VM that is left was refused, which leaves no trace."""
    ended = migration(
        "m-web", "Succeeded", of="web", age=600, since={"Succeeded": 500}, sourceNode="a"
    )
    watched.look(0, cordoned(1000), vmi(), launcher(), ended)
    assert watched.samples(PROGRESS) == {("a",): time(-500).timestamp()}
    before = Watched()
    before.look(0, cordoned(100), vmi(), launcher(), ended)
    assert not before.samples(PROGRESS)


def test_an_empty_node_that_is_drained_again(watched):
    for began in (0, 1000):
        watched.look(began, cordoned(60 - began), *MOVING)
        watched.look(began + 10, cordoned(60 - began), *LEFT)
        assert watched.samples(f"{DURATION}_count") == {("cordon", "emptied"): 1 + began // 1000}


def test_a_vm_that_never_leaves_is_stuck(watched):
    refused = vmi()
    refused.data["status"]["conditions"][0]["status"] = "False"
    watched.look(0, cordoned(), refused, launcher(), vmi("web"), launcher("web"))
    assert watched.samples(STUCK) == {("a",): 1}


def test_a_migration_that_takes_too_long_is_stuck(watched):
    state = {
        "migrationUid": "uid-evacuation-1",
        "sourceNode": "a",
        "targetNode": "b",
        "startTimestamp": ago(0),
    }
    moving = (vmi(evacuationNodeName="a", migrationState=state), *MOVING[1:])
    watched.look(0, cordoned(), *moving)
    assert watched.samples(STUCK) == {("a",): 0}
    watched.look(600, cordoned(), *moving)
    assert watched.samples(STUCK) == {("a",): 1}


def test_a_migration_that_stays_open_is_stuck(watched):
    state = {
        "migrationUid": "uid-evacuation-1",
        "sourceNode": "c",
        "completed": True,
        "endTimestamp": ago(0),
    }
    opened = vmi(conditions=[{"type": "HotVCPUChange", "status": "True"}], migrationState=state)
    objects = (opened, launcher(), migration(phase="Running"))
    watched.look(60, cordoned(), *objects)
    assert watched.samples(VMS) == {("a", "not-closed"): 1}
    assert watched.samples(STUCK) == {("a",): 0}
    watched.look(400, cordoned(), *objects)
    assert watched.samples(STUCK) == {("a",): 1}


def test_attempts_that_fail_change_phases_and_become_stuck(watched):
    objects = [failed(number, "connection reset", age=400 - 100 * number) for number in (1, 2, 3)]
    watched.look(0, cordoned(1000), vmi(evacuationNodeName="a"), launcher(), *objects)
    assert watched.samples(PROGRESS) == {("a",): time(-100).timestamp()}
    assert watched.samples(STUCK) == {("a",): 1}


def test_unread_pods_and_vms_are_not_departures(watched):
    watched.look(0, cordoned(), *MOVING)
    watched.look(60, cordoned(), complete=["nodes"])
    assert not watched.samples(f"{DURATION}_count")
    assert watched.samples(VMS) == {("a", "running"): 1}


MCO = "machineconfiguration.openshift.io/"
POOL = manifest(
    "machineconfiguration.openshift.io/v1",
    "MachineConfigPool",
    "worker",
    spec={"nodeSelector": EVERY_NODE, "configuration": {"name": "rendered-worker-2"}},
)


def capi(kind, name, **more):
    return manifest("cluster.x-k8s.io/v1beta1", kind, name, "machines", **more)


def machine(deployment=""):
    labels = {"cluster.x-k8s.io/deployment-name": deployment} if deployment else {}
    metadata = {"deletionTimestamp": ago(70), "labels": labels}
    return capi("Machine", "worker-1", metadata=metadata, status={"nodeRef": {"name": "a"}})


def upgrade():
    metadata = {"labels": {"harvesterhci.io/latestUpgrade": "true"}, "creationTimestamp": ago(900)}
    status = {"nodeStatuses": {"a": {"state": "Pre-draining"}}}
    return manifest(
        "harvesterhci.io/v1beta1",
        "Upgrade",
        "to-2",
        "harvester-system",
        metadata=metadata,
        status=status,
    )


def upgrade_plan():
    status = {
        "currentPhase": "NodeUpgrading",
        "nodeUpgradeStatuses": {"a": {"state": "PreDraining"}},
    }
    metadata = {"creationTimestamp": ago(900)}
    return manifest(
        "management.harvesterhci.io/v1beta1",
        "UpgradePlan",
        "to-3",
        "",
        metadata=metadata,
        status=status,
    )


def maintained():
    metadata = {"creationTimestamp": ago(70)}
    return manifest(
        "nodemaintenance.medik8s.io/v1beta1",
        "NodeMaintenance",
        "nm",
        metadata=metadata,
        spec={"nodeName": "a"},
    )


CAUSES = {
    DrainCause.CORDON: ((), "", 60),
    DrainCause.TAINT: ((), "", 60),
    DrainCause.NODE_MAINTENANCE: ((maintained(),), "nm", 70),
    DrainCause.MACHINE_CONFIG_POOL: ((POOL,), "worker", 60),
    DrainCause.MACHINE_DEPLOYMENT: ((machine("md"), capi("MachineDeployment", "md")), "md", 70),
    DrainCause.MACHINE: ((machine(),), "worker-1", 70),
    DrainCause.UPGRADE: ((upgrade(),), "to-2", 60),
    DrainCause.UPGRADE_PLAN: ((upgrade_plan(),), "to-3", 60),
    DrainCause.HARVESTER: ((), "", 60),
}
ANNOTATIONS = {
    DrainCause.MACHINE_CONFIG_POOL: {
        f"{MCO}currentConfig": "rendered-worker-1",
        f"{MCO}desiredConfig": "rendered-worker-2",
        f"{MCO}state": "Done",
        f"{MCO}desiredDrain": "drain-rendered-worker-2",
    },
    DrainCause.HARVESTER: {"harvesterhci.io/drain-requested": "true"},
}


def drained_by(cause):
    """Return the node a and objects that show this cause of its drain."""
    tainted = cause is DrainCause.TAINT
    found = cordoned(
        taints=[{"key": "kubevirt.io/drain", "effect": "NoSchedule"}] if tainted else []
    )
    found.data["metadata"]["annotations"] = ANNOTATIONS.get(cause, {})
    found.data["spec"]["unschedulable"] = not tainted
    return found, *CAUSES[cause][0]


@pytest.mark.parametrize("cause", DrainCause)
def test_the_cause_of_a_drain_is_one_of_few_words(watched, cause):
    _, name, age = CAUSES[cause]
    watched.look(0, *drained_by(cause), *MOVING)
    ((_, by),) = watched.samples(STARTED)
    assert by == cause
    (drain,) = ongoing_of(*drained_by(cause))
    assert drain.start.by == f"{cause} {name}".strip()
    assert clock.stamp(drain.start.since) == ago(age)


def test_nodes_of_a_roll_out_by_phase(watched):
    watched.look(0, *drained_by(DrainCause.MACHINE_CONFIG_POOL), *MOVING)
    found = watched.samples("virt_admit_upgrade_nodes")
    assert found[("worker", "draining")] == 1
    assert sum(found.values()) == 3
    watched.look(0, *drained_by(DrainCause.CORDON))
    assert not watched.samples("virt_admit_upgrade_nodes")


def test_machines_of_other_clusters_are_not_nodes_of_this_one(watched):
    other = capi(
        "Machine",
        "far",
        metadata=machine("md").data["metadata"],
        status={"nodeRef": {"name": "far"}},
    )
    watched.look(0, node("a"), other, capi("MachineDeployment", "md"))
    assert not watched.samples("virt_admit_upgrade_nodes")


def ongoing_of(*objects):
    cluster = vm_motion.cluster(*objects)
    return ongoing(drain_plan.plan(cluster), cluster)


def test_labels_are_nodes_that_are_drained_and_words_of_fixed_lists(watched):
    """A thousand VMs are one series, and nodes at rest have none."""
    vms = [
        obj
        for number in range(50)
        for obj in (vmi(f"vm{number}", evacuationNodeName="a"), launcher(f"vm{number}"))
    ]
    watched.look(0, cordoned(), *vms)
    series = [
        sample for name in (STARTED, PROGRESS, VMS, STUCK) for sample in watched.samples(name)
    ]
    assert len(series) == 4
    assert {state for _, state in watched.samples(VMS)} <= {str(state) for state in State}
    assert (BUCKETS[0], BUCKETS[-1]) == (60, 86_400)


def test_forecasts_of_other_nodes(watched):
    watched.look(0, cordoned(), *MOVING, forecasts={"a": Range(0, 60), "b": Range(20, 90)})
    assert watched.samples("virt_admit_node_drain_seconds") == {("b", "low"): 20, ("b", "high"): 90}


# --- downtime -------------------------------------------------------------------------------------


def guest(phase="Running", strategy="Always", printable="Running"):
    vm = builders.vm(name="db", runStrategy=strategy)
    vm.data["status"] = {"printableStatus": printable}
    return (vm, vmi(phase=phase)) if phase else (vm,)


@pytest.fixture
def guests(watched):
    def look(at, *objects):
        watched.metrics.follow_guests(down_vms.runs(Snapshot(objects, ["*"])), time(at))
        return watched.samples(DOWNTIME)

    return look


def test_the_time_between_two_starts_is_downtime(guests):
    assert guests(0, *guest()) == {}
    assert guests(100, *guest(phase=None)) == {}
    assert guests(130, *guest(phase="Scheduling")) == {(builders.NAMESPACE,): 30}
    assert guests(150, *guest()) == {(builders.NAMESPACE,): 50}
    assert guests(900, *guest()) == {(builders.NAMESPACE,): 50}


@pytest.mark.parametrize(
    ("strategy", "printable", "seconds"),
    [
        ("Always", "Stopped", 60),
        ("RerunOnFailure", "CrashLoopBackOff", 60),
        ("RerunOnFailure", "Stopped", None),
        ("Manual", "Stopped", None),
        ("Halted", "Stopped", None),
    ],
)
def test_only_vms_that_should_run_are_down(guests, strategy, printable, seconds):
    guests(0, *guest(strategy=strategy))
    guests(10, *guest(phase=None, strategy=strategy, printable=printable))
    found = guests(70, *guest(phase=None, strategy=strategy, printable=printable))
    assert found == ({(builders.NAMESPACE,): seconds} if seconds else {})


def test_a_vm_that_never_ran_or_was_deleted_is_not_down(guests):
    guests(0, *guest(phase="Scheduling"))
    assert guests(60, *guest(phase="Scheduling")) == {}
    guests(70, *guest())
    guests(80)
    assert guests(900) == {}


def test_namespaces_without_vms_that_should_run_have_no_series(guests):
    guests(0, *guest())
    guests(10, *guest(phase=None))
    assert guests(70, *guest(phase=None)) == {(builders.NAMESPACE,): 60}
    assert guests(80) == {}
    guests(90, *guest())
    guests(100, *guest(phase=None))
    assert guests(110, *guest(phase=None)) == {(builders.NAMESPACE,): 10}


def test_time_in_which_the_cluster_was_not_seen_is_not_counted(guests, watched):
    guests(0, *guest())
    guests(10, *guest(phase=None))
    watched.metrics.count_downtime(time(500), current=False)
    watched.metrics.count_downtime(time(505))
    assert watched.samples(DOWNTIME) == {(builders.NAMESPACE,): 5}
