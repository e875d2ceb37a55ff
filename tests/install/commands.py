"""The commands of the documentation, and the few that no test runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.install.test_docs import PAGES
from tests.paths import ROOT

PROGRAMS: Final = (
    "kubectl",
    "virt-admit",
    "helm",
    "docker",
    "make",
    "gh",
    "pipx",
    "pip",
    "uv",
    "uvx",
    "cosign",
)

NOT_RUN: Final = {
    r"…": "an abbreviation of commands that stand elsewhere",
    r"\[[A-Z-]|VERB|<id>|status\|": "a synopsis",
    r"^kubectl (apply|replace)( --dry-run=server)?$": "the name of a verb, without its arguments",
    r"^virt-admit (check|serve|explain|policy|certs|drain|outage|plan|upgrade|watch)$": "the name of a verb alone",  # noqa: E501
    r"^kubectl drain --ignore": (
        "the name of a verb and its flags; tests/e2e/test_evictions.py evicts"
    ),
    r"^virt-admit drain .* --follow": (
        "follows a drain to its end; tests/cli/test_drain_follow.py does"
    ),
    r"^sh plan/": "needs the example of a cluster; tests/e2e/test_plan_walk.py runs them",
    r"^\.venv/bin/": "in a checkout; tests/install/test_demo.py runs them",
    r"^make |^VIRT_ADMIT_KUBERNETES=": "for developers; .ci and tests/install run the targets",
    r"^docker ": "needs a container engine; tests/install/test_image.py reads the Dockerfile",
    r"\bgh pr ": "needs GitHub",
    r"^helm |^pipx|^pip |pip install virt-admit|^uvx? |^cosign |krew install": (
        "needs that program or a release; the tests of the chart and of releases run it"
    ),
    r"port-forward": "needs a kubelet that forwards ports",
    r"certs verify https://127.0.0.1:8443": (
        "needs the forwarded port; tests/e2e/test_certs.py verifies by URL"
    ),
    r"kubectl .*exec ": "needs a kubelet that runs programs in containers",
    r"deployment/virt-admit-watch": (
        "the installation of the tests has no watch; tests/e2e/test_watch.py runs it"
    ),
    r"logs .*--previous": "needs a container that ended",
    r"describe certificate ": "needs cert-manager",
    r"^virt-admit serve --log-level|^virt-admit manifests --url": (
        "tests/e2e run the webhook on loopback like this"
    ),
    r"^virt-admit --completion": (
        "tests/cli/test_main.py prints the scripts; `source` belongs to fish"
    ),
}
"""Patterns of commands that no test of the pages runs, and why."""

_FENCE: Final = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_INLINE: Final = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


class Step(NamedTuple):
    """A command, or a file that the page shows under its path."""

    command: str = ""
    file: str = ""
    content: str = ""


def steps(text: str) -> list[Step]:
    """Return what a page tells its reader to write and to run, in its order: blocks,
    and commands in sentences.
    """
    found: list[Step] = []
    end = 0
    for fence in _FENCE.finditer(text):
        found += _inline(text[end : fence.start()])
        indent, language, content = fence.groups()
        block = re.sub(rf"^{indent}", "", content, flags=re.MULTILINE)
        if language == "console":
            found += [Step(command) for command in _commands(block)]
        elif header := re.match(r"# ([\w/.-]+\.yaml)\b", block):
            found.append(Step(file=header[1], content=block))
        end = fence.end()
    return [*found, *_inline(text[end:])]


def _inline(text: str) -> Iterator[Step]:
    for command in _INLINE.findall(text):
        if command.partition(" ")[0] in PROGRAMS and " " in command:
            yield Step(command)


def _commands(block: str) -> Iterator[str]:
    """The lines of a console; where some begin with a prompt, the others are output."""
    lines = re.sub(r"\\\n\s*", "", block).splitlines()
    prompted = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    for line in prompted or lines:
        command = re.sub(r"(^|\s+)#.*", "", line).strip()
        if command:
            yield command


def why_not_run(command: str) -> str:
    """Return the reason in the table; empty if the command is run."""
    return next((reason for pattern, reason in NOT_RUN.items() if re.search(pattern, command)), "")


def section(page: Path, heading: str) -> str:
    """Return the text under a heading of the second level."""
    found = re.search(
        rf"^## {re.escape(heading)}$(.*?)(?=^## |\Z)", page.read_text(), re.MULTILINE | re.DOTALL
    )
    assert found, f"{page.name} has no section {heading}"
    return found[1]


def pages_with_commands() -> dict[str, list[str]]:
    """The commands of each page, without those of the table."""
    everything = {
        str(page.relative_to(ROOT)): [
            step.command for step in steps(page.read_text()) if step.command
        ]
        for page in PAGES
        if page.name != "CHANGELOG.md"
    }
    return {
        page: [command for command in dict.fromkeys(commands) if not why_not_run(command)]
        for page, commands in everything.items()
        if any(not why_not_run(command) for command in commands)
    }
