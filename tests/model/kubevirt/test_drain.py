"""What a drain and an update do to VMs."""

import itertools

import pytest

from tests import builders
from tests.builders import KUBEVIRT, NAMESPACE, complete, kubevirt, manifest, node, owned_by
from tests.paths import DOCS
from virt_admit.model.cluster import Snapshot, Unseen
from virt_admit.model.kubevirt import drain, lifecycle, migrations, vmis, workload_updates
from virt_admit.model.kubevirt.drain import VmOutcome
from virt_admit.model.kubevirt.lifecycle import Eviction, Then
from virt_admit.model.kubevirt.vms import EVICTION_STRATEGIES, RUN_STRATEGIES
from virt_admit.model.kubevirt.workload_updates import Reach
from virt_admit.model.objects import Object
from virt_admit.rules import load_rules


def vm(run_strategy, name="db", **metadata):
    return builders.vm(name=name, metadata=metadata, runStrategy=run_strategy)


def vmi(strategy=None, migratable=None, *, owner="VirtualMachine", on="a", phase="Running", labels=None, **spec):
    conditions = [{"type": "LiveMigratable", "status": str(migratable), "reason": "HostDeviceNotLiveMigratable"}]
    return builders.vmi(
        metadata={"ownerReferences": owned_by(owner) if owner else [], "labels": labels or {}},
        status={"phase": phase, "nodeName": on, "conditions": conditions if migratable is not None else []},
        evictionStrategy=strategy,
        **spec,
    )


def foretold(subject, *objects):
    return drain.forecast(subject, complete(subject, *objects))


# --- who blocks ----------------------------------------------------------------------------------------------------

EVICTIONS = {
    ("None", True): Eviction.SHUTS_DOWN,
    ("None", False): Eviction.SHUTS_DOWN,
    ("None", None): Eviction.SHUTS_DOWN,
    ("LiveMigrate", True): Eviction.MIGRATES,
    ("LiveMigrate", False): Eviction.REFUSED,
    ("LiveMigrate", None): Eviction.REFUSED,
    ("LiveMigrateIfPossible", True): Eviction.MIGRATES,
    ("LiveMigrateIfPossible", False): Eviction.SHUTS_DOWN,
    ("LiveMigrateIfPossible", None): Eviction.SHUTS_DOWN,
    ("External", True): Eviction.WAITS,
    ("External", False): Eviction.WAITS,
    ("External", None): Eviction.WAITS,
    ("Shutdown", True): Eviction.SHUTS_DOWN,
    ("", False): Eviction.SHUTS_DOWN,
}


@pytest.mark.parametrize(("row", "expected"), EVICTIONS.items())
def test_evictions(row, expected):
    assert lifecycle.eviction(*row) is expected
    assert drain.eviction(vmi(*row), Snapshot()) is expected


@pytest.mark.parametrize(("inherited", "migratable"), [*itertools.product(EVICTION_STRATEGIES, (True, False, None))])
def test_a_vmi_without_a_strategy_follows_the_cluster(inherited, migratable):
    cluster = complete(kubevirt(evictionStrategy=inherited))

    assert drain.eviction(vmi(None, migratable), cluster) is EVICTIONS[inherited, migratable]


def test_kubevirt_that_is_silent_means_none():
    assert drain.eviction(vmi(None, False), complete(kubevirt())) is Eviction.SHUTS_DOWN


def test_a_frozen_strategy_wins_over_the_cluster():
    cluster = complete(kubevirt(evictionStrategy="LiveMigrate"))

    assert drain.eviction(vmi("None", False), cluster) is Eviction.SHUTS_DOWN


def test_an_unknown_cluster_strategy_is_unseen():
    with pytest.raises(Unseen, match="eviction strategy"):
        drain.eviction(vmi(None, False), Snapshot())


@pytest.mark.parametrize(
    ("status", "expected"), [("True", True), ("False", False), ("Unknown", None), (True, None), (None, None)]
)
def test_live_migratable(status, expected):
    conditions = [{"type": "Ready", "status": "False"}, {"type": "LiveMigratable", "status": status}]

    assert vmis.migratable(Object({"status": {"conditions": conditions}})) is expected


def test_every_strategy_has_its_row():
    assert set(lifecycle.EVICTION) == set(EVICTION_STRATEGIES)
    assert set(lifecycle.RUN_STRATEGY) == set(lifecycle.VIRTCTL) == set(RUN_STRATEGIES)


# --- what comes back -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "drained", "shutdown", "crash", "node_lost", "deleted"),
    [
        ("Always", *[Then.RESTARTED] * 5),
        ("RerunOnFailure", Then.OFF, Then.OFF, Then.RESTARTED, Then.RESTARTED, Then.OFF),
        ("Manual", *[Then.OFF] * 5),
        ("Once", Then.OFF, Then.OFF, Then.OFF, Then.OFF, Then.RESTARTED),
        ("Halted", *[Then.NOT_RUNNING] * 5),
        ("WaitAsReceiver", *[Then.RECEIVES] * 5),
    ],
)
def test_run_strategies(strategy, drained, shutdown, crash, node_lost, deleted):
    outcomes = lifecycle.RUN_STRATEGY[strategy]

    assert (outcomes.drain, outcomes.shutdown, outcomes.crash) == (drained, shutdown, crash)
    assert (outcomes.node_lost, outcomes.deleted) == (node_lost, deleted)


@pytest.mark.parametrize(("strategy", "comes"), [(each, each == "Always") for each in RUN_STRATEGIES])
def test_what_comes_back_after_a_drain(strategy, comes):
    found = vmis.comes_back(vmi(), complete(vm(strategy)))

    assert (found.comes, found.why) == (comes, f"runStrategy {strategy}")
    assert bool(found.remedy) is not comes


@pytest.mark.parametrize(
    ("strategy", "comes"), [(each, each in ("Always", "RerunOnFailure")) for each in RUN_STRATEGIES]
)
def test_what_comes_back_after_its_node_was_lost(strategy, comes):
    assert vmis.comes_back(vmi(), complete(vm(strategy)), lost=True).comes is comes


@pytest.mark.parametrize(("running", "comes"), [(True, True), (False, False)])
def test_running_stands_for_a_strategy(running, comes):
    owner = manifest(KUBEVIRT, "VirtualMachine", "db", NAMESPACE, spec={"running": running})

    assert vmis.comes_back(vmi(), complete(owner)).comes is comes


@pytest.mark.parametrize(
    ("subject", "objects", "comes", "why"),
    [
        (vmi(owner=None), (), False, "no VM owns it"),
        (vmi(), (), False, "its VM db is gone"),
        (vmi(), (vm("Always", deletionTimestamp="2026-11-01T00:00:00Z"),), False, "its VM is being deleted"),
        (vmi(owner="VirtualMachineInstanceReplicaSet"), (), True, "its replica set makes another"),
    ],
)
def test_what_comes_back_without_a_vm(subject, objects, comes, why):
    assert vmis.comes_back(subject, complete(*objects))[:2] == (comes, why)


@pytest.mark.parametrize(
    ("subject", "cluster", "what"),
    [
        (vmi(), Snapshot(), "virtualmachines.* shop/db"),
        (vmi(), complete(vm("Sometimes")), "run strategy"),
        (vmi(), complete(vm(None)), "run strategy"),
        (vmi(owner="Something"), complete(), "Something db"),
    ],
)
def test_when_nothing_tells_whether_it_comes_back(subject, cluster, what):
    with pytest.raises(Unseen, match=what):
        vmis.comes_back(subject, cluster)


# --- virtctl -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "start", "stop", "restart"),
    [
        ("Always", None, "Halted", "stays Always"),
        ("RerunOnFailure", "stays RerunOnFailure", "stays RerunOnFailure", "stays RerunOnFailure"),
        ("Manual", "stays Manual", "stays Manual", "stays Manual"),
        ("Halted", "becomes Always", "fails, unless it still runs", None),
        ("Once", None, "becomes Halted", None),
        ("WaitAsReceiver", "does nothing", "does nothing", "accepted"),
    ],
)
def test_virtctl(strategy, start, stop, restart):
    said = lifecycle.VIRTCTL[strategy]

    for actual, expected in ((said.start, start), (said.stop, stop), (said.restart, restart)):
        assert actual is None if expected is None else expected in actual


@pytest.mark.parametrize("table", [lifecycle.outcomes_table(), lifecycle.commands_table()])
def test_people_read_the_same_tables(table):
    """In the docs, and on the page of the rule about run strategies."""
    assert table in (DOCS / "drain.md").read_text()
    assert table in load_rules().by_id["vm-run-strategy-unknown"].doc


# --- the forecast --------------------------------------------------------------------------------------------------

HERE, THERE = node("a"), node("b")


@pytest.mark.parametrize(
    ("strategy", "migratable", "run", "outcome"),
    [
        ("LiveMigrate", True, "Always", VmOutcome.MIGRATES),
        ("LiveMigrate", False, "Always", VmOutcome.BLOCKS),
        ("LiveMigrate", None, "Always", VmOutcome.BLOCKS),
        ("LiveMigrateIfPossible", True, "Manual", VmOutcome.MIGRATES),
        ("LiveMigrateIfPossible", False, "Always", VmOutcome.RESTARTS),
        ("LiveMigrateIfPossible", None, "Always", VmOutcome.RESTARTS),
        ("LiveMigrateIfPossible", False, "RerunOnFailure", VmOutcome.STOPS),
        ("External", True, "Always", VmOutcome.BLOCKS),
        ("External", False, "Always", VmOutcome.BLOCKS),
        *[("None", can, "Always", VmOutcome.RESTARTS) for can in (True, False, None)],
        *[("None", True, run, VmOutcome.STOPS) for run in RUN_STRATEGIES if run != "Always"],
    ],
)
def test_forecast(strategy, migratable, run, outcome):
    found = foretold(vmi(strategy, migratable), HERE, THERE, vm(run))

    assert found.outcome is outcome
    assert strategy in found.reason
    assert bool(found.remedy) is (outcome in (VmOutcome.BLOCKS, VmOutcome.STOPS))


def test_a_block_names_the_reason_that_kubevirt_gives():
    assert "HostDeviceNotLiveMigratable" in foretold(vmi("LiveMigrate", False), HERE, THERE).reason


def test_an_inherited_strategy_is_called_so():
    found = foretold(vmi(None, False), HERE, THERE, kubevirt(evictionStrategy="LiveMigrate"))

    assert "LiveMigrate from KubeVirt" in found.reason


@pytest.mark.parametrize(
    ("subject", "objects"), [(vmi(None, False), [vm("Always")]), (vmi("None", False), [kubevirt()])]
)
def test_what_cannot_be_seen_is_unknown(subject, objects):
    found = drain.forecast(subject, Snapshot(objects))

    assert found.outcome is VmOutcome.UNKNOWN
    assert "cannot see" in found.reason


def test_a_node_that_cannot_be_seen_may_take_it():
    subject = vmi("LiveMigrate", True)
    objects = [HERE, node("b", unschedulable=True), subject, vm("Always"), kubevirt()]

    assert drain.forecast(subject, Snapshot(objects, complete=["*"])).outcome is VmOutcome.BLOCKS
    assert drain.forecast(subject, Snapshot(objects)).outcome is VmOutcome.MIGRATES


def test_a_refused_eviction_needs_nothing_else_to_be_seen():
    assert drain.forecast(vmi("LiveMigrate", False), Snapshot()).outcome is VmOutcome.BLOCKS


def test_a_vmi_that_is_being_deleted_blocks_nothing():
    subject = vmi("LiveMigrate", False)
    subject.data["metadata"]["deletionTimestamp"] = "2026-11-01T00:00:00Z"

    assert foretold(subject, HERE, THERE, vm("Always")).outcome is VmOutcome.RESTARTS
    assert foretold(subject, HERE, THERE, vm("Halted")).outcome is VmOutcome.STOPS


OFFERS = "cpu-model.node.kubevirt.io/Haswell"


@pytest.mark.parametrize(
    ("subject", "nodes", "reason"),
    [
        (vmi("LiveMigrate", True), [HERE], "no other node runs KubeVirt"),
        (vmi("LiveMigrate", True), [HERE, node("b", runs_vms=False)], "no other node runs KubeVirt"),
        (vmi("LiveMigrate", True), [HERE, node("b", unschedulable=True)], "no node that could take it is ready: b"),
        (vmi("LiveMigrate", True), [HERE, node("b", ready="Unknown")], "no node that could take it is ready: b"),
        (vmi("LiveMigrateIfPossible", True, nodeSelector={"zone": "1"}), [HERE, THERE], "node selector zone=1"),
        (
            vmi("LiveMigrate", True, domain={"cpu": {"model": "Haswell"}}),
            [node("a", labels={OFFERS: "true"}), THERE],
            "CPU model Haswell",
        ),
        (
            vmi("LiveMigrate", True, domain={"cpu": {"model": "host-model"}}),
            [
                node(
                    "a",
                    labels={
                        "host-model-cpu.node.kubevirt.io/Skylake": "true",
                        "cpu-model-migration.node.kubevirt.io/Skylake": "true",
                    },
                ),
                THERE,
            ],
            "host model Skylake",
        ),
    ],
)
def test_a_migration_that_finds_no_node_blocks(subject, nodes, reason):
    found = foretold(subject, *nodes, vm("Always"))

    assert found.outcome is VmOutcome.BLOCKS
    assert reason in found.reason
    assert found.remedy


@pytest.mark.parametrize("nodes", [[], [node("a", runs_vms=False)]])
def test_without_labels_on_nodes_kubevirt_is_believed(nodes):
    assert foretold(vmi("LiveMigrate", True), *nodes).outcome is VmOutcome.MIGRATES


def test_with_nodes_out_of_sight_kubevirt_is_believed():
    assert drain.forecast(vmi("LiveMigrate", True), Snapshot()).outcome is VmOutcome.MIGRATES


def test_a_restart_that_finds_no_node_says_so():
    found = foretold(vmi("None", True, nodeSelector={"kubernetes.io/hostname": "a"}), HERE, THERE, vm("Always"))

    assert found.outcome is VmOutcome.RESTARTS
    assert "only later" in found.reason


def migration(name, phase, created, annotation="kubevirt.io/evacuationMigration", of="db"):
    return manifest(
        KUBEVIRT,
        "VirtualMachineInstanceMigration",
        name,
        NAMESPACE,
        metadata={"annotations": {annotation: ""}, "creationTimestamp": f"2026-11-01T00:0{created}:00Z"},
        spec={"vmiName": of},
        status={"phase": phase},
    )


FAILED = [migration(f"m{minute}", "Failed", minute) for minute in range(3)]


def test_migrations_that_fail_again_and_again_block():
    found = foretold(vmi("LiveMigrate", True), HERE, THERE, *FAILED)

    assert found.outcome is VmOutcome.BLOCKS
    assert "last 3 migrations failed" in found.reason
    assert "m2" in found.remedy


@pytest.mark.parametrize(
    "history",
    [
        FAILED[:2],
        [*FAILED, migration("m3", "Succeeded", 3)],
        [migration(f"m{minute}", "Failed", minute, annotation="mine") for minute in range(3)],
        [migration(f"m{minute}", "Failed", minute, of="web") for minute in range(3)],
    ],
)
def test_migrations_that_say_nothing_of_the_next_one(history):
    assert foretold(vmi("LiveMigrate", True), HERE, THERE, *history).outcome is VmOutcome.MIGRATES


def test_unfinished_migrations():
    history = [*FAILED, migration("m3", "Running", 3), migration("m4", None, 4), migration("m5", "Running", 5, of="x")]

    assert [each.name for each in migrations.unfinished(vmi(), complete(*history))] == ["m3", "m4"]
    with pytest.raises(Unseen, match="migrations"):
        list(migrations.unfinished(vmi(), Snapshot(history)))


def budget(selector, allowed=None, owner=None, **spec):
    return manifest(
        "policy/v1",
        "PodDisruptionBudget",
        "own",
        NAMESPACE,
        metadata={"ownerReferences": [{"kind": owner, "name": "db"}] if owner else []},
        spec={"selector": selector} | spec,
        status={"disruptionsAllowed": allowed},
    )


LAUNCHERS = {"matchLabels": {"kubevirt.io": "virt-launcher"}}


@pytest.mark.parametrize(
    ("each", "outcome"),
    [
        (budget(LAUNCHERS, maxUnavailable=1), VmOutcome.BLOCKS),
        (budget(LAUNCHERS, minAvailable="50%"), VmOutcome.BLOCKS),
        (budget(LAUNCHERS, minAvailable=1, allowed=0), VmOutcome.BLOCKS),
        (budget({}, maxUnavailable=1), VmOutcome.BLOCKS),
        (budget({"matchLabels": {"app": "db"}}, maxUnavailable=1), VmOutcome.BLOCKS),
        (budget({"matchLabels": {"vm.kubevirt.io/name": "db"}}, maxUnavailable=1), VmOutcome.BLOCKS),
        (budget(LAUNCHERS, minAvailable=1, allowed=1), VmOutcome.RESTARTS),
        (budget(LAUNCHERS, minAvailable=1), VmOutcome.RESTARTS),
        (budget({"matchLabels": {"app": "web"}}, maxUnavailable=1), VmOutcome.RESTARTS),
        (budget(None, maxUnavailable=1), VmOutcome.RESTARTS),
        (budget({}, minAvailable=1, allowed=0, owner="VirtualMachineInstance"), VmOutcome.RESTARTS),
    ],
)
def test_a_budget_of_the_users_blocks_what_would_be_shut_down(each, outcome):
    found = foretold(vmi("None", True, labels={"app": "db"}), HERE, THERE, vm("Always"), each)

    assert found.outcome is outcome
    assert foretold(vmi("LiveMigrate", True), HERE, THERE, each).outcome is VmOutcome.MIGRATES


def test_which_vmis_are_on_a_node():
    here = vmi(on="a")
    others = [vmi(on="b"), vmi(on=None), vmi(on="a", phase="Succeeded"), vmi(on="a", phase="Failed")]
    for index, other in enumerate(others):
        other.data["metadata"]["name"] = f"other-{index}"

    assert list(vmis.on_node(complete(here, *others), "a")) == [here]
    assert list(vmis.on_node(complete(here), "c")) == []


def test_vmis_out_of_sight_come_after_those_in_sight():
    here = vmi(on="a")
    found = vmis.on_node(Snapshot([here]), "a")

    assert next(found) is here
    with pytest.raises(Unseen, match="virtualmachineinstances"):
        next(found)


# --- workload updates ----------------------------------------------------------------------------------------------

LIVE, EVICT, BOTH = ["LiveMigrate"], ["Evict"], ["LiveMigrate", "Evict"]


@pytest.mark.parametrize(
    ("methods", "strategy", "migratable", "run", "reach"),
    [
        (LIVE, "LiveMigrate", True, "Always", Reach.MIGRATED),
        (LIVE, "None", True, "Always", Reach.MIGRATED),
        (LIVE, "None", False, "Always", Reach.NEVER),
        (BOTH, "External", True, "Always", Reach.MIGRATED),
        (BOTH, "None", False, "Always", Reach.RESTARTED),
        (BOTH, "None", False, "RerunOnFailure", Reach.STOPPED),
        (BOTH, "LiveMigrateIfPossible", False, "Always", Reach.RESTARTED),
        (BOTH, "LiveMigrateIfPossible", False, "Manual", Reach.STOPPED),
        (BOTH, "LiveMigrate", False, "Always", Reach.NEVER),
        (BOTH, "External", False, "Always", Reach.NEVER),
        (EVICT, "LiveMigrate", True, "Always", Reach.MIGRATED),
        (EVICT, "None", True, "Always", Reach.RESTARTED),
        (EVICT, "None", True, "Once", Reach.STOPPED),
        (EVICT, "External", True, "Always", Reach.NEVER),
        ([], "LiveMigrate", True, "Always", Reach.NEVER),
        (BOTH, "None", None, "Always", Reach.UNKNOWN),
    ],
)
def test_how_an_update_reaches_a_vmi(methods, strategy, migratable, run, reach):
    subject = vmi(strategy, migratable)

    found = workload_updates.update(subject, methods, complete(subject, HERE, THERE, vm(run)))

    assert found.reach is reach
    assert found.reason


def test_an_update_that_is_retried_for_ever():
    subject = vmi("LiveMigrate", True, nodeSelector={"kubernetes.io/hostname": "a"})

    assert workload_updates.update(subject, BOTH, complete(subject, HERE, THERE)).reach is Reach.RETRIED


@pytest.mark.parametrize(("strategy", "reach"), [("None", Reach.RESTARTED), ("LiveMigrate", Reach.NEVER)])
def test_an_update_goes_by_the_strategy_of_the_cluster(strategy, reach):
    subject, objects = vmi(None, False), (HERE, THERE, vm("Always"), kubevirt(evictionStrategy=strategy))

    assert workload_updates.update(subject, BOTH, complete(subject, *objects)).reach is reach


def test_an_update_that_a_budget_keeps_off():
    subject = vmi("None", False)

    found = workload_updates.update(
        subject, BOTH, complete(subject, HERE, THERE, vm("Always"), budget(LAUNCHERS, maxUnavailable=1))
    )

    assert found.reach is Reach.NEVER


def test_an_update_that_cannot_be_told():
    assert workload_updates.update(vmi("None", False), BOTH, Snapshot()).reach is Reach.UNKNOWN
    assert workload_updates.update(vmi(None, False), BOTH, Snapshot()).reach is Reach.UNKNOWN
