"""The rules and ``explain`` agree with the controllers of health checks."""

import pytest

from tests.model.remediation.health_check_reviews import verdicts
from tests.upstream.cases_health import ALLOWED, EXPLAINED, REFUSED
from virt_admit.cli.commands.explain import explain, text
from virt_admit.model.kubernetes.cluster import Snapshot


def named(cases):
    return [
        pytest.param(*case[1:], id=f"{case[0].rpartition(':')[2].rpartition('/')[2]}-{case[-1]}")
        for case in cases
    ]


@pytest.mark.parametrize(("obj", "rule"), named(REFUSED))
def test_what_upstream_refuses_is_denied(obj, rule):
    assert ("deny", rule) in verdicts(obj.data)


@pytest.mark.parametrize(("obj", "rule"), named(ALLOWED))
def test_what_upstream_accepts_is_not_denied(obj, rule):
    found = verdicts(obj.data)
    assert ("warn", rule) in found
    assert ("deny", rule) not in found


@pytest.mark.parametrize(("check", "objects", "part"), named(EXPLAINED))
def test_explanations(check, objects, part):
    lines = [
        " ".join(line.split())
        for line in text(explain(check, Snapshot(objects, complete=["*"]))).splitlines()
    ]
    assert any(part in line for line in lines[1:])
