"""The VM names an instance type or a preference that does not exist.

**Why.** KubeVirt does not start such a VM, and rejects its changes. Once a VM has started, it uses
its own copy, so this concerns VMs that have never started.

**Fix.** Create the instance type or the preference, or name another one. A name without a kind
means the cluster-wide kind.
"""

from virt_admit.model.kubernetes.kinds import POOL, VM
from virt_admit.model.kubevirt.instances import expand
from virt_admit.model.messages import sentence
from virt_admit.rule import Action, Context, Finding, Findings, Object, Unseen, Urgency, rule


@rule(
    kinds=(VM, POOL),
    reads=expand.READS,
    action=Action.WARN,
    urgency=Urgency.DOWN,
    at_admission=False,
    sources=(
        "kubevirt/kubevirt:pkg/instancetype/controller/vm/controller.go#Sync",
        "kubevirt/kubevirt:pkg/instancetype/find/spec.go#Find",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    for found in expand.absent(obj, context.cluster):
        if isinstance(found, Unseen):
            yield found
        else:
            message = f"{found.words}, so KubeVirt does not start the VM."
            ways = (sentence(found.remedy), "Create it, or name another.")
            yield Finding(
                found.path, check.first_that_fits(found.path, *(f"{message} {way}" for way in ways))
            )
