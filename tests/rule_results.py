"""What one rule finds on one object, collected: most tests ask for all of it at once."""

from typing import Any, NamedTuple

from virt_admit.engine.rule_run import Gaps, run
from virt_admit.model.kubernetes.objects import Object
from virt_admit.rule import Context, Finding, Rule


class RuleResult(NamedTuple):
    """Everything that a rule says about an object."""

    findings: tuple[Finding, ...]
    unseen: tuple[str, ...]
    error: str
    """The exception of a rule that failed, else empty."""


def result_of(rule: Rule, obj: Object, context: Context[Any]) -> RuleResult:
    """Run a rule to its end."""
    gaps = Gaps()
    findings = tuple(run(rule, obj, context, gaps))
    return RuleResult(
        findings, tuple(what for _, what in gaps.unseen), "".join(error for _, error in gaps.errors)
    )
