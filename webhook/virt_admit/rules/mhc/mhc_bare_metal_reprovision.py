"""A MachineHealthCheck on bare metal wipes hosts.

**Why.** Remediation deletes the Machine. On bare metal that wipes the host and provisions it again, which is slow and
loses the data on its disks. A power cycle is usually enough.

**Fix.** Refer to a Metal3RemediationTemplate, or annotate the check with ``machine.openshift.io/remediation-strategy:
external-baremetal``. Both power-cycle the host first.
"""

from collections.abc import Iterator

from virt_admit.model.kubernetes.kinds import INFRASTRUCTURE, MHC
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.remediation import health_checks, machines
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    view = context.cached(health_checks.view, obj)
    if view.handler or view.external or view.template.present:
        return
    if machines.platform(context.cluster) == "BareMetal":
        yield Finding(
            view.template.path,
            "remediation would wipe and reprovision the hosts. To power-cycle them instead, "
            f"use a Metal3RemediationTemplate or {health_checks.STRATEGY}: {health_checks.EXTERNAL}.",
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
