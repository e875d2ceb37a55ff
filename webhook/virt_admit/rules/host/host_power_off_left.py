"""A BareMetalHost is asked to power off although its node is Ready again.

**Why.** A MachineHealthCheck with the strategy ``external-baremetal`` marks the Machine of a lost
node with the annotation ``host.metal3.io/external-remediation``, and never takes it back. If the
BMC did not answer, the host was not powered off, and the node came back by itself. As soon as the
BMC answers, the host is powered off under the running VMs, and the Node is deleted.

**Fix.** Take the annotation off the Machine first, whose actuator would ask again, then
``reboot.metal3.io/capbm-requested-power-off`` off the BareMetalHost. Only then restore the BMC.
"""

from virt_admit.forecasts.remediation.ends import left_power_offs
from virt_admit.model.kubernetes.cluster import more_may_exist
from virt_admit.model.kubernetes.kinds import BARE_METAL_HOST, MACHINE, MHC, NODE
from virt_admit.model.messages import command_of
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule


@rule(
    kinds=(BARE_METAL_HOST,),
    reads=left_power_offs.READS,
    action=Action.WARN,
    urgency=Urgency.DOWN,
    at_admission=False,
    sources=(
        "openshift/machine-api-operator:pkg/controller/machinehealthcheck/"
        "machinehealthcheck_controller.go#remediationStrategyExternal",
        "openshift/cluster-api-provider-baremetal:pkg/cloud/baremetal/actuators/machine/"
        "actuator.go#remediateIfNeeded",
        "https://github.com/openshift/machine-api-operator/pull/891",
    ),
)
def check(host: Object, context: Context) -> Findings:
    left = left_power_offs.of_host(host, context.cluster)
    if left is not None:
        path, command = host.metadata["name"].path, command_of(left.remedy)
        yield Finding(path, left.brief, value=left.node, command=command)
    elif host.annotation(left_power_offs.POWER_OFF).present:
        for kind in (MACHINE, MHC, NODE):
            yield from more_may_exist(context.cluster, kind)
