"""A parameter of a fence agent is not a text.

**Why.** The schema accepts only texts as parameters and as names of Secrets, and the API server
rejects the template. YAML reads a port, a slot or ``true`` without quotes as a number or a boolean.
Only ``virt-admit check`` sees such objects.

**Fix.** Write the value in quotes. A parameter in ``nodeparameters`` holds one text for each node.
"""

from typing import Final

from virt_admit.model import cel
from virt_admit.model.kubernetes.kinds import FAR_TEMPLATE
from virt_admit.model.remediation import cel_fence_agents
from virt_admit.model.remediation.remediators import far_spec
from virt_admit.rule import Action, Cause, Context, Field, Finding, Findings, Object, rule

_SPEC: Final = "self.?spec.?template.?spec.?"
_PATH: Final = "spec.template.spec."
_MAPS: Final = ("sharedparameters", "nodeparameters", "nodeSecretNames")
_NO_MAP: Final = "is not a map, so the schema rejects it. Write names and values."
_NO_TEXT: Final = "is not a text, so the schema rejects it. Write it in quotes."
_BY_NODE: Final = f"{cel.entries(f'{_SPEC}nodeparameters')}[item]"
_OF_NODES: Final = cel_fence_agents.values_of_nodes("nodeparameters")


def _not_a_map(field: str, path: str) -> cel.Denial:
    return cel.Denial(
        when=f"{cel.present(field)} && !{cel.is_map(field)}",
        path=path,
        message=f"'{_NO_MAP}'",
        value=f"{field}.orValue(null)",
    )


def _not_text(value: str) -> str:
    return f"!(type({value}) == string || {value} == null)"


@rule(
    kinds=(FAR_TEMPLATE,),
    action=Action.DENY,
    denials=(
        *(_not_a_map(_SPEC + name, f"'{_PATH}{name}'") for name in _MAPS),
        cel.Denial(
            each=cel.entries(f"{_SPEC}nodeparameters"),
            when=f"!(type({_BY_NODE}) == map || {_BY_NODE} == null)",
            path=f"'{_PATH}nodeparameters.' + item",
            message=f"'{_NO_MAP}'",
            value=_BY_NODE,
        ),
        *(
            cel.Denial(
                each=cel.entries(_SPEC + name),
                when=_not_text(f"{cel.entries(_SPEC + name)}[item]"),
                path=f"'{_PATH}{name}.' + item",
                message=f"'{_NO_TEXT}'",
                value=f"{cel.entries(_SPEC + name)}[item]",
            )
            for name in ("sharedparameters", "nodeSecretNames")
        ),
        cel.Denial(
            when=_not_text(f"{_SPEC}sharedSecretName.orValue(null)"),
            path=f"'{_PATH}sharedSecretName'",
            message=f"'{_NO_TEXT}'",
            value=f"{_SPEC}sharedSecretName.orValue(null)",
        ),
        cel.Denial(
            each=_OF_NODES.each,
            when=_not_text(_OF_NODES.value),
            path=_OF_NODES.path,
            message=f"'{_NO_TEXT}'",
            value=_OF_NODES.value,
        ),
    ),
    sources=(
        (
            "medik8s/fence-agents-remediation:config/crd/bases/"
            "fence-agents-remediation.medik8s.io_fenceagentsremediationtemplates.yaml"
        ),
    ),
)
def check(template: Object, _context: Context) -> Findings:
    spec = far_spec(template)
    by_node = [value for _, value in spec["nodeparameters"].entries()]
    for field in (
        spec["sharedparameters"],
        spec["nodeparameters"],
        spec["nodeSecretNames"],
        *by_node,
    ):
        if field.present and not field.is_map:  # never quote a value: it may be a password
            yield Finding(
                field.path,
                "is not a map, so the schema rejects it. Write names and values.",
                cause=Cause.TYPE,
            )
    maps = (spec["sharedparameters"], spec["nodeSecretNames"], *by_node)
    for field in (
        spec["sharedSecretName"],
        *(value for each in maps for _, value in each.entries()),
    ):
        if not _is_text(field):
            yield Finding(
                field.path,
                "is not a text, so the schema rejects it. Write it in quotes.",
                cause=Cause.TYPE,
            )


def _is_text(field: Field) -> bool:
    """Return whether the schema accepts a value; the API server drops nulls."""
    return field.text is not None or not field.present
