"""What a drain does to VMs."""

import pytest

from tests import builders
from tests.builders import KUBEVIRT, NAMESPACE, complete, kubevirt, manifest, node
from tests.cli.explain_vm_cases import Explainer
from tests.for_each import for_each
from tests.model.kubevirt.drain_cases import HERE, LAUNCHERS, ROOM, THERE, budget, vm, vmi
from virt_admit.forecasts.drain import drain_plan, vm_outcomes
from virt_admit.forecasts.drain.vm_outcomes import VmOutcome
from virt_admit.model.kubernetes.cluster import Snapshot, Unseen
from virt_admit.model.kubevirt.instances import migrations, vmis
from virt_admit.model.kubevirt.instances.vms import RUN_STRATEGIES
from virt_admit.reports.drain import html, text, words


def foretold(subject, *objects):
    return vm_outcomes.forecast(subject, complete(subject, *objects))


@for_each(
    "strategy, migratable, run, outcome",
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
    assert ("Halted" if run == "Halted" else strategy) in found.reason
    meant = run in ("Halted", "WaitAsReceiver")  # nothing is to start it
    assert bool(found.remedy) is (outcome in (VmOutcome.BLOCKS, VmOutcome.STOPS) and not meant)


def test_a_block_names_the_reason_that_kubevirt_gives():
    assert "HostDeviceNotLiveMigratable" in foretold(vmi("LiveMigrate", False), HERE, THERE).reason


def test_an_inherited_strategy_is_called_so():
    found = foretold(vmi(None, False), HERE, THERE, kubevirt(evictionStrategy="LiveMigrate"))

    assert "LiveMigrate from KubeVirt" in found.reason


@pytest.mark.parametrize(
    ("subject", "objects"), [(vmi(None, False), [vm("Always")]), (vmi("None", False), [kubevirt()])]
)
def test_what_cannot_be_seen_is_unknown(subject, objects):
    found = vm_outcomes.forecast(subject, Snapshot(objects))

    assert found.outcome is VmOutcome.UNKNOWN
    assert "cannot see" in found.reason


def test_a_node_that_cannot_be_seen_may_take_it():
    subject = vmi("LiveMigrate", True)
    objects = [HERE, node("b", unschedulable=True), subject, vm("Always"), kubevirt()]

    assert (
        vm_outcomes.forecast(subject, Snapshot(objects, complete=["*"])).outcome is VmOutcome.BLOCKS
    )
    assert vm_outcomes.forecast(subject, Snapshot(objects)).outcome is VmOutcome.UNKNOWN


def test_a_refused_eviction_needs_nothing_else_to_be_seen():
    assert vm_outcomes.forecast(vmi("LiveMigrate", False), Snapshot()).outcome is VmOutcome.BLOCKS


def test_a_vmi_that_is_being_deleted_blocks_nothing():
    subject = vmi("LiveMigrate", False)
    subject.data["metadata"]["deletionTimestamp"] = "2026-11-01T00:00:00Z"

    assert foretold(subject, HERE, THERE, vm("Always")).outcome is VmOutcome.RESTARTS
    assert foretold(subject, HERE, THERE, vm("Halted")).outcome is VmOutcome.STOPS


DEVICES = (f"devices.kubevirt.io/{name}" for name in ("kvm", "tun", "vhost-net"))
TINY = dict.fromkeys(("cpu", "pods", *DEVICES), "9") | {"ephemeral-storage": "9Gi", "memory": "1Mi"}
OFFERS = "cpu-model.node.kubevirt.io/Haswell"


@pytest.mark.parametrize(
    ("subject", "nodes", "reason"),
    [
        (vmi("LiveMigrate", True), [HERE], "no other node runs KubeVirt"),
        (
            vmi("LiveMigrate", True),
            [HERE, node("b", runs_vms=False)],
            "no other node runs KubeVirt",
        ),
        (
            vmi("LiveMigrate", True),
            [HERE, node("b", unschedulable=True)],
            "no node that could take it is schedulable now: b (cordoned)",
        ),
        (
            vmi("LiveMigrate", True),
            [HERE, node("b", ready="Unknown")],
            "no node that could take it is schedulable now: b",
        ),
        (
            vmi("LiveMigrate", True),
            [HERE, node("b", unschedulable=True), node("c", allocatable=TINY)],
            "no node that could take it is schedulable now: b (cordoned); too little memory on c",
        ),
        (
            vmi("LiveMigrateIfPossible", True, nodeSelector={"zone": "1"}),
            [node("a", labels={"zone": "1"}), THERE],
            "node selector zone=1",
        ),
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
    words, _, command = found.remedy.partition(": ")
    words = words.partition(", which takes effect")[0]
    ends = ("let drains shut the guest down", "uncordon or repair one of them", "is over")
    assert words.endswith(ends)
    assert command.startswith(
        ("kubectl patch vm db -n shop ", "kubectl uncordon ", "kubectl describe node ")
    )


def test_nothing_asks_for_a_node_where_there_is_only_one():
    alone = foretold(vmi("LiveMigrate", True), HERE, vm("Always"))
    assert alone.remedy.startswith("let drains shut the guest down")
    other = foretold(vmi("LiveMigrate", True), HERE, node("b", runs_vms=False), vm("Always"))
    assert other.remedy.startswith("add one; or let drains shut the guest down")


@pytest.mark.parametrize("nodes", [[], [node("a", runs_vms=False)]])
def test_without_labels_on_nodes_kubevirt_is_believed(nodes):
    assert foretold(vmi("LiveMigrate", True), *nodes).outcome is VmOutcome.MIGRATES


def test_with_nodes_out_of_sight_it_cannot_be_determined_whether_it_migrates():
    assert vm_outcomes.forecast(vmi("LiveMigrate", True), Snapshot()).outcome is VmOutcome.UNKNOWN


ON_A = {"kubernetes.io/hostname": "a"}
PINNED = builders.vm({"spec": {"nodeSelector": ON_A}}, runStrategy="Always")


def test_a_restart_that_finds_no_node_says_so():
    found = foretold(vmi("None", True, nodeSelector=ON_A), HERE, THERE, PINNED)

    assert found.outcome is VmOutcome.AWAITS_NODE
    assert "no other node can ever run it" in found.reason


@pytest.mark.parametrize("nodes", [[HERE, THERE], [HERE]])
def test_a_vm_that_is_shut_down_is_not_told_to_set_none(nodes):
    found = foretold(vmi("None", True, nodeSelector=ON_A), *nodes, PINNED)

    assert (found.outcome, found.remedy) == (
        VmOutcome.AWAITS_NODE,
        "plan for its downtime until a is back",
    )


@pytest.mark.parametrize(
    "away",
    [
        node("b", allocatable=ROOM, unschedulable=True),
        node("b", ready="Unknown", allocatable=ROOM),
        node("b", allocatable=ROOM | {"pods": "1"}),
    ],
    ids=["cordoned", "not ready", "full"],
)
def test_a_vm_that_only_lacks_a_node_now_restarts_later(away, tmp_path):
    other = manifest(
        "v1", "Pod", "web", NAMESPACE, spec={"nodeName": "b"}, status={"phase": "Running"}
    )
    found = foretold(vmi("None", True), HERE, away, other, vm("Always"))
    assert (found.outcome, words.of_row(found)) == (VmOutcome.RESTARTS, "restarts later")
    assert "but only later, on a or on a node that has room then: " in found.reason
    objects = vmi("None", True), HERE, away, other, vm("Always")
    plan = drain_plan.plan(complete(*objects), "a")
    _, explained = Explainer(tmp_path)(*objects, form="text")

    assert [each.word for each in html.page(plan, None).causes] == ["restarts later"]
    assert "1 restarts later: shop (1)" in text.summary(plan)
    assert "a drain of its node    restarts later" in explained


def migration(name, phase, created, annotation="kubevirt.io/evacuationMigration", of="db"):
    return manifest(
        KUBEVIRT,
        "VirtualMachineInstanceMigration",
        name,
        NAMESPACE,
        metadata={
            "annotations": {annotation: ""},
            "creationTimestamp": f"2026-11-01T00:0{created}:00Z",
        },
        spec={"vmiName": of},
        status={"phase": phase},
    )


FAILED = [migration(f"m{minute}", "Failed", minute) for minute in range(3)]


def test_migrations_that_fail_again_and_again_block():
    found = foretold(vmi("LiveMigrate", True), HERE, THERE, *FAILED)

    assert found.outcome is VmOutcome.BLOCKS
    assert "last 3 migrations failed" in found.reason
    assert "m2" in found.remedy


def test_a_failure_counts_whoever_created_the_migration():
    by_hand = [migration(f"m{minute}", "Failed", minute, annotation="mine") for minute in range(3)]
    assert foretold(vmi("LiveMigrate", True), HERE, THERE, *by_hand).outcome is VmOutcome.BLOCKS


@pytest.mark.parametrize(
    "history",
    [
        FAILED[:2],
        [*FAILED, migration("m3", "Succeeded", 3)],
        [migration(f"m{minute}", "Failed", minute, of="web") for minute in range(3)],
    ],
)
def test_migrations_that_say_nothing_of_the_next_one(history):
    assert foretold(vmi("LiveMigrate", True), HERE, THERE, *history).outcome is VmOutcome.MIGRATES


def test_unfinished_migrations():
    history = [
        *FAILED,
        migration("m3", "Running", 3),
        migration("m4", None, 4),
        migration("m5", "Running", 5, of="x"),
    ]

    assert [each.name for each in migrations.unfinished(vmi(), complete(*history))] == ["m3", "m4"]
    with pytest.raises(Unseen, match="migrations"):
        list(migrations.unfinished(vmi(), Snapshot(history)))


@for_each(
    "each, outcome",
    [
        (budget(LAUNCHERS, maxUnavailable=1), VmOutcome.BLOCKS),
        (budget(LAUNCHERS, minAvailable="50%"), VmOutcome.BLOCKS),
        (budget(LAUNCHERS, minAvailable=1, allowed=0), VmOutcome.BLOCKS),
        (budget({}, maxUnavailable=1), VmOutcome.BLOCKS),
        (budget({"matchLabels": {"app": "db"}}, maxUnavailable=1), VmOutcome.BLOCKS),
        (
            budget({"matchLabels": {"vm.kubevirt.io/name": "db"}}, maxUnavailable=1),
            VmOutcome.BLOCKS,
        ),
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
    pending = vmi(on=None, phase="Pending")
    others = [vmi(on="b"), pending, vmi(on="a", phase="Succeeded"), vmi(on="a", phase="Failed")]
    for index, other in enumerate(others):
        other.data["metadata"]["name"] = f"other-{index}"

    assert list(vmis.on_node(complete(here, *others), "a")) == [here]
    assert list(vmis.on_node(complete(here), "c")) == []


def test_a_vmi_that_runs_without_a_node_may_be_on_any():
    found = vmis.on_node(complete(vmi(on=None)), "a")

    with pytest.raises(Unseen, match="the node of virtualmachineinstances"):
        list(found)


def test_vmis_out_of_sight_come_after_those_in_sight():
    here = vmi(on="a")
    found = vmis.on_node(Snapshot([here]), "a")

    assert next(found) is here
    with pytest.raises(Unseen, match="virtualmachineinstances"):
        next(found)
