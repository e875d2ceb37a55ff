"""KubeVirt, CDI or HyperConverged is being deleted, but its operator is gone.

**Why.** Only the operator removes the finalizer, so the object and its namespace stay. The webhooks
that are left fail closed: VMs run on, but cannot be changed, deleted or migrated, and the finalizer
cannot be removed either.

**Fix.** KubeVirt: delete the webhook configurations and APIServices that the finding names, then
the finalizer of virt-operator. Then install KubeVirt again. Do not bring virt-operator back before
that: it would go on with the deletion, which removes all VMs. CDI and HyperConverged: do not remove
the finalizer. What they own would be deleted: the disks of VMs with the definition of DataVolumes,
or KubeVirt with all VMs. Check uninstallStrategy and ownerReferences before the operator comes
back. To uninstall KubeVirt, delete the VMs, then the KubeVirt object. Delete the operator only
after that.
"""

from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.kinds import CDI, HCO, KUBEVIRT
from virt_admit.model.kubevirt.settings import removed_operators
from virt_admit.model.messages import sentence
from virt_admit.model.problems import ProblemCause, problem_of
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule


@rule(
    kinds=(KUBEVIRT, CDI, HCO),
    reads=removed_operators.READS,
    action=Action.WARN,
    urgency=Urgency.DOWN,
    at_admission=False,
    of_deleted=True,
    sources=(
        "kubevirt/kubevirt:pkg/virt-operator/resource/apply/delete.go#DeleteAll",
        "https://github.com/kubevirt/kubevirt/issues/13098",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    kind = kinds.of(obj)
    if kind is None or not obj.deleted:
        return
    path = obj.metadata["finalizers"].path
    removed = removed_operators.of(obj, kind, context.cluster)
    idle = removed_operators.idle_operator(obj, kind, context.cluster) if removed is None else None
    if idle is not None:
        message = f"{idle.reason}. {sentence(idle.remedy)}"
        problem = problem_of(ProblemCause.COMPONENT, obj)
        yield Finding(path, message, value=obj.name, problem=problem, command=idle.command)
    if removed is not None:
        begin = f"{removed.reason}."
        effect = sentence(removed.effect) if removed.effect else ""
        whole = (
            " ".join(filter(None, (begin, effect, sentence(removed.steps(width)))))
            for width in (150, 100, 50, 0)
        )
        message = check.first_that_fits(path, *whole, begin)
        yield Finding(
            path,
            message,
            value=obj.name,
            problem=problem_of(ProblemCause.COMPONENT, obj),
            command=removed.command,
        )
