"""A LimitRange refuses every new pod of a VM that runs.

**Why.** Its pod was made before the LimitRange, or before a change of it. The VM runs on, but a
migration or a restart of it does not begin: the API server refuses the new pod. So a drain of its
node hangs, and after the loss of its node it stays off.

**Fix.** Raise what the message names in the LimitRange, or change what the VM asks for.
"""

from virt_admit.forecasts.placement import quotas
from virt_admit.model.kubernetes.cluster import Unseen, gather
from virt_admit.model.kubernetes.kinds import LIMIT_RANGE, VM, VMI
from virt_admit.model.kubevirt.instances import expand, vmis, vms
from virt_admit.model.kubevirt.launcher import launcher_resources
from virt_admit.model.messages import count
from virt_admit.model.problems import ProblemCause, problem_of
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule, union


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
    urgency=Urgency.STUCK,
    event="MigrationImpossible",
    at_admission=False,
    sources=(
        "kubernetes/kubernetes:plugin/pkg/admission/limitranger/admission.go#PodMutateLimitFunc",
        "kubevirt/kubevirt#2143",
    ),
)
def check(limits: Object, context: Context) -> Findings:
    found, unseen = gather(context.cluster.list(VMI, vms.namespace_of(limits)))
    refused: dict[str, dict[str, str]] = {}
    for vmi in filter(vmis.running, found):
        if vmi.deleted:
            continue
        try:
            migration = _why(limits, quotas.migration_refusal(vmi, context.cluster))
        except Unseen as missing:
            migration, unseen = "", unseen or missing.what
        start = quotas.start_refusal(vmi, (), context.cluster) if vmis.owner(vmi, VM.kind) else None
        restart = _why(
            limits, start.reason.removesuffix(f": {quotas.EACH}") if start is not None else ""
        )
        what = " and ".join(["its migration"] * bool(migration) + ["its restart"] * bool(restart))
        if what:
            refused.setdefault(what, {})[vmi.name] = migration or restart
    for what, reasons in refused.items():
        name, why = min(reasons.items())
        more = f" and {count(len(reasons) - 1, 'more VM')}" if len(reasons) > 1 else ""
        path = limits.at("spec", "limits").path
        yield Finding(
            path,
            f"{why}: the new pod of VM {name[:63]}{more} is refused, so that {what} never "
            f"begin{'s' * (' and ' not in what)}. Raise it in the LimitRange, or change what the "
            "VM asks for.",
            value=sorted(reasons),
            problem=problem_of(ProblemCause.LIMIT_RANGE, limits),
        )
    if unseen:
        yield Unseen(unseen)


def _why(limits: Object, said: str) -> str:
    """Return what a LimitRange refuses of a pod; empty: it refuses nothing, or another one does."""
    whose, _, why = said.partition(": ")
    is_own = whose.startswith("LimitRange ") and limits.name in whose.removeprefix(
        "LimitRange "
    ).split(", ")
    return why if is_own else ""
