"""The ``timeout`` of a fence agent is zero or not a valid duration.

**Why.** With 0 the operator stops the agent before it fences the node. If one value is not a valid
duration, the operator cannot read any template of the cluster.

**Fix.** Write more time than the slowest management board needs. The default is 60s.
"""

from typing import Final

from virt_admit.model import cel_durations
from virt_admit.model.kubernetes.kinds import FAR_TEMPLATE
from virt_admit.model.kubernetes.units import DURATION
from virt_admit.model.remediation.remediators import far_spec
from virt_admit.rule import Action, Context, Finding, Findings, Object, parse_duration, rule

_TIMEOUT: Final = "self.?spec.?template.?spec.?timeout"
_PATH: Final = "'spec.template.spec.timeout'"
_REMEDY: Final = ". Write a longer time (the default is 60s)."


@rule(
    kinds=(FAR_TEMPLATE,),
    action=Action.DENY,
    denials=(
        cel_durations.below(
            _TIMEOUT,
            _PATH,
            1,
            f" gives the agent no time, so no node would ever be fenced{_REMEDY}",
            DURATION,
        ),
        cel_durations.invalid(_TIMEOUT, _PATH, _REMEDY, DURATION),
    ),
    sources=("medik8s/fence-agents-remediation:pkg/cli/cliexecuter.go#runWithRetry",),
)
def check(template: Object, _context: Context) -> Findings:
    timeout = far_spec(template)["timeout"]
    if not timeout.present:
        return
    try:
        if parse_duration(timeout.value, DURATION) > 0:
            return
        problem = f"{timeout.value} gives the agent no time, so no node would ever be fenced"
    except ValueError as error:
        problem = str(error)
    yield Finding(timeout.path, f"{problem}{_REMEDY}")
