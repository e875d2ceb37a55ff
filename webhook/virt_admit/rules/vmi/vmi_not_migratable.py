"""A running VMI must live-migrate on a drain, but KubeVirt reports that it cannot.

**Why.** The condition ``LiveMigratable`` is False and the VMI has the strategy ``LiveMigrate``
until its next start. The API server answers every eviction with 429, so a drain of its node, and an
upgrade, never completes.

**Fix.** Remove the cause that the condition names. Or set
``evictionStrategy: LiveMigrateIfPossible`` or ``None`` on the VM and restart it, because the change
takes effect at the next start.
"""

from typing import Final

from virt_admit.forecasts.drain.guests import changed_disks
from virt_admit.model.kubernetes.kinds import VMI
from virt_admit.model.kubevirt.instances import expand, vmis
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.problems import problem_of
from virt_admit.rule import Action, Context, DrainAdvice, Finding, Findings, Object, rule, union

_ACCEPT_DOWNTIME: Final = "Set {} on the VM and restart it."


@rule(
    kinds=(VMI,),
    reads=union(expand.STRATEGY_READS, changed_disks.DISK_READS),
    action=Action.AUDIT,
    drain_advice=DrainAdvice.NO_MIGRATION,
    event="DrainBlocked",
    at_admission=False,
    sources=(
        "OpenShift Virtualization, Nodes 10.1.1",
        (
            "kubevirt/kubevirt:pkg/virt-api/webhooks/validating-webhook/admitters/"
            "pod-eviction-admitter.go"
        ),
        "kubevirt/kubevirt:pkg/monitoring/rules/alerts/vms.go",
    ),
)
def check(vmi: Object, context: Context) -> Findings:
    if not vmis.running(vmi) or vmis.migratable(vmi) is not False:
        return
    strategy = context.cached(expand.strategy, vmi)
    if strategy.value == "LiveMigrate":
        remedy = changed_disks.brief(vmi, context.cluster) or _ACCEPT_DOWNTIME.format(
            versions.shut_down_strategies(context.cluster)
        )
        yield Finding(
            strategy.path,
            f"the VMI cannot migrate ({vmis.blocking_reason(vmi)}) and {strategy.phrase} refuses "
            f"every eviction, so a drain hangs. {remedy}",
            value=vmis.blocking_reason(vmi),
            problem=problem_of(vmis.blocking_reason(vmi), vmi),
            command=changed_disks.command(vmi, context.cluster),
        )
