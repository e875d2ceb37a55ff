"""A CPU model becomes obsolete while VMs still name it.

**Why.** The node labeller takes the model off all nodes. VMs that name it keep running where they are, but do not
start again, and no migration of theirs finds a node: each attempt waits five minutes and is repeated for ever, so
that drains and updates hang.

**Fix.** Give those VMs another model and restart them first. A node that the labeller skips goes on offering the
model, which only hides the problem until it is drained.
"""

from collections.abc import Iterator

from virt_admit.model.cluster import Unseen, more_may_exist
from virt_admit.model.kinds import HCO, KUBEVIRT, NODE, VM, VMI
from virt_admit.model.kubevirt import obsolete_cpus
from virt_admit.model.kubevirt.configuration import Setting, setting
from virt_admit.model.messages import count, names
from virt_admit.model.objects import Object
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding | Unseen]:
    obsolete = obsolete_cpus.newly_obsolete(obj, context.old)
    if not obsolete:
        return
    naming = obsolete_cpus.vms_by_model(context.cluster)
    models = sorted(obsolete.intersection(naming))
    if models:
        hit = [f"{vm} → {model}" for model in models for vm in naming[model]]
        skipped = sorted({node for model in models for node in obsolete_cpus.skipped_nodes(context.cluster, model)})
        hidden = f"; still offered by skipped {names(skipped, 20)}" if skipped else ""
        yield Finding(
            setting(obj, Setting.OBSOLETE_CPU_MODELS).path,
            f"{count(len(hit), 'VM')} will not start again, nor migrate (each try 5 min, for ever); "
            f"change the model first: {names(hit, 30 if skipped else 50)}{hidden}",
            value=(*models, len(hit)),
        )
    yield from more_may_exist(context.cluster, VM)
    yield from more_may_exist(context.cluster, VMI)


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(HCO, KUBEVIRT),
    reads=(VM, VMI, NODE),
    action=Action.WARN,
    check=check,
    sources=(
        "OpenShift Virtualization, Node maintenance 11.5",
        "kubevirt/hyperconverged-cluster-operator:controllers/handlers/kubevirt.go#getObsoleteCPUConfig",
        "kubevirt/kubevirt:pkg/virt-handler/node-labeller/cpu_plugin.go",
    ),
)
