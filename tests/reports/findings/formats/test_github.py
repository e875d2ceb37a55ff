"""Annotations and the job summary of GitHub."""

from __future__ import annotations

import pytest

from tests.cli.test_check import BOTH
from tests.reports.findings.formats.reports import RULE, unclear
from virt_admit.reports.findings.formats import FORMATS


def test_github(check):
    (line,) = check("github", code=1, vm=BOTH).splitlines()
    assert line.startswith(
        f"::error file=vm.yaml,line=7,col=3,endLine=7,title={RULE}::spec.running: running (means "
        "Always) and "
    )


@pytest.mark.parametrize(
    ("action", "command"), [("deny", "error"), ("warn", "warning"), ("audit", "notice")]
)
def test_github_levels(check, action, command):
    text = f"rules: {{{RULE}: {{action: {action}}}}}"
    assert check("github", "vm.yaml", "--policy", "p.yaml", vm=BOTH, p=text).startswith(
        f"::{command} file="
    )


def test_github_escapes(check, tmp_path):
    name = "a,b:c%d\ne.yaml"
    (tmp_path / name).write_text(BOTH)
    (line,) = check("github").splitlines()
    assert line.startswith("::error file=a%2Cb%3Ac%25d%0Ae.yaml,line=7,")
    (line,) = check("github", code=2, **{"bad%": "a: [\n"}).splitlines()[:1]
    assert line.startswith("::error file=bad%25.yaml,line=")


def test_github_says_once_what_could_not_be_seen_and_nothing_of_what_is_exempt(check):
    notice = FORMATS["github"](unclear())
    assert notice == "::notice title=virt-admit::1 rule skipped: pods are not available\n"
    assert FORMATS["github"](unclear("KeyError()")).startswith(
        f"::error title={RULE}::VirtualMachine/shop/db: the rule"
    )
    exempt = 'exempt: {namespaces: [{match: shop, rules: ["*"], reason: moves}]}'
    assert check("github", "vm.yaml", "--policy", "p.yaml", vm=BOTH, p=exempt) == ""


def test_github_gets_a_summary_of_the_job(check, tmp_path, monkeypatch):
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    check("json", vm=BOTH)
    assert summary.read_text() == "before\n"
    check("github")
    assert summary.read_text().startswith("before\n## virt-admit\n\n**1 deny**")
