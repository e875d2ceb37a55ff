"""The host CPU model of a node becomes obsolete.

**Why.** VMs that do not name a CPU model run with ``host-model``. KubeVirt keeps them off nodes
whose host model is obsolete, and a running VM finds no migration target that fits. If every node
has an obsolete host model, these VMs can neither start nor migrate.

**Fix.** Do not list the models of your own nodes, or set a default CPU model that the nodes offer.
"""

from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT, NODE
from virt_admit.model.kubevirt.instances import cpu_models, obsolete_cpus
from virt_admit.model.kubevirt.settings import configuration
from virt_admit.model.kubevirt.settings.configuration import Setting, setting
from virt_admit.rule import Action, Context, Finding, Findings, Object, count, names, rule

HOST_DEFAULTS = (None, "", configuration.HOST_MODEL, configuration.HOST_PASSTHROUGH)


@rule(
    kinds=(HCO, KUBEVIRT),
    reads={NODE: ("metadata.labels",)},
    action=Action.DENY,
    sources=(
        (
            "kubevirt/kubevirt:pkg/virt-controller/services/"
            "template.go#setNodeAffinityForHostModelCpuModel"
        ),
        "kubevirt/kubevirt:pkg/virt-handler/node-labeller/node_labeller.go",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    obsolete = obsolete_cpus.newly_obsolete(obj, context.old)
    if not obsolete:
        return
    nodes = cpu_models.host_models(context.cluster)
    affected = sorted(name for name, models in nodes.items() if models & obsolete)
    if not affected:
        return
    lost = sorted(frozenset.union(*nodes.values()) & obsolete)
    are = "is the host model" if len(lost) == 1 else "are host models"
    listed = configuration.own_obsolete_models(obj)
    default = setting(obj, Setting.DEFAULT_CPU_MODEL).value
    none_left = default in HOST_DEFAULTS and all(models <= listed for models in nodes.values())
    vms = "VMs that do not name their own model"
    consequence = f"{vms} could not start there or migrate away. Do not list these models."
    if none_left:
        consequence = f"no node is left for {vms}. Set a default CPU model first."
    yield Finding(
        setting(obj, Setting.OBSOLETE_CPU_MODELS).path,
        f"{names(lost, 40)} {are} of {count(len(affected), 'node')}; {consequence} Nodes: "
        f"{names(affected, 50)}",
        max_action=Action.DENY if none_left else Action.WARN,
    )
