"""A node has been cordoned or drained for long, and something refuses the eviction of a pod that is
not of a VM, or a guest that was told to shut down does not.

**Why.** Who drains the node tries the eviction again and again without an error of its own:
``kubectl drain``, a roll-out, or a Machine that is being deleted and is not replaced before its
node is empty.

**Fix.** End what the finding names. ``virt-admit drain NAME`` has everything that holds the node.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.drain import pod_evictions, progress, typed_remedies
from virt_admit.forecasts.drain.budgets import evicted_pods
from virt_admit.forecasts.drain.budgets.drain_obstacles import Blocker
from virt_admit.forecasts.drain.guests import ending_guests
from virt_admit.forecasts.drain.progress import DrainCause, DrainStart
from virt_admit.model.commands import argument, shell
from virt_admit.model.kubernetes import clock, kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, entry, gather, more_may_exist
from virt_admit.model.kubernetes.kinds import (
    CAPI_MACHINE,
    HARVESTER_UPGRADE,
    MACHINE,
    NODE,
    PDB,
    UPGRADE_PLAN,
)
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.messages import advice_of, command_of, cut, ended
from virt_admit.model.node_updates import harvester_upgrades
from virt_admit.model.problems import Problem, ProblemCause, ProblemId
from virt_admit.model.remediation import machine_drain
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule, union

_PATIENCE = timedelta(minutes=10)
"""Pods that start elsewhere are ready by then, so that their budget lets the next one go."""
_TOLD = (ProblemCause.NODE_SILENT, ProblemCause.NODE_CANNOT_END_PODS)
"""Causes of the node itself, which ``node-not-reporting`` names."""


@rule(
    kinds=(NODE,),
    reads=union(
        pod_evictions.READS,
        ending_guests.READS,
        progress.READS,
        machine_drain.READS,
        harvester_upgrades.READS,
        {HARVESTER_UPGRADE: ("metadata.labels",)},
        {CAPI_MACHINE: ("metadata.deletionTimestamp",), MACHINE: ("metadata.deletionTimestamp",)},
    ),
    action=Action.WARN,
    urgency=Urgency.STUCK,
    effect=True,
    event="DrainBlocked",
    at_admission=False,
    sources=(
        "kubernetes/kubernetes:pkg/registry/core/pod/storage/eviction.go#checkAndDecrement",
        "kubernetes-sigs/cluster-api:core/reconcilers/machine/drain/drain.go#EvictPods",
    ),
)
def check(node: Object, context: Context) -> Findings:
    cluster = context.cluster
    start = progress.start(node, cluster)
    age = clock.since(clock.stamp(start.since), cluster) if start is not None else None
    if start is None or age is None or age < _PATIENCE:
        return
    if harvester_upgrades.is_before_drain(node.name, cluster):
        return
    machine = next(machine_drain.deleted_of(node.name, cluster), None)
    spared = frozenset(_spared(node.name, machine, cluster))
    lasting = pod_evictions.of_node(cluster, node.name, spared=spared).lasting
    held = [
        each
        for each in lasting
        if each.cause not in _TOLD and not _is_of_the_moment(each, start, cluster)
    ]
    unread = list(_unread(cluster)) if held and start.cause is DrainCause.CORDON else []
    if unread:  # a Machine that is being deleted may leave these pods alone
        yield from unread
    elif held:
        more = f" (and {len(held) - 1} more)" if len(held) > 1 else ""
        subject, remedy = f"{held[0].subject}{more}", typed_remedies.of_blocker(held[0])
        begin = _begin(start, machine, clock.duration(age))
        yield _finding(node, begin, f"{subject}: {held[0].reason}", remedy, held[0].id)
    elif (guest := _guest(node.name, start, machine, cluster)) is not None:
        begin = _begin(start, machine, clock.duration(age))
        yield _finding(node, begin, guest.reason, guest.remedy, guest.id)


def _finding(
    node: Object, begin: str, words: str, remedy: str, problem: ProblemId | None
) -> Finding:
    path, advice = node.metadata["name"].path, advice_of(remedy)
    told = ended(cut(words, check.room(path) - len(begin) - 1))
    whole = (
        f"{begin}{ended(words)} {ended(each)}"
        for each in (advice, *(advice.partition(mark)[0] for mark in _LATER))
    )
    message = check.first_that_fits(path, *whole, f"{begin}{told}")
    command = command_of(remedy) or shell("virt-admit", "drain", argument(node.name))
    return Finding(path, message, value=node.name, problem=problem, command=command)


def _guest(
    node: str, start: DrainStart, machine: Object | None, cluster: Cluster
) -> Problem | None:
    """Return the first guest that takes long to shut down; None: none is known to.

    Its owner may stop the VM of a node that is only cordoned, which needs no drain.
    """
    only_cordoned = start.cause is DrainCause.CORDON and machine is None
    for vmi in gather(vmis.on_node(cluster, node))[0]:
        found = ending_guests.late(vmi, cluster)
        if found is not None and not (only_cordoned and vmi.deleted):
            return found._replace(reason=f"VM {vmi.full_name}: {found.reason}").about(vmi)
    return None


def _unread(cluster: Cluster) -> Iterator[Unseen]:
    """Yield the kinds of which an unread object may say that no budget holds the node."""
    for kind in (CAPI_MACHINE, HARVESTER_UPGRADE, UPGRADE_PLAN):
        yield from more_may_exist(cluster, kind)


_LATER: Final = (", because ", ", or ", ", and ")
"""What follows the first step of a remedy, which is said where the rest has no room."""


def _is_of_the_moment(blocker: Blocker, start: DrainStart, cluster: Cluster) -> bool:
    """Return whether a budget of a node that is only cordoned refuses now: perhaps nothing drains
    it, and a pod restarts.

    A budget says itself since when it allows no disruption.
    """
    if start.cause is not DrainCause.CORDON or blocker.kind != PDB.kind or not blocker.now:
        return False
    return not clock.has_lasted(blocker.since, _PATIENCE, cluster)


def _begin(start: DrainStart, machine: Object | None, lasts: str) -> str:
    """Return what is under way: a cordon alone may be no drain yet."""
    if machine is not None:
        return f"Machine {cut(machine.full_name, 60)} is being deleted for {lasts} and waits: "
    if start.cause is DrainCause.CORDON:
        return f"cordoned for {lasts}, and a drain does not end: "
    return f"{cut(start.by, 60)} drains it for {lasts} and waits: "


def _spared(node: str, machine: Object | None, cluster: Cluster) -> Iterator[str]:
    """Yield the pods that Cluster API does not evict when it deletes the Machine of a node."""
    if machine is not None and kinds.of(machine) is CAPI_MACHINE:
        for pod in entry(cluster, evicted_pods.by_node, node) or ():
            if machine_drain.spared(pod, machine, cluster) is not None:
                yield pod.full_name
