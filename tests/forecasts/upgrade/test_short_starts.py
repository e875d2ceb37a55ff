"""A health check that deletes Machines before they are Nodes undoes the roll-out that makes
them.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.healthy.parts import Object as Raw
from tests.healthy.parts import ago, obj, snapshot
from tests.incidents_platform.case import NODES, cluster, only
from tests.incidents_platform.cluster_api import machine, management, rolling
from virt_admit.forecasts.upgrade.rehearsal import Options, Rehearsal, rehearse
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object


def fleet(*minutes: int, time_out: str = "10m") -> list[Raw]:
    """Return a roll-out whose old Machines took so many minutes to become Nodes."""
    items = [*cluster(), *rolling(1, 0), *management(nodeStartupTimeout=time_out)]
    for name, took in zip(NODES, minutes, strict=True):
        only(items, "Machine", f"machine-{name}")["metadata"]["creationTimestamp"] = ago(
            days=30, minutes=took
        )
    return items


def rehearsed(items: list[Raw], unreadable: tuple[str, ...] = ()) -> Rehearsal:
    found = snapshot(items)
    cluster = Snapshot(map(Object, found["items"]), ["*"], unreadable, time=found["time"])
    return rehearse(cluster, Options(), forecast_only=True)


def test_every_known_machine_took_longer() -> None:
    found = rehearsed(fleet(24, 14, 11))
    (stop,) = found.stops
    assert stop.reason == (
        "MachineHealthCheck capi/workers deletes each new Machine of MachineDeployment "
        "capi/workers in a loop: 10m is too short for machines that take up to 24m here to become "
        "a node"
    )
    assert (
        "Set its start-up time-out to 30m or more: kubectl edit "
        "machinehealthchecks.cluster.x-k8s.io workers"
    ) in stop.remedy
    assert (found.possible, str(stop.problem), found.waves) == (
        False,
        "MachineStartTimeTooShort:capi/workers",
        (),
    )


def test_some_took_longer() -> None:
    found = rehearsed(fleet(24, 14, 6))
    assert (found.possible, found.stops) == (None, ())
    assert found.unseen[0].startswith(
        "whether MachineHealthCheck capi/workers deletes each new Machine"
    )


def metal() -> list[Raw]:
    """Return a roll-out of bare metal, of which no start is known."""
    items = fleet(0, 0, 0)
    for name in NODES:
        only(items, "Machine", f"machine-{name}")["spec"]["infrastructureRef"] = {
            "kind": "Metal3Machine",
            "name": name,
        }
    return items


def marked(
    name: str, *, made: int, after: int, check: str = "workers", owner: str = "workers-x"
) -> list[Raw]:
    """Return the events of a Machine that was made so many minutes ago,
    and was marked some minutes later.
    """
    created, words = (
        f'Created machine "{name}"',
        f"Machine capi/{name} has been marked as unhealthy by capi/{check}",
    )
    return [
        event("MachineSet", owner, "SuccessfulCreate", created, made),
        event("Machine", name, "MachineMarkedUnhealthy", words, made - after),
    ]


def event(kind: str, name: str, reason: str, message: str, minutes: int) -> Raw:
    about = {"kind": kind, "namespace": "capi", "name": name}
    fields = {
        "involvedObject": about,
        "reason": reason,
        "message": message,
        "lastTimestamp": ago(minutes=minutes),
    }
    return obj("Event", "v1", f"{name}.{minutes}", "capi") | fields


def test_events_tell_of_machines_that_were_deleted() -> None:
    found = rehearsed(
        [*metal(), *marked("m-a", made=36, after=10), *marked("m-b", made=24, after=11)]
    )
    (stop,) = found.stops
    assert (
        "10m may be too short for a machine to become a node: this check has deleted 2 new ones "
        "after that time (m-a, m-b)"
    ) in stop.reason
    assert "See why none joins; if slow, set its start-up" in stop.remedy


@pytest.mark.parametrize(
    "second",
    [
        {"after": 4},  # it was deleted for another cause
        {"after": 22},  # it was a Node, and failed later
        {"after": 10, "check": "other"},
        {"after": 10, "owner": "of-another-pool"},
    ],
)
def test_events_tell_too_little(second: dict[str, Any]) -> None:
    found = rehearsed(
        [*metal(), *marked("m-a", made=36, after=10), *marked("m-b", made=24, **second)]
    )
    assert (found.possible, found.stops) == (None, ())


def test_late_machines_that_still_exist() -> None:
    late = {"type": "HealthCheckSucceeded", "status": "False", "reason": "NodeStartupTimeout"}
    found = rehearsed(
        [*metal(), *(machine(name, None, conditions=[late]) for name in ("m-a", "m-b"))]
    )
    assert found.possible is False
    assert "It has done so with m-a, m-b" in found.stops[0].reason


@pytest.mark.parametrize("time_out", ["30m", "0s"])
def test_the_time_is_long_enough_or_has_no_limit(time_out: str) -> None:
    assert rehearsed(fleet(24, 14, 11, time_out=time_out)).possible is True


def test_a_check_that_does_nothing() -> None:
    paused = fleet(24, 14, 11)
    only(paused, "MachineHealthCheck", "workers")["metadata"]["annotations"] = {
        "cluster.x-k8s.io/paused": ""
    }
    never = fleet(24, 14, 11)
    only(never, "MachineHealthCheck", "workers")["spec"]["maxUnhealthy"] = 0
    other = fleet(24, 14, 11)
    only(other, "MachineHealthCheck", "workers")["spec"]["selector"] = {
        "matchLabels": {"pool": "other"}
    }
    for items in (paused, never, other):
        assert rehearsed(items).possible is True


def test_a_remediation_template_acts_on_them() -> None:
    items = fleet(24, 14, 11)
    template = {
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1",
        "kind": "Metal3RemediationTemplate",
        "name": "reboot",
    }
    only(items, "MachineHealthCheck", "workers")["spec"]["remediationTemplate"] = template
    made: Raw = {
        "apiVersion": template["apiVersion"],
        "kind": template["kind"],
        "metadata": {"name": "reboot", "namespace": "capi"},
    }
    (stop,) = rehearsed([*items, made | {"spec": {"template": {"spec": {}}}}]).stops
    assert "capi/workers acts on each new Machine" in stop.reason


def test_no_new_machine_is_left_to_be_made() -> None:
    items = [each for each in fleet(24, 14, 11) if each["metadata"]["name"] != "machine-n1"]
    only(items, "MachineDeployment", "workers")["status"] = {"replicas": 4, "updatedReplicas": 3}
    ends = {"type": "DrainingSucceeded", "status": "True", "lastTransitionTime": ago(minutes=5)}
    assert rehearsed([*items, machine("machine-n1", "n1", conditions=[ends])]).possible is True


def test_the_check_may_be_unread() -> None:
    found = rehearsed(fleet(6, 6, 6), unreadable=("machinehealthchecks.cluster.x-k8s.io",))
    assert (found.possible, "machinehealthchecks.cluster.x-k8s.io" in found.unseen) == (None, True)
