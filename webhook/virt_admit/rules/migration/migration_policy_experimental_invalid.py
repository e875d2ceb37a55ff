"""The experimental options of a migration policy contradict each other or are out of range.

**Why.** KubeVirt rejects such a policy. The stall detector controls the downtime itself, so ``downtimeTuning`` is not
allowed next to it. Each factor of the stall detector has a range.

**Fix.** Keep either ``stallDetector`` or ``downtimeTuning``. Write factors within their range, with at most three
decimals.
"""

from fractions import Fraction

from virt_admit.model.kubernetes.quantities import parse_quantity
from virt_admit.rule import MIGRATION_POLICY, Action, Cause, Context, Field, Finding, Findings, Object, rule, show

ONE = Fraction(1)
THOUSANDTH = Fraction(1, 1000)
RANGES: dict[str, tuple[Fraction, Fraction | None, str]] = {
    "ewmaAlpha": (THOUSANDTH, ONE, "more than 0 and at most 1"),
    "precopyPossibleFactor": (ONE, None, "at least 1"),
    "patienceWindowDecayFactor": (Fraction(0), ONE, "from 0 to 1"),
    "completionTimeoutFactor": (ONE, None, "at least 1"),
}
"""The minimum, the maximum and the description of each factor. KubeVirt accepts at most three decimals."""
TOLERANCE = Fraction(1, 10**9)  # migrationpolicy-admitter.go#validateScalarFloatPrecision


@rule(
    kinds=(MIGRATION_POLICY,),
    action=Action.DENY,
    sources=("kubevirt/kubevirt:pkg/virt-api/webhooks/validating-webhook/admitters/migrationpolicy-admitter.go#Admit",),
)
def check(policy: Object, _context: Context) -> Findings:
    experimental = policy["spec"]["experimental"]
    detector, tuning = experimental["stallDetector"], experimental["downtimeTuning"]
    if detector.present and tuning.present:
        yield Finding(
            experimental.path,
            "KubeVirt rejects stallDetector together with downtimeTuning. Remove one of them.",
            value=[detector.value, tuning.value],
            cause=Cause.FORBIDDEN,
        )
    for name, (minimum, maximum, allowed) in RANGES.items():
        factor = detector[name]
        problem = _problem(factor, minimum, maximum) if factor.present else ""
        if problem:
            yield Finding(factor.path, f"{problem}. Use a number in quotes, {allowed}, with at most 3 decimals.")


def _problem(factor: Field, minimum: Fraction, maximum: Fraction | None) -> str:
    try:
        number = parse_quantity(factor.value, integers=True)
    except ValueError:
        return f"{show(factor.value)} is not a number in quotes"
    if abs(number - round(number, 3)) > TOLERANCE:
        return f"{show(factor.value)} has more than 3 decimals"
    fits = minimum <= number and (maximum is None or number <= maximum)
    return "" if fits else f"{show(factor.value)} is out of range"
