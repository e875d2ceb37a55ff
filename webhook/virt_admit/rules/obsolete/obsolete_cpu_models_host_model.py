"""The processor of a node becomes an obsolete model.

**Why.** VMs without a model of their own run with ``host-model`` and must avoid nodes whose host model is
obsolete; a running one finds no target that fits. If no node remains, every VM without its own model can start
and migrate nowhere.

**Fix.** Leave the models of your own nodes off the list, or set a default CPU model that the nodes offer.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import HCO, KUBEVIRT, NODE
from virt_admit.model.kubevirt import configuration, cpu_models, obsolete_cpus
from virt_admit.model.kubevirt.configuration import Setting, setting
from virt_admit.model.messages import count, names
from virt_admit.model.objects import Object
from virt_admit.rule import Action, Context, Finding, NoParams, Rule

OF_THE_HOST = (None, "", configuration.HOST_MODEL, configuration.HOST_PASSTHROUGH)


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    obsolete = obsolete_cpus.newly_obsolete(obj, context.old)
    if not obsolete:
        return
    nodes = cpu_models.host_models(context.cluster)
    hit = sorted(name for name, models in nodes.items() if models & obsolete)
    if not hit:
        return
    gone = sorted(frozenset.union(*nodes.values()) & obsolete)
    are = "is the host model" if len(gone) == 1 else "are host models"
    every = configuration.own_obsolete_models(obj)
    default = setting(obj, Setting.DEFAULT_CPU_MODEL).value
    none_left = default in OF_THE_HOST and all(models <= every for models in nodes.values())
    effect = (
        "no node is left for VMs without their own model, they could start and migrate nowhere; "
        "set a default CPU model first"
        if none_left
        else "VMs without their own model will not start there or migrate from there"
    )
    yield Finding(
        setting(obj, Setting.OBSOLETE_CPU_MODELS).path,
        f"{names(gone, 40)} {are} of {count(len(hit), 'node')}; {effect}: {names(hit, 50)}",
        max_action=Action.DENY if none_left else Action.WARN,
    )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(HCO, KUBEVIRT),
    reads=(NODE,),
    action=Action.DENY,
    check=check,
    sources=(
        "kubevirt/kubevirt:pkg/virt-controller/services/template.go#setNodeAffinityForHostModelCpuModel",
        "kubevirt/kubevirt:pkg/virt-handler/node-labeller/node_labeller.go",
    ),
)
