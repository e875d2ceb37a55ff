"""A node health check has no remediation, or two.

**Why.** The operator needs exactly one of ``remediationTemplate`` and ``escalatingRemediations`` and refuses the check
otherwise. The first example of its own documentation shows both and is not admissible.

**Fix.** Keep one.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import NHC
from virt_admit.model.objects import Object
from virt_admit.rule import Action, Cause, Context, Finding, NoParams, Rule


def check(obj: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    template, steps = obj.at("spec", "remediationTemplate"), obj.at("spec", "escalatingRemediations")
    escalates = any(True for _ in steps.items())
    if template.present and escalates:
        text = "remediationTemplate and escalatingRemediations exclude each other: keep one of them"
        cause = Cause.FORBIDDEN
    elif not template.present and not escalates:
        text = "nothing says how to remediate: name a template here, or several in escalatingRemediations"
        cause = Cause.REQUIRED
    else:
        return
    yield Finding(template.path, text, cause=cause, value=(template.present, escalates))


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(NHC,),
    action=Action.DENY,
    check=check,
    sources=("medik8s/node-healthcheck-operator:nodehealthcheck_webhook.go#validateMutualRemediations",),
)
