"""On bare metal a MachineHealthCheck wipes hosts.

**Why.** To remediate a machine is to delete it. On bare metal that wipes the host and provisions it anew, which takes long
and costs whatever was on its disks; mostly a power cycle would have done.

**Fix.** Refer to a Metal3RemediationTemplate, or annotate the check with
``machine.openshift.io/remediation-strategy: external-baremetal``: both power-cycle the host first.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import INFRASTRUCTURE, MHC
from virt_admit.model.objects import Object
from virt_admit.model.remediation import health_checks, machines
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    view = context.cached(health_checks.view, obj)
    if view.handler or view.external or view.template.present:
        return
    if machines.platform(context.cluster) == "BareMetal":
        yield Finding(
            view.template.path,
            "remediation wipes and re-provisions the host; to power-cycle it use a Metal3RemediationTemplate or "
            f"annotation {health_checks.STRATEGY}",
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(MHC,),
    reads={INFRASTRUCTURE: ()},
    metadata=(health_checks.STRATEGY,),
    action=Action.WARN,
    check=check,
    sources=("OpenShift Virtualization, Nodes 10.1.3",),
)
