"""The sample of nodes for the fencing test is not a valid number or percentage.

**Why.** The operator checks the agent's status on ``statusValidationSample`` nodes. The schema accepts only an integer of
0 or more, or a string from ``0%`` to ``100%``. The API server rejects other values, so only ``check`` reports this.

**Fix.** Write a value such as ``5`` or ``"20%"``.
"""

import re
from collections.abc import Iterator
from typing import Final

from virt_admit.model.kubernetes.kinds import FAR_TEMPLATE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.units import show
from virt_admit.rule import Action, Context, Finding, NoParams, Rule

PERCENT: Final = re.compile(r"(?:[0-9]|[1-9][0-9]|100)%")


def check(template: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    sample = template.at("spec", "statusValidationSample")
    number = sample.integer
    if not sample.present or (number is not None and number >= 0):
        return
    if sample.text is None or not PERCENT.fullmatch(sample.text):
        yield Finding(
            sample.path,
            f"{show(sample.value)} is neither an integer of 0 or more nor a percentage without leading zeros. "
            'Write a value such as 5 or "20%".',
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(FAR_TEMPLATE,),
    action=Action.DENY,
    check=check,
    sources=("medik8s/fence-agents-remediation:fenceagentsremediationtemplates CRD, x-kubernetes-validations",),
)
