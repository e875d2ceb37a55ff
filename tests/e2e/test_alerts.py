"""The alerts about drains, evaluated by Prometheus' own engine over the series of a watch that sees
drains minute by minute.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.programs import required
from tests.forecasts.drain import vm_motion
from tests.forecasts.drain.vm_motion import launcher, migration, node, vmi
from tests.paths import MANIFESTS
from tests.reports.drain.test_drain_metrics import Watched, time
from tests.upstream.renderer import PROMETHEUS, program, render
from virt_admit.forecasts.upgrade.durations import Range

MINUTES = 80
BEGAN, ENDED = 10, 60
"""The minutes at which the node a is cordoned, and at which its last VM has left."""
Series = dict[str, list[float | None]]


@pytest.fixture(scope="module")
def engine() -> Path:
    """Prometheus' engine as a program."""
    return required(lambda: program(PROMETHEUS))


def at(minute: float) -> float:
    """Return the age at ``NOW`` of something that happens at a minute."""
    return -60 * minute


def cordoned() -> Any:
    taint = {
        "key": "node.kubernetes.io/unschedulable",
        "effect": "NoSchedule",
        "timeAdded": vm_motion.ago(at(BEGAN)),
    }
    return node("a", unschedulable=True, taints=[taint])


def slow() -> tuple[Any, ...]:
    """Return a VM that copies its memory from the minute after the cordon on."""
    start = at(BEGAN + 1)
    state = {
        "migrationUid": "uid-m",
        "sourceNode": "a",
        "targetNode": "b",
        "startTimestamp": vm_motion.ago(start),
    }
    return (
        vmi(evacuationNodeName="a", migrationState=state),
        launcher(),
        launcher(on="b", suffix="2", job="uid-m", age=start + 5),
        migration(
            "m", phase="Running", age=start + 10, since={"Pending": start + 10, "Running": start}
        ),
    )


def stuck_drain(minute: int) -> tuple[Any, ...]:
    """Return a drain whose only VM copies its memory for 50 minutes."""
    if minute < BEGAN:
        return node("a"), vmi(), launcher()
    if minute < ENDED:
        return cordoned(), *slow()
    return cordoned(), vmi(on="b"), launcher(on="b", suffix="2")


def quick_drain(minute: int) -> tuple[Any, ...]:
    """Return a drain whose VM has left after a minute."""
    if minute < BEGAN:
        return node("a"), vmi(), launcher()
    return (cordoned(), *slow()) if minute == BEGAN else stuck_drain(ENDED)


def cordon_alone(minute: int) -> tuple[Any, ...]:
    """Return a node that is cordoned, and from which nothing is evicted."""
    return (node("a") if minute < BEGAN else cordoned()), vmi(), launcher()


def recorded(story: Any) -> Series:
    """Return what Prometheus scrapes once a minute, in seconds from the beginning."""
    watched, found = Watched(), Series()
    zero = time(0).timestamp()
    for minute in range(MINUTES):
        watched.look(60 * minute, *story(minute), forecasts={"a": Range(6, 87), "b": Range(0, 0)})
        for family in watched.registry.collect():
            for sample in family.samples:
                labels = ",".join(f'{key}="{value}"' for key, value in sample.labels.items())
                series = found.setdefault(f"{sample.name}{{{labels}}}", [None] * MINUTES)
                since_start = sample.name.endswith("_timestamp_seconds")
                series[minute] = sample.value - zero if since_start else sample.value
    return found


def loaded(series: Mapping[str, list[float | None]]) -> str:
    """Return series in the notation of Prometheus' tests;
    one that is no longer scraped is stale.
    """
    lines = ["load 1m"]
    for name, values in series.items():
        words = [
            f"{value:g}" if value is not None else "stale" if before is not None else "_"
            for before, value in zip([None, *values], values, strict=False)
        ]
        lines.append(f"  {name} {' '.join(words)}")
    return "\n".join(lines)


def alerts() -> Iterator[tuple[str, str, int]]:
    groups = yaml.safe_load((MANIFESTS / "monitoring" / "alerts.yaml").read_text())["spec"][
        "groups"
    ]
    for rule in (rule for group in groups for rule in group["rules"]):
        if rule["alert"].startswith("VirtAdmitDrain"):
            yield rule["alert"], rule["expr"], int(rule.get("for", "0m").removesuffix("m"))


def fires(engine: Path, story: Any) -> dict[str, list[int]]:
    """Return the minutes at which each alert fires about the node a."""
    load = loaded(recorded(story))
    names = [*alerts()]
    answers = render(
        engine, [{"load": load, "expr": expr, "minutes": MINUTES} for _, expr, _ in names]
    )
    found = {}
    for (name, _, wait), answer in zip(names, answers, strict=True):
        true = [any(each["labels"] == {"node": "a"} for each in vector) for vector in answer]
        found[name] = [
            minute for minute in range(wait, MINUTES) if all(true[minute - wait : minute + 1])
        ]
    return found


def test_a_stuck_drain_raises_each_alert_in_its_time_and_none_after_its_end(engine: Path) -> None:
    found = fires(engine, stuck_drain)
    # 87 s are the high bound of the forecast, for 5 minutes
    assert found["VirtAdmitDrainTooLong"] == list(range(BEGAN + 2 + 5, ENDED))
    # the last progress is the phase of minute 11, 30 minutes and one more
    assert found["VirtAdmitDrainNoProgress"] == list(range(BEGAN + 1 + 31 + 1, ENDED))
    late = found["VirtAdmitDrainVmStuck"]
    assert BEGAN + 15 < late[0] <= BEGAN + 25, "15 minutes after the migration took twice its time"
    assert late == list(range(late[0], ENDED))
    assert not found["VirtAdmitDrainBlocked"]


@pytest.mark.parametrize("story", [quick_drain, cordon_alone])
def test_a_drain_that_ends_and_a_mere_cordon_raise_no_alert(engine: Path, story: Any) -> None:
    assert not any(fires(engine, story).values())
