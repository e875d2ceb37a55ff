"""A parameter of a fence agent has no leading dashes.

**Why.** The operator passes parameter names to the agent unchanged. No agent has an option
``ip=…``, so the agent fails or ignores the parameter. A parameter ``action`` does not replace the
``--action=reboot`` that the operator adds.

**Fix.** Write ``--ip``.
"""

from virt_admit.model.kubernetes.kinds import FAR_TEMPLATE
from virt_admit.model.kubernetes.units import show
from virt_admit.model.remediation.remediators import far_parameters
from virt_admit.rule import Action, Context, Field, Finding, Findings, Object, Patch, Path, rule


@rule(
    kinds=(FAR_TEMPLATE,),
    action=Action.WARN,
    fixable=True,
    sources=(
        (
            "medik8s/fence-agents-remediation:controllers/"
            "fenceagentsremediation_controller.go#appendParamToSlice"
        ),
    ),
)
def check(template: Object, _context: Context) -> Findings:
    for name, value in far_parameters(template):
        if not name.startswith("-"):
            dashed = (
                f"Write '--{name}'."
                if 1 < len(name) <= 40
                else "Write the name that the agent's --help shows."
            )
            yield Finding(
                value.path,
                f"{show(name)} has no leading dashes, so the agent does not recognize it. {dashed}",
                value=name,
                fix=_renamed(value, f"--{name}") if 1 < len(name) <= 40 else (),
                why="the agent does not recognize the name without dashes",
            )


def _renamed(value: Field, name: str) -> tuple[Patch, ...]:
    if not isinstance(value.value, str):  # a map of nodes
        return ()
    return Patch("add", Path(*value.path[:-1], name), value.value), Patch("remove", value.path)
