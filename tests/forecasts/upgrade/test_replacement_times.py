"""How long Cluster API takes to replace a node: as the Machines of the last roll-out show."""

import pytest

from tests.builders import complete, manifest
from virt_admit.forecasts.upgrade import reboots
from virt_admit.forecasts.upgrade.pools import replacement_times
from virt_admit.forecasts.upgrade.rollouts import Driver
from virt_admit.model.kubernetes import kinds

CAPI = "cluster.x-k8s.io/v1beta1"


def time(minute):
    return f"2026-08-20T{13 + minute // 60}:{minute % 60:02}:00Z"


def cluster(*machines, surge=1, owner="MachineSet", joined=None):
    """Return a cluster; ``machines``: the minutes of the creation and of Ready, with the set.

    ``joined``: how many minutes before Ready each Node was registered.
    """
    made = [
        manifest(
            CAPI,
            "MachineDeployment",
            "md",
            "infra",
            spec={"strategy": {"rollingUpdate": {"maxSurge": surge}}},
        )
    ]
    for number, (created, ready, of_set) in enumerate(machines):
        owned = {"deployment-name": "md", "set-name": of_set, "cluster-name": "c"}
        labels = {f"cluster.x-k8s.io/{key}": value for key, value in owned.items()}
        owners = [{"apiVersion": CAPI, "kind": owner, "name": of_set, "controller": True}]
        made.append(
            manifest(
                CAPI,
                "Machine",
                f"m{number}",
                "infra",
                metadata={
                    "labels": labels if owner == "MachineSet" else {},
                    "creationTimestamp": time(created),
                    "ownerReferences": owners,
                },
                spec={"clusterName": "c"},
                status={"nodeRef": {"name": f"n{number}"}},
            )
        )
        said = {"type": "Ready", "status": "True", "lastTransitionTime": time(ready)}
        status = {"conditions": [said]}
        since = {} if joined is None else {"creationTimestamp": time(ready - joined)}
        made.append(manifest("v1", "Node", f"n{number}", metadata=since, status=status))
    return complete(*made)


@pytest.mark.parametrize(
    ("machines", "surge", "minutes"),
    [
        ([(0, 16, "new"), (38, 55, "new"), (80, 97, "new")], 1, (40, 38, 42)),
        ([(0, 16, "new"), (38, 56, "new"), (80, 97, "new")], 2, (17, 16, 18)),  # two at a time
        ([(0, 16, "new"), (0, 17, "new")], 1, (16, 16, 17)),  # all at once: no roll-out
        ([(0, 9, "old"), (60, 76, "new"), (98, 114, "new")], 1, (38, 38, 38)),
        ([(0, 16, "new")], 1, None),
        ([(0, 16, "new"), (38, 400, "new")], 1, None),  # Ready again, later
        ([], 1, None),
    ],
)
def test_the_last_replacements(machines, surge, minutes):
    found = cluster(*machines, surge=surge)

    assert replacement_times.last(found) == minutes
    expected = minutes[0] if minutes else 10
    assert replacement_times.node_minutes(found, replaced=True) == expected
    assert replacement_times.node_minutes(found, replaced=False) == 10


@pytest.mark.parametrize(
    ("machines", "joined", "minutes"),
    [
        ([(0, 400, "md"), (410, 426, "md")], 1, 16),  # one was replaced, the others are older
        ([(0, 16, "new")], 1, 16),
        ([(0, 16, "new")], 30, None),  # it was Ready before
        ([(0, 300, "new")], 1, None),  # too long for a start
        ([(0, 16, "new")], None, None),
    ],
)
def test_a_machine_that_was_replaced_alone(machines, joined, minutes):
    found = replacement_times.last(cluster(*machines, joined=joined))

    assert found == (minutes and (minutes, minutes, minutes))


def test_the_start_of_a_machine_is_without_the_drain_of_the_old_one():
    found = cluster((0, 16, "new"), (38, 55, "new"), (80, 97, "new"))
    assert replacement_times.last(found).minutes * 60 == 2400
    assert replacement_times.start_seconds(found) == 17 * 60
    assert replacement_times.start_seconds(cluster()) is None


def test_words():
    found = cluster((0, 16, "new"), (38, 55, "new"), (80, 97, "new"))
    said = [
        replacement_times.words(40, found, replaced=True),
        replacement_times.words(10, found, replaced=True),
        replacement_times.words(10, found, replaced=False),
    ]

    assert said == [
        "40 minutes for the replacement of a node, as the last ones took 38 to 42",
        "10 minutes for the replacement of a node, until its successor is Ready",
        "10 minutes for the update and reboot of a node",
    ]


@pytest.mark.parametrize(("seconds", "acts"), [(1800, False), (900, True)])
def test_a_health_check_sees_the_start_of_a_machine_alone(seconds, acts):
    machines = cluster((0, 16, "new"), (38, 55, "new"), (80, 97, "new"))
    spec = {
        "clusterName": "c",
        "selector": {"matchLabels": {"cluster.x-k8s.io/deployment-name": "md"}},
        "nodeStartupTimeout": f"{seconds}s",
        "maxUnhealthy": "40%",
    }
    check = manifest(CAPI, "MachineHealthCheck", "workers", "infra", spec=spec)
    found = complete(*(each for kind in kinds.ALL for each in machines.known(kind)), check)
    (judged,) = reboots.health_checks(found, Driver.CLUSTER_API, ["n0", "n1", "n2"], 40 * 60)

    assert judged.acts is acts
    assert f"it acts after {seconds} seconds, and the start of a new Machine takes" in judged.reason
