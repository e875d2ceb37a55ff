"""A VM has left a node, and its old launcher pod there does not end,
or its volume stays attached there.

**Why.** The guest's own container has ended after a migration, and a sidecar has not, or the
kubelet cannot end the pod, or KubeVirt has not told it to end.
KubeVirt makes no further target pod while two pods of a VMI run, so no migration starts and no
drain of its node ends. Longhorn starts no further migration of a volume whose last one has not
ended.

**Fix.** Delete an old pod that no longer has a guest, as ``virsh list`` in it shows. A sidecar of
hooks v1alpha3 ends by itself since KubeVirt 1.2: give a network binding a ``sidecarImage`` of that
release or later. Repair the container runtime of a node that cannot end a pod. A VolumeAttachment
of that node that is left then can be deleted.
"""

from virt_admit.forecasts.drain.failed_migrations import old_sidecars
from virt_admit.forecasts.drain.states import dying_pods, left_pods
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import more_may_exist
from virt_admit.model.kubernetes.kinds import POD, VMI, VMIM
from virt_admit.model.messages import advice_of, command_of, cut
from virt_admit.model.problems import ProblemCause, problem_of
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule, union


@rule(
    kinds=(VMI,),
    reads=union(
        clock.READS,
        dying_pods.READS,
        old_sidecars.READS,
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
    urgency=Urgency.STUCK,
    at_admission=False,
    sources=(
        (
            "kubevirt/kubevirt:pkg/virt-controller/watch/migration/"
            "migration.go#handleTargetPodCreation"
        ),
        "https://github.com/kubevirt/kubevirt/issues/9838",
        "https://github.com/kubevirt/kubevirt/issues/18320",
        "https://github.com/longhorn/longhorn/issues/11149",
    ),
)
def check(vmi: Object, context: Context) -> Findings:
    if vmi.at("status", "migrationState", "completed").boolean is not True:
        return
    yield from more_may_exist(context.cluster, VMIM)
    left = left_pods.of_vmi(vmi, context.cluster)
    path = vmi.at("status", "migrationState", "sourceNode").path
    if left is None and (stale := left_pods.stale(vmi, context.cluster)) is not None:
        ways = (advice_of(stale.remedy), "Delete it once it lists no guest.")
        yield Finding(
            path,
            check.first_that_fits(path, *(f"{stale.reason}. {way}" for way in ways)),
            value=stale.pod.name,
            problem=problem_of(ProblemCause.POD_NOT_ENDING, vmi),
            command=command_of(stale.remedy),
        )
        return
    if left is None:
        yield from _left_over(vmi, context)
        return
    waits = left_pods.waiting(vmi, context.cluster)
    effect = "no migration starts meanwhile"
    if waits is not None:
        effect = f"migration {cut(waits.name, 40)} waits for it"
    runs = f"runs for {clock.duration(left.age)}"
    pod = f"old pod {cut(left.pod.name, 50)} on {cut(left.node, 30)} {runs}"
    begin = f"its {pod} without a guest, kept by container {cut(left.kept_by, 30)}; {effect}"
    known = left.sidecar
    renew = f" and {known.renew}" if known is not None and known.renew else ""
    choices = (f"{begin}. Delete that pod{each}." for each in (renew, ""))
    yield Finding(
        path,
        check.first_that_fits(path, *choices),
        value=left.pod.name,
        problem=problem_of(ProblemCause.POD_NOT_ENDING, vmi),
        command=command_of(left.remedy),
    )


def _left_over(vmi: Object, context: Context) -> Findings:
    """Yield that the old pod cannot be ended, or that its volume stays attached, which keeps the
    next migration from it.
    """
    found = dying_pods.left_over(vmi, context.cluster)
    if found is None:
        return
    path, advice = vmi.at("status", "migrationState", "sourceNode").path, advice_of(found.remedy)
    begin = "its migration has succeeded, but "
    choices = (
        f"{begin}{found.reason}. {rest}"
        for rest in (advice, advice.partition(" (")[0].rstrip(".") + ".")
    )
    yield Finding(
        path,
        check.first_that_fits(path, *choices),
        value=found.reason,
        problem=problem_of(ProblemCause.POD_NOT_ENDING, vmi),
        command=command_of(found.remedy),
    )
