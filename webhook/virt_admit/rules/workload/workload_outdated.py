"""Virtual machines run an outdated launcher.

**Why.** KubeVirt was updated, but these VMs were not. They keep the bugs and vulnerabilities of the
old launcher. After a few releases they can no longer migrate.

**Fix.** The fix depends on the reason: list update methods, make VMs migratable, allow evictions,
or wait. While VMs migrate and none fails, this is a note: KubeVirt moves a few at a time.
``virt-admit drain --all`` shows the reason for each VM. Only ``scan`` and ``check`` report this.
"""

from collections import Counter
from collections.abc import Collection

from virt_admit.forecasts.drain import vm_outcomes, workload_updates
from virt_admit.forecasts.drain.changes import old_launchers
from virt_admit.forecasts.drain.starts import crashed_launchers
from virt_admit.forecasts.drain.workload_updates import Reach, Update
from virt_admit.model.evidence.writes import fleet_objects
from virt_admit.model.kubernetes.cluster import Cluster, more_may_exist
from virt_admit.model.kubernetes.kinds import HARVESTER_UPGRADE, KUBEVIRT, VMI
from virt_admit.model.kubevirt.instances import migrations
from virt_admit.model.messages import count
from virt_admit.model.node_updates import harvester_upgrades
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule, union

MOVING = "migrating"
REFUSING = "refusing eviction"
FAILING = "failing to migrate"
UNKNOWN = "undetermined"
WHY = {
    Reach.MIGRATED: "waiting for their turn",
    Reach.RESTARTED: "waiting for their turn",
    Reach.STOPPED: "waiting for their turn",
    Reach.RETRIED: FAILING,
    Reach.UNKNOWN: UNKNOWN,
}
STUCK = frozenset((REFUSING, FAILING, UNKNOWN))
GOES_ON = "KubeVirt goes on by itself; those that cannot migrate wait for a restart."


@rule(
    kinds=(KUBEVIRT,),
    reads=union(
        vm_outcomes.READS,
        crashed_launchers.READS,
        harvester_upgrades.READS,
        {HARVESTER_UPGRADE: ()},
    ),
    action=Action.WARN,
    urgency=Urgency.STUCK,
    at_admission=False,
    sources=(
        "kubevirt/kubevirt:pkg/virt-controller/watch/workload-updater/workload-updater.go#sync",
    ),
)
def check(kubevirt: Object, context: Context) -> Findings:
    outdated = old_launchers.number(kubevirt, context.cluster)
    if not outdated:
        return
    methods = workload_updates.methods(kubevirt)
    goes_on = False
    if methods:
        reasons = _reasons(methods, context.cluster)
        goes_on = MOVING in reasons and not STUCK.intersection(reasons)
        said = (
            ", ".join(f"{number} {reason}" for reason, number in reasons.most_common())
            or "names cannot be read"
        )
        why = f"{said}. {GOES_ON if goes_on else 'Run virt-admit drain --all for details.'}"
        yield from more_may_exist(context.cluster, VMI)
    else:
        unread = list(more_may_exist(context.cluster, HARVESTER_UPGRADE))
        if unread and fleet_objects.chart_of(kubevirt):
            yield from unread
            return
        why, goes_on = old_launchers.switched_off(kubevirt, context.cluster)
    yield Finding(
        kubevirt.at("status", "outdatedVirtualMachineInstanceWorkloads").path,
        f"{count(outdated, 'VM')} {'runs' if outdated == 1 else 'run'} an outdated launcher: {why}",
        max_action=Action.AUDIT if goes_on else Action.DENY,
        command="virt-admit drain --all" if methods else "",
    )


def _reasons(methods: frozenset[str], cluster: Cluster) -> Counter[str]:
    never = REFUSING if workload_updates.EVICT in methods else "not migratable"
    moving = {vmi.full_name for vmi in workload_updates.moving(cluster)}
    reaches = (
        workload_updates.update(vmi, methods, cluster) for vmi in workload_updates.outdated(cluster)
    )
    return Counter(_reason(each, moving, cluster) or never for each in reaches)


def _reason(update: Update, moving: Collection[str], cluster: Cluster) -> str:
    """Return why a VM still runs the old launcher; empty: no method of the update reaches it."""
    if update.reach is Reach.MIGRATED and update.vmi.full_name in moving:
        return MOVING
    tried = update.reach is Reach.MIGRATED and migrations.failed_in_a_row(update.vmi, cluster)
    return FAILING if tried else WHY.get(update.reach, "")
