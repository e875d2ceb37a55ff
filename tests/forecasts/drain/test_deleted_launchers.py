"""Launcher pods that are being deleted while their VMI is not."""

import pytest

from tests import builders
from tests.builders import NAMESPACE, manifest
from tests.forecasts.drain.vm_motion import NOW, ROOM, ago, launcher, vm, vmi
from virt_admit.forecasts.drain import drain_plan, vm_events, vm_outcomes, workload_updates
from virt_admit.forecasts.drain.states.vm_states_kinds import State
from virt_admit.forecasts.drain.vm_events import EventEffect, EventForecast, VmEvent
from virt_admit.forecasts.drain.vm_outcomes import VmOutcome
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Snapshot

ENDING = {"type": "Ready", "status": "False", "reason": "PodTerminating"}
GONE_SOON = {"deletionTimestamp": ago(-190), "deletionGracePeriodSeconds": 210}


def machine(name, ready="True"):
    conditions = [{"type": "Ready", "status": ready, "lastHeartbeatTime": NOW}]
    labels = {"kubevirt.io/schedulable": "true"}
    status = {"allocatable": ROOM, "conditions": conditions}
    return manifest("v1", "Node", name, metadata={"labels": labels}, status=status)


def ending(*more, deleted=GONE_SOON, ready="True"):
    pod = launcher(metadata=deleted)
    nodes = machine("a", ready), machine("b")
    known = [vmi(conditions=[ENDING]), pod, *nodes, vm(), *more]
    return known[0], Snapshot(known, complete=["*"], time=NOW)


def namespace(**metadata):
    return manifest("v1", "Namespace", NAMESPACE, metadata=metadata)


def test_the_pods_of_an_ending_namespace_go_first():
    subject, cluster = ending(namespace(deletionTimestamp=ago(20)))
    found = vm_outcomes.forecast(subject, cluster)

    assert (found.outcome, found.removed, found.remedy) == (VmOutcome.STOPS, True, "")
    assert found.reason == (
        f"its pod is being deleted already, as namespace {NAMESPACE} is being deleted"
    )
    assert (found.state.since, found.state.until) == tuple(map(clock.instant, (ago(20), ago(-190))))
    assert workload_updates.running(cluster) == []


def test_a_pod_deleted_by_hand_comes_back_elsewhere():
    found = vm_outcomes.forecast(*ending(namespace()))

    assert (found.outcome, found.removed) == (VmOutcome.RESTARTS, False)


@pytest.mark.parametrize(
    ("more", "state"),
    [
        ({}, State.STOPPING),
        ({"deleted": {}}, State.STILL),
        ({"deleted": {"deletionTimestamp": ago(-190)}}, State.STOPPING),
        ({"ready": "Unknown"}, State.STILL),
    ],
)
def test_only_a_kubelet_that_reports_ends_it(more, state):
    assert vm_outcomes.forecast(*ending(**more)).state.state is state


def test_a_target_pod_lives_on():
    target = launcher(on="b", suffix="2", job="m")

    assert vm_outcomes.forecast(*ending(target)).state.state is not State.STOPPING


@pytest.mark.parametrize(
    ("metadata", "phase", "why"),
    [
        ({"deletionTimestamp": ago(10)}, "Succeeded", "it is being stopped"),
        ({"deletionTimestamp": ago(10)}, "Running", "it is being stopped"),
        ({}, "Succeeded", "its guest has just ended"),
    ],
)
def test_a_vmi_that_ends_neither_reboots_nor_migrates(metadata, phase, why):
    subject = vmi(metadata=metadata)
    known = [subject, launcher(phase=phase), machine("a"), machine("b"), vm()]
    cluster = Snapshot(known, complete=["*"], time=NOW)
    plan, loss = drain_plan.node_plan("a", cluster), EventForecast(VmEvent.LOSS, "", "")
    row = vm_outcomes.forecast(subject, cluster)
    events = {each.event: each for each in vm_events.of_vm(row, plan, loss, cluster)}

    assert (events[VmEvent.MIGRATION].outcome, events[VmEvent.MIGRATION].reason) == (
        EventEffect.REFUSED,
        why,
    )
    assert events[VmEvent.REBOOT].outcome == EventEffect.NOT_RUNNING


@pytest.mark.parametrize(
    ("phase", "reported", "outcome"),
    [
        ("Running", True, VmOutcome.STOPS),
        ("Running", False, VmOutcome.STOPS),
        ("Scheduled", False, VmOutcome.RESTARTS),
    ],
)
def test_only_a_guest_that_never_ran_fails_with_its_pod(phase, reported, outcome):
    subject = vmi(phase=phase, reported=reported, spec={"evictionStrategy": "None"})
    owner = builders.vm(name="db", runStrategy="RerunOnFailure")
    found = []
    for pod in (launcher(), launcher(metadata=GONE_SOON)):
        known = [subject, pod, machine("a"), machine("b"), owner]
        found.append(vm_outcomes.forecast(subject, Snapshot(known, complete=["*"], time=NOW)))

    assert [each.outcome for each in found] == [outcome, outcome]
    assert found[1].state.state is State.STOPPING
