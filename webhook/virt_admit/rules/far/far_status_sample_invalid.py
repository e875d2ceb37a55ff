"""The sample of nodes for the fencing test is not a valid number or percentage.

**Why.** The operator checks the agent's status on ``statusValidationSample`` nodes. The schema
accepts only an integer of 0 or more, or a string from ``0%`` to ``100%``. The API server rejects
other values, so only ``check`` reports this.

**Fix.** Write a value such as ``5`` or ``"20%"``.
"""

import re
from typing import Final

from virt_admit.model import cel
from virt_admit.rule import FAR_TEMPLATE, Action, Context, Finding, Findings, Object, rule, show

PERCENT: Final = re.compile(r"(?:[0-9]|[1-9][0-9]|100)%")

_SAMPLE: Final = "self.?spec.?statusValidationSample"
_VALUE: Final = f"{_SAMPLE}.orValue(null)"
_VALID: Final = (
    f"(type({_VALUE}) == int ? {_VALUE} >= 0"
    f" : type({_VALUE}) == string && {_VALUE}.matches({cel.text(f'^(?:{PERCENT.pattern})$')}))"
)


@rule(
    kinds=(FAR_TEMPLATE,),
    action=Action.DENY,
    denials=(
        cel.Denial(
            when=f"{cel.present(_SAMPLE)} && !{_VALID}",
            path="'spec.statusValidationSample'",
            message=(
                f"{cel.shown(_VALUE)} + ' is neither an integer of 0 or more nor a percentage "
                """without leading zeros. ' + 'Write a value such as 5 or "20%".'"""
            ),
            value=_VALUE,
        ),
    ),
    sources=(
        (
            "medik8s/fence-agents-remediation:fenceagentsremediationtemplates CRD, "
            "x-kubernetes-validations"
        ),
    ),
)
def check(template: Object, _context: Context) -> Findings:
    sample = template.at("spec", "statusValidationSample")
    number = sample.integer
    if not sample.present or (number is not None and number >= 0):
        return
    if sample.text is None or not PERCENT.fullmatch(sample.text):
        yield Finding(
            sample.path,
            f"{show(sample.value)} is neither an integer of 0 or more nor a percentage without "
            'leading zeros. Write a value such as 5 or "20%".',
        )
