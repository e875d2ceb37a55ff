"""A repair plan as a folder: a script and patches for each step, what each owner has to know,
and the plan as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from virt_admit.forecasts.repair.repair_plan import RepairPlan, RepairStep
from virt_admit.model import sanitize
from virt_admit.reports.plan import scripts
from virt_admit.reports.plan.report import answer, report
from virt_admit.reports.plan.text import cost, text
from virt_admit.reports.values import as_data


def files(plan: RepairPlan, evidence: str) -> dict[str, str]:
    """Return the files of the folder by path.

    Args:
        plan: the plan.
        evidence: what it rests on.
    """
    found: dict[str, str] = {"plan.json": json.dumps(as_data(report(plan)), indent=2) + "\n"}
    index: list[str] = []
    for number, step in enumerate(plan.steps, start=1):
        name = f"{number * 10:03}-{_slug(step)}"
        if scripts.is_script(step):
            found |= scripts.files(step, name)
            index.append(f"steps/{name}.sh")
        else:
            index.append("a person")
    found["README.md"] = _readme(plan, index, evidence)
    for owner in sorted({step.owner for step in plan.steps if step.owner}):
        every = zip(plan.steps, index, strict=True)
        own = [(step, how) for step, how in every if step.owner == owner]
        found[f"owners/{_file(owner)}.md"] = _for_owner(owner, own)
    return dict(sorted(found.items()))


def _slug(step: RepairStep) -> str:
    kind = step.id.partition(":")[0].lower()
    words = (step.subject.namespace, step.subject.name, kind)
    return _file("-".join(filter(None, words)))


def _file(name: str) -> str:
    """Return a name that is safe as the name of a file."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:80] or "other"


# --- for people -----------------------------------------------------------------------------------


def _readme(plan: RepairPlan, index: list[str], evidence: str) -> str:
    rows = [
        (
            f"| {number} | {_cell(how)} | {_cell(str(step.subject))} | {_cell(step.title)} | "
            f"{cost(step)} |"
        )
        for number, (step, how) in enumerate(zip(plan.steps, index, strict=True), start=1)
    ]
    return "\n".join(
        [
            "# Plan",
            "",
            _cell(answer(plan)),
            "",
            (
                f"It rests on {_cell(evidence)}. Run the steps in this order, each with `sh`. Each "
                "step checks first whether the"
            ),
            (
                "cluster is still as the plan saw it, tries the change with `--dry-run=server`, "
                "and stops otherwise."
            ),
            (
                "A restart belongs into a window: cordon the node, run the step, drain the node, "
                "uncordon it."
            ),
            "",
            "| | how | object | change | cost |",
            "|---|---|---|---|---|",
            *rows,
            "",
            "```text",
            text(plan).replace("```", "'''"),
            "```",
            "",
        ]
    )


def _for_owner(owner: str, own: list[tuple[RepairStep, str]]) -> str:
    lines = [f"# What has to be done in {_cell(owner)}", ""]
    for step, _how in own:
        lines += [
            f"## {_cell(str(step.subject))}",
            "",
            f"{_cell(step.title)} ({cost(step)}). It takes effect {step.takes_effect}.",
            *_told(step),
            "",
        ]
    return "\n".join(lines)


def _told(step: RepairStep) -> Iterator[str]:
    if step.risk:
        yield f"Risk: {_cell(step.risk)}."
    if step.gitops:
        yield _cell(step.gitops)


def _cell(text_: str) -> str:
    """Return a text for a Markdown page: no markup of it takes effect."""
    return re.sub(r"([\\`*_{}\[\]<>|#!~])", r"\\\1", sanitize.cell(text_))
