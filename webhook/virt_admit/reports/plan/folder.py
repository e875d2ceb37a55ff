"""A repair plan as a folder: a script and patches for each step, what each owner has to know, and the plan as JSON.

Names come from cluster data. A step is written as a script only if all its names are DNS names; every word of a command
is quoted. ``kubectl patch`` of a custom resource needs ``--type=json``, and has no strict validation of its own, so each
change is tried with ``--dry-run=server`` first.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any, Final

import yaml

from virt_admit.forecasts.repair.repair_plan import Command, Patched, RepairPlan, RepairStep, StepCheck
from virt_admit.model import sanitize
from virt_admit.reports.plan import json as plan_json
from virt_admit.reports.plan.report import answer
from virt_admit.reports.plan.text import cost, text

_WAIT_SECONDS: Final = 1800
_HEAD: Final = """\
#!/bin/sh
# {title}
set -eu
cd "$(dirname "$0")/.."

# Succeed if a query prints what is expected.
holds() {{
  expected="$1"
  shift
  [ "$(kubectl "$@")" = "$expected" ]
}}

# Stop unless a query prints what is expected.
require() {{
  what="$1"
  shift
  holds "$@" || {{
    echo "stop: not true: $what" >&2
    exit 1
  }}
}}

# Wait until a query prints what is expected.
wait_for() {{
  what="$1"
  shift
  end=$(($(date +%s) + {seconds}))
  until holds "$@"; do
    [ "$(date +%s)" -lt "$end" ] || {{
      echo "stop: still not true after {seconds} seconds: $what" >&2
      exit 1
    }}
    sleep 5
  done
}}

# Apply a patch, unless the object has the new values already.
change() {{
  patch="$1"
  fields="$2"
  values="$3"
  shift 3
  if holds "$values" get "$@" "-o=jsonpath=$fields"; then
    echo "done already"
    return
  fi
  kubectl patch "$@" --type=json --patch-file "$patch" --dry-run=server -o name >/dev/null || {{
    echo "stop: the object has changed since the plan, or refuses the change: plan again" >&2
    exit 1
  }}
  kubectl patch "$@" --type=json --patch-file "$patch"
}}
"""


def files(plan: RepairPlan, evidence: str) -> dict[str, str]:
    """Return the files of the folder by path.

    Args:
        plan: the plan.
        evidence: what it rests on.
    """
    found: dict[str, str] = {"plan.json": json.dumps(plan_json.as_data(plan), indent=2) + "\n"}
    index: list[str] = []
    for number, step in enumerate(plan.steps, start=1):
        name = f"{number * 10:03}-{_slug(step)}"
        if is_script(step):
            found |= _step_files(step, name)
            index.append(f"steps/{name}.sh")
        else:
            index.append("a person")
    found["README.md"] = _readme(plan, index, evidence)
    for owner in sorted({step.owner for step in plan.steps if step.owner}):
        own = [(step, how) for step, how in zip(plan.steps, index, strict=True) if step.owner == owner]
        found[f"owners/{_file(owner)}.md"] = _for_owner(owner, own)
    return dict(sorted(found.items()))


def is_script(step: RepairStep) -> bool:
    """Return whether a step can be written as a script: it has commands, and only DNS names in them."""
    commands = [made for made in step.patched if made.change.command is not Command.PERSON]
    return bool(commands) and len(commands) == len(step.patched)


def _slug(step: RepairStep) -> str:
    kind = step.id.partition(":")[0].lower()
    return _file("-".join(part for part in (step.subject.namespace, step.subject.name, kind) if part))


def _file(name: str) -> str:
    """Return a name that is safe as the name of a file."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:80] or "other"


# --- one step ------------------------------------------------------------------------------------------------------


def _step_files(step: RepairStep, name: str) -> dict[str, str]:
    found: dict[str, str] = {}
    lines: list[str] = []
    undo: list[str] = []
    for index, made in enumerate(step.patched):
        part = name if len(step.patched) == 1 else f"{name}-{index + 1}"
        change = made.change
        target = _target(made)
        if change.command is Command.PATCH and made.patch:
            patch, inverse = f"patches/{part}.yaml", f"patches/{part}.undo.yaml"
            found[patch] = _yaml([each.as_json() for each in made.patch])
            found[inverse] = _yaml([each.as_json() for each in made.undo])
            lines.append(_words("change", patch, *_wanted(made), *target))
            undo.append(_words("kubectl", "patch", *target, "--type=json", "--patch-file", inverse))
        elif change.command is Command.APPLY and change.manifest is not None:
            file = f"objects/{part}.yaml"
            found[file] = _yaml(dict(change.manifest))
            apply = ("kubectl", "apply", "--validate=strict", "-f", file)
            lines += [_words(*apply, "--dry-run=server", "-o", "name"), _words(*apply)]
        elif change.command is Command.VIRTCTL:
            lines.append(_words("virtctl", *change.arguments))
    body = [
        _HEAD.format(title=_comment(f"{step.subject}: {step.title}"), seconds=_WAIT_SECONDS),
        *(f"# {_comment(line)}" for line in (step.risk and f"Risk: {step.risk}", step.gitops) if line),
        *(_check("require", check) for check in step.preconditions if check.query),
        *lines,
        *(_check("wait_for", check) for check in step.verify if check.query and _is_decided(check)),
        "",
        "# To undo it:",
        *(f"# {line}" for line in reversed(undo)),
    ]
    found[f"steps/{name}.sh"] = "\n".join(body) + "\n"
    return found


def _wanted(made: Patched) -> tuple[str, str]:
    """Return a template of ``kubectl get`` for the fields of a patch, and what it prints once they have their values."""
    operations = [each for each in made.patch if each.op != "test"]
    fields = "|".join("{" + "".join(map(_jsonpath, each.path)) + "}" for each in operations)
    return fields, "|".join("" if each.op == "remove" else _printed(each.value) for each in operations)


def _jsonpath(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return "." + re.sub(r"([^A-Za-z0-9_-])", r"\\\1", step)


def _printed(value: Any) -> str:
    """Return a value as ``kubectl get -o jsonpath`` prints it."""
    if isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _is_decided(check: StepCheck) -> bool:
    """Return whether a query prints one known text; others are for people."""
    return bool(check.expected) or "conditions" in "".join(check.query)


def _target(made: Patched) -> tuple[str, ...]:
    subject = made.change.subject
    namespace = ("-n", subject.namespace) if subject.namespace else ()
    return (subject.kind.resource, subject.name, *namespace)


def _check(function: str, check: StepCheck) -> str:
    return _words(function, check.text, check.expected, *check.query)


def _words(*words: str) -> str:
    return shlex.join(words)


def _comment(text_: str) -> str:
    return sanitize.cell(text_)


def _yaml(data: Any) -> str:
    return yaml.safe_dump(data, sort_keys=False, default_flow_style=False, allow_unicode=False, width=1000)


# --- for people ----------------------------------------------------------------------------------------------------


def _readme(plan: RepairPlan, index: list[str], evidence: str) -> str:
    rows = [
        f"| {number} | {_cell(how)} | {_cell(str(step.subject))} | {_cell(step.title)} | {cost(step)} |"
        for number, (step, how) in enumerate(zip(plan.steps, index, strict=True), start=1)
    ]
    return "\n".join(
        [
            "# Plan",
            "",
            _cell(answer(plan)),
            "",
            f"It rests on {_cell(evidence)}. Run the steps in this order, each with `sh`. Each step checks first whether the",
            "cluster is still as the plan saw it, tries the change with `--dry-run=server`, and stops otherwise.",
            "A restart belongs into a window: cordon the node, run the step, drain the node, uncordon it.",
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
