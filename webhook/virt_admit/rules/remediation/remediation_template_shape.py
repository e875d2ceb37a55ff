"""A remediation template has no ``spec.template.spec``.

**Why.** The controllers copy ``spec.template.spec`` into each remediation request. The schema
requires it, even if it is empty. The API server rejects such an object, so only ``check`` reports
this.

**Fix.** Write ``spec: {template: {spec: {}}}``.
"""

from virt_admit.model import cel
from virt_admit.model.kubernetes.kinds import FAR_TEMPLATE, MDR_TEMPLATE, SNR_TEMPLATE
from virt_admit.rule import Action, Cause, Context, Finding, Findings, Object, rule


@rule(
    kinds=(SNR_TEMPLATE, FAR_TEMPLATE, MDR_TEMPLATE),
    action=Action.DENY,
    denials=(
        cel.Denial(
            when=f"!({cel.is_map('self.?spec.?template.?spec')})",
            path="'spec.template.spec'",
            message=(
                "'the schema rejects a template without this field. Write {} if it has no "
                "settings.'"
            ),
            value="self.?spec.?template.?spec.orValue(null)",
        ),
    ),
    sources=(
        "medik8s/self-node-remediation:config/crd/bases",
        "medik8s/fence-agents-remediation:config/crd/bases",
    ),
)
def check(template: Object, _context: Context) -> Findings:
    spec = template.at("spec", "template", "spec")
    if not spec.is_map:
        yield Finding(
            spec.path,
            "the schema rejects a template without this field. Write {} if it has no settings.",
            cause=Cause.REQUIRED,
        )
