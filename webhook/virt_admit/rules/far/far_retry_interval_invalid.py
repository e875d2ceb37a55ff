"""The ``retryinterval`` of a fence agent is not a valid duration.

**Why.** The schema rejects other types and notations. Some values pass it and cannot be decoded,
such as ``9999999h``. Then the operator cannot read any template of the cluster.

**Fix.** Write a duration in quotes, such as ``5s``, the default.
"""

from virt_admit.model import cel_durations
from virt_admit.model.kubernetes.kinds import FAR_TEMPLATE
from virt_admit.model.kubernetes.units import DURATION
from virt_admit.model.remediation.remediators import far_spec
from virt_admit.rule import Action, Context, Finding, Findings, Object, parse_duration, rule


@rule(
    kinds=(FAR_TEMPLATE,),
    action=Action.DENY,
    denials=(
        cel_durations.invalid(
            "self.?spec.?template.?spec.?retryinterval",
            "'spec.template.spec.retryinterval'",
            ". Write a duration (the default is 5s).",
            DURATION,
        ),
    ),
    sources=(
        (
            "medik8s/fence-agents-remediation:config/crd/bases/"
            "fence-agents-remediation.medik8s.io_fenceagentsremediationtemplates.yaml"
        ),
        "k8s.io/apimachinery:pkg/apis/meta/v1/duration.go#UnmarshalJSON",
    ),
)
def check(template: Object, _context: Context) -> Findings:
    interval = far_spec(template)["retryinterval"]
    try:
        if interval.present:
            parse_duration(interval.value, DURATION)
    except ValueError as error:
        yield Finding(interval.path, f"{error}. Write a duration (the default is 5s).")
