"""The documentation has everything that there is, and its links lead somewhere."""

from __future__ import annotations

import importlib
import json
import logging
import re
from collections.abc import Iterator

import click
import pytest
import yaml
from click.testing import CliRunner

from tests.for_each import for_each
from tests.https.reviews import review, vm
from tests.paths import ROOT
from virt_admit.cli import main
from virt_admit.engine import review as engine
from virt_admit.forecasts.outage.failover_figures import FailoverFigures
from virt_admit.forecasts.upgrade.durations import Range
from virt_admit.kube.informers import Informed
from virt_admit.model.kubernetes.cluster import NOTHING
from virt_admit.policy import parser, policy
from virt_admit.reports import scan_metrics
from virt_admit.reports.drain.drain_metrics import DrainMetrics, drain_gauges
from virt_admit.reports.findings.report import Report
from virt_admit.reports.outage import failover_metrics
from virt_admit.rule import Action
from virt_admit.rules import load_rules
from virt_admit.serving import logs
from virt_admit.serving.metrics import Metrics
from virt_admit_certs.rotation_status import RotatorStatus

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
DOCS = "\n".join(page.read_text() for page in PAGES if page.parent != ROOT)
RULES = load_rules()


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of a page in one language; they may be indented in a list."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL)
    return [re.sub(rf"^{indent}", "", block, flags=re.MULTILINE) for indent, block in found]


def anchors(text: str) -> set[str]:
    """What the headings of a page are linked by."""
    headings = re.findall(
        r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE
    )
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }


@for_each("file", PAGES)
def test_links_lead_somewhere(file):
    text = re.sub(r"```.*?```|`[^`]*`", "", file.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        there = (file.parent / name).resolve() if name else file
        assert there.exists(), target
        if anchor:
            assert anchor in anchors(there.read_text()), target


SHOWN_TO_USERS = (
    "*.md",
    "*.yml",
    "docs/**/*.md",
    "manifests/**/*",
    "webhook/**/*.py",
    "webhook/**/*.yaml",
    "examples/*",
)


def test_no_page_link_or_manifest_has_a_placeholder_for_an_owner():
    found = [file for pattern in SHOWN_TO_USERS for file in ROOT.glob(pattern) if file.is_file()]
    assert len(found) > 300
    assert [
        str(file) for file in found if re.search(r"\bOWNER/|\bORG/|<owner>", file.read_text())
    ] == []


@for_each("file", [file for file in PAGES if file.parent == ROOT / "docs"])
def test_every_page_is_reached_from_the_readme(file):
    readme = (ROOT / "README.md").read_text()
    assert f"docs/{file.name}" in readme


@for_each("verb", main.VERBS)
def test_verbs(verb):
    assert re.search(rf"\bvirt-admit {verb}\b", page("cli.md"))


@for_each("verb", main.VERBS)
def test_flags(verb):
    command = importlib.import_module(f"virt_admit.cli.commands.{verb}").command
    parts = command.commands.values() if isinstance(command, click.Group) else [command]
    flags = {
        name
        for part in parts
        for each in part.params
        if isinstance(each, click.Option)
        for name in each.opts
    }
    assert {
        flag for flag in flags if not re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", DOCS)
    } == set()


@for_each("row", re.findall(r"^\| (?!attack ).*\|$", page("threat-model.md"), re.MULTILINE))
def test_every_attack_has_a_guard_and_a_test(row):
    attack, _who, guard, tests = (cell.strip() for cell in row.strip("|").split("|"))
    assert attack
    assert guard
    files = re.findall(r"`(tests/[^`]*\.py)`", tests)
    assert files
    assert all((ROOT / file).is_file() for file in files), files


def test_flags_of_serve_are_environment_variables_by_one_rule():
    from virt_admit.cli.commands.serve import command

    for each in command.params:
        if isinstance(each, click.Option) and each.name != "help":
            flag = max(each.opts, key=len)
            assert each.envvar == "VIRT_ADMIT_" + flag.removeprefix("--").upper().replace("-", "_")
    assert "`--bind` is `VIRT_ADMIT_BIND`" in page("cli.md")


def test_other_environment_variables():
    code = "\n".join(
        file.read_text() for part in ("webhook", "certs") for file in (ROOT / part).rglob("*.py")
    )
    found = set(re.findall(r'os\.environ(?:\.get\(|\[)"([A-Z_]+)"', code)) - {
        "KUBERNETES_SERVICE_HOST"
    }
    assert found >= {"NO_COLOR", "CLICOLOR_FORCE"}
    assert {name for name in found if f"`{name}" not in DOCS} == set()


def keys(schema: object) -> Iterator[str]:
    """The names of everything that a policy may say, apart from rules and their parameters."""
    if isinstance(schema, dict):
        properties = schema.get("properties", {})
        if not properties.keys() & RULES.by_id.keys():
            yield from (name for name in properties if "default" not in properties[name])
        for name, part in schema.items():
            yield from keys(part) if name != "params" else ()
    elif isinstance(schema, list):
        for part in schema:
            yield from keys(part)


def test_policy_keys():
    from virt_admit.cli.commands.rules import command

    schema = json.loads(CliRunner().invoke(command, ["--schema"], standalone_mode=False).output)
    found = set(keys(schema))
    assert found >= {
        "extends",
        "rules",
        "namespaces",
        "exempt",
        "match",
        "reason",
        "until",
        "at_most",
        "annotations",
    }
    assert {key for key in found if not re.search(rf"\b{key}\b", page("policy.md"))} == set()
    assert {str(action) for action in Action if f"`{action}`" not in page("policy.md")} == set()
    assert {name for name in policy.SHIPPED if f"`{name}`" not in page("policy.md")} == set()


def policies() -> list[str]:
    found = [block for file in PAGES for block in blocks(file.read_text(), "yaml")]
    return [
        block
        for block in found
        if re.search(r"^(extends|exempt|rules|namespaces):", block, re.MULTILINE)
    ]


@pytest.mark.parametrize("text", policies())
def test_policies_in_the_docs_are_policies(text):
    parser.parse(text.replace("the-rule-id", "vm-running-deprecated").encode(), RULES)


def families() -> dict[str, tuple[str, set[str]]]:
    """Type and labels of each metric of ours."""
    metrics = Metrics()
    metrics.follow_certificates(RotatorStatus)
    metrics.follow_informers(lambda: [Informed("pods", True, 1)])
    DrainMetrics(metrics.registry)
    scan_metrics.differences(metrics.registry)
    scanned = scan_metrics.gauges(Report(()), {}, 1.0, Range(1, 2))
    drains = drain_gauges((), {}, {})
    failover_metrics.add(scanned, FailoverFigures({}, {}, {}, {}, {}, {}, None, 0, 0))
    found = {}
    for collector in {
        collector
        for each in (metrics.registry, scanned, drains)
        for collector in each._collector_to_names
    }:
        for family in collector.collect():
            if family.name.startswith("virt_admit_"):
                labels = set(getattr(collector, "_labelnames", ())) or {
                    label for sample in family.samples for label in sample.labels
                }
                name = family.name + ("_total" if family.type == "counter" else "")
                found[name] = (family.type, labels)
    return found


@for_each("name", sorted(families()))
def test_metrics(name):
    kind, labels = families()[name]
    (row,) = [line for line in page("metrics.md").splitlines() if line.startswith(f"| `{name}` ")]
    _, _, described, listed, _, _ = row.split("|")
    assert described.strip() == kind
    assert labels <= {label.strip() for label in listed.split(",")}


def test_no_metric_is_described_that_is_not_there():
    described = set(re.findall(r"^\| `(virt_admit_\w+)` ", page("metrics.md"), re.MULTILINE))
    assert described == families().keys()


def test_alerts():
    groups = yaml.safe_load((ROOT / "manifests" / "monitoring" / "alerts.yaml").read_text())[
        "spec"
    ]["groups"]
    wanted = {
        rule["alert"]: rule["labels"]["severity"] for group in groups for rule in group["rules"]
    }
    rows = re.findall(
        r"^\| \[(\w+)\]\(runbooks/(\w+)\.md\) \| (\w+) \|", page("metrics.md"), re.MULTILINE
    )
    assert all(name == file for name, file, _ in rows)
    assert {name: severity for name, _, severity in rows} == wanted
    assert {file.stem for file in (ROOT / "docs" / "runbooks").iterdir()} == wanted.keys()


def test_log_keys():
    body = json.dumps(review(vm(running=True))).encode()
    answer = engine.answer(
        body, engine.review, RULES.at_admission, NOTHING, parser.load("default", RULES)
    )
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(logs.JsonFormatter().format(record))  # type: ignore[method-assign]
    logs.log.addHandler(handler)
    before, logs.log.level = logs.log.level, logging.DEBUG
    try:
        logs.review("validate", answer, 0.001)
    finally:
        logs.log.removeHandler(handler)
        logs.log.setLevel(before)
    (line,) = lines
    assert {key for key in json.loads(line) if f"`{key}`" not in page("metrics.md")} == set()


def test_rules():
    text = page("rules.md")
    assert {rule.id for rule in RULES if f"## {rule.id}\n" not in text} == set()


def test_the_notes_of_the_chart_and_the_page_give_the_same_commands():
    """A reader may follow either of them on the way to ``enforce``."""
    notes = (ROOT / "charts" / "virt-admit" / "templates" / "NOTES.txt").read_text()
    notes = notes.replace("{{ .Release.Name }}", "virt-admit").replace(
        "{{ .Release.Namespace }}", "virt-admit"
    )
    told = {
        line.strip()
        for line in notes.splitlines()
        if line.strip().startswith(("virt-admit doctor", "helm "))
    }
    shown = {
        line.strip()
        for block in blocks(page("install.md"), "console")
        for line in block.splitlines()
    }
    assert len(told) == 2
    assert told <= shown
