"""The cluster's eviction strategy is a word that KubeVirt does not know.

**Why.** KubeVirt's schema takes any string and no webhook looks. The value is copied into each new VM without a
strategy of its own, and virt-api then refuses that VM: nothing can be created or started any more.

**Fix.** Write ``LiveMigrate``, ``LiveMigrateIfPossible``, ``None`` or ``External``, exactly, or remove the field.
"""

from collections.abc import Iterator

from webhook.model.configuration import Setting, setting
from webhook.model.kinds import HCO, KUBEVIRT
from webhook.model.objects import Object
from webhook.model.units import show
from webhook.model.virt import EVICTION_STRATEGIES
from webhook.rule import Action, Cause, Context, Finding, NoParams, Rule


def check(obj: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    strategy = setting(obj, Setting.EVICTION_STRATEGY)
    if strategy.present and strategy.value not in EVICTION_STRATEGIES:
        yield Finding(
            strategy.path,
            f"{show(strategy.value)} is no eviction strategy, and every VM without its own would be refused; "
            f"write one of {', '.join(EVICTION_STRATEGIES)}",
            cause=Cause.NOT_SUPPORTED,
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(HCO, KUBEVIRT),
    action=Action.DENY,
    check=check,
    sources=(
        "kubevirt/kubevirt:pkg/virt-api/webhooks/validating-webhook/admitters/vmi-create-admitter.go"
        "#validateLiveMigration",
        "kubevirt/kubevirt:pkg/defaults/defaults.go#setDefaultEvictionStrategy",
    ),
)
