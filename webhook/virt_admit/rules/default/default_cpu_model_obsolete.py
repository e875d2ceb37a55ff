"""The default CPU model is obsolete.

**Why.** The node labeller removes obsolete models from all nodes. VMs that do not name their own model then find no
node and do not start.

**Fix.** Choose a model that the nodes offer, remove the default, or remove the model from the obsolete list.
"""

from collections.abc import Iterator

from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.units import show
from virt_admit.model.kubevirt.settings import configuration
from virt_admit.model.kubevirt.settings.configuration import Setting, setting
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, _context: Context[NoParams]) -> Iterator[Finding]:
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


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(HCO, KUBEVIRT),
    action=Action.DENY,
    check=check,
    sources=(
        "kubevirt/kubevirt:pkg/virt-handler/node-labeller/cpu_plugin.go#filterCpuModels",
        "kubevirt/kubevirt:pkg/virt-controller/services/nodeselectorrenderer.go",
    ),
)
