"""The cluster's eviction strategy is not a valid value.

**Why.** KubeVirt's schema accepts any string and no webhook checks it. KubeVirt copies the value
into each new VM that does not set its own strategy. virt-api then rejects that VM: such VMs can be
neither created nor started.

**Fix.** Write ``LiveMigrate``, ``LiveMigrateIfPossible``, ``None`` or ``External`` exactly, or
remove the field.
"""

from virt_admit.model import cel
from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT
from virt_admit.model.kubevirt.instances.vms import EVICTION_STRATEGIES
from virt_admit.model.kubevirt.settings.cel_settings import cel_path, cel_setting
from virt_admit.model.kubevirt.settings.configuration import Setting, setting
from virt_admit.model.messages import did_you_mean
from virt_admit.rule import Action, Cause, Context, Finding, Findings, Object, Patch, rule, show


@rule(
    kinds=(HCO, KUBEVIRT),
    action=Action.DENY,
    fixable=True,
    denials=(
        cel.Denial(
            when=(
                f"{cel.present(cel_setting(Setting.EVICTION_STRATEGY))} && "
                f"!({cel_setting(Setting.EVICTION_STRATEGY)}.orValue(null) in "
                f"{list(EVICTION_STRATEGIES)})"
            ),
            path=cel_path(Setting.EVICTION_STRATEGY),
            message=cel.text(
                "is not valid; KubeVirt would reject every VM that does not set its own strategy. "
                f"Use one of {', '.join(EVICTION_STRATEGIES)}."
            ),
            value=f"{cel_setting(Setting.EVICTION_STRATEGY)}.orValue(null)",
        ),
    ),
    sources=(
        (
            "kubevirt/kubevirt:pkg/virt-api/webhooks/validating-webhook/admitters/"
            "vmi-create-admitter.go#validateLiveMigration"
        ),
        "kubevirt/kubevirt:pkg/defaults/defaults.go#setDefaultEvictionStrategy",
    ),
)
def check(obj: Object, _context: Context) -> Findings:
    strategy = setting(obj, Setting.EVICTION_STRATEGY)
    if strategy.present and strategy.value not in EVICTION_STRATEGIES:
        suggestion = did_you_mean(strategy.value, EVICTION_STRATEGIES)
        yield Finding(
            strategy.path,
            f"{show(strategy.value)} is not valid; KubeVirt would reject every VM that does not "
            f"set its own strategy. Use one of {', '.join(EVICTION_STRATEGIES)}.",
            cause=Cause.NOT_SUPPORTED,
            fix=(Patch("replace", strategy.path, suggestion),) if suggestion else (),
            why="the value is misspelt",
        )
