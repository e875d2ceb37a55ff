"""Random clusters whose drains are stopped at random moments: migrations that fail, wait, are
cancelled or never start.
"""

from __future__ import annotations

import random
from typing import Any, Final

from tests.upstream import migration_cases
from tests.upstream.migration_cases import NAMESPACE

RELEASE: Final = "v1.8.0"
"""The release of KubeVirt that ``migrations/go.mod`` has."""
REBOOT: Final = 60
"""Seconds: the rehearsal counts whole minutes."""
FAILED: Final = "connection to the destination was reset"
"""A failure that may not come again (class M of the forecasts)."""
_DEADLINE: Final = 7200
_STALL: Final = 900
"""Seconds without progress after which a roll-out is stuck: longer than an unschedulable target pod
and the pause after.
"""
_PRIORITIES: Final = ("system-critical", "user-triggered", "system-maintenance", "")


def case(seed: int, moments: int) -> dict[str, Any]:
    """Return a case for ``main.go`` with so many moments of each kind.

    Half of them go without trouble.
    """
    chance = random.Random(f"moments {seed}")
    found = migration_cases.case(seed)
    for vmi in found["vmis"]:
        vmi["status"]["migrationState"]["endTimestamp"] = (
            f"2026-01-01T00:00:{chance.randrange(10, 50)}Z"
        )
    found["kubevirt"]["status"]["observedKubeVirtVersion"] = RELEASE
    ordered = chance.random() < 1 / 3
    if ordered:
        gates = {"featureGates": ["MigrationPriorityQueue"]}
        found["kubevirt"]["spec"]["configuration"]["developerConfiguration"] = gates
    found |= {
        "reboot": REBOOT,
        "deadline": _DEADLINE,
        "stall": _STALL,
        "moments": moments,
        "seed": seed,
    }
    found |= {"behaviour": {}, "requests": []}
    if chance.random() < 0.5 or not found["vmis"]:
        return found
    names = [vmi["metadata"]["name"] for vmi in found["vmis"]]
    behaviour = {
        f"{NAMESPACE}/{name}": _behaviour(chance) for name in names if chance.random() < 0.4
    }
    for vmi in found["vmis"]:
        if chance.random() < 0.03:
            _pin(vmi)
    return found | {
        "behaviour": behaviour,
        "requests": _requests(chance, names, found, ordered=ordered),
    }


def _behaviour(chance: random.Random) -> dict[str, Any]:
    """Return how the target pods and migrations of one VMI go; ``behaviour.go`` has the fields."""
    return chance.choice(
        (
            {"start": chance.choice((5, 40, 120))},
            {"start": 2000},  # an image that cannot be pulled
            {"ready": chance.choice((5, 60))},
            {"prepare": chance.choice((5, 60))},
            {"ending": chance.choice((5, 60, 400))},
            {"failures": chance.choice((1, 2)), "fails": chance.choice((2, 20)), "reason": FAILED},
            {"failures": 1000, "fails": 5, "reason": FAILED},
            {"refused": True},
        )
    )


def _pin(vmi: dict[str, Any]) -> None:
    """Make a VMI one that cannot migrate."""
    condition = next(
        each for each in vmi["status"]["conditions"] if each["type"] == "LiveMigratable"
    )
    condition |= {"status": "False", "reason": "DisksNotLiveMigratable"}


def _requests(
    chance: random.Random, names: list[str], found: dict[str, Any], *, ordered: bool
) -> list[dict[str, Any]]:
    """Return what users do meanwhile; only with the gate may a migration have a priority."""
    asked: list[dict[str, Any]] = []
    for _ in range(chance.randrange(6)):
        priority = chance.choice(_PRIORITIES) if ordered else ""
        vmi, at = chance.choice(names), chance.randrange(100)
        asked.append({"at": at, "do": "migrate", "vmi": vmi, "priority": priority})
        if chance.random() < 0.4:
            asked.append({"at": at + chance.randrange(1, 40), "do": "cancel", "vmi": vmi})
    if chance.random() < 0.3:
        node = chance.choice(found["pools"][0]["nodes"])
        asked.append({"at": chance.randrange(5, 60), "do": "uncordon", "node": node})
    return asked
