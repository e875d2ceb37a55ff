"""The default CPU model is obsolete.

**Why.** The node labeller removes obsolete models from all nodes. VMs that do not name their own model then find no
node and do not start.

**Fix.** Choose a model that the nodes offer, remove the default, or remove the model from the obsolete list.
"""

from virt_admit.model.kubevirt.settings import configuration
from virt_admit.model.kubevirt.settings.configuration import Setting, setting
from virt_admit.rule import HCO, KUBEVIRT, Action, Context, Finding, Findings, Object, rule, show


@rule(
    kinds=(HCO, KUBEVIRT),
    action=Action.DENY,
    sources=(
        "kubevirt/kubevirt:pkg/virt-handler/node-labeller/cpu_plugin.go#filterCpuModels",
        "kubevirt/kubevirt:pkg/virt-controller/services/nodeselectorrenderer.go",
    ),
)
def check(obj: Object, _context: Context) -> Findings:
    model = setting(obj, Setting.DEFAULT_CPU_MODEL)
    if model.text in (None, "", configuration.HOST_MODEL, configuration.HOST_PASSTHROUGH):
        return
    if model.text in configuration.own_obsolete_models(obj):
        predefined = "predefined as " if model.text in configuration.PREDEFINED_OBSOLETE else ""
        yield Finding(
            model.path,
            f"{show(model.text)} is {predefined}obsolete, so no node offers it; VMs that do not name their own model "
            "could not start. Choose another model.",
        )
