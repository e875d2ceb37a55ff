"""Remedies as commands print them: whether each step is whole, with its own command."""

from __future__ import annotations

import re
from collections.abc import Iterator

from virt_admit.model.messages import TOOLS
from virt_admit.reports.remedy_steps import RemedyStep, steps

_LABEL = "to do: "
_LIST = "To do"
_CHANGES = re.compile(
    r"kubectl (?!describe|get|logs|edit)|virtctl |kubectl edit \S+ \S+ --subresource=status"
)
_ANOTHER_WAY = re.compile(
    r", or (?:else |until then |as a decision,? )?"
    r"(?:add|allow|annotate|change|clear|cordon|correct|create|cut|delete|disable|drain|enable|end|"
    r"free|give|label|let|lower|make|mark|migrate|move|open|patch|plan|power|put|raise|reboot|"
    r"remove|repair|replace|restart|restore|run|scale|set|start|stop|taint|take|tolerate|turn|"
    r"uncordon|unplug|update|use|wait|write)\b"
)
_QUOTED = re.compile(r"'[^']*'")
_PARENTHESES = re.compile(r" ?\([^()]*\)")


def joined(text: str) -> str:
    """Return the text of a report with each remedy in one line again."""
    found: list[str] = []
    inner, in_list = 0, False
    for line in text.split("\n"):
        indent = len(line) - len(line.lstrip())
        if inner and line and indent >= inner:
            is_command = indent > inner
            found[-1] += f"{' ' if is_command else '; '}{line.strip()}"
            continue
        in_list = line == _LIST or (in_list and bool(line))
        begins = line.lstrip().startswith(_LABEL)
        if begins and found and found[-1].lstrip().startswith("note"):
            inner, found[-1] = indent + len(_LABEL), f"{found[-1]} {line.strip()[len(_LABEL) :]}"
            continue
        inner = indent + len(_LABEL) if begins else 4 if in_list and line != _LIST else 0
        found.append(line)
    return "\n".join(found)


def remedies(text: str) -> Iterator[str]:
    """Yield the remedies of a report. ``scan`` prints commands alone under the same label."""
    lines = joined(text).split("\n")
    in_list = False
    for line in lines:
        in_list = line == _LIST or (in_list and bool(line))
        words = line.strip()
        if words.startswith(_LABEL):
            yield words.removeprefix(_LABEL)
        elif in_list and line != _LIST:
            yield words


def faults(remedy: str) -> list[str]:
    """Return what is wrong with a remedy: a step is cut, or it has the command of another way."""
    return [f"{what}: {step}" for step in steps(remedy) for what in _faults(step)]


def _faults(step: RemedyStep) -> Iterator[str]:
    words, command = step
    if re.match(TOOLS, words):
        return  # a command alone
    if words.endswith(("…", ",", ":", " or", " and", "(")) or words.count("(") != words.count(")"):
        yield "it is cut"
    if re.search(r", (?:or|and|then|which) |\. [A-Z]", _QUOTED.sub("", command)):
        yield "words behind its command"
    plain = _PARENTHESES.sub("", words)
    if (
        _CHANGES.match(command)
        and _ANOTHER_WAY.search(plain)
        and not re.match("do not ", words, re.I)
    ):
        yield "its command carries out one of several ways"


def wrong(text: str) -> list[str]:
    """Return what is wrong with the remedies of a report."""
    return [each for remedy in remedies(text) for each in faults(remedy)]
