"""An obsolete CPU model of KubeVirt has the value false.

**Why.** KubeVirt reads only the key, so the model is obsolete with any value.

**Fix.** Remove the key.
"""

from virt_admit.model.kubevirt.settings.configuration import Setting, setting
from virt_admit.rule import KUBEVIRT, Action, Context, Finding, Findings, Object, Patch, rule


@rule(
    kinds=(KUBEVIRT,),
    action=Action.WARN,
    fixable=True,
    sources=("kubevirt/kubevirt:pkg/virt-handler/node-labeller/cpu_plugin.go#filterCpuModels",),
)
def check(kubevirt: Object, _context: Context) -> Findings:
    message = (
        "false has no effect, because KubeVirt reads only the key: the model is still obsolete. "
        "Remove the key."
    )
    models = setting(kubevirt, Setting.OBSOLETE_CPU_MODELS)
    for name, value in models.map.items():
        if value is False:
            yield Finding(
                models[name].path,
                message,
                fix=(Patch("remove", models[name].path),),
                why="its value has no effect",
            )
