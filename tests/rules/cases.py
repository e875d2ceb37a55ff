"""The case files next to the rules; ``docs/case.schema.json`` describes them.

Each problem is one line for the author.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from tests.paths import DOCS, RULE_FOLDER
from tests.rule_cases import parsed
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.objects import Object
from virt_admit.rule import Rule
from virt_admit.rules import Rules

SCHEMA = json.loads((DOCS / "case.schema.json").read_text())
KEYS = SCHEMA["items"]["properties"]
_VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
_FINDS_KEYS = KEYS["finds"]["items"]["oneOf"][1]["properties"]


def read(rules: Rules, folder: Path = RULE_FOLDER) -> Iterator[tuple[Rule, dict[str, Any]]]:
    """Yield the cases of all rules; ``problems`` reports files that have none."""
    for file in sorted(folder.rglob("*.yaml")):
        rule = rules.by_id.get(_id(file))
        cases = _parse(file)
        if rule is not None and isinstance(cases, list):
            yield from ((rule, case) for case in cases if isinstance(case, dict))


def problems(rules: Rules, folder: Path = RULE_FOLDER) -> Iterator[str]:
    """Yield what is wrong with case files: the file, the problem, what to write."""
    files = {_id(file): file for file in sorted(folder.rglob("*.yaml"))}
    for rule in rules:
        if rule.id not in files:
            declared = "/".join(rule.module.split(".")[1:])
            yield (
                f"{declared}.py: no cases of {rule.id}. Write {case_file(rule)}, one case with a "
                "finding and one without"
            )
    for name, file in files.items():
        if name not in rules.by_id:
            yield (
                f"{_place(file)}: there is no rule {name}. Write {file.stem}.py next to it, or "
                "delete the file"
            )
        else:
            parsed = _parse(file)
            found = list(_problems(parsed)) or list(_without_a_case(rules.by_id[name], parsed))
            yield from (f"{_place(file)}: {problem}" for problem in found)


def case_file(rule: Rule) -> str:
    """The path of a rule's cases below ``rules/``."""
    return f"rules/{rule.id.partition('-')[0]}/{rule.id.replace('-', '_')}.yaml"


def place(rule: Rule, case: dict[str, Any]) -> str:
    """Return file and line of a case, as editors and terminals open them."""
    file = case_file(rule)
    items = yaml.compose((RULE_FOLDER.parent / file).read_text(), yaml.CSafeLoader).value
    found = (
        item
        for item in items
        for key, value in item.value
        if (key.value, value.value) == ("name", case["name"])
    )
    return f"webhook/virt_admit/{file}:{next(found).start_mark.line + 1}"


def _problems(cases: Any) -> Iterator[str]:
    if isinstance(cases, yaml.YAMLError):
        yield f"not valid YAML: {' '.join(str(cases).split())}"
        return
    if not isinstance(cases, list) or not cases:
        yield "no cases. Write a list: - name: ..., object: ..., finds: [...]"
        return
    for error in _VALIDATOR.iter_errors(cases):
        yield _describe(error, cases)


def _without_a_case(rule: Rule, cases: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the kinds that a rule judges and that no case has:
    a path may be right for one kind alone.
    """
    judged = {
        found.kind for case in cases if (found := kinds.of(Object(case["object"]))) is not None
    }
    for kind in dict.fromkeys(kind.kind for kind in rule.kinds):
        if kind not in judged:
            yield f"no case with a {kind}. Write one for each kind that the rule judges"


def _describe(error: jsonschema.ValidationError, cases: list[Any]) -> str:
    index, *rest = error.absolute_path or [None]
    case = cases[index] if isinstance(index, int) else None
    name = case.get("name", index) if isinstance(case, dict) else index
    where = "" if index is None else f"case {name!r}: "
    if error.validator == "additionalProperties" and isinstance(error.instance, dict):
        unknown = ", ".join(sorted(set(error.instance) - set(KEYS)))
        return f"{where}unknown key {unknown}. Use one of {', '.join(KEYS)}"
    if (
        error.validator == "oneOf"
        and isinstance(error.instance, dict)
        and set(error.instance) - set(_FINDS_KEYS)
    ):
        unknown = ", ".join(sorted(set(error.instance) - set(_FINDS_KEYS)))
        return f"{where}unknown key {unknown} in finds. Use one of {', '.join(_FINDS_KEYS)}"
    return f"{where}{'.'.join(map(str, rest))}: {error.message}".replace(": : ", ": ")


def _parse(file: Path) -> Any:
    try:
        return parsed(file.read_text()) or []
    except yaml.YAMLError as error:
        return error


def _id(file: Path) -> str:
    return file.stem.replace("_", "-")


def _place(file: Path) -> str:
    return f"rules/{file.parent.name}/{file.name}"
