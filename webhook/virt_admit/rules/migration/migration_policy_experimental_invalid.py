"""The experimental options of a migration policy contradict each other or are out of range.

**Why.** KubeVirt rejects such a policy. The stall detector controls the downtime itself, so
``downtimeTuning`` is not allowed next to it. Each factor of the stall detector has a range.

**Fix.** Keep either ``stallDetector`` or ``downtimeTuning``. Write factors within their range, with
at most three decimals.
"""

from fractions import Fraction
from typing import Final

from virt_admit.model import cel
from virt_admit.model.kubernetes.kinds import MIGRATION_POLICY
from virt_admit.model.kubernetes.quantities import QUANTITY, parse_quantity
from virt_admit.model.kubernetes.units import LONGEST
from virt_admit.rule import Action, Cause, Context, Field, Finding, Findings, Object, rule, show

ONE = Fraction(1)
THOUSANDTH = Fraction(1, 1000)
RANGES: dict[str, tuple[Fraction, Fraction | None, str]] = {
    "ewmaAlpha": (THOUSANDTH, ONE, "more than 0 and at most 1"),
    "precopyPossibleFactor": (ONE, None, "at least 1"),
    "patienceWindowDecayFactor": (Fraction(0), ONE, "from 0 to 1"),
    "completionTimeoutFactor": (ONE, None, "at least 1"),
}
"""The minimum, the maximum and the description of each factor.
KubeVirt accepts at most three decimals.
"""
TOLERANCE = Fraction(1, 10**9)  # migrationpolicy-admitter.go#validateScalarFloatPrecision

_EXPERIMENTAL: Final = "self.?spec.?experimental"
_LONGEST: Final = 100
"""Characters of a number that CEL reads; ``double()`` fails for more than 308 digits.
Longer ones are not refused.
"""
_BELOW_ONE: Final = "{'n': 1000000000.0, 'u': 1000000.0, 'm': 1000.0}"
_ABOVE_ONE: Final = (
    "{'': 1.0, "
    + ", ".join(f"'{suffix}': {float(1000**power)!r}" for power, suffix in enumerate("kMGTPE", 1))
    + ", "
    + ", ".join(f"'{suffix}i': {float(1024**power)!r}" for power, suffix in enumerate("KMGTPE", 1))
    + "}"
)
_NUMBER: Final = (
    "(type(v) == int ? double(v) : v.matches('[eE][+]?0*[1-9][0-9]{2,}$')"
    " ? (!v.matches('^[+-]?[0.]*[1-9]') ? 0.0 : v.startsWith('-') ? -1e300 : 1e300)"
    " : v.matches('[eE]-0*[1-9][0-9]{2,}$') ? 0.0 : v.matches('[eE][+-]?[0-9]') ? double(v)"
    f" : v.matches('[num]$') ? double(v.find('^[+-]?[0-9.]+')) / {_BELOW_ONE}[v.find('[num]$')]"
    f" : double(v.find('^[+-]?[0-9.]+')) * {_ABOVE_ONE}[v.find('[kKMGTPE]i?$')])"
)
_ROUND: Final = (
    "(x >= 1000000.0 || x <= -1000000.0 || [x * 1000.0].all(y, [y - double(int(y < 0.0 ? y - 0.5 : "
    "y + 0.5))].all(rest, rest <= 0.000001 && rest >= -0.000001)))"
)
"""Whether a number has at most three decimals. Larger ones have no digits left for them."""


def _denial(name: str, minimum: Fraction, maximum: Fraction | None, allowed: str) -> cel.Denial:
    """Return the denial of a factor in CEL."""
    field = f"{_EXPERIMENTAL}.?stallDetector.?{name}"
    value = f"{_EXPERIMENTAL}.?stallDetector.?{name}.orValue(null)"
    fits = f"x >= {float(minimum)}" + ("" if maximum is None else f" && x <= {float(maximum)}")
    return cel.Denial(
        when=(
            f"{cel.present(field)} && ![dyn({value})].exists(v, type(v) == int || (type(v) == "
            f"string && v.size() <= {LONGEST} && "
            f"v.matches({cel.text(f'^(?:{QUANTITY.pattern})$')}))) || [dyn({value})].filter(v, "
            f"type(v) == int || (type(v) == string && v.size() <= {_LONGEST} && "
            f"v.matches({cel.text(f'^(?:{QUANTITY.pattern})$')}))).map(v, {_NUMBER}).exists(x, "
            f"!({fits} && {_ROUND}))"
        ),
        path=f"'spec.experimental.stallDetector.{name}'",
        message=(
            f"{cel.shown(value)} + ' is not a number in quotes, is out of range or has more than 3 "
            f"decimals. ' + 'Use a number in quotes, {allowed}, with at most 3 decimals.'"
        ),
        value=value,
    )


@rule(
    kinds=(MIGRATION_POLICY,),
    action=Action.DENY,
    denials=(
        cel.Denial(
            when=(
                f"{cel.present(f'{_EXPERIMENTAL}.?stallDetector')} && "
                f"{cel.present(f'{_EXPERIMENTAL}.?downtimeTuning')}"
            ),
            path="'spec.experimental'",
            message=(
                "'KubeVirt rejects stallDetector together with downtimeTuning. Remove one of them.'"
            ),
            value=(
                f"[{_EXPERIMENTAL}.?stallDetector.orValue(null), "
                f"{_EXPERIMENTAL}.?downtimeTuning.orValue(null)]"
            ),
        ),
        *(_denial(name, *allowed) for name, allowed in RANGES.items()),
    ),
    sources=(
        (
            "kubevirt/kubevirt:pkg/virt-api/webhooks/validating-webhook/admitters/"
            "migrationpolicy-admitter.go#Admit"
        ),
    ),
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
            yield Finding(
                factor.path,
                f"{problem}. Use a number in quotes, {allowed}, with at most 3 decimals.",
            )


def _problem(factor: Field, minimum: Fraction, maximum: Fraction | None) -> str:
    try:
        number = parse_quantity(factor.value, integers=True)
    except ValueError:
        return f"{show(factor.value)} is not a number in quotes"
    if abs(number - round(number, 3)) > TOLERANCE:
        return f"{show(factor.value)} has more than 3 decimals"
    fits = minimum <= number and (maximum is None or number <= maximum)
    return "" if fits else f"{show(factor.value)} is out of range"
