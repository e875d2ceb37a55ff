"""``virt-admit explain``: what a health check would do, and when the VMs of a lost node run again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from virt_admit.cli import common
from virt_admit.documents import reader
from virt_admit.kube.cache import ClusterCache
from virt_admit.model import kinds
from virt_admit.model.cluster import Cluster, Snapshot, Unseen
from virt_admit.model.kinds import Kind
from virt_admit.model.labels import Selection
from virt_admit.model.messages import count, names
from virt_admit.model.objects import Object
from virt_admit.model.remediation import health_checks, plan, timeline, watching
from virt_admit.model.remediation.health_checks import HealthCheck
from virt_admit.model.remediation.plan import Budget, Span
from virt_admit.model.remediation.timeline import Stage, Timeline, VmOutcome
from virt_admit.model.units import SECOND, format_duration

KINDS: Final[tuple[Kind, ...]] = (kinds.NHC, kinds.MHC, kinds.CAPI_MHC)
"""What can be explained."""

LOOKS_UP: Final[tuple[Kind, ...]] = (
    *KINDS,
    *(kinds.NODE, kinds.MACHINE, kinds.CAPI_MACHINE, kinds.VMI, kinds.VM, kinds.CONFIG_NODE, kinds.SNR_CONFIG),
    *(kinds.SNR_TEMPLATE, kinds.FAR_TEMPLATE, kinds.MDR_TEMPLATE, kinds.METAL3_TEMPLATE),
)
"""What an explanation looks at: a live cluster need list nothing else."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything that there is to say about one health check in one cluster."""

    check: HealthCheck
    selection: Selection
    budget: Budget
    unhealthy: tuple[tuple[str, str], ...]
    """What is selected and counts as unhealthy now: name and reason."""
    all_unhealthy: bool
    """Whether these are all, for everything that decides it could be seen."""
    obstacles: tuple[str, ...]
    """Why the check does nothing at all just now."""
    overlaps: tuple[tuple[str, tuple[str, ...]], ...]
    """Other checks that watch some of the same, and what they share with it."""
    stages: tuple[Stage, ...]
    timeline: Timeline
    fates: tuple[VmOutcome, ...]
    unseen: tuple[str, ...]
    """What could not be seen; with it, other things might be said."""


def explain(obj: Object, cluster: Cluster) -> Explanation:
    """What a health check would do in this cluster.

    Raises:
        ValueError: the object is no health check.
    """
    if kinds.of(obj) not in KINDS:
        shown = ", ".join(f"{kind.kind} ({kind.group})" for kind in KINDS)
        raise ValueError(f"{obj.kind or 'this'} {obj.full_name} cannot be explained; what can is {shown}")
    check = health_checks.view(obj)
    selection = watching.selected_by(check, cluster)
    unseen = [selection.unseen] if selection.unseen else []

    def seen(items: Iterable[Any]) -> Iterator[Any]:
        """What could be seen; what could not is noted."""
        try:
            for item in items:
                if isinstance(item, Unseen):
                    unseen.append(item.what)
                else:
                    yield item
        except Unseen as blind:
            unseen.append(blind.what)

    course = timeline.timeline(check, cluster)
    budget = plan.budget(check, selection)
    states = list(plan.unhealthy(check, selection, cluster))
    unhealthy = tuple(seen(states))
    return Explanation(
        check=check,
        selection=selection,
        budget=budget,
        unhealthy=unhealthy,
        all_unhealthy=not selection.unseen and len(unhealthy) == len(states),
        obstacles=(*seen(plan.obstacles(check, cluster)), *_exceeded(budget, len(unhealthy))),
        overlaps=tuple(
            (
                rival.check.obj.full_name,
                tuple(sorted(obj.name for obj in selection.among(rival.selection.positions).objects)),
            )
            for rival in seen(watching.rivals(check, cluster))
        ),
        stages=tuple(seen(timeline.stages(check, cluster))),
        timeline=course,
        fates=tuple(seen(timeline.fates(plan.nodes_of(check, selection), cluster))),
        unseen=tuple(dict.fromkeys((*unseen, *course.unseen))),
    )


def _exceeded(budget: Budget, unhealthy: int) -> Iterator[str]:
    """That more are unhealthy just now than the limit allows."""
    if budget.total is not None and budget.most is not None and not budget.never and unhealthy > budget.most:
        yield f"{unhealthy} are unhealthy or soon will be: more than {budget.most}"


@click.command("explain", short_help="Say what a health check would do, and when.")
@click.argument("target", metavar="FILE|KIND/NAME")
@click.option(
    "-n", "--namespace", default=None, metavar="NAME", help="Where to look for it; for objects in FILE that name none."
)
@common.cluster_options
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    target: str,
    namespace: str | None,
    cluster: Path | None,
    live: bool,
    kubeconfig: str | None,
    context: str | None,
    output: str,
) -> int:
    """Say what a health check would do: whom it watches, when it acts or never does, and when VMs run again.

    FILE (- is standard input) is explained with what else it holds, over --cluster or the live cluster if one of those
    is named; nhc/NAME and mhc/NAMESPACE/NAME are looked up there. Only reads. Exit 2: there is nothing to explain.
    """
    in_file = target == "-" or Path(target).is_file()
    there: Snapshot | ClusterCache = Snapshot()
    if not in_file or cluster or live or kubeconfig or context:
        there = common.cluster_of(cluster, live, kubeconfig, context, LOOKS_UP)
    try:
        beside = list(_objects(target, namespace or "default")) if in_file else []
        checks = [obj for obj in beside if kinds.of(obj) in KINDS] if in_file else [find(target, there, namespace)]
    except (LookupError, reader.DocumentError) as error:
        raise click.ClickException(str(error)) from None
    if beside:
        there = common.with_objects(there, beside)
    if not checks:
        raise click.ClickException(f"{target} holds no health check")
    explained = [explain(check, there) for check in checks]
    if output == "json":
        data = [as_data(each) for each in explained]
        click.echo(json.dumps(data[0] if len(data) == 1 else data, indent=2, ensure_ascii=False))
    else:
        click.echo("\n".join(text(each).rstrip("\n") + "\n" for each in explained), nl=False)
    return 0


def _objects(file: str, namespace: str) -> Iterator[Object]:
    """The objects in a file.

    Raises:
        DocumentError: it cannot be read.
    """
    for name, content in reader.find([file]):
        found, errors = ([], [content]) if isinstance(content, reader.DocumentError) else reader.read(content, name)
        if errors:
            raise errors[0]
        yield from (common.placed(document, namespace) for document in found)


def find(target: str, cluster: Cluster, namespace: str | None = None) -> Object:
    """The health check that is called ``KIND/NAME`` or ``KIND/NAMESPACE/NAME``, as kubectl would find it.

    The kind may be written in any case, in the plural, with its group behind a dot, or as ``nhc`` or ``mhc``.

    Raises:
        LookupError: there is no such health check, more than one, or not all of them can be seen; the message says so.
    """
    word, _, rest = target.partition("/")
    home, _, name = rest.rpartition("/")
    wanted = [kind for kind in KINDS if word.lower() in _words(kind)]
    if not wanted or not name:
        raise LookupError(
            f"{target} is neither a file nor the name of a health check: write nhc/NAME or mhc/NAMESPACE/NAME"
        )
    found: list[Object] = []
    unseen = ""
    for kind in wanted:
        try:
            where = (home or namespace) if kind.namespaced else None
            found.extend(obj for obj in cluster.list(kind, where) if obj.name == name)
        except Unseen as blind:
            unseen = blind.what
    if len(found) == 1:
        return found[0]
    if found:
        several = names(f"{obj.api_version} {obj.full_name}" for obj in found)
        raise LookupError(f"{target} may be any of {several}: write KIND.GROUP/NAMESPACE/NAME")
    raise LookupError(f"cannot see {unseen}, so not {target} either" if unseen else f"there is no {target}")


def _words(kind: Kind) -> tuple[str, ...]:
    """What a kind may be called."""
    short = "nhc" if kind is kinds.NHC else "mhc"
    singular = kind.kind.lower()
    return (short, singular, kind.plural, kind.resource, f"{singular}.{kind.group}", f"{short}.{kind.group}")


# --- as text -----------------------------------------------------------------------------------------------------


def text(explanation: Explanation) -> str:
    """An explanation for people: a table of facts, one of the steps, a time line, and the VMs."""
    check, what = explanation.check, _noun(explanation.check)
    steps = [("", "remediator", "takes", "next step after")] if explanation.stages else []
    steps += [(f"{number}.", *_stage(stage)) for number, stage in enumerate(explanation.stages, 1)]
    moments = [(str(moment.at), moment.what) for moment in explanation.timeline.moments]
    parts: tuple[tuple[str, Sequence[tuple[str, ...]]], ...] = (
        (f"{check.obj.kind} {check.obj.full_name}", list(_facts(explanation))),
        (f"Remediation of a {what}", steps),
        ("When a node falls silent, and the limit lets the check act", moments),
        ("What becomes of the VMs, once their node is down for certain", list(_vms(explanation.fates))),
        ("What could not be seen", [(each,) for each in explanation.unseen]),
    )
    return "\n".join(line for title, rows in parts if rows for line in (title, *_columns(rows), ""))


def _columns(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


_UNTOLD: Final = "cannot be told"


def _noun(check: HealthCheck) -> str:
    return "node" if check.kind is kinds.NHC else "machine"


def _facts(explanation: Explanation) -> Iterator[tuple[str, str]]:
    check, selection = explanation.check, explanation.selection
    yield "selects", _selected(selection, _noun(check))
    yield "limit", f"{explanation.budget.limit}: {_meaning(explanation.budget)}"
    conditions = plan.symptoms(check)
    yield "unhealthy if", "; ".join(map(_condition, conditions)) or "(no condition is listed)"
    if check.kind is not kinds.NHC:
        yield "or a machine", "; ".join(_machine(check))
    yield "unhealthy now", _sick(explanation.unhealthy, complete=explanation.all_unhealthy)
    yield "VMs restart", _restart(explanation.timeline)
    for other, shared in explanation.overlaps:
        yield "overlaps with", f"{other}: both watch {names(shared)}"
    for blocking_constraint in explanation.obstacles:
        yield "does nothing", blocking_constraint


def _selected(selection: Selection, noun: str) -> str:
    if selection.unseen and not selection:
        return _UNTOLD
    seen = " that can be seen" if selection.unseen else ""
    which = f": {names(obj.name for obj in selection.objects)}" if selection else ""
    return f"{count(len(selection), noun)}{seen}{which}"


def _sick(unhealthy: Sequence[tuple[str, str]], *, complete: bool) -> str:
    if not unhealthy:
        return "none" if complete else _UNTOLD
    which = names(f"{name} ({why})" for name, why in unhealthy)
    return f"{len(unhealthy)}{'' if complete else ' that can be seen'}: {which}"


def _meaning(budget: Budget) -> str:
    of = "" if budget.total is None else f" of {budget.total}"
    if budget.never:
        return f"never acts, for it {budget.limit_text}"
    if budget.least > 1:
        return f"acts while {budget.least} to {budget.most}{of} are unhealthy"
    if budget.everything:
        whom = "all" if budget.total is None else f"all {budget.total}"
        return f"no brake, may take {whom} at once"
    if budget.most is None:
        return "nobody can tell what it allows"
    return f"acts while no more than {budget.most}{of} are unhealthy"


def _condition(condition: plan.Symptom) -> str:
    time = "an unreadable time" if condition.time is None else format_duration(condition.time)
    return f"{condition.type or '?'}={condition.status or '?'} for {time}"


def _machine(check: HealthCheck) -> Iterator[str]:
    """What makes a machine unhealthy, whatever its node reports."""
    for symptom in plan.machine_symptoms(check):
        yield f"reports {_condition(symptom)}"
    yield "is Failed, or its node is gone"
    startup = check.known_startup_time()
    if startup != 0:
        yield f"has no node for {'an unreadable time' if startup is None else format_duration(startup)}"


def _stage(stage: Stage) -> tuple[str, str, str]:
    following = "" if stage.timeout is None else format_duration(stage.timeout)
    return stage.name, _lasting(stage.takes), f"{following}: too short" if stage.cut_off else following


def _lasting(span: Span) -> str:
    if span.most is None:
        return "depends on the platform"
    return str(span) if span.least else f"up to {format_duration(span.most)}"


def _restart(course: Timeline) -> str:
    restart = course.restart
    if restart is None:
        return f"never: {course.never}"
    parts = [f"{format_duration(restart.grace)} until noticed", f"{format_duration(restart.patience)} Ready=Unknown"]
    if restart.wasted:
        parts.append(f"{format_duration(restart.wasted)} wasted")
    remediator = "what the platform takes" if restart.takes.most is None else f"{_lasting(restart.takes)} remediator"
    return f"after {restart.at} = {' + '.join([*parts, remediator])}"


_OUTCOME: Final = {True: "restarted", False: "stays off", None: "unknown"}


def _vms(fates: Sequence[VmOutcome]) -> Iterator[tuple[str, str, str]]:
    groups: dict[tuple[str, str], list[str]] = {}
    for fate in fates:
        groups.setdefault((_OUTCOME[fate.comes], fate.why), []).append(fate.vmi.full_name)
    for (outcome, why), vms in sorted(groups.items()):
        yield outcome, why, f"{count(len(vms), 'VM')}: {names(sorted(vms))}"


# --- as data -----------------------------------------------------------------------------------------------------


def as_data(explanation: Explanation) -> dict[str, Any]:
    """An explanation as JSON data. Times are seconds, counted from the moment in which a node falls silent."""
    check, selection, budget = explanation.check, explanation.selection, explanation.budget
    obj, restart = check.obj, explanation.timeline.restart
    return {
        "version": 1,
        "object": {
            "apiVersion": obj.api_version,
            "kind": obj.kind,
            "namespace": obj.namespace,
            "name": obj.name,
        },
        "selected": {
            "kind": "Node" if check.kind is kinds.NHC else "Machine",
            "count": len(selection),
            "complete": not selection.unseen,
            "names": [each.name for each in selection.objects],
        },
        "limit": {
            "text": budget.limit,
            "least": budget.least,
            "most": budget.most,
            "never": budget.never,
            "everything": budget.everything,
        },
        "conditions": list(map(_symptom, plan.symptoms(check))),
        "machineConditions": list(map(_symptom, plan.machine_symptoms(check))),
        "startup": None if check.kind is kinds.NHC else _seconds(check.known_startup_time()),
        "unhealthy": [{"name": name, "why": why} for name, why in explanation.unhealthy],
        "unhealthyComplete": explanation.all_unhealthy,
        "obstacles": list(explanation.obstacles),
        "overlaps": [{"name": other, "shared": list(shared)} for other, shared in explanation.overlaps],
        "steps": [
            {
                "name": stage.name,
                "takes": _span(stage.takes),
                "timeout": _seconds(stage.timeout),
                "cancelled": stage.cut_off,
            }
            for stage in explanation.stages
        ],
        "timeline": [
            {"at": _span(moment.at), "event": str(moment.event), "what": moment.what}
            for moment in explanation.timeline.moments
        ],
        "restart": restart
        and {
            **_span(restart.at),
            "grace": _seconds(restart.grace),
            "patience": _seconds(restart.patience),
            "wasted": _seconds(restart.wasted),
            "remediator": _span(restart.takes),
        },
        "never": explanation.timeline.never or None,
        "vms": [
            {
                "namespace": fate.vmi.namespace,
                "name": fate.vmi.name,
                "node": fate.vmi.at("status", "nodeName").text,
                "restarted": fate.comes,
                "why": fate.why,
            }
            for fate in explanation.fates
        ],
        "unseen": list(explanation.unseen),
    }


def _symptom(symptom: plan.Symptom) -> dict[str, Any]:
    return {"type": symptom.type, "status": symptom.status, "seconds": _seconds(symptom.time)}


def _span(span: Span) -> dict[str, float | None]:
    return {"least": _seconds(span.least), "most": _seconds(span.most)}


def _seconds(nanoseconds: int | None) -> float | None:
    if nanoseconds is None:
        return None
    whole, rest = divmod(nanoseconds, SECOND)
    return nanoseconds / SECOND if rest else whole
