"""A MachineHealthCheck on bare metal wipes hosts.

**Why.** Remediation deletes the Machine. On bare metal that wipes the host and provisions it again,
which is slow and loses the data on its disks. A power cycle is usually enough.

**Fix.** Refer to a Metal3RemediationTemplate, or annotate the check with
``machine.openshift.io/remediation-strategy: external-baremetal``. Both power-cycle the host first.
"""

from virt_admit.model.remediation import health_checks, machines
from virt_admit.rule import INFRASTRUCTURE, MHC, Action, Context, Finding, Findings, Object, rule


@rule(
    kinds=(MHC,),
    reads={INFRASTRUCTURE: ()},
    metadata=(health_checks.STRATEGY,),
    action=Action.WARN,
    sources=("OpenShift Virtualization, Nodes 10.1.3",),
)
def check(obj: Object, context: Context) -> Findings:
    view = context.cached(health_checks.view, obj)
    if view.handler or view.external or view.template.present:
        return
    if machines.platform(context.cluster) == "BareMetal":
        yield Finding(
            view.template.path,
            "remediation would wipe and reprovision the hosts. To power-cycle them instead, use a "
            f"Metal3RemediationTemplate or {health_checks.STRATEGY}: {health_checks.EXTERNAL}.",
        )
