"""Where ``virt-admit plan`` writes: stdout, pages, or a folder of scripts and patches."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from virt_admit.cli import html_output
from virt_admit.cli.options import (
    ClusterOptions,
    combined,
    grouped,
    pages_by_option,
    require_folder,
)
from virt_admit.cli.output import failure
from virt_admit.documents.files import write_new
from virt_admit.forecasts.repair.repair_plan import RepairPlan
from virt_admit.model.kubernetes.cluster import Cluster, Snapshot
from virt_admit.reports.plan import folder as plan_folder

if TYPE_CHECKING:
    from virt_admit.kube.cache import ClusterCache

FORMS: Final = ("text", "json", "html", "folder")
_OWN_FOLDERS: Final = ("steps", "patches", "objects", "owners")


class PlanOutput(NamedTuple):
    """The format of a plan, and where it goes."""

    output: tuple[str, ...]
    pages_by: str | None

    def parse(self) -> tuple[str, str | None]:
        """Return the format and the file or folder; None is stdout.

        Raises:
            UsageError: several formats are named, or one is not valid.
        """
        if len(self.output) > 1:
            raise click.UsageError("several outputs: give -o once")
        form, _, file = self.output[0].partition("=")
        if form not in FORMS:
            raise click.UsageError(f"unknown output format {form}. Use one of {', '.join(FORMS)}")
        if form == "folder" and not file:
            raise click.UsageError("-o folder needs a folder: -o folder=DIR")
        if file and form not in ("html", "folder"):
            raise click.UsageError(f"-o {form} goes to stdout: redirect it to a file")
        require_folder(self.pages_by, [(form, file or None)])
        return form, file or None


plan_output_options: Final = combined(
    click.option(
        "-o",
        "--output",
        multiple=True,
        default=("text",),
        show_default=True,
        metavar="text|json|html[=FILE]|folder=DIR",
        help="Output format; a folder gets a script and patches for each step.",
    ),
    pages_by_option,
    grouped("output", PlanOutput),
)


def publish(
    plan: RepairPlan,
    cluster: Snapshot | ClusterCache,
    source: ClusterOptions,
    form: str,
    file: str | None,
    pages_by: str | None,
) -> None:
    """Write the pages or the folder of a plan.

    Raises:
        ClickException: a file cannot be written, or the folder is not ours.
    """
    if form == "folder":
        _write_folder(plan, Path(file or "."), _evidence(source, cluster))
        return
    from virt_admit.reports.plan import html  # noqa: PLC0415 - importing Jinja2 takes time

    evidence = html_output.evidence(source, cluster)
    pages = html_output.OwnerPages.of(
        html.page(plan, evidence),
        lambda by: html.split(plan, by, cluster),
        lambda part, owner: html.page(part, evidence, owner),
    )
    html_output.publish(pages, file, pages_by)


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


def _write_folder(plan: RepairPlan, folder: Path, evidence: str) -> None:
    if plan.holds is None:
        unseen = ", ".join(plan.unseen[:3])
        raise click.ClickException(
            f"the plan rests on data that could not be read, so nothing is written: {unseen}"
        )
    try:
        _require_ours(folder)
        for name in _OWN_FOLDERS:
            _remove(folder / name)
        for name, content in plan_folder.files(plan, evidence).items():
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
