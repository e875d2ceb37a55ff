"""Migrations under way whose memory passes a virt-handler that does not work."""

import pytest

from tests.builders import manifest
from tests.forecasts.drain.test_vm_states import LAUNCHER, RUNNING, moving, row, target
from tests.forecasts.drain.vm_motion import ago, cluster, migration, node, vmi
from virt_admit.forecasts.drain.vm_outcomes import VmOutcome


def handler(on="b", ready="False", age=3000):
    made = {"labels": {"kubevirt.io": "virt-handler"}, "creationTimestamp": ago(age)}
    box = {"name": "virt-handler", "ready": ready == "True"}
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    state = {"state": {"running": {}} if ready == "True" else waiting}
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": ago(age)}
    return manifest(
        *("v1", "Pod", f"virt-handler-{on}", "kubevirt"),
        metadata=made,
        spec={"nodeName": on},
        status={"phase": "Running", "conditions": [condition], "containerStatuses": [box | state]},
    )


def moved(*objects, **state):
    run = migration(phase="Running", since=RUNNING)
    return row(cluster(moving(**state), LAUNCHER, target(), run, *objects))


def test_the_virt_handler_of_the_target_is_repaired():
    found = moved(handler())
    assert found.outcome is VmOutcome.MIGRATES
    assert (
        "its memory passes virt-handler of both nodes, and virt-handler on b is not ready: "
        "CrashLoopBackOff"
    ) in found.reason
    assert "kubectl logs virt-handler-b -n kubevirt" in found.remedy


def test_that_of_the_source_is_told_with_its_error():
    found = moved(handler("a"))
    assert found.outcome is VmOutcome.BLOCKS
    assert found.reason == "virt-handler on a is not ready: CrashLoopBackOff"


@pytest.mark.parametrize(
    ("objects", "state"),
    [([handler(ready="True")], {}), ([handler("c")], {}), ([handler()], {"mode": "PostCopy"})],
    ids=["works", "another-node", "post-copy"],
)
def test_migrations_that_go_on(objects, state):
    found = moved(*objects, **state)
    assert "virt-handler" not in f"{found.reason}{found.remedy}"


@pytest.mark.parametrize(
    ("age", "beat", "outcome"),
    [(12, 30, VmOutcome.MIGRATES), (3000, 30, VmOutcome.UNKNOWN), (12, 900, VmOutcome.UNKNOWN)],
    ids=["replaced", "old", "silent"],
)
def test_a_source_without_its_label_waits_while_its_virt_handler_is_replaced(age, beat, outcome):
    label = {"kubevirt.io/schedulable": "false"}
    source = node("a", labels=label)
    source.data["metadata"]["annotations"] = {"kubevirt.io/heartbeat": ago(beat)}
    new = handler("a", age=age)
    new.data["status"]["containerStatuses"][0]["state"] = {"running": {"startedAt": ago(4)}}

    assert row(cluster(source, vmi(), LAUNCHER, new)).outcome is outcome
