"""A virtual machine uses an obsolete CPU model.

**Why.** The node labeller removes obsolete models from all nodes. A VM with such a model cannot
start. A running VM with such a model cannot migrate: its pod is never scheduled, so drains and
upgrades hang. Only a node that the labeller skips keeps its old labels, and only that node can run
the VM.

**Fix.** Write ``host-model`` (the default if no model is set) or a model that nodes offer. If the
model comes from an instance type or from KubeVirt's ``cpuModel``, change it there.
"""

from virt_admit.model.kubernetes.kinds import HCO, POOL, VM, VMI, VMIRS
from virt_admit.model.kubevirt.instances import cpu_models
from virt_admit.model.kubevirt.instances.expand import expand
from virt_admit.model.kubevirt.settings import configuration
from virt_admit.model.messages import count, names
from virt_admit.rule import Action, Cause, Context, Finding, Findings, Object, Unseen, rule, union


@rule(
    kinds=(VM, POOL, VMIRS, VMI),
    reads=union(cpu_models.READS, {HCO: ()}),
    action=Action.DENY,
    sources=(
        "OpenShift Virtualization, Node maintenance 11.5",
        "kubevirt/kubevirt:pkg/virt-handler/node-labeller/util/util.go#DefaultObsoleteCPUModels",
        "kubevirt/kubevirt:pkg/virt-controller/services/nodeselectorrenderer.go",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    cluster = context.cluster
    vmi = context.cached(expand, obj)
    model = context.cached(cpu_models.named, vmi) if vmi.spec.is_map else None
    obsolete = configuration.obsolete_models(cluster)
    if model is None:
        return
    if model.name not in obsolete:
        configuration.demand_obsolete_models(cluster)
        return
    certain = False
    try:
        offers = cpu_models.offers(cluster)
    except Unseen as unseen:
        offers = cpu_models.Offers({}, conclusive=False)
        yield unseen
    offering = offers.by(model.name)
    if offering:
        why = (
            f"is obsolete and offered by {count(len(offering), 'node')} only "
            f"({names(offering, 50)}), so it runs nowhere else"
        )
    elif offers.conclusive:
        certain = not model.source
        why = "is obsolete and no node offers it, so the VM can never be scheduled"
    else:
        why = "is obsolete, so no node will offer it and the VM cannot start or migrate"
    alternatives = () if model.source else offers.most_common(3, without=obsolete)
    instead = f" or one that nodes offer: {names(alternatives, 60)}" if alternatives else ""
    short = f"{model.phrase} {why}. {model.remedy}"
    yield Finding(
        model.path,
        check.first_that_fits(model.path, f"{short}{instead}.", f"{short}."),
        value=model.name,
        cause=Cause.NOT_SUPPORTED,
        max_action=Action.DENY if certain else Action.WARN,
    )
