"""The experimental options of a migration policy contradict each other or are out of range.

**Why.** KubeVirt refuses such a policy: the stall detector plans the downtime itself, and each of its factors has a
range. A file with them would fail in the cluster.

**Fix.** Keep one of ``stallDetector`` and ``downtimeTuning``, and write factors with at most three decimals.
"""

from collections.abc import Iterator
from fractions import Fraction

from virt_admit.model.kinds import MIGRATION_POLICY
from virt_admit.model.objects import Field, Object
from virt_admit.model.units import parse_quantity, show
from virt_admit.rule import Action, Cause, Context, Finding, NoParams, Rule

ONE = Fraction(1)
THOUSANDTH = Fraction(1, 1000)
RANGES: dict[str, tuple[Fraction, Fraction | None, str]] = {
    "ewmaAlpha": (THOUSANDTH, ONE, "more than 0 and at most 1"),
    "precopyPossibleFactor": (ONE, None, "at least 1"),
    "patienceWindowDecayFactor": (Fraction(0), ONE, "from 0 to 1"),
    "completionTimeoutFactor": (ONE, None, "at least 1"),
}
"""The smallest and the largest value of each factor, and how to say it; there are at most three decimals."""
TOLERANCE = Fraction(1, 10**9)  # migrationpolicy-admitter.go#validateScalarFloatPrecision


def check(policy: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    experimental = policy["spec"]["experimental"]
    detector, tuning = experimental["stallDetector"], experimental["downtimeTuning"]
    if detector.present and tuning.present:
        yield Finding(
            experimental.path,
            "stallDetector and downtimeTuning exclude each other; remove one",
            value=[detector.value, tuning.value],
            cause=Cause.FORBIDDEN,
        )
    for name, (smallest, largest, suggestion) in RANGES.items():
        factor = detector[name]
        problem = _problem(factor, smallest, largest) if factor.present else ""
        if problem:
            yield Finding(factor.path, f"{problem}; write a number that is {suggestion}, with at most three decimals")


def _problem(factor: Field, smallest: Fraction, largest: Fraction | None) -> str:
    try:
        number = parse_quantity(factor.value, integers=True)
    except ValueError:
        return f"{show(factor.value)} is no number in quotes"
    if abs(number - round(number, 3)) > TOLERANCE:
        return f"{show(factor.value)} has more than three decimals"
    fits = smallest <= number and (largest is None or number <= largest)
    return "" if fits else f"{show(factor.value)} is out of range"


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(MIGRATION_POLICY,),
    action=Action.DENY,
    check=check,
    sources=("kubevirt/kubevirt:pkg/virt-api/webhooks/validating-webhook/admitters/migrationpolicy-admitter.go#Admit",),
)
