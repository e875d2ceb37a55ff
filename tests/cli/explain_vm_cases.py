"""A small cluster with one VM, and how tests explain objects of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner

from tests.forecasts.drain import vm_motion as motion
from virt_admit.cli import main
from virt_admit.model.kubernetes.objects import Object

WORLD = (motion.node("a"), motion.node("b"), motion.vm(), motion.vmi(), motion.launcher())
OTHER = (motion.vm("web"), motion.vmi("web"), motion.launcher("web"))


def without(kind: str, *objects: Object) -> list[Object]:
    """Return the objects that are not of a kind."""
    return [each for each in objects if each.kind != kind]


def event(data: Any, name: str) -> Any:
    """Return what an explanation says of one event."""
    return next(each for each in data["events"] if each["event"] == name)


class Explainer:
    """Runs a verb on a snapshot of objects."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "cluster.json"

    def __call__(
        self,
        *objects: Object,
        target: str = "vm/db",
        flags: tuple[str, ...] = (),
        form: str = "json",
        unreadable: tuple[str, ...] = (),
        verb: str = "explain",
    ) -> tuple[int, Any]:
        """Return the exit code, and the data or the text; of an error its message."""
        snapshot = {
            "apiVersion": "virt-admit.io/v1alpha1",
            "kind": "Snapshot",
            "time": motion.NOW,
            "complete": ["*"],
        }
        snapshot |= {"unreadable": list(unreadable), "items": [each.data for each in objects]}
        self.file.write_text(json.dumps(snapshot))
        command = (verb, target, "--cluster", str(self.file), "-o", form, *flags)
        result = CliRunner().invoke(main.virt_admit, command, standalone_mode=False)
        if isinstance(result.exception, click.ClickException):
            return result.exception.exit_code, result.exception.message
        assert result.exception is None, result.exception
        return result.return_value, json.loads(result.stdout) if form == "json" else result.stdout
