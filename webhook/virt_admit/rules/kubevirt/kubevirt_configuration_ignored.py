"""One setting makes KubeVirt ignore its whole configuration.

**Why.** KubeVirt checks a few settings when it reads its configuration. If one is not valid, KubeVirt keeps the last
valid configuration as a whole, and only a log line says so. Every later change of any setting has no effect either, and
after a restart of KubeVirt's pods the built-in defaults apply.

**Fix.** Correct the setting.
"""

from collections.abc import Iterator

from virt_admit.model.kubernetes.kinds import KUBEVIRT
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.units import show
from virt_admit.model.kubevirt.settings import invalid_configuration
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, _: Context[NoParams]) -> Iterator[Finding]:
    for field, valid in invalid_configuration.invalid_settings(obj):
        yield Finding(
            field.path,
            f"{show(field.value)} is not valid, so KubeVirt keeps its last valid configuration and ignores every "
            f"change. Write {valid}.",
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(KUBEVIRT,),
    action=Action.WARN,
    check=check,
    sources=(
        "kubevirt/kubevirt:pkg/virt-config/configuration.go#validateConfig",
        "kubevirt/kubevirt:pkg/virt-config/configuration.go#GetConfig",
    ),
)
