"""A LimitRange refuses every new pod of a VM that runs.

**Why.** Its pod was made before the LimitRange, or before a change of it. The VM runs on, but neither a migration nor a restart
of it begins: the API server refuses the new pod. So a drain of its node hangs, and after the loss of its node it stays off.

**Fix.** Raise what the message names in the LimitRange, or change what the VM asks for.
"""

from virt_admit.forecasts.placement import quotas
from virt_admit.model.kubevirt.instances import expand, vmis, vms
from virt_admit.model.kubevirt.launcher import launcher_resources
from virt_admit.model.messages import count
from virt_admit.rule import (
    LIMIT_RANGE,
    VM,
    VMI,
    Action,
    Context,
    Finding,
    Findings,
    Object,
    ProblemCause,
    Unseen,
    gather,
    problem_of,
    rule,
    union,
)


@rule(
    kinds=(LIMIT_RANGE,),
    reads=union(
        quotas.READS,
        expand.READS,
        launcher_resources.READS,
        {
            VM: ("spec", "status.instancetypeRef", "status.preferenceRef"),
            VMI: ("metadata.ownerReferences", "spec", "status"),
        },
    ),
    action=Action.WARN,
    event="MigrationImpossible",
    at_admission=False,
    sources=(
        "kubernetes/kubernetes:plugin/pkg/admission/limitranger/admission.go#PodMutateLimitFunc",
        "kubevirt/kubevirt#2143",
    ),
)
def check(limits: Object, context: Context) -> Findings:
    found, unseen = gather(context.cluster.list(VMI, vms.namespace_of(limits)))
    refused: dict[str, str] = {}
    for vmi in filter(vmis.running, found):
        problem = None if vmi.deleted else quotas.start_refusal(vmi, (), context.cluster)
        whose, _, why = problem.reason.partition(": ") if problem is not None else ("", "", "")
        if limits.name in whose.removeprefix("LimitRange ").split(", ") and whose.startswith("LimitRange "):
            refused[vmi.name] = why.removesuffix(f": {quotas.EACH}")
    if refused:
        name, why = next(iter(sorted(refused.items())))
        more = f" and {count(len(refused) - 1, 'more VM')}" if len(refused) > 1 else ""
        path = limits.at("spec", "limits").path
        yield Finding(
            path,
            f"{why}: every new pod of VM {name[:63]}{more} is refused, so that its migration and its restart never begin. "
            "Raise it in the LimitRange, or change what the VM asks for.",
            value=sorted(refused),
            problem=problem_of(ProblemCause.LIMIT_RANGE, limits),
        )
    if unseen:
        yield Unseen(unseen)
