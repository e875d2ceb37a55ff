"""The ``timeout`` of a fence agent is zero or not a valid duration.

**Why.** With 0 the operator stops the agent before it fences the node. If one value is not a valid duration, the operator
cannot read any template of the cluster.

**Fix.** Write more time than the slowest management board needs. The default is 60s.
"""

from virt_admit.model.kubernetes.units import DURATION
from virt_admit.model.remediation.remediators import far_spec
from virt_admit.rule import FAR_TEMPLATE, Action, Context, Finding, Findings, Object, parse_duration, rule


@rule(
    kinds=(FAR_TEMPLATE,),
    action=Action.DENY,
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
    yield Finding(timeout.path, f"{problem}. Write a longer time (the default is 60s).")
