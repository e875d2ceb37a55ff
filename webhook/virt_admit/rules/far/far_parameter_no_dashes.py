"""A parameter of a fence agent is written without its dashes.

**Why.** The operator passes names on as they are: ``ip=…`` is not an option of any agent, which then refuses to run or
ignores it. ``action`` is worse: it does not replace the ``--action=reboot`` that the operator adds.

**Fix.** Write ``--ip``.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import FAR_TEMPLATE
from virt_admit.model.objects import Object
from virt_admit.model.remediation.remediators import far_parameters
from virt_admit.model.units import show
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(template: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    for name, value in far_parameters(template):
        if not name.startswith("-"):
            dashed = f"write '--{name}'" if 1 < len(name) <= 40 else "write it as the agent's --help does"
            yield Finding(
                value.path,
                f"{show(name)} is passed to the agent as it is, which does not know it without dashes: {dashed}",
                value=name,
            )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(FAR_TEMPLATE,),
    action=Action.WARN,
    check=check,
    sources=("medik8s/fence-agents-remediation:controllers/fenceagentsremediation_controller.go#appendParamToSlice",),
)
