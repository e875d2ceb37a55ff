"""Plain objects of a cluster in which a plan is carried out,
and what controllers write into them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

Manifest = dict[str, Any]


def name_of(obj: Manifest) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def words_of(kind: str) -> Iterator[str]:
    word = kind.lower()
    yield from (word, f"{word}s", f"{word[:-1]}ies")


def spec_of(vm: Manifest) -> Manifest:
    found: Manifest = vm["spec"].get("template", {}).get("spec", {})
    return found


def owners_of(obj: Manifest) -> list[Manifest]:
    found: list[Manifest] = obj["metadata"].get("ownerReferences", [])
    return found


def is_marked(vm: Manifest) -> bool:
    conditions = vm.get("status", {}).get("conditions", ())
    return any(
        each["type"] == "RestartRequired" and each["status"] == "True" for each in conditions
    )


def mark(vm: Manifest) -> None:
    if not is_marked(vm):
        vm.setdefault("status", {}).setdefault("conditions", []).append(
            {"type": "RestartRequired", "status": "True"}
        )


def told(vmi: Manifest) -> str:
    """Return the published reason why a VMI cannot migrate."""
    for each in vmi["status"].get("conditions", ()):
        if each["type"] == "LiveMigratable" and each["status"] == "False":
            return str(each.get("reason", ""))
    return ""


def untold(vmi: Manifest) -> Manifest:
    kept = [
        each for each in vmi["status"].get("conditions", ()) if each["type"] != "LiveMigratable"
    ]
    return vmi | {"status": vmi["status"] | {"conditions": kept}}


def count_one_more(budget: Manifest) -> None:
    """Count one healthy pod more, as the disruption controller does."""
    status, spec = budget["status"], budget["spec"]
    expected = status["expectedPods"] = status.get("expectedPods", 0) + 1
    status["currentHealthy"] = status.get("currentHealthy", 0) + 1
    if "maxUnavailable" in spec:
        wanted = expected - _share(spec["maxUnavailable"], expected)
    else:
        wanted = _share(spec.get("minAvailable", 1), expected)
    status["desiredHealthy"] = max(0, wanted)
    status["disruptionsAllowed"] = max(0, status["currentHealthy"] - status["desiredHealthy"])


def _share(value: int | str, of: int) -> int:
    return value if isinstance(value, int) else math.ceil(int(value.rstrip("%")) * of / 100)
