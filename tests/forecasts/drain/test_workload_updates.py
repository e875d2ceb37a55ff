"""What an update of KubeVirt does to VMs."""

import pytest

from tests.builders import complete, kubevirt
from tests.for_each import for_each
from tests.model.kubevirt.drain_cases import HERE, LAUNCHERS, THERE, budget, vm, vmi
from virt_admit.forecasts.drain import workload_updates
from virt_admit.forecasts.drain.workload_updates import Reach
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object

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
    ("most", "migrations", "reach"),
    [
        ("1Mi", [], Reach.RETRIED),
        ("64Gi", [], Reach.MIGRATED),
        ("1Mi", ["Scheduling"], Reach.MIGRATED),  # its second pod was created before
        ("1Mi", ["Pending"], Reach.RETRIED),
    ],
)
def test_an_update_needs_a_second_pod(most, migrations, reach):
    subject = vmi("LiveMigrate", True, domain={"memory": {"guest": "1Gi"}})
    limit = {"type": "Container", "max": {"memory": most}}
    limits = Object(
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": "small", "namespace": subject.namespace},
            "spec": {"limits": [limit]},
        }
    )
    own = [
        Object(
            {
                "apiVersion": "kubevirt.io/v1",
                "kind": "VirtualMachineInstanceMigration",
                "metadata": {"name": "m", "namespace": subject.namespace},
                "spec": {"vmiName": subject.name},
                "status": {"phase": phase},
            }
        )
        for phase in migrations
    ]
    found = workload_updates.update(subject, BOTH, complete(subject, HERE, THERE, limits, *own))

    assert found.reach is reach
    assert ("LimitRange small" in found.reason) == (reach is Reach.RETRIED)


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
