"""A remediation template holds no template.

**Why.** What is to be copied into each remediation request stands in ``spec.template.spec``; the schema wants it, even if it
is empty. Only ``check`` can meet this.

**Fix.** Write ``spec: {template: {spec: {}}}``.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import FAR_TEMPLATE, MDR_TEMPLATE, SNR_TEMPLATE
from virt_admit.model.objects import Object
from virt_admit.rule import Action, Cause, Context, Finding, NoParams, Rule


def check(template: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    spec = template.at("spec", "template", "spec")
    if not spec.is_map:
        yield Finding(
            spec.path,
            "the schema refuses a template without it; write {} if there is nothing to say",
            cause=Cause.REQUIRED,
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(SNR_TEMPLATE, FAR_TEMPLATE, MDR_TEMPLATE),
    action=Action.DENY,
    check=check,
    sources=("medik8s/self-node-remediation:config/crd/bases", "medik8s/fence-agents-remediation:config/crd/bases"),
)
