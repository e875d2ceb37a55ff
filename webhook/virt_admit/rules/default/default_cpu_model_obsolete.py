"""The default CPU model is one of the obsolete ones.

**Why.** The node labeller takes obsolete models off all nodes, so every VM that names no model of its own finds
no node.

**Fix.** Choose a model that the nodes offer, remove the default, or take the model off the list.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import HCO, KUBEVIRT
from virt_admit.model.kubevirt import configuration
from virt_admit.model.kubevirt.configuration import Setting, setting
from virt_admit.model.objects import Object
from virt_admit.model.units import show
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    model = setting(obj, Setting.DEFAULT_CPU_MODEL)
    if model.text in (None, "", configuration.HOST_MODEL, configuration.HOST_PASSTHROUGH):
        return
    if model.text in configuration.own_obsolete_models(obj):
        predefined = "predefined as " if model.text in configuration.PREDEFINED_OBSOLETE else ""
        yield Finding(
            model.path,
            f"{show(model.text)} is {predefined}obsolete, no node will offer it, and VMs without their own model "
            "would not start; choose another",
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
