"""The code quality report of GitLab."""

from __future__ import annotations

import json
import re

import pytest

from tests.cli.test_check import BOTH
from tests.reports.findings.formats.reports import RULE, unclear
from virt_admit.reports.findings.formats import FORMATS


def test_gitlab(check):
    twice = f"{BOTH}---\n{BOTH}"
    issues = json.loads(check("gitlab", code=1, a=BOTH, b=twice))
    first = issues[0]
    assert first.pop("description").startswith(
        "spec.running: running (means Always) and runStrategy are both"
    )
    assert re.fullmatch("[0-9a-f]{32}", first["fingerprint"])
    assert first == {
        "check_name": RULE,
        "fingerprint": first["fingerprint"],
        "severity": "major",
        "location": {"path": "a.yaml", "lines": {"begin": 7}},
    }
    assert [(each["location"]["path"], each["location"]["lines"]["begin"]) for each in issues] == [
        ("a.yaml", 7),
        ("b.yaml", 7),
        ("b.yaml", 20),
    ]
    assert len({each["fingerprint"] for each in issues}) == 3
    moved = json.loads(check("gitlab", a="# moved\n" + BOTH))
    assert [each["fingerprint"] for each in moved] == [each["fingerprint"] for each in issues]


@pytest.mark.parametrize(
    ("action", "severity"), [("deny", "major"), ("warn", "minor"), ("audit", "info")]
)
def test_gitlab_severities(check, action, severity):
    text = f"rules: {{{RULE}: {{action: {action}}}}}"
    (issue,) = json.loads(check("gitlab", "vm.yaml", "--policy", "p.yaml", vm=BOTH, p=text))
    assert issue["severity"] == severity


def test_gitlab_of_what_could_not_be_seen_read_or_judged(check):
    assert json.loads(FORMATS["gitlab"](unclear())) == []
    (issue,) = json.loads(FORMATS["gitlab"](unclear("KeyError()")))
    assert (issue["severity"], issue["location"]["path"]) == ("critical", "VirtualMachine/shop/db")
    (issue,) = json.loads(check("gitlab", code=2, bad="a: [\n"))
    assert (issue["check_name"], issue["location"]["path"]) == ("unreadable", "bad.yaml")
