"""A step of a repair plan as a shell script, with its patches and objects.

Names come from cluster data. A step is written as a script only if all its names are DNS names;
every word of a command is quoted. ``kubectl patch`` of a custom resource needs ``--type=json``, and
has no strict validation of its own, so each change is tried with ``--dry-run=server`` first. A
change that is there already is not made again.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import yaml

from virt_admit.forecasts.repair import queries
from virt_admit.forecasts.repair.repair_plan import (
    REMOVED,
    Command,
    FieldEdit,
    ObjectRef,
    Patched,
    PlannedCheck,
    RepairStep,
    TakesEffect,
)
from virt_admit.model import sanitize

_WAIT_SECONDS: Final = 1800
_HEAD: Final = """\
#!/bin/sh
# {title}
set -eu
cd "$(dirname "$0")/.."

# Succeed if a query prints what is expected. A query that fails shows nothing.
holds() {{
  expected="$1"
  shift
  printed="$(kubectl "$@")" || return 1
  [ "$printed" = "$expected" ]
}}

stop() {{
  echo "stop: $*" >&2
  exit 1
}}

# Stop unless a query prints what is expected.
require() {{
  what="$1"
  shift
  holds "$@" || stop "not true: $what"
}}

# Wait until a query prints what is expected.
wait_for() {{
  what="$1"
  shift
  end=$(($(date +%s) + {seconds}))
  until holds "$@"; do
    [ "$(date +%s)" -lt "$end" ] || stop "still not true after {seconds} seconds: $what"
    sleep 5
  done
}}
"""
_PATCH: Final = """
# Patch an object with a file.
patch() {
  file="$1"
  shift
  kubectl patch "$@" --type=json --patch-file "$file"
}
try_patch() {
  patch "$@" --dry-run=server -o name >/dev/null ||
    stop "the object has changed since the plan, or refuses the change: plan again"
}
"""
_APPLY: Final = """
# Apply a file.
apply() {
  kubectl apply --validate=strict -f "$@"
}
try_apply() {
  apply "$@" --dry-run=server -o name >/dev/null ||
    stop "the API server refuses the object: plan again"
}
"""


def is_script(step: RepairStep) -> bool:
    """Return whether a step can be written as a script: it has commands,
    and only DNS names in them.
    """
    commands = [made for made in step.patched if made.change.command is not Command.PERSON]
    return bool(commands) and len(commands) == len(step.patched)


def files(step: RepairStep, name: str) -> dict[str, str]:
    """Return the script of a step and the files that it uses, by path.

    Args:
        step: the step.
        name: the name of the files, without their endings.
    """
    found: dict[str, str] = {}
    done: list[str] = []
    tries: list[str] = []
    changes: list[str] = []
    undo: list[str] = []
    for index, made in enumerate(step.patched):
        part = name if len(step.patched) == 1 else f"{name}-{index + 1}"
        subject, check = made.change.subject, _is_made(made, step)
        is_there = _words("holds", check.expected, *check.query)
        if made.change.command is Command.PATCH and made.patch:
            file, inverse = f"patches/{part}.yaml", f"patches/{part}.undo.yaml"
            found[file] = _yaml([each.as_json() for each in made.patch])
            found[inverse] = _yaml([each.as_json() for each in made.undo])
            command = _words("patch", file, *_target(subject))
            flags = ("--type=json", "--patch-file", inverse)
            undo.append(_words("kubectl", "patch", *_target(subject), *flags))
        elif made.change.command is Command.APPLY and made.change.manifest is not None:
            file = f"objects/{part}.yaml"
            found[file] = _yaml(dict(made.change.manifest))
            command = _words("apply", file)
        else:
            changes += [_words("wait_for", *_check(each)) for each in _from_template(step)]
            changes.append(f"{is_there} || {_words('virtctl', *made.change.arguments)}")
            done.append(is_there)
            continue
        done.append(is_there)
        tries.append(f"{is_there} || try_{command}")
        changes.append(f"{is_there} || {command}")
    required = [_words("require", *_check(each)) for each in step.preconditions if each.query]
    body = [
        _HEAD.format(title=_comment(f"{step.subject}: {step.title}"), seconds=_WAIT_SECONDS),
        *([_PATCH.lstrip()] if any(made.patch for made in step.patched) else []),
        *([_APPLY.lstrip()] if any(made.change.manifest for made in step.patched) else []),
        *(
            f"# {_comment(line)}"
            for line in (step.risk and f"Risk: {step.risk}", step.gitops)
            if line
        ),
        "if " + " &&\n  ".join(done) + "; then",
        '  echo "done already"',
        "else",
        *(f"  {line}" for line in (*required, *tries, *changes)),
        "fi",
        *(_words("wait_for", *_check(each)) for each in step.verify if each.query),
        *(["", "# To undo it:", *(f"# {line}" for line in reversed(undo))] if undo else []),
    ]
    found[f"steps/{name}.sh"] = "\n".join(body) + "\n"
    return found


def _is_made(made: Patched, step: RepairStep) -> PlannedCheck:
    """Return the check that a change is there already."""
    change = made.change
    if change.command is Command.PATCH:
        edits = [
            FieldEdit(tuple(op.path), REMOVED if op.op == "remove" else op.value)
            for op in made.patch
        ]
        changed = [edit for op, edit in zip(made.patch, edits, strict=True) if op.op != "test"]
        return queries.check("the object is changed", change.subject, changed)
    if change.manifest is not None:
        check = queries.check(
            "it exists", change.subject, [FieldEdit(("spec",), change.manifest.get("spec"))]
        )
        return replace(check, query=(*check.query, "--ignore-not-found"))
    return step.verify[0]  # of a restart: the running VMI has the new values


def _from_template(step: RepairStep) -> Iterator[PlannedCheck]:
    """Yield what a controller does before the command:
    a pool writes the changed template into its VMs.
    """
    if step.takes_effect is TakesEffect.RESTART:
        for change in step.followed:
            yield queries.check("the pool has changed the VM", change.subject, change.edits)


def _check(check: PlannedCheck) -> tuple[str, ...]:
    return (check.text, check.expected, *check.query)


def _target(subject: ObjectRef) -> tuple[str, ...]:
    return queries.get(subject)[1:]


def _words(*words: str) -> str:
    return " ".join(map(_word, words))


def _word(text_: str) -> str:
    """Quote a word.

    Control characters are written as numbers: a reader prints the script on a terminal first.
    """
    if text_.isprintable():
        return shlex.quote(text_)
    numbers = (f"\\{byte:03o}" for byte in text_.encode(errors="replace"))
    return f"\"$(printf '{''.join(numbers)}')\""


def _comment(text_: str) -> str:
    return sanitize.cell(text_)


def _yaml(data: Any) -> str:
    return yaml.safe_dump(
        data, sort_keys=False, default_flow_style=False, allow_unicode=False, width=1000
    )
