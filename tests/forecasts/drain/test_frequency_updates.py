"""An update of KubeVirt to a release that accepts about the TSC frequency of a VM."""

import pytest

from tests.builders import complete, kubevirt
from tests.forecasts.drain import vm_motion
from tests.forecasts.drain.vm_motion import launcher, vm
from virt_admit.forecasts.drain import vm_events
from virt_admit.forecasts.drain.drain_plan import plan
from virt_admit.forecasts.drain.vm_events import EventEffect, EventForecast, VmEvent
from virt_admit.forecasts.drain.workload_updates import Reach
from virt_admit.model.kubevirt.instances import tsc

OWN, NEAR = 2893200000, 2893202000
PAUSED = {"type": "Paused", "status": "True", "reason": "PausedIOError"}


def node(name, frequency):
    labels = {tsc.TSC_FREQUENCY: str(frequency), f"{tsc.SELECTED}{frequency}": "true"}
    return vm_motion.node(name, labels=labels)


def update(*conditions, other=NEAR, **status):
    subject = vm_motion.vmi(
        spec={"domain": {"features": {"hyperv": {"reenlightenment": {"enabled": True}}}}},
        topologyHints={"tscFrequency": OWN},
        conditions=conditions,
    )
    operator = kubevirt(status={"observedKubeVirtVersion": "v0.53.0"} | status)
    operator.data["spec"]["workloadUpdateStrategy"] = {"workloadUpdateMethods": ["LiveMigrate"]}
    nodes = node("a", OWN), node("b", other)
    return event_of_update(complete(*nodes, operator, subject, vm(), launcher()))


def event_of_update(cluster):
    found = plan(cluster, "a").nodes[0]
    loss = EventForecast(VmEvent.LOSS, EventEffect.UNKNOWN, "")
    events = vm_events.of_vm(found.forecasts[0], found, loss, cluster)
    return next(each for each in events if each.event is VmEvent.UPDATE)


@pytest.mark.parametrize(
    ("status", "reach"),
    [
        ({}, Reach.MIGRATED),
        ({"targetKubeVirtVersion": "v0.53.0", "operatorVersion": "v0.53.0"}, Reach.MIGRATED),
        ({"targetKubeVirtVersion": "v1.0.0", "operatorVersion": "v1.0.0"}, Reach.MIGRATED),
        ({"targetKubeVirtVersion": "v0.57.1"}, Reach.RETRIED),
        ({"targetKubeVirtVersion": "v0.53.0", "operatorVersion": "v0.57.1"}, Reach.RETRIED),
    ],
)
def test_the_release_of_the_update_decides(status, reach):
    found = update(**status)

    assert found.outcome == reach
    assert ("lets other nodes take it" in found.reason) is (reach is Reach.MIGRATED)


def test_what_else_keeps_its_migration_from_ending_counts():
    found = update(PAUSED)

    assert found.outcome == Reach.UNKNOWN
    assert "TSC" not in found.reason


def test_a_frequency_that_no_release_accepts():
    assert update(other=NEAR + 10_000_000).outcome == Reach.RETRIED


def test_a_node_with_its_frequency_takes_it():
    assert update(other=OWN).outcome == Reach.MIGRATED
