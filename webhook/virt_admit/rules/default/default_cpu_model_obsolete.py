"""The default CPU model is obsolete.

**Why.** The node labeller removes obsolete models from all nodes. VMs that do not name their own
model then find no node and do not start.

**Fix.** Choose a model that the nodes offer, remove the default, or remove the model from the
obsolete list.
"""

from typing import Final

from virt_admit.model import cel
from virt_admit.model.kubevirt.settings import cel_settings, configuration
from virt_admit.model.kubevirt.settings.configuration import Setting, setting
from virt_admit.rule import HCO, KUBEVIRT, Action, Context, Finding, Findings, Object, rule, show

_ON_THE_HOST: Final = ("", configuration.HOST_MODEL, configuration.HOST_PASSTHROUGH)
_VALUE: Final = f"{cel_settings.cel_setting(Setting.DEFAULT_CPU_MODEL)}.orValue(null)"
_LISTED: Final = cel_settings.cel_setting(Setting.OBSOLETE_CPU_MODELS)
_PREDEFINED: Final = f"[{', '.join(map(cel.text, sorted(configuration.PREDEFINED_OBSOLETE)))}]"
_OBSOLETE: Final = (
    f"(self.kind == '{KUBEVIRT.kind}' ? ({cel.entries(_LISTED)}.size() > 0 ? "
    f"{cel.entries(_LISTED)}.map(model, model) : {_PREDEFINED}) : {_PREDEFINED} + "
    f"{cel.items(_LISTED)})"
)


@rule(
    kinds=(HCO, KUBEVIRT),
    action=Action.DENY,
    denials=(
        cel.Denial(
            when=(
                f"{_VALUE} != null && {_VALUE} in {_OBSOLETE} && "
                f"!({cel.one_of(_VALUE, _ON_THE_HOST)})"
            ),
            path=cel_settings.cel_path(Setting.DEFAULT_CPU_MODEL),
            message=(
                f"{cel.shown(_VALUE)} + ' is obsolete, so no node offers it; VMs that do not name "
                "their own model could ' + 'not start. Choose another model.'"
            ),
            value=_VALUE,
        ),
    ),
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
            f"{show(model.text)} is {predefined}obsolete, so no node offers it; VMs that do not "
            "name their own model could not start. Choose another model.",
        )
