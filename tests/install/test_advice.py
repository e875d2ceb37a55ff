"""No text of the product tells its reader to do what risks data."""

import pytest

from tests.advice import RISKS, risky
from tests.install.test_language import COVERED
from tests.paths import ROOT
from tests.rules import cases
from tests.rules.test_rules import ask
from virt_admit.rules import load_rules

FILES = sorted(
    file
    for pattern in (*COVERED, "charts/**/*.json", "webhook/**/*.html", "webhook/**/*.j2")
    for file in ROOT.glob(pattern)
    if file.is_file() and file.suffix != ".pyc" and not file.is_relative_to(ROOT / "tests")
)


def test_no_file_gives_risky_advice():
    found = [
        f"{file.relative_to(ROOT)}: {risk}" for file in FILES for risk in risky(file.read_text())
    ]
    assert not found, "\n".join(found)


def test_no_message_of_a_rule_gives_risky_advice():
    found = [
        (rule.id, risk)
        for rule, case in cases.read(load_rules())
        for finding in ask(rule, case)[0].findings
        for risk in risky(finding.message)
    ]
    assert not found


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Loosen the budget, or add replicas.", "weaken a budget"),
        ("For one replica delete\n    # the budget.", "weaken a budget"),
        ('"Use more replicas, or remove "\n    f"the PodDisruptionBudget."', "weaken a budget"),
        ("PodDisruptionBudget db forbids it: loosen it", "weaken the budget that was named"),
        (
            "two budgets select it: let one select it, or delete the others",
            "weaken the budget that was named",
        ),
        ("the node deleted, or the pod force-deleted", "force-delete a pod"),
        ("kubectl delete pod db --force --grace-period=0", "force-delete a pod"),
        ("end the old pod with --grace-period 0", "force-delete a pod"),
        ("Delete the migration if it hangs in post-copy.", "touch a migration in post-copy"),
        ("It runs in post-copy: cancel the migration.", "touch a migration in post-copy"),
    ],
)
def test_each_risk_is_recognized(text, name):
    assert name in RISKS
    assert name in [risk for risk, _ in risky(text)]


@pytest.mark.parametrize(
    "text",
    [
        "end it as a power cut would (virtctl stop db -n shop --force --grace-period=0)",
        "Never delete the budget: it protects the last copy.",
        "Longhorn deletes the budget once its volumes have left.",
        "A budget refuses the pod. Add a replica, or set maxUnavailable: 1.",
        "Never cancel a migration in post-copy.",
        "kubectl drain --ignore-daemonsets --delete-emptydir-data --force",
    ],
)
def test_other_advice_passes(text):
    assert not risky(text)
