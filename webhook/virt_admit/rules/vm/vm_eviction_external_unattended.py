"""A virtual machine uses the eviction strategy External without a controller that handles its
evictions.

**Why.** With ``External`` KubeVirt refuses every eviction, marks the VM and waits for an external
controller (Cluster API provider KubeVirt, HyperShift, Kubermatic) to move it. Without such a
controller every drain of its node hangs. Where a label or annotation of an uncommon domain may name
a controller, this is a note.

**Fix.** Use ``LiveMigrate`` or ``LiveMigrateIfPossible``. If a controller handles the VM, name its
label or owner in the parameters.
"""

from dataclasses import dataclass
from itertools import chain

from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.kinds import KUBEVIRT, POOL, VM, VMI, VMIRS
from virt_admit.model.kubevirt.instances import vmis, vms
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.problems import ProblemCause, problem_of
from virt_admit.rule import Action, Context, Finding, Findings, Object, cut, param, rule


@dataclass(frozen=True)
class Params:
    labels: tuple[str, ...] = param(
        vms.MOVER_LABELS,
        "prefixes of label keys, on the object or its template, that show that a controller "
        "handles it",
    )
    owners: tuple[str, ...] = param(
        vms.MOVER_OWNERS,
        "parts of an owner's apiVersion that show that a controller handles the object",
    )


@rule(
    kinds=(VM, POOL, VMIRS, VMI),
    reads={KUBEVIRT: ("metadata.creationTimestamp", "status.observedKubeVirtVersion")},
    only_with=("evictionStrategy",),
    action=Action.WARN,
    event="DrainBlocked",
    params=Params(),
    sources=(
        "kubevirt/kubevirt:pod-eviction-admitter.go#admitLauncherPod",
        "kubevirt/kubevirt#7493",
        "kubernetes-sigs/cluster-api-provider-kubevirt:pkg/kubevirt/machine.go",
        (
            "kubermatic/machine-controller:pkg/cloudprovider/provider/kubevirt/"
            "provider.go#newVirtualMachine"
        ),
        (
            "kubermatic/kubermatic:pkg/controller/user-cluster-controller-manager/"
            "kubevirt-vmi-eviction/controller.go"
        ),
    ),
)
def check(obj: Object, context: Context[Params]) -> Findings:
    strategy = vms.vmi_spec(obj)["evictionStrategy"]
    if strategy.value != "External" or _has_controller(obj, context.params):
        return
    if kinds.of(obj) is VMI and vmis.owner(obj, VM.kind):
        return  # its VM is judged, which has the labels of its owner
    marks = (vms.own_marks(obj, each) for each in ("annotation", "label"))
    mark = next(chain.from_iterable(marks), "")
    instead = versions.if_possible(context.cluster)
    remedy = f"No label or owner names a known one. Unless one runs, use {instead}."
    if mark:
        remedy = f"Check that the controller that uses {cut(mark, 50)} acts."
    yield Finding(
        strategy.path,
        f"External makes drains wait for a controller outside KubeVirt. {remedy}",
        problem=problem_of(ProblemCause.EXTERNAL, obj),
        max_action=Action.AUDIT if mark else Action.DENY,
    )


def _has_controller(obj: Object, markers: Params) -> bool:
    labels = (*obj.metadata["labels"].map, *vms.vmi_template(obj)["metadata"]["labels"].map)
    return vms.has_mover(obj, labels, markers.labels, markers.owners)
