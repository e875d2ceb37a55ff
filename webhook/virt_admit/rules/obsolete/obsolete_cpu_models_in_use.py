"""A CPU model becomes obsolete while VMs still name it.

**Why.** The node labeller removes the model from all nodes. VMs that name it keep running, but they
cannot start again and their migrations find no node. KubeVirt gives up each attempt after 5 minutes
and repeats it forever, so drains and updates hang.

**Fix.** First give those VMs another model and restart them. A node that the labeller skips still
offers the model, which only hides the problem until that node is drained.
"""

from virt_admit.model.kubernetes.cluster import more_may_exist
from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT, VM, VMI
from virt_admit.model.kubevirt.instances import obsolete_cpus
from virt_admit.model.kubevirt.settings.configuration import Setting, setting
from virt_admit.rule import Action, Context, Finding, Findings, Object, count, names, rule


@rule(
    kinds=(HCO, KUBEVIRT),
    reads=obsolete_cpus.READS,
    action=Action.WARN,
    sources=(
        "OpenShift Virtualization, Node maintenance 11.5",
        (
            "kubevirt/hyperconverged-cluster-operator:controllers/handlers/"
            "kubevirt.go#getObsoleteCPUConfig"
        ),
        "kubevirt/kubevirt:pkg/virt-handler/node-labeller/cpu_plugin.go",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    obsolete = obsolete_cpus.newly_obsolete(obj, context.old)
    if not obsolete:
        return
    vms_by_model = obsolete_cpus.vms_by_model(context.cluster)
    models = sorted(obsolete.intersection(vms_by_model))
    if models:
        affected = [f"{vm} ({model})" for model in models for vm in vms_by_model[model]]
        offering = (obsolete_cpus.skipped_nodes(context.cluster, model) for model in models)
        skipped = sorted(set().union(*offering))
        hidden = f"; only skipped nodes offer it: {names(skipped, 20)}" if skipped else ""
        yield Finding(
            setting(obj, Setting.OBSOLETE_CPU_MODELS).path,
            f"{count(len(affected), 'VM')} could not start again or migrate (retried every 5 min "
            "forever). Give them another model first: "
            f"{names(affected, 30 if skipped else 50)}{hidden}",
            value=(*models, len(affected)),
        )
    yield from more_may_exist(context.cluster, VM)
    yield from more_may_exist(context.cluster, VMI)
