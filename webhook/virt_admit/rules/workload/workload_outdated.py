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
from virt_admit.forecasts.drain.failures import failed_starts
from virt_admit.forecasts.drain.starts import crashed_launchers
from virt_admit.forecasts.drain.workload_updates import Reach, Update
from virt_admit.forecasts.placement import candidates
from virt_admit.model.kubernetes.cluster import Cluster, more_may_exist
from virt_admit.model.kubernetes.kinds import HARVESTER_UPGRADE, KUBEVIRT, VMI
from virt_admit.model.kubevirt.instances import migrations
from virt_admit.model.messages import count, cut, names, shorten
from virt_admit.model.node_updates import harvester_upgrades
from virt_admit.model.node_updates.rancher import fleet_objects
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
    status = kubevirt["status"]
    number = status["outdatedVirtualMachineInstanceWorkloads"]
    if status["phase"].value != "Deployed" or not number.integer or number.integer < 0:
        return
    outdated = number.integer - workload_updates.changed(context.cluster)
    if outdated <= 0:
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
    elif chart := fleet_objects.chart_of(kubevirt):
        if unread := list(more_may_exist(context.cluster, HARVESTER_UPGRADE)):
            yield from unread
            return
        goes_on = harvester_upgrades.keeps_launchers(context.cluster)
        listed = f"List LiveMigrate in spec.values of ManagedChart {cut(chart, 60)}"
        why = f"updates are switched off. {listed}."
        if goes_on:
            moves = "moves them when it drains their nodes"
            why = f"the upgrade of Harvester, which is under way, {moves}."
    else:
        why = f"updates are switched off. {_list(context.cluster)}"
    yield Finding(
        number.path,
        f"{count(outdated, 'VM')} {'runs' if outdated == 1 else 'run'} an outdated launcher: {why}",
        max_action=Action.AUDIT if goes_on else Action.DENY,
        command="virt-admit drain --all" if methods else "",
    )


def _list(cluster: Cluster) -> str:
    """Return the remedy where no method is listed: a method starts the migrations at once."""
    vm, bad = crashed_launchers.unfit(cluster)
    if vm:
        return (
            f"Repair {names(bad, 60)} first, where launchers crash ({vm}), then list LiveMigrate."
        )
    for vmi in workload_updates.outdated(cluster):
        target = candidates.target(vmi, cluster, moves=True)
        if failing := failed_starts.doubt(vmi, target, cluster):
            cause = shorten(failing.reason, 160).rstrip(".")
            return f"List LiveMigrate once {vmi.full_name} can migrate: now {cause}."
    return "List LiveMigrate in workloadUpdateMethods, or use virtctl migrate for single VMs."


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
