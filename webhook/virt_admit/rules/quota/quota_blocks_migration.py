"""A ResourceQuota leaves no room for the second launcher pod of a migration.

**Why.** While a VM migrates, its namespace holds two launcher pods for it. If the quota refuses the
second one, the migration never starts and a drain of the node never completes.

A quota without usage, as in a file, is compared with the VMs of its namespace that run: all of them
together, and a second pod of one of them. Their size is computed with KubeVirt's defaults where its
configuration is not known. The second pod of a migration that runs is there already. Harvester
raises the limits of a quota of Rancher once for each migration. Before 1.4.2 it does not do so
again when Rancher has written the limits of the namespace back.

**Fix.** Raise the quota by the requests and limits of the largest VM, or count VMs with an
ApplicationAwareResourceQuota. Where a container does not set what the quota demands, a larger quota
does not help: let a LimitRange or KubeVirt set it. The limits of a quota of Rancher are those of
the namespace in its project. Where one node runs all VMs, none can migrate: the rule is silent.
"""

from virt_admit.forecasts.drain import vmi_evictions
from virt_admit.forecasts.drain.vmi_evictions import Effect
from virt_admit.forecasts.placement import quotas
from virt_admit.model.commands import about
from virt_admit.model.evidence.writes import quota_writers
from virt_admit.model.kubernetes import nodes
from virt_admit.model.kubernetes.cluster import more_may_exist
from virt_admit.model.kubernetes.kinds import NODE, RESOURCE_QUOTA, VM, VMI
from virt_admit.model.kubevirt.instances import migratability, vmis, vms
from virt_admit.model.kubevirt.instances.expand import expand
from virt_admit.model.kubevirt.instances.migratability import Migratable
from virt_admit.model.kubevirt.launcher import (
    launcher_resources,
    limit_ranges,
    lost_surcharges,
    pod_refusals,
)
from virt_admit.model.kubevirt.launcher.lost_surcharges import LostSurcharge
from virt_admit.model.messages import capital, count
from virt_admit.model.problems import ProblemCause, problem_of
from virt_admit.model.scheduler.pod_size import PodSize
from virt_admit.rule import Action, Context, Finding, Findings, Object, Unseen, gather, rule, union

_RUNS = ("Always", "RerunOnFailure", "Once")


@rule(
    kinds=(RESOURCE_QUOTA,),
    reads=union(
        vmi_evictions.READS,
        quotas.READS,
        migratability.READS,
        {VM: ("spec", "status.instancetypeRef", "status.preferenceRef")},
    ),
    action=Action.WARN,
    event="MigrationImpossible",
    at_admission=False,
    sources=(
        "kubernetes/kubernetes:pkg/quota/v1/evaluator/core/pods.go#podComputeUsageHelper",
        "kubevirt/kubevirt:pkg/virt-controller/watch/migration/migration.go#createTargetPod",
        "kubevirt/application-aware-quota:docs/design.md",
    ),
)
def check(quota: Object, context: Context) -> Findings:
    cluster = context.cluster
    if cluster.cached(nodes.alone):  # no VM can migrate, whatever the quota
        return
    found, unseen = gather(cluster.list(VMI, vms.namespace_of(quota)))
    if not found and not quota.at("status", "used").present:
        yield from _judge_planned(quota, context)
    refused: dict[str, list[tuple[str, str]]] = {}
    lost: LostSurcharge | None = None
    unset: dict[str, tuple[str, str]] = {}
    for vmi in filter(vmis.running, found):
        try:
            if vmi_evictions.reaction(vmi, cluster).effect is not Effect.MIGRATES:
                continue
            lacks = quotas.lacks_for(quota, vmi, cluster)
        except Unseen as blind:
            yield blind
            continue
        if lacks and lost is None:
            lost = lost_surcharges.of(vmi, quota, cluster)
        for resource, lack in quotas.missing(lacks):
            way = pod_refusals.unset_remedy(quota, {resource: lacks[resource]}, cluster)
            if way is not None and resource not in refused:
                unset[resource] = way
            refused.setdefault(resource, []).append((vmi.name, lack))
    if refused and (unread := list(more_may_exist(cluster, NODE))):
        yield from unread  # one node, or Harvester, would end each of these findings
        refused.clear()
    for resource, lacking in sorted(refused.items()):
        name, lack = lacking[0]
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        path = quota.at("spec", "hard", resource).path
        sets, command = unset.get(resource, ("", lost.command if lost else _show(quota)))
        ways = [capital(sets.replace("; or ", ", or "))] if sets else _ways(quota, lost)
        yield Finding(
            path,
            check.first_that_fits(
                path,
                f"{lack} for a second pod of VM {name}{more}: its migration never starts, so a "
                f"drain hangs. {ways[0]}.",
                f"{lack} for a second pod of {len(lacking)} VMs, so a drain hangs. {ways[-1]}.",
            ),
            value=resource,
            problem=problem_of(ProblemCause.QUOTA, quota),
            command=command,
        )
    if unseen:
        yield Unseen(unseen)


def _ways(quota: Object, lost: LostSurcharge | None) -> list[str]:
    """Return what makes a quota larger, and the same shorter."""
    return [_remedy(quota, lost), _remedy(quota, lost, brief=True)]


def _remedy(quota: Object, lost: LostSurcharge | None, *, brief: bool = False) -> str:
    if lost is not None:
        return "Give it back what Harvester had added" if brief else capital(lost.words)
    if quota_writers.is_of_rancher(quota):
        raised = quota_writers.is_raised(quota)
        once = ", once its migrations have ended, as Harvester refuses that before"
        writes = ", which writes the quota"
        return f"Raise the limits of the namespace in Rancher{once if raised else writes}"
    return f"Raise the quota{'' if brief else ', or use an ApplicationAwareResourceQuota'}"


def _show(quota: Object) -> str:
    """Return the command for a quota that is not to be edited itself."""
    of_rancher = quota_writers.is_of_rancher(quota)
    return about("describe", quota, RESOURCE_QUOTA) if of_rancher else ""


def _judge_planned(quota: Object, context: Context) -> Findings:
    """Judge a quota by the VMs that will run in its namespace, before any does."""
    namespace = vms.namespace_of(quota)
    ranges = limit_ranges.of_namespace(context.cluster, namespace)
    sizes: dict[str, PodSize] = {}
    moving: list[str] = []
    for vm in context.cluster.known(VM, namespace):
        given = expand(vm, context.cluster)
        if vms.run_strategy(vms.vm_spec(vm)) not in _RUNS:
            continue
        if given.unseen:
            yield from map(Unseen, given.unseen)
            continue
        pod = launcher_resources.pod(given, context.cluster)
        sizes[vm.name] = limit_ranges.defaulted(pod, ranges)
        try:
            if _moves(vm, context):
                moving.append(vm.name)
        except Unseen as blind:
            yield blind
    told: set[str] = set()
    for name in (*moving, ""):
        for resource, lack, at_start in quotas.shortages(quota, sizes.values(), sizes.get(name)):
            if resource in told:
                continue
            told.add(resource)
            what = f"a second pod of VM {name[:63]}: its migration never starts, so a drain hangs"
            if at_start:
                together = f"{count(len(sizes), 'VM')} of the namespace together"
                what = f"{together}, so not all of them start"
            yield Finding(
                quota.at("spec", "hard", resource).path,
                f"{quotas.in_words(resource, lack)} missing for {what}. Raise the quota.",
                value=resource,
                problem=problem_of(ProblemCause.QUOTA, quota),
            )


def _moves(vm: Object, context: Context) -> bool:
    """Return whether a drain waits for the migration of a VM.

    Raises:
        Unseen: its eviction strategy is the cluster's, which is unknown.
    """
    if not vmi_evictions.awaits_migration(vm, context.facts):
        return False
    return context.cached(migratability.assess, vm).migratable is not Migratable.NO
