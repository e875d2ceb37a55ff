"""Damaged snapshots through the forecasts: every verb answers, and neither the order of objects nor
that of keys counts.
"""

from __future__ import annotations

import json
import random
import re
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from click import ClickException
from click.testing import CliRunner

from tests.fuzz.corpus import Json
from tests.fuzz.mutation import changed, shuffled
from tests.paths import EXAMPLES
from tests.random_motion import moving_cluster
from virt_admit.cli import main
from virt_admit.model.kubernetes.objects import Object

VERBS: Final = (
    ("drain", "--all"),
    ("upgrade", "--all-stops"),
    ("upgrade", "--from-start", "--by", "plain"),
    ("outage", "--worst", "1"),
    ("plan",),
    ("plan", "--for", "outage"),
    ("scan",),
    ("explain", "node/a"),
)
LONGEST: Final = 20.0
"""Seconds that one command may take; one is usual, and machines are busy."""
TIME: Final = "2026-01-01T12:00:00Z"


@cache
def _stuck() -> tuple[Json, ...]:
    return tuple(json.loads((EXAMPLES / "clusters" / "stuck.json").read_text())["items"])


def _cluster(chance: random.Random) -> list[Json]:
    """Return the objects of a small cluster, some of them damaged."""
    objects = (
        moving_cluster(chance.randrange(10_000))
        if chance.random() < 0.8
        else chance.sample(_stuck(), 60)
    )
    damaged = [changed(chance, each, objects, ("apiVersion", "kind")) for each in objects]
    found = [
        new if chance.random() < 0.2 and _is_json(new) else old
        for old, new in zip(objects, damaged, strict=True)
    ]
    return list({_identity(each): each for each in found}.values())


def _identity(data: Json) -> tuple[str, str, str]:
    """Return what no two objects of a cluster have in common."""
    obj = Object(data)
    return obj.kind, obj.namespace or "default", obj.name


def _is_json(obj: Json) -> bool:
    """Return whether every reader of JSON takes an object;
    files of others are refused as a whole.
    """
    return re.search(r"\\ud800|[0-9]{19}|e\+308", json.dumps(obj)) is None


class Answer(NamedTuple):
    """How a command ended."""

    code: int
    out: str


def _ask(objects: list[Json], verb: tuple[str, ...], output: str, **more: Any) -> Answer:
    snapshot = {
        "apiVersion": "virt-admit.io/v1alpha1",
        "kind": "Snapshot",
        "complete": ["*"],
        "time": TIME,
        **more,
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "cluster.json")
        file.write_text(json.dumps(snapshot | {"items": objects}))
        command = [*verb, "--cluster", str(file), "-o", output]
        began = time.monotonic()
        result = CliRunner().invoke(main.virt_admit, command, standalone_mode=False)
    assert time.monotonic() - began < LONGEST
    assert "Traceback" not in result.output
    if isinstance(result.exception, ClickException):
        return Answer(2, result.exception.format_message().replace(folder, ""))
    if result.exception is not None:
        raise result.exception
    assert result.return_value in (0, 1, 2), result.return_value
    return Answer(result.return_value, result.stdout)


def snapshots(chance: random.Random) -> None:
    """A damaged snapshot is judged or refused with a known code, in time, in every format;
    its JSON can be read.
    """
    verb, output = chance.choice(VERBS), chance.choice(("text", "json", "html"))
    complete = chance.choice((["*"], [], ["nodes", "pods"]))
    result = _ask(_cluster(chance), verb, output, complete=complete)
    if output == "json" and result.code != 2:
        json.loads(result.out)


def item_order(chance: random.Random) -> None:
    """The order of the objects and of their keys never changes a byte of a forecast."""
    objects, verb = _cluster(chance), chance.choice(VERBS)
    other = [shuffled(chance, each) for each in chance.sample(objects, len(objects))]
    first, second = _ask(objects, verb, "json"), _ask(other, verb, "json")
    assert first == second
