"""A virtual machine leaves its evictions to a controller that nothing shows.

**Why.** With ``External`` KubeVirt refuses every eviction, marks the VM and waits for a controller outside (Cluster
API provider KubeVirt, HyperShift, Kubermatic) to move it. Without one each drain of its node hangs.

**Fix.** Use ``LiveMigrate`` or ``LiveMigrateIfPossible``. If there is such a controller, its label or owner can be
named with the parameters.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from virt_admit.model.kinds import POOL, VM, VMI, VMIRS
from virt_admit.model.kubevirt import vms
from virt_admit.model.objects import Object
from virt_admit.rule import Action, Context, Finding, Rule, param


@dataclass(frozen=True)
class Params:
    labels: tuple[str, ...] = param(
        ("capk.cluster.x-k8s.io/",), "label keys on the object or its template begin like this if a controller attends"
    )
    owners: tuple[str, ...] = param(
        ("cluster.x-k8s.io",), "the apiVersion of an owner contains one of these if a controller attends"
    )


def check(obj: Object, context: Context[Params]) -> Iterator[Finding]:
    strategy = vms.vmi_spec(obj)["evictionStrategy"]
    if strategy.value != "External" or _is_attended(obj, context.params):
        return
    yield Finding(
        strategy.path,
        "External makes drains wait for a controller outside KubeVirt, and no label or owner shows one; "
        "use LiveMigrate or LiveMigrateIfPossible",
    )


def _is_attended(obj: Object, markers: Params) -> bool:
    labels = (*obj.metadata["labels"].map, *vms.vmi_template(obj)["metadata"]["labels"].map)
    if any(label.startswith(markers.labels) for label in labels):
        return True
    owners = (owner["apiVersion"].text or "" for owner in obj.metadata["ownerReferences"].items())
    return any(marker in owner for owner in owners for marker in markers.owners)


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(VM, POOL, VMIRS, VMI),
    action=Action.WARN,
    event="DrainBlocked",
    params=Params(),
    check=check,
    sources=(
        "kubevirt/kubevirt:pod-eviction-admitter.go#admitLauncherPod",
        "kubevirt/kubevirt#7493",
        "kubernetes-sigs/cluster-api-provider-kubevirt:pkg/kubevirt/machine.go",
    ),
)
