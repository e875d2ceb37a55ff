"""What several verbs share: options, where a cluster comes from, how a report leaves."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from virt_admit.documents.reader import Document
from virt_admit.engine import review
from virt_admit.engine.admission_review import Request
from virt_admit.kube import snapshots
from virt_admit.kube.cache import ClusterCache, KindStore
from virt_admit.model import kinds
from virt_admit.model.cluster import Snapshot
from virt_admit.model.kinds import Kind
from virt_admit.model.objects import Object
from virt_admit.policy.policy import Policy
from virt_admit.reports import formats
from virt_admit.reports.report import Report
from virt_admit.rule import Action, Rule
from virt_admit.rules import Rules
from virt_admit.settings import SettingError

if TYPE_CHECKING:
    from virt_admit.kube.client import Api

LEVELS: Final = ("deny", "warn", "audit", "never")

Command = Callable[..., Any]
Progress = Callable[[Kind, int], None]
"""Told how many objects of a kind are done; 0 when it begins."""


def report_options(function: Command) -> Command:
    """How to judge, and what to do with the report."""
    for option in reversed(
        (
            click.option(
                "--policy", "policy_name", default="default", metavar="FILE|audit|default|strict", show_default=True
            ),
            click.option(
                "-o",
                "--output",
                multiple=True,
                metavar="FORMAT[=FILE]",
                help=f"{', '.join(formats.FORMATS)}; repeatable.",
            ),
            click.option(
                "--fail-on",
                type=click.Choice(LEVELS),
                default="deny",
                show_default=True,
                help="Lowest action for exit code 1.",
            ),
            click.option("--select", multiple=True, metavar="RULE", help="Only these rules (patterns allowed)."),
            click.option("--ignore", multiple=True, metavar="RULE", help="Not these rules (patterns allowed)."),
            click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True),
            click.option("-q", "--quiet", is_flag=True, help="No summary on stderr."),
        )
    ):
        function = option(function)
    return function


def failure(error: Exception) -> click.ClickException:
    """What ends the verb with exit code 2: the words of the error, those of the system without numbers."""
    if isinstance(error, OSError) and error.strerror:
        return click.ClickException(": ".join(str(part) for part in (error.filename, error.strerror) if part))
    return click.ClickException(str(error))


def cluster_options(function: Command) -> Command:
    """Which cluster: a snapshot of one, or a live one."""
    for option in reversed(
        (
            click.option("--cluster", type=click.Path(path_type=Path), help="A snapshot (file or folder)."),
            click.option("--live", is_flag=True, help="The cluster of the current context, only read."),
            click.option("--kubeconfig", metavar="FILE", help="Where the live cluster is; in a pod its own."),
            click.option("--context", metavar="NAME", help="Context of the kubeconfig."),
        )
    ):
        function = option(function)
    return function


selector_option = click.option(
    "-l", "--selector", default="", metavar="LABELS", help="Judge only what has these labels, as in kubectl."
)


def selected(rules: Rules, select: Sequence[str], ignore: Sequence[str]) -> Rules:
    """The rules that ``--select`` and ``--ignore`` leave.

    Raises:
        SettingError: a pattern fits no rule.
    """
    for pattern in (*select, *ignore):
        if not any(fnmatchcase(rule.id, pattern) for rule in rules):
            raise SettingError(f"there is no rule {pattern}")
    return Rules(
        rule
        for rule in rules
        if (not select or any(fnmatchcase(rule.id, pattern) for pattern in select))
        and not any(fnmatchcase(rule.id, pattern) for pattern in ignore)
    )


def asked(request: Request, rules: Rules, policy: Policy) -> tuple[Rule, ...]:
    """The rules that judge a request under this policy."""
    return tuple(
        rule
        for rule in review.applicable_rules(request, rules)
        if policy.decide(rule, request.namespace).action is not Action.OFF
    )


def api(kubeconfig: str | None, context: str | None) -> Api:
    """The API server of the live cluster. Asks it nothing yet.

    Raises:
        ClickException: there is none.
    """
    from virt_admit.kube import client  # noqa: PLC0415 - kubernetes takes 0.3 s

    try:
        return client.Api.connect(kubeconfig, context)
    except SettingError as error:
        raise failure(error) from None


def cluster_of(
    cluster: Path | None,
    live: bool,
    kubeconfig: str | None,
    context: str | None,
    looks_up: Sequence[Kind],
    home: str = "",
    quiet: bool = False,
) -> Snapshot | ClusterCache:
    """The cluster that the options mean: the snapshot, or these kinds of the live one.

    What may not be listed in the whole cluster is listed in the namespace ``home``, if one is given.

    Raises:
        ClickException: the options exclude each other, the snapshot is none, or the cluster does not answer.
    """
    if cluster and (live or kubeconfig or context):
        raise click.UsageError("--cluster excludes --live, --kubeconfig and --context")
    if cluster is None:
        return sweep(
            [KindStore(kind, packed=True) for kind in dict.fromkeys(looks_up)], kubeconfig, context, home, quiet
        )
    try:
        return snapshots.load(cluster)
    except (SettingError, OSError) as error:
        raise failure(error) from None


def tell_unreadable(cluster: Snapshot | ClusterCache, looks_up: Iterable[Kind]) -> None:
    """On stderr, which of these kinds could not be read."""
    blind = sorted(cluster.unreadable.intersection(kind.resource for kind in looks_up))
    if blind:
        click.echo(f"not allowed to list {', '.join(blind)}", err=True)


def with_objects(cluster: Snapshot | ClusterCache, objects: Iterable[Object]) -> Snapshot:
    """A cluster with these objects in it: they take the place of those with the same name."""
    return Snapshot((*cluster, *objects), cluster.complete, cluster.unreadable, cluster.server_version)


def placed(document: Document, namespace: str) -> Object:
    """The object of a document; in this namespace if it should name one and does not."""
    obj = Object(document.data)
    kind = kinds.of(obj)
    return Object(document.data, obj.namespace or namespace) if kind is not None and kind.namespaced else obj


def sweep(
    stores: Sequence[KindStore], kubeconfig: str | None, context: str | None, home: str = "", quiet: bool = False
) -> ClusterCache:
    """Fill the shelves from the live cluster, showing progress on a terminal.

    Raises:
        ClickException: there is no cluster, or it does not answer.
    """
    from virt_admit.kube import client, informers  # noqa: PLC0415 - kubernetes takes 0.3 s

    server = api(kubeconfig, context)
    try:
        with progress("reading", len(stores), quiet) as show:
            return informers.snapshot(server, stores, home, show)
    except client.ApiError as error:
        raise failure(error) from None


@contextlib.contextmanager
def progress(label: str, length: int, quiet: bool = False) -> Iterator[Progress]:
    """A bar on stderr that moves with each of ``length`` kinds; nothing where stderr is no terminal."""
    hidden = quiet or not sys.stderr.isatty()
    with click.progressbar(
        length=length, label=label, file=sys.stderr, hidden=hidden, item_show_func=lambda item: item or ""
    ) as bar:

        def show(kind: Kind, count: int) -> None:
            bar.update(int(count == 0), f"{kind} {count or ''}")
            bar.render_progress()

        yield show


def publish(result: Report, outputs: Sequence[tuple[str, str | None]], color: str) -> None:
    """Write the report in each format to where it belongs.

    Raises:
        ClickException: a file cannot be written.
    """
    for name, file in outputs:
        write = partial(formats.text.render, paint=_paint(color, file)) if name == "text" else formats.FORMATS[name]
        _write(write(result), file)
        summary = os.environ.get("GITHUB_STEP_SUMMARY")
        if name == "github" and summary:
            _write(formats.markdown.render(result), summary, "ab")


def conclude(result: Report, policy: Policy) -> None:
    """What every run ends with, on stderr."""
    click.echo(result.summary(), err=True)
    for exemption in policy.expired:
        click.echo(f"exemption of {exemption.match} ended on {exemption.until}: {exemption.reason}", err=True)


def found(result: Report, fail_on: str) -> bool:
    """Whether the report has findings at or above ``--fail-on``."""
    return fail_on != "never" and result.at_least(Action[fail_on.upper()])


def _paint(color: str, file: str | None) -> Callable[[str, Action | None], str]:
    if color == "never" or (color == "auto" and (file or not _wants_color())):
        return lambda word, _action: word
    colors = {Action.DENY: "red", Action.WARN: "yellow", Action.AUDIT: "cyan"}

    def paint(word: str, action: Action | None) -> str:
        return click.style(word, fg=colors.get(action) if action else "bright_black", bold=action is Action.DENY)

    return paint


def _wants_color() -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("CLICOLOR_FORCE", "0") not in ("", "0")) or sys.stdout.isatty()


def _write(rendered: str, file: str | None, mode: Literal["wb", "ab"] = "wb") -> None:
    content = rendered.encode(errors="backslashreplace")  # JSON may hold halves of surrogate pairs
    if file is None:
        click.echo(content, nl=False)
        return
    try:
        with open(file, mode) as there:
            there.write(content)
    except OSError as error:
        raise failure(error) from None
