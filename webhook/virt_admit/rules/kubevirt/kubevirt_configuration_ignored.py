"""One setting makes KubeVirt ignore its whole configuration.

**Why.** KubeVirt checks a few settings when it reads its configuration. If one is not valid,
KubeVirt keeps the last valid configuration as a whole, and only a log line says so. Every later
change of any setting has no effect either, and after a restart of KubeVirt's pods the built-in
defaults apply.

**Fix.** Correct the setting.
"""

from virt_admit.model.kubevirt.settings import invalid_configuration
from virt_admit.rule import KUBEVIRT, Action, Context, Finding, Findings, Object, rule, show


@rule(
    kinds=(KUBEVIRT,),
    action=Action.WARN,
    sources=(
        "kubevirt/kubevirt:pkg/virt-config/configuration.go#validateConfig",
        "kubevirt/kubevirt:pkg/virt-config/configuration.go#GetConfig",
    ),
)
def check(obj: Object, _: Context) -> Findings:
    for field, valid in invalid_configuration.invalid_settings(obj):
        yield Finding(
            field.path,
            f"{show(field.value)} is not valid, so KubeVirt keeps its last valid configuration and "
            f"ignores every change. Write {valid}.",
        )
