"""A running VMI must live-migrate on a drain, and KubeVirt says that it cannot.

**Why.** This is no guess: the condition ``LiveMigratable`` is False and the strategy ``LiveMigrate`` is frozen in the
VMI. Every eviction is answered 429 and nothing follows, so a drain of its node, and with it an upgrade, hangs for ever.

**Fix.** Repair what the condition names, or set ``evictionStrategy: LiveMigrateIfPossible`` or ``None`` on the VM and
restart it: a change reaches the guest at its next start.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import VMI
from virt_admit.model.kubevirt import effective, vmis
from virt_admit.model.objects import Object
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(vmi: Object, context: Context[NoParams]) -> Iterator[Finding]:
    if not vmis.running(vmi) or vmis.migratable(vmi) is not False:
        return
    strategy = effective.strategy(vmi, context.cluster)
    if strategy.value == "LiveMigrate":
        yield Finding(
            strategy.path,
            f"{vmis.blocking_reason(vmi)}, and {strategy.phrase} refuses every eviction: a drain hangs; "
            "set LiveMigrateIfPossible or None on the VM and restart it",
            value=vmis.blocking_reason(vmi),
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(VMI,),
    reads=effective.STRATEGY_READS,
    action=Action.AUDIT,
    event="DrainBlocked",
    at_admission=False,
    check=check,
    sources=(
        "OpenShift Virtualization, Nodes 10.1.1",
        "kubevirt/kubevirt:pkg/virt-api/webhooks/validating-webhook/admitters/pod-eviction-admitter.go",
        "kubevirt/kubevirt:pkg/monitoring/rules/alerts/vms.go",
    ),
)
