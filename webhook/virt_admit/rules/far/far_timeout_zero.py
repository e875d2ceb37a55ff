"""A fence agent has no time to run, or its ``timeout`` cannot be read.

**Why.** With 0 the agent is stopped before it does anything: no node is ever fenced. A value that is no duration makes
every template of the cluster unreadable.

**Fix.** Longer than the slowest management board needs; 60s is the default.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import FAR_TEMPLATE
from virt_admit.model.objects import Object
from virt_admit.model.remediation.remediators import far_spec
from virt_admit.model.units import DURATION, parse_duration
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(template: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    timeout = far_spec(template)["timeout"]
    if not timeout.present:
        return
    try:
        if parse_duration(timeout.value, DURATION) > 0:
            return
        problem = f"{timeout.value} leaves the agent no time, no node would ever be fenced"
    except ValueError as error:
        problem = str(error)
    yield Finding(timeout.path, f"{problem}; the default is 60s")


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(FAR_TEMPLATE,),
    action=Action.DENY,
    check=check,
    sources=("medik8s/fence-agents-remediation:pkg/cli/cliexecuter.go#runWithRetry",),
)
