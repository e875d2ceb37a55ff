"""What an update of KubeVirt does to VMs."""

import pytest

from tests.builders import complete, kubevirt
from tests.for_each import for_each
from tests.model.kubevirt.drain_cases import HERE, LAUNCHERS, THERE, budget, vm, vmi
from virt_admit.forecasts.drain import workload_updates
from virt_admit.forecasts.drain.workload_updates import Reach
from virt_admit.model.kubernetes.cluster import Snapshot

LIVE, EVICT, BOTH = ["LiveMigrate"], ["Evict"], ["LiveMigrate", "Evict"]


@for_each(
    "methods, strategy, migratable, run, reach",
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

    assert (
        workload_updates.update(subject, BOTH, complete(subject, HERE, THERE)).reach
        is Reach.RETRIED
    )


@pytest.mark.parametrize(
    ("strategy", "reach"), [("None", Reach.RESTARTED), ("LiveMigrate", Reach.NEVER)]
)
def test_an_update_goes_by_the_strategy_of_the_cluster(strategy, reach):
    subject, objects = (
        vmi(None, False),
        (HERE, THERE, vm("Always"), kubevirt(evictionStrategy=strategy)),
    )

    assert workload_updates.update(subject, BOTH, complete(subject, *objects)).reach is reach


def test_an_update_that_a_budget_keeps_off():
    subject = vmi("None", False)

    found = workload_updates.update(
        subject,
        BOTH,
        complete(subject, HERE, THERE, vm("Always"), budget(LAUNCHERS, maxUnavailable=1)),
    )

    assert found.reach is Reach.NEVER


def test_an_update_that_cannot_be_told():
    assert workload_updates.update(vmi("None", False), BOTH, Snapshot()).reach is Reach.UNKNOWN
    assert workload_updates.update(vmi(None, False), BOTH, Snapshot()).reach is Reach.UNKNOWN


@pytest.mark.parametrize(("can", "step"), [(True, "migration or restart"), (False, "restart")])
def test_without_a_method_another_step_updates_it(can, step):
    subject = vmi("LiveMigrate", can)
    found = workload_updates.update(subject, (), complete(subject, HERE, THERE))
    assert found.reason == f"no update method is listed, so its next {step} updates it"
