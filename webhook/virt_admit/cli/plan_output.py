"""Where ``virt-admit plan`` writes: stdout, pages, or a folder of scripts and patches."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Final

import click

from virt_admit.cli.html_output import Evidence, OwnerPages
from virt_admit.cli.options import FORECAST_FORMATS, ClusterOptions, output_options
from virt_admit.cli.output import failure
from virt_admit.documents.files import write_new
from virt_admit.forecasts.repair.repair_plan import RepairPlan
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.reports.plan import folder as plan_folder

FORMS: Final = (*FORECAST_FORMATS, "folder")
_OWN_FOLDERS: Final = ("steps", "patches", "objects", "owners")


plan_output_options: Final = output_options(
    "text|json|html[=FILE]|folder=DIR",
    "Output format; a folder gets a script and patches for each step.",
)


def pages(plan: RepairPlan, cluster: Cluster, evidence: Evidence) -> OwnerPages:
    """Return the pages of a plan."""
    from virt_admit.reports.plan import html  # noqa: PLC0415 - importing Jinja2 takes time

    return OwnerPages.of(
        html.page(plan, evidence),
        lambda by: html.split(plan, by, cluster),
        lambda part, owner: html.page(part, evidence, owner),
    )


def _evidence(source: ClusterOptions, cluster: Cluster) -> str:
    """Return what the folder rests on: the hash of the snapshot, or the context.

    No time: equal input, equal bytes.
    """
    if source.cluster is None:
        return f"the live cluster{f' of context {source.context}' if source.context else ''}"
    if source.cluster.is_file():
        return (
            f"the snapshot with SHA-256 {hashlib.sha256(source.cluster.read_bytes()).hexdigest()}"
        )
    return f"the snapshot {source.cluster.name}, API server {cluster.server_version or 'unknown'}"


def write_folder(plan: RepairPlan, folder: Path, source: ClusterOptions, cluster: Cluster) -> None:
    """Write the folder of a plan.

    Raises:
        ClickException: a file cannot be written, or the folder is not ours.
    """
    if plan.holds is None:
        unseen = ", ".join(plan.unseen[:3])
        raise click.ClickException(
            f"the plan rests on data that could not be read, so nothing is written: {unseen}"
        )
    try:
        _require_ours(folder)
        for name in _OWN_FOLDERS:
            _remove(folder / name)
        for name, content in plan_folder.files(plan, _evidence(source, cluster)).items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            mode = 0o777 if path.suffix == ".sh" else 0o666
            write_new(path, content.encode(errors="backslashreplace"), mode)
    except OSError as error:
        raise failure(error) from None
    click.echo(f"{folder}: start with README.md")


def _remove(folder: Path) -> None:
    """Remove a folder of an earlier plan.

    A symlink is removed itself: it may lead to a folder of another user.
    """
    if folder.is_symlink():
        folder.unlink()
    else:
        shutil.rmtree(folder, ignore_errors=True)


def _require_ours(folder: Path) -> None:
    """Accept a folder that does not exist, is empty, or has an earlier plan.

    Raises:
        ClickException: it is something else.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise click.ClickException(f"{folder} is not a folder. Name another one")
    if not any(folder.iterdir()):
        return
    try:
        found = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = None
    if not (isinstance(found, dict) and {"version", "goal", "steps", "totals"} <= found.keys()):
        raise click.ClickException(
            f"{folder} is not empty, and has no plan of virt-admit. Name another folder"
        )
