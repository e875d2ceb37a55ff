"""Snapshots from an unknown source: names that are commands, markup and escapes, and values of
types that no API server stores.
"""

from __future__ import annotations

import copy
import json
import os
import random
import re
import subprocess
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any, Final

from click import ClickException
from click.testing import CliRunner

from tests.forecasts.repair.broken_clusters import cluster
from tests.forecasts.repair.test_causes import CAUSES
from tests.fuzz.corpus import Json
from tests.fuzz.mutation import places
from tests.fuzz.snapshots import TIME
from tests.random_motion import moving_cluster
from virt_admit.cli import main
from virt_admit.forecasts.drain.drain_plan import plan
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.kube import snapshots
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.sanitize import line
from virt_admit.settings import SettingError

ATTACKS: Final = (
    "\x1b]0;owned\x07\x1b[2J\u202e\x9b31m\n::error title=pwned::line\r\n##vso[task.complete]",
    "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'",
    "';$(touch pwned)`touch pwned`\n",
    "|`[x](javascript:alert(1))*_~~\n# head\n```\n",
    *(
        "--all",
        "../../up",
        "{{ 7*7 }}{% for %}",
        "%s%n{}{0}",
        "\u2028\u2066\x00",
        "x" * 300,
        "\x85\ufeff",
    ),
)
VERBS: Final = (
    *(("drain", "--all"), ("upgrade", "--all-stops"), ("upgrade", "--from-start", "--by", "plain")),
    *(
        ("outage", "--worst", "1"),
        ("plan",),
        ("plan", "--for", "outage"),
        ("plan", "--for", "upgrade"),
        ("scan",),
    ),
)
FORMS: Final = ("text", "json", "html")
OF_SCAN: Final = (
    *FORMS,
    "sarif",
    "junit",
    "github",
    "gitlab",
    "markdown",
    "openreports",
    "policyreport",
)
RAW: Final = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
COMMAND: Final = re.compile(r"^\s*(::error title=pwned|##vso)", re.MULTILINE)
MARKUP: Final = re.compile(r"(?<!\\)<(script>alert|img src=x)")


def _objects(chance: random.Random) -> list[Json]:
    if chance.random() < 0.5:
        return moving_cluster(chance.randrange(100_000))
    return copy.deepcopy([obj.data for obj in cluster(*CAUSES[chance.choice(list(CAUSES))][0])])


def _renamed(data: Any, names: dict[str, str]) -> Any:
    """Replace names everywhere, so that objects still refer to each other."""
    if isinstance(data, dict):
        return {
            key: value if key in ("apiVersion", "kind") else _renamed(value, names)
            for key, value in data.items()
        }
    if isinstance(data, list):
        return [_renamed(item, names) for item in data]
    return names.get(data, data) if isinstance(data, str) else data


def _names(objects: list[Json]) -> set[str]:
    found = {
        part
        for obj in objects
        for part in (obj["metadata"]["name"], obj["metadata"].get("namespace", ""))
    }
    texts = {place for obj in objects for place in _texts(obj)}
    return (found | texts) - {""}


def _texts(obj: Json) -> list[str]:
    """Return what conditions say: any program may write that."""
    conditions = (obj.get("status") or {}).get("conditions") or []
    return [one[key] for one in conditions for key in ("reason", "message") if one.get(key)]


def hostile_names(chance: random.Random) -> None:
    """No name of a snapshot is a command, markup or an escape anywhere: on screen, in a page,
    in a script.
    """
    objects, attack = _objects(chance), chance.choice(ATTACKS)
    names = sorted(_names(objects))
    chosen = chance.sample(names, chance.randint(1, len(names)))
    objects = _renamed(
        objects, {name: chance.choice((f"{name}{attack}", f"{attack}{name}")) for name in chosen}
    )
    verb = chance.choice(VERBS)
    form = chance.choice(
        {"scan": OF_SCAN, "plan": (*FORMS, "folder", "folder")}.get(verb[0], FORMS)
    )
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder, "plan")
        file = Path(folder, "cluster.json")
        head = {
            "apiVersion": "virt-admit.io/v1alpha1",
            "kind": "Snapshot",
            "complete": ["*"],
            "time": TIME,
        }
        file.write_text(json.dumps(head | {"items": objects}))
        output = f"folder={written}" if form == "folder" else form
        command = [*verb, "--cluster", str(file), "-o", output]
        result = CliRunner().invoke(main.virt_admit, command, standalone_mode=False)
        if isinstance(result.exception, ClickException):
            message = line(result.exception.format_message())
            assert not COMMAND.search(message)
        elif result.exception is not None:
            raise result.exception
        _assert_harmless(result.stdout, form)
        _assert_harmless(result.stderr, "text")
        if written.exists():
            _assert_harmless_folder(written)


def _assert_harmless(text: str, form: str) -> None:
    assert not RAW.search(text), ascii(RAW.search(text))
    assert not COMMAND.search(text)
    if form in ("html", "markdown"):
        assert not MARKUP.search(text)
    if not text.strip():
        return
    if form in ("json", "sarif", "gitlab", "openreports", "policyreport"):
        json.loads(text)
    if form == "junit":
        ET.fromstring(text)


def _assert_harmless_folder(folder: Path) -> None:
    """Run each script with programs that do nothing: nothing else may run,
    and no file be written elsewhere.
    """
    programs = folder.parent / "bin"
    programs.mkdir()
    for name in ("kubectl", "virtctl", "sleep"):
        (programs / name).write_text(
            "#!/bin/sh\nexit 1\n" if name == "sleep" else "#!/bin/sh\nexit 0\n"
        )
        (programs / name).chmod(0o755)
    for file in folder.rglob("*"):
        assert file.is_dir() or not RAW.search(file.read_text()), file
    environment = {**os.environ, "PATH": f"{programs}:/usr/bin:/bin"}
    for script in sorted(folder.glob("steps/*.sh")):
        subprocess.run(["sh", "-n", str(script)], check=True)
        subprocess.run(
            ["sh", str(script)],
            check=False,
            capture_output=True,
            timeout=20,
            env=environment,
            cwd=folder,
        )
    assert not list(folder.parent.rglob("pwned"))
    assert {file.name for file in folder.parent.iterdir()} == {"bin", "plan", "cluster.json"}


WRONG: Final[tuple[Any, ...]] = ([], {}, [1], {"a": 1}, ["a"], [1.5], True, "\x00?", 7, 1.5)
_IDENTITY: Final = (("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace"))


def wrong_types(chance: random.Random) -> None:
    """A value of another type never makes a "no" or "cannot be determined" a "yes": the snapshot is
    refused, or it counts.
    """
    objects = _objects(chance)
    before = _verdicts(objects)
    number = chance.randrange(len(objects))
    changed = copy.deepcopy(objects[number])
    path = chance.choice([path for path in places(changed) if path not in _IDENTITY])
    holder = changed
    for step in path[:-1]:
        holder = holder[step]
    old = holder[path[-1]]
    text = isinstance(old, str)  # a number is the same as its text in a quantity
    holder[path[-1]] = chance.choice(
        [one for one in WRONG if type(one) is not type(old) and not (text and one in (7, 1.5))]
    )
    after = _loaded([*objects[:number], changed, *objects[number + 1 :]])
    new = _verdicts(after) if after is not None else {}
    for key, verdict in before.items():
        what = (
            f"{key}: {verdict}, with {holder[path[-1]]!r} in {path} of {changed['kind']} "
            f"{new.get(key)}"
        )
        assert verdict is True or new.get(key) is not True, what


def _loaded(objects: list[Json]) -> list[Json] | None:
    """Return the objects if they are a valid snapshot."""
    head = {
        "apiVersion": "virt-admit.io/v1alpha1",
        "kind": "Snapshot",
        "complete": ["*"],
        "time": TIME,
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "cluster.json")
        file.write_text(json.dumps(head | {"items": objects}))
        try:
            return [dict(obj.data) for obj in snapshots.load(file)]
        except SettingError:
            return None


def _verdicts(objects: list[Json]) -> dict[str, bool | None]:
    known = Snapshot(map(Object, objects), ["*"], (), "v1.33.0", TIME)
    found = {node.name: node.drainable for node in plan(known).nodes}
    return found | {"upgrade": rehearse(known, Options()).possible}
