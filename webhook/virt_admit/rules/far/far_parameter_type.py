"""A parameter of a fence agent is not a text.

**Why.** The schema accepts only texts as parameters and as names of Secrets, and the API server rejects the template. YAML
reads a port, a slot or ``true`` without quotes as a number or a boolean. Only ``virt-admit check`` sees such objects.

**Fix.** Write the value in quotes. A parameter in ``nodeparameters`` holds one text for each node.
"""

from virt_admit.model.remediation.remediators import far_spec
from virt_admit.rule import FAR_TEMPLATE, Action, Cause, Context, Field, Finding, Findings, Object, rule


@rule(
    kinds=(FAR_TEMPLATE,),
    action=Action.DENY,
    sources=(
        "medik8s/fence-agents-remediation:config/crd/bases/fence-agents-remediation.medik8s.io_fenceagentsremediationtemplates.yaml",
    ),
)
def check(template: Object, _context: Context) -> Findings:
    spec = far_spec(template)
    by_node = [value for _, value in spec["nodeparameters"].entries()]
    for field in (spec["sharedparameters"], spec["nodeparameters"], spec["nodeSecretNames"], *by_node):
        if field.present and not field.is_map:  # never quote a value: it may be a password
            yield Finding(
                field.path, "is not a map, so the schema rejects it. Write names and values.", cause=Cause.TYPE
            )
    maps = (spec["sharedparameters"], spec["nodeSecretNames"], *by_node)
    for field in (spec["sharedSecretName"], *(value for each in maps for _, value in each.entries())):
        if not _is_text(field):
            yield Finding(field.path, "is not a text, so the schema rejects it. Write it in quotes.", cause=Cause.TYPE)


def _is_text(field: Field) -> bool:
    """Return whether the schema accepts a value; the API server drops nulls."""
    return field.text is not None or not field.present
