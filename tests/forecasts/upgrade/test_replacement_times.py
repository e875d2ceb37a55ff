"""How long Cluster API takes to replace a node: as the Machines of the last roll-out show."""

import pytest

from tests.builders import complete, manifest
from virt_admit.forecasts.upgrade.pools import replacement_times

CAPI = "cluster.x-k8s.io/v1beta1"


def time(minute):
    return f"2026-08-20T{13 + minute // 60}:{minute % 60:02}:00Z"


def cluster(*machines, surge=1, owner="MachineSet"):
    """Return a cluster; ``machines``: the minutes of the creation and of Ready, with the set."""
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
        labels = {"cluster.x-k8s.io/deployment-name": "md", "cluster.x-k8s.io/set-name": of_set}
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
                status={"nodeRef": {"name": f"n{number}"}},
            )
        )
        said = {"type": "Ready", "status": "True", "lastTransitionTime": time(ready)}
        status = {"conditions": [said]}
        made.append(manifest("v1", "Node", f"n{number}", status=status))
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
