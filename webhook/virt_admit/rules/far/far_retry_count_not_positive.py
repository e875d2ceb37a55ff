"""A fence agent is never run, because ``retrycount`` is below 1.

**Why.** With a negative number of tries the agent is not run even once, yet the operator reports success and moves the
workload away from a node that still runs: two copies of a VM write to one disk. With 0 it happens to use the default.

**Fix.** 1 or more; 5 is the default.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import FAR_TEMPLATE
from virt_admit.model.objects import Object
from virt_admit.model.remediation.remediators import far_spec
from virt_admit.model.units import show
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(template: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    retries = far_spec(template)["retrycount"]
    count = retries.integer
    if count is None or count >= 1:
        return
    what = (
        ": the agent would never run, yet VMs would be moved off a node that still runs, which destroys their data"
        if count
        else " is no number of tries"
    )
    yield Finding(retries.path, f"{show(count)}{what}; write 1 or more (the default is 5)")


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(FAR_TEMPLATE,),
    action=Action.DENY,
    check=check,
    sources=("medik8s/fence-agents-remediation:pkg/cli/cliexecuter.go#runWithRetry",),
)
