"""A fence agent never runs because ``retrycount`` is below 1 or not an integer.

**Why.** With a negative ``retrycount`` the agent never runs, but the operator reports success and
moves the workload away from a node that still runs. Two copies of a VM then write to one disk. With
0 the operator uses the default.

**Fix.** Write 1 or more. The default is 5.
"""

from virt_admit.model import cel
from virt_admit.model.kubernetes.kinds import FAR_TEMPLATE
from virt_admit.model.remediation.remediators import far_spec
from virt_admit.rule import Action, Cause, Context, Finding, Findings, Object, rule, show


@rule(
    kinds=(FAR_TEMPLATE,),
    action=Action.DENY,
    denials=(
        cel.Denial(
            when=(
                f"{cel.present('self.?spec.?template.?spec.?retrycount')} && "
                "!(type(self.spec.template.spec.retrycount) == int && "
                "self.spec.template.spec.retrycount >= 1)"
            ),
            path="'spec.template.spec.retrycount'",
            message=(
                "'this is not a valid number of attempts: below 1 the agent would never run, but "
                "VMs would move off a ' + 'node that still runs, which destroys their data. Write "
                "1 or more (the default is 5).'"
            ),
            value="self.spec.template.spec.retrycount",
        ),
    ),
    sources=("medik8s/fence-agents-remediation:pkg/cli/cliexecuter.go#runWithRetry",),
)
def check(template: Object, _context: Context) -> Findings:
    retries = far_spec(template)["retrycount"]
    count = retries.integer
    if retries.present and count is None:
        yield Finding(
            retries.path,
            f"{show(retries.value)} is not an integer, so the schema rejects it. Write 5.",
            cause=Cause.TYPE,
        )
    if count is None or count >= 1:
        return
    problem = (
        (
            "the agent would never run, but VMs would move off a node that still runs, which "
            "destroys their data"
        )
        if count
        else "this is not a valid number of attempts"
    )
    yield Finding(
        retries.path, f"{show(count)} is below 1: {problem}. Write 1 or more (the default is 5)."
    )
