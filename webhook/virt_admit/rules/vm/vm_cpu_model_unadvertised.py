"""A virtual machine uses a CPU model that no node offers.

**Why.** The pod of the VM needs a node with a label for exactly this model, so the VM stays Pending. The comparison is
case-sensitive.

**Fix.** Write a model that nodes offer (``kubectl get nodes -L cpu-model.node.kubevirt.io/<model>``), or
``host-model``. Ignore the finding if you are about to add a node with this processor.
"""

from virt_admit.model.kubernetes.kinds import HCO, POOL, VM, VMI, VMIRS
from virt_admit.model.kubevirt.instances import cpu_models
from virt_admit.model.kubevirt.instances.expand import expand
from virt_admit.model.kubevirt.settings import configuration
from virt_admit.rule import Action, Cause, Context, Finding, Findings, Object, names, rule, union


@rule(
    kinds=(VM, POOL, VMIRS, VMI),
    reads=union(cpu_models.READS, {HCO: ()}),
    action=Action.WARN,
    sources=(
        "kubevirt/kubevirt:pkg/virt-controller/services/nodeselectorrenderer.go",
        "kubevirt/kubevirt:pkg/virt-handler/node-labeller/node_labeller.go#prepareLabels",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    cluster = context.cluster
    vmi = context.cached(expand, obj)
    model = context.cached(cpu_models.named, vmi) if vmi.spec.is_map else None
    if model is None or model.name in configuration.obsolete_models(cluster):
        return
    offers = cpu_models.offers(cluster)
    if not offers.conclusive or offers.by(model.name):
        return
    alike = offers.alike(model.name)
    if alike:
        hint = f"Did you mean {names(alike, 40)}?"
    else:
        hint = f"{model.remedy}." if model.source else f"{model.remedy} or one that nodes offer."
    yield Finding(
        model.path,
        f"no node offers {model.phrase}, so the VM cannot be scheduled. {hint}",
        value=model.name,
        cause=Cause.NOT_SUPPORTED,
    )
