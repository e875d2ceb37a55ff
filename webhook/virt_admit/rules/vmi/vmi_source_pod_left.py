"""A VM has left a node, and its old launcher pod there does not end.

**Why.** The guest's own container has ended after a migration, and a sidecar has not. KubeVirt makes no further target pod
while two pods of a VMI run, so no migration starts and no drain of its node ends.

**Fix.** Delete the old pod, which no longer has a guest. A sidecar of hooks v1alpha3 ends by itself since KubeVirt 1.2.
"""

from virt_admit.forecasts.drain.states import left_pods
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import more_may_exist
from virt_admit.model.messages import cut
from virt_admit.rule import (
    POD,
    VMI,
    VMIM,
    Action,
    Context,
    Finding,
    Findings,
    Object,
    ProblemCause,
    problem_of,
    rule,
    union,
)


@rule(
    kinds=(VMI,),
    reads=union(
        clock.READS,
        {
            VMI: (),
            VMIM: ("metadata.creationTimestamp", "metadata.uid", "spec.vmiName", "status.phase"),
            POD: (
                "metadata.creationTimestamp",
                "metadata.labels",
                "metadata.ownerReferences",
                "spec.nodeName",
                "status.containerStatuses",
                "status.phase",
            ),
        },
    ),
    action=Action.WARN,
    at_admission=False,
    sources=(
        "kubevirt/kubevirt:pkg/virt-controller/watch/migration/migration.go#handleTargetPodCreation",
        "https://github.com/kubevirt/kubevirt/issues/9838",
    ),
)
def check(vmi: Object, context: Context) -> Findings:
    if vmi.at("status", "migrationState", "completed").boolean is not True:
        return
    yield from more_may_exist(context.cluster, VMIM)
    left = left_pods.of_vmi(vmi, context.cluster)
    if left is None:
        return
    waits = left_pods.waiting(vmi, context.cluster)
    effect = f"migration {cut(waits.name, 40)} waits for it" if waits is not None else "no migration starts meanwhile"
    pod = f"old pod {cut(left.pod.name, 50)} on {cut(left.node, 30)} runs for {clock.duration(left.age)}"
    yield Finding(
        vmi.at("status", "migrationState", "sourceNode").path,
        f"its {pod} without a guest, kept by container {cut(left.kept_by, 30)}; {effect}. Delete that pod.",
        value=left.pod.name,
        problem=problem_of(ProblemCause.POD_NOT_ENDING, vmi),
        command=left.remedy.rpartition(": ")[2],
    )
