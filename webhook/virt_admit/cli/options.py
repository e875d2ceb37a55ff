"""Options that several verbs share, as click decorators and as the frozen values that a verb
receives.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from virt_admit.cli.project import find_project
from virt_admit.model import releases
from virt_admit.model.kubernetes.units import parse_duration
from virt_admit.model.messages import did_you_mean
from virt_admit.model.releases import NO_TARGET, UpgradeTarget
from virt_admit.reports.findings.formats import FORMATS, parse_output
from virt_admit.rules import Rules, listed_rules
from virt_admit.settings import POLICY_CONFIGMAP, SettingError

LEVELS: Final = ("deny", "warn", "audit", "never")

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]


def grouped(parameter: str, value_type: type) -> Decorator:
    """Pass the options named like the fields of a type as one value of it.

    Args:
        parameter: the parameter of the command that receives the value.
        value_type: a frozen dataclass or a named tuple whose fields are options of the command.
    """
    names = list(value_type.__annotations__)

    def decorate(function: Command) -> Command:
        @functools.wraps(function)
        def call(**values: Any) -> Any:
            group = value_type(**{name: values.pop(name) for name in names})
            return function(**values, **{parameter: group})

        return call

    return decorate


def combined(*decorators: Decorator) -> Decorator:
    """Apply decorators in the order in which ``--help`` lists their options."""

    def decorate(function: Command) -> Command:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


def duration(text: str) -> int:
    """Return the nanoseconds of a duration.

    Raises:
        BadParameter: it is not valid, or negative.
    """
    try:
        nanoseconds = parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if nanoseconds < 0:
        raise click.BadParameter(f"{text} is negative")
    return nanoseconds


class ClusterOptions(NamedTuple):
    """The cluster that a verb reads: a snapshot or a live cluster."""

    cluster: Path | None = None
    live: bool = False
    kubeconfig: str | None = None
    context: str | None = None

    @property
    def wants_live(self) -> bool:
        """Whether an option names a live cluster."""
        return bool(self.live or self.kubeconfig or self.context)

    @property
    def given(self) -> bool:
        """Whether any option names a cluster."""
        return bool(self.cluster) or self.wants_live

    def require_one(self) -> None:
        """Accept a snapshot or a live cluster.

        Raises:
            UsageError: both are named.
        """
        if self.cluster and self.wants_live:
            raise click.UsageError("--cluster excludes --live, --kubeconfig and --context")


_live_options: Final = combined(
    click.option("--live", is_flag=True, help="Read the cluster of the current context."),
    click.option(
        "--kubeconfig",
        metavar="FILE",
        help="Kubeconfig of the live cluster. In a pod, default: its cluster.",
    ),
)

cluster_options: Final = combined(
    click.option(
        "--cluster", type=click.Path(path_type=Path), help="Read a snapshot (file or folder)."
    ),
    _live_options,
    click.option("--context", metavar="NAME", help="Context of the kubeconfig."),
    grouped("source", ClusterOptions),
)


class ClustersOptions(NamedTuple):
    """The clusters that a verb reads: one or several snapshots, or contexts of a kubeconfig."""

    cluster: tuple[Path, ...] = ()
    live: bool = False
    kubeconfig: str | None = None
    context: tuple[str, ...] = ()

    def each(self) -> tuple[tuple[str, ClusterOptions], ...]:
        """Return each cluster with its name: the context or the path as given; empty without one.

        Raises:
            UsageError: a cluster is named twice, or snapshots and live clusters are mixed.
        """
        if self.cluster and (self.live or self.kubeconfig or self.context):
            raise click.UsageError("--cluster excludes --live, --kubeconfig and --context")
        names = [*map(str, self.cluster), *self.context]
        for name in names:
            if names.count(name) > 1:
                raise click.UsageError(f"the cluster {name} is named twice")
        if self.cluster:
            return tuple((str(path), ClusterOptions(cluster=path)) for path in self.cluster)
        return tuple(
            (name or "", ClusterOptions(None, self.live, self.kubeconfig, name))
            for name in self.context or (None,)
        )


jobs_option: Final = click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1),
    metavar="N",
    help=(
        "Processes that share the work if there are many objects. Default: one for each processor, "
        "at most 8."
    ),
)


clusters_options: Final = combined(
    click.option(
        "--cluster",
        multiple=True,
        type=click.Path(path_type=Path),
        help="Read a snapshot (file or folder); repeatable.",
    ),
    _live_options,
    click.option(
        "--context", multiple=True, metavar="NAME", help="Context of the kubeconfig; repeatable."
    ),
    grouped("clusters", ClustersOptions),
)


class ReportOptions(NamedTuple):
    """How objects are judged, and what happens with the report."""

    policy_name: str | None
    """The policy that a flag or the environment names."""
    policy_configmap: str
    output: tuple[str, ...]
    fail_on: str
    select: tuple[str, ...]
    ignore: tuple[str, ...]
    color: str
    quiet: bool
    target: UpgradeTarget
    all_lines: bool
    pages_by: str | None

    def outputs(self) -> list[tuple[str, str | None]]:
        """Return the formats with their files (None: stdout).

        Raises:
            ValueError: a format is unknown, or two go to stdout.
        """
        outputs = parse_output(self.output)
        require_folder(self.pages_by, outputs)
        return outputs

    @property
    def owner_label(self) -> str:
        """The label that names the owners of ``--pages-by``; empty if they are namespaces."""
        return (self.pages_by or "").partition("=")[2]

    def rules(self) -> Rules:
        """Return the rules that ``--select``, ``--ignore`` and ``--target`` leave.

        Raises:
            SettingError: a pattern matches no rule, or all selected rules need another target.
        """
        selected = selected_rules(listed_rules(), self.select, self.ignore)
        rules = selected.about(self.target)
        if self.select and selected and not rules:
            targets = (each for rule in selected for each in rule.target.items())
            needed = min(f"{component}={release}" for component, release in targets)
            raise SettingError(
                f"the selected rules are about an upgrade: add --target, such as --target {needed}"
            )
        return rules

    def policy_choice(self) -> str | None:
        """Return the policy that the option, the environment or the project names, if any."""
        return PolicyOptions(self.policy_name, self.policy_configmap).policy_choice()


def _target(_context: click.Context, _option: click.Parameter, value: str | None) -> UpgradeTarget:
    """Return the releases that ``--target`` names.

    Raises:
        UsageError: a component or a release is not known.
    """
    try:
        return NO_TARGET if value is None else releases.parse(value)
    except ValueError as error:
        raise click.UsageError(f"--target: {error}") from None


configmap_option: Final = click.option(
    "--policy-configmap",
    envvar="VIRT_ADMIT_POLICY_CONFIGMAP",
    default=POLICY_CONFIGMAP,
    show_default=True,
    metavar="NAMESPACE/NAME[,fallback=audit|default|strict]",
    help="The policy of the live cluster. The fallback is used if the ConfigMap does not exist.",
)

policy_option: Final = click.option(
    "--policy",
    "policy_name",
    envvar="VIRT_ADMIT_POLICY",
    metavar="FILE|audit|default|strict",
    help=(
        "Policy file, or the name of a shipped policy.  [default: that of .virt-admit.yaml, else "
        "that of the live cluster, else default]"
    ),
)


class PolicyOptions(NamedTuple):
    """The policy by which a verb judges."""

    policy_name: str | None
    """The policy that a flag or the environment names."""
    policy_configmap: str

    def policy_choice(self) -> str | None:
        """Return the policy that the option, the environment or the project names;
        None if none of them does.
        """
        return self.policy_name or find_project().policy


policy_options: Final = combined(policy_option, configmap_option, grouped("policy", PolicyOptions))

pages_by_option: Final = click.option(
    "--pages-by",
    metavar="namespace|label=KEY",
    help="With -o html=FOLDER: write a page for each owner and an index.",
)

report_options: Final = combined(
    policy_option,
    configmap_option,
    click.option(
        "-o",
        "--output",
        multiple=True,
        metavar="FORMAT[=FILE]",
        help=f"{', '.join(FORMATS)}; repeatable.",
    ),
    click.option(
        "--fail-on",
        type=click.Choice(LEVELS),
        default="deny",
        show_default=True,
        help="Lowest action that causes exit code 1.",
    ),
    click.option(
        "--select", multiple=True, metavar="RULE", help="Run only these rules (patterns allowed)."
    ),
    click.option(
        "--ignore", multiple=True, metavar="RULE", help="Do not run these rules (patterns allowed)."
    ),
    click.option(
        "--target",
        callback=_target,
        metavar="COMPONENT=RELEASE,…",
        help=(
            "Also tell what these releases remove or change for the objects: "
            "kubevirt=1.9,kubernetes=1.37."
        ),
    ),
    click.option(
        "--color",
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        show_default=True,
        help="Color the text report.",
    ),
    click.option("-q", "--quiet", is_flag=True, help="Print no summary on stderr."),
    click.option(
        "--all-lines",
        is_flag=True,
        help="Do not group findings of one cause, in text and Markdown.",
    ),
    pages_by_option,
    grouped("reporting", ReportOptions),
)

selector_option: Final = click.option(
    "-l",
    "--selector",
    default="",
    metavar="LABELS",
    help="Judge only objects with these labels, as in kubectl.",
)

output_option: Final = click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Output format.",
)


FORECAST_FORMATS: Final = ("text", "json", "html")


class Destination(NamedTuple):
    """The format of a forecast, and where it goes."""

    form: str
    file: str | None
    """Or the folder; None: stdout."""
    pages_by: str | None

    def accept_summary(self, summary: bool) -> None:
        """Accept ``--summary`` only for text.

        Raises:
            UsageError: it is given for another format.
        """
        if summary and self.form != "text":
            raise click.UsageError("--summary is for text output only")


class OutputOptions(NamedTuple):
    """The values of ``--output`` and ``--pages-by``."""

    output: tuple[str, ...]
    pages_by: str | None

    def parse(self, forms: Sequence[str] = FORECAST_FORMATS) -> Destination:
        """Return what they ask for.

        Raises:
            UsageError: several formats are named, or the format or the value of ``--pages-by`` is
                not valid.
        """
        if len(self.output) > 1:
            raise click.UsageError("several outputs: give -o once")
        form, _, file = self.output[0].partition("=")
        if form not in forms:
            meant = did_you_mean(form, forms)
            remedy = f"Did you mean {meant}?" if meant else f"Use one of {', '.join(forms)}"
            raise click.UsageError(f"unknown output format {form}. {remedy}")
        if form == "folder" and not file:
            raise click.UsageError("-o folder needs a folder: -o folder=DIR")
        if file and form not in ("html", "folder"):
            raise click.UsageError(f"-o {form} goes to stdout: redirect it to a file")
        require_folder(self.pages_by, [(form, file or None)])
        return Destination(form, file or None, self.pages_by)


def require_folder(pages_by: str | None, outputs: Sequence[tuple[str, str | None]]) -> None:
    """Accept ``--pages-by`` only if it is valid and a folder for the pages is named.

    Raises:
        UsageError: it is not.
    """
    if pages_by is None:
        return
    word, _, key = pages_by.partition("=")
    if pages_by != "namespace" and (word != "label" or not key):
        raise click.UsageError(f"--pages-by {pages_by} is not valid. Use namespace or label=KEY")
    if not any(form == "html" and file for form, file in outputs):
        raise click.UsageError("--pages-by needs a folder for the pages: -o html=FOLDER")


def output_options(metavar: str, help_text: str) -> Decorator:
    """Return the options of the output of a forecast."""
    return combined(
        click.option(
            "-o",
            "--output",
            multiple=True,
            default=("text",),
            show_default=True,
            metavar=metavar,
            help=help_text,
        ),
        pages_by_option,
        grouped("output", OutputOptions),
    )


page_output_options: Final = output_options("text|json|html[=FILE]", "Output format.")


def rule_hint(name: str, rules: Rules) -> str:
    """Return what to do about a rule id that does not exist: the id that was probably meant, or
    where they are listed.
    """
    meant = did_you_mean(name, list(rules.by_id))
    return f"Did you mean {meant}?" if meant else "`virt-admit rules` lists them"


def selected_rules(rules: Rules, select: Sequence[str], ignore: Sequence[str]) -> Rules:
    """Return the rules that match a pattern of ``select`` (if there is one) and no pattern of
    ``ignore``.

    Raises:
        SettingError: a pattern matches no rule.
    """
    if not select and not ignore:
        return rules
    for pattern in (*select, *ignore):
        if not any(fnmatchcase(rule_id, pattern) for rule_id in rules.by_id):
            raise SettingError(f"no rule matches {pattern}. {rule_hint(pattern, rules)}")
    return rules.where(
        lambda rule: (
            (not select or any(fnmatchcase(rule.id, pattern) for pattern in select))
            and not any(fnmatchcase(rule.id, pattern) for pattern in ignore)
        )
    )
