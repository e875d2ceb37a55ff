"""Which evictions are refused, and which VMs start again, by eviction strategy and run strategy."""

import itertools

import pytest

from tests.builders import KUBEVIRT, NAMESPACE, complete, kubevirt, manifest
from tests.for_each import for_each
from tests.model.kubevirt.drain_cases import vm, vmi
from tests.paths import DOCS
from virt_admit.forecasts.drain import vmi_evictions
from virt_admit.model.kubernetes.cluster import Snapshot, Unseen
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import lifecycle, vmis
from virt_admit.model.kubevirt.instances.lifecycle import Eviction, Then
from virt_admit.model.kubevirt.instances.vms import EVICTION_STRATEGIES, RUN_STRATEGIES
from virt_admit.rules import load_rules

T = "2026-11-01T00:00:00Z"
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


@for_each("row, expected", EVICTIONS.items())
def test_evictions(row, expected):
    assert lifecycle.eviction(*row) is expected
    assert vmi_evictions.eviction(vmi(*row), Snapshot()) is expected


@for_each("inherited, migratable", [*itertools.product(EVICTION_STRATEGIES, (True, False, None))])
def test_a_vmi_without_a_strategy_follows_the_cluster(inherited, migratable):
    cluster = complete(kubevirt(evictionStrategy=inherited))

    assert (
        vmi_evictions.eviction(vmi(None, migratable), cluster) is EVICTIONS[inherited, migratable]
    )


def test_kubevirt_that_is_silent_means_none():
    assert vmi_evictions.eviction(vmi(None, False), complete(kubevirt())) is Eviction.SHUTS_DOWN


def test_a_frozen_strategy_wins_over_the_cluster():
    cluster = complete(kubevirt(evictionStrategy="LiveMigrate"))

    assert vmi_evictions.eviction(vmi("None", False), cluster) is Eviction.SHUTS_DOWN


def test_an_unknown_cluster_strategy_is_unseen():
    with pytest.raises(Unseen, match="eviction strategy"):
        vmi_evictions.eviction(vmi(None, False), Snapshot())


@pytest.mark.parametrize(
    ("status", "expected"),
    [("True", True), ("False", False), ("Unknown", None), (True, None), (None, None)],
)
def test_live_migratable(status, expected):
    conditions = [
        {"type": "Ready", "status": "False"},
        {"type": "LiveMigratable", "status": status},
    ]

    assert vmis.migratable(Object({"status": {"conditions": conditions}})) is expected


def test_every_strategy_has_its_row():
    assert set(lifecycle.EVICTION) == set(EVICTION_STRATEGIES)
    assert set(lifecycle.RUN_STRATEGY) == set(lifecycle.VIRTCTL) == set(RUN_STRATEGIES)


@pytest.mark.parametrize(
    ("strategy", "drained", "shutdown", "crash", "node_lost", "deleted", "reboot"),
    [
        ("Always", *[Then.RESTARTED] * 6),
        ("RerunOnFailure", Then.OFF, Then.OFF, Then.RESTARTED, Then.RESTARTED, Then.OFF, Then.OFF),
        ("Manual", *[Then.OFF] * 6),
        ("Once", Then.OFF, Then.OFF, Then.OFF, Then.OFF, Then.RESTARTED, Then.OFF),
        ("Halted", *[Then.NOT_RUNNING] * 6),
        ("WaitAsReceiver", *[Then.RECEIVES] * 6),
    ],
)
def test_run_strategies(strategy, drained, shutdown, crash, node_lost, deleted, reboot):
    outcomes = lifecycle.RUN_STRATEGY[strategy]

    assert (outcomes.drain, outcomes.shutdown, outcomes.crash) == (drained, shutdown, crash)
    assert (outcomes.node_lost, outcomes.deleted, outcomes.reboot) == (node_lost, deleted, reboot)


@pytest.mark.parametrize(
    ("strategy", "comes"), [(each, each == "Always") for each in RUN_STRATEGIES]
)
def test_what_comes_back_after_a_drain(strategy, comes):
    found = vmis.comes_back(vmi(), complete(vm(strategy)))
    assert found.remedy.endswith("kubectl delete vmi db -n shop") is (strategy == "Once")

    assert (found.comes, found.why) == (comes, f"runStrategy {strategy}")
    assert bool(found.remedy) is (strategy in ("RerunOnFailure", "Manual", "Once"))


@pytest.mark.parametrize(
    ("strategy", "comes"), [(each, each in ("Always", "RerunOnFailure")) for each in RUN_STRATEGIES]
)
def test_what_comes_back_after_its_node_was_lost(strategy, comes):
    assert vmis.comes_back(vmi(), complete(vm(strategy)), lost=True).comes is comes


@pytest.mark.parametrize(("running", "comes"), [(True, True), (False, False)])
def test_running_stands_for_a_strategy(running, comes):
    owner = manifest(KUBEVIRT, "VirtualMachine", "db", NAMESPACE, spec={"running": running})

    assert vmis.comes_back(vmi(), complete(owner)).comes is comes


@for_each(
    "strategy, remedy, lost",
    [
        (strategy, remedy, lost)
        for lost in (False, True)
        for strategy, remedy in (
            ("Halted", ""),
            ("Manual", "if it is to run again, start it when it has stopped: virtctl start db"),
            ("RerunOnFailure", "if it is to run again, start it when it has stopped: virtctl "),
            ("Once", ""),
        )
    ],
)
def test_a_vm_that_was_stopped_is_not_told_to_run(strategy, remedy, lost):
    stopped = Object({**vmi().data, "metadata": {**vmi().data["metadata"], "deletionTimestamp": T}})
    found = vmis.comes_back(stopped, complete(vm(strategy)), lost=lost)

    assert found.comes is (strategy == "Once")
    assert "Always" not in found.remedy
    assert found.remedy.startswith(remedy)
    assert bool(found.remedy) is bool(remedy)


@pytest.mark.parametrize(
    ("subject", "objects", "comes", "why"),
    [
        (vmi(owner=None), (), False, "no VM owns it"),
        (vmi(), (), False, "its VM db is gone"),
        (
            vmi(),
            (vm("Always", deletionTimestamp="2026-11-01T00:00:00Z"),),
            False,
            "its VM is being deleted",
        ),
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
