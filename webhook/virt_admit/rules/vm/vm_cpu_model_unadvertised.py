"""A virtual machine uses a CPU model that no node offers.

**Why.** The pod of the VM needs a node with a label for exactly this model, so the VM stays
Pending. The comparison is case-sensitive.

**Fix.** Write a model that nodes offer (``kubectl get nodes -L
cpu-model.node.kubevirt.io/<model>``), or ``host-model``. A label
``host-model-cpu.node.kubevirt.io/<model>`` offers the model to ``host-model`` only. Ignore the
finding if you are about to add a node with this processor.
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
    # most VMs need no forecast
    from virt_admit.forecasts.placement import common_model  # noqa: PLC0415

    alike = offers.alike(model.name)
    offered = common_model.closest(model.name, cluster)
    known = f"{offered}, which every node offers" if offered else "one that nodes offer"
    if alike:
        hint = f"Did you mean {names(alike, 40)}?"
    else:
        hint = f"{model.remedy}." if model.source else f"{model.remedy} or {known}."
    label = " (only as host-model-cpu)" if common_model.only_host(model.name, cluster) else ""
    begin = f"no node offers {model.phrase}"
    choices = (f"{begin}{each}, so the VM cannot be scheduled. {hint}" for each in (label, ""))
    yield Finding(
        model.path,
        check.first_that_fits(model.path, *choices),
        value=model.name,
        cause=Cause.NOT_SUPPORTED,
    )
