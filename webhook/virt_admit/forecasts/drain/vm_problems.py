"""The problems that keep a running VM on its node, one for each cause."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from virt_admit.forecasts.drain import typed_remedies
from virt_admit.forecasts.drain.external import acting_owners, external_movers
from virt_admit.forecasts.drain.guests import changed_disks
from virt_admit.forecasts.drain.states import stuck_starts
from virt_admit.forecasts.drain.vmi_evictions import Effect, Reaction, no_mover_here
from virt_admit.forecasts.placement import candidates, network_reach
from virt_admit.forecasts.placement.components.longhorn import engine_limits
from virt_admit.model.commands import argument, shell, typed, virtctl
from virt_admit.model.kubernetes.cluster import Cluster, gather
from virt_admit.model.kubernetes.kinds import LIMIT_RANGE, NODE, PVC, RESOURCE_QUOTA, VMIM, Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.kubevirt.instances import migratability, migration_timeouts, vmis, vms
from virt_admit.model.kubevirt.instances.migratability import Reason
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.kubevirt.settings.versions import Feature
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut_middle
from virt_admit.model.problems import Problem, ProblemCause
from virt_admit.model.remediation import fence_taints
from virt_admit.model.scheduler.pod_placement import Placement
from virt_admit.model.scheduler.pod_terms import NOT_SEARCHED

READS: Final = union(
    migratability.READS,
    stuck_starts.READS,
    fence_taints.READS,
    changed_disks.READS,
    external_movers.READS,
    acting_owners.READS,
    migration_timeouts.READS,
    engine_limits.READS,
)
"""The fields that the problems of a VM rest on besides those of ``vmi_evictions``."""


MOVER: Final = "whether the controller that has to move"
"""Begins what is not known of a VM that something outside KubeVirt has to move."""


def of_reaction(vmi: Object, reaction: Reaction, cluster: Cluster) -> tuple[Problem, ...]:
    """Return the problems because of which the eviction of a VMI's pod does not succeed."""
    if reaction.effect is Effect.REFUSED and vmis.migratable(vmi) is False:
        return _not_migratable(vmi, reaction, cluster)
    return (Problem(reaction.reason, reaction.remedy, reaction.cause, reaction.problem).about(vmi),)


def with_mover(found: Reaction, vmi: Object, cluster: Cluster) -> Reaction:
    """Return the reaction to an eviction with what is known of the controller that has to move the
    VMI.
    """
    if found.effect is Effect.ATTENDED and (by := external_movers.working(vmi, cluster)):
        reason = (
            f"{found.strategy.phrase}: Cluster API provider KubeVirt ({by}) drains its guest node "
            "for at most 10 min, then deletes the VMI"
        )
        return found._replace(effect=Effect.SHUTS_DOWN, reason=reason, remedy="")
    if found.effect is Effect.ATTENDED and (lost := external_movers.gone(vmi, cluster)):
        reason = f"{found.strategy.phrase}: nothing moves it, as {lost}"
        stays = vmis.migratable(vmi) is False
        does = "stop it for the drain" if stays else "migrate it by hand"
        way = typed(
            f"{does}; or, as a decision, delete it after checking that its guest is not needed any "
            "more",
            virtctl("stop" if stays else "migrate", vmi.name, vms.namespace_of(vmi)),
        )
        return found._replace(
            effect=Effect.EXTERNAL, reason=reason, remedy=way, cause=ProblemCause.MOVER_IDLE
        )
    asked = found.effect is Effect.EXTERNAL and found.cause == ProblemCause.EXTERNAL
    if asked and (act := acting_owners.of_vm(vmi, cluster)):
        reason = f"{found.strategy.phrase}: its owner {act.owner} moves it now: {act.words}"
        return found._replace(effect=Effect.SHUTS_DOWN, reason=reason, remedy="")
    if asked and (act := acting_owners.of_sibling(vmi, cluster)):
        reason = (
            f"{found.strategy.phrase}: its owner has to move it, as {act.owner} of the same kind "
            f"does now: {act.words}"
        )
        return found._replace(effect=Effect.SHUTS_DOWN, reason=reason, remedy="")
    if asked and (by := external_movers.named(vmi, cluster)):
        owner = acting_owners.named(vmi, cluster)
        mover = f"the controller of its owner {owner}" if owner else f"a controller that uses {by}"
        reason = (
            f"{found.strategy.phrase}: something outside KubeVirt has to move it, perhaps {mover}"
        )
        return found._replace(
            effect=Effect.ATTENDED, reason=f"{reason}; whether that acts is not known"
        )
    if asked and no_mover_here(cluster):
        return found._replace(reason=f"{found.reason}, and no pod of one runs here")
    return found


def not_reported(vmi: Object, phrase: str, cluster: Cluster) -> Problem:
    """Return that a VM which starts cannot be evicted yet, with what keeps its pod from starting.

    ``phrase``: its strategy.
    """
    known = vmis.migratable(vmi) is not None  # KubeVirt makes no target pod before the guest runs
    why = "its guest does not run yet" if known else "has not reported yet whether it can migrate"
    reason = f"{phrase}, but {why}; its eviction is refused until then"
    stuck = stuck_starts.problem(vmi, cluster)
    if stuck is None:
        wait = (
            "wait until its guest runs"
            if known
            else "wait until KubeVirt has reported LiveMigratable"
        )
        return Problem(reason, wait, ProblemCause.NOT_REPORTED)
    said = stuck.reason.removeprefix("its ")
    return stuck._replace(reason=f"{reason}. {'Its ' if said != stuck.reason else ''}{said}")


def _not_migratable(vmi: Object, reaction: Reaction, cluster: Cluster) -> tuple[Problem, ...]:
    """Return every reason why a VMI cannot migrate: KubeVirt publishes the first one alone,
    and all have to be removed.
    """
    reasons: dict[str, list[Reason]] = {}
    for reason in migratability.assess(vmi, cluster).reasons:
        reasons.setdefault(reason.name, []).append(reason)
    published = vmi.condition("LiveMigratable")["reason"].text
    if published and published not in reasons:
        reasons = {published: [], **reasons}
    said = cut_middle(vmi.condition("LiveMigratable")["message"].words, _LONGEST)
    problems = (
        _problem(
            name,
            [_of_existing(each, vmi, cluster) for each in found],
            said if name == published else "",
            reaction,
            cluster,
        ).about(vmi)
        for name, found in reasons.items()
    )
    if way := external_movers.replaced(vmi, cluster):
        return tuple(each._replace(remedy=way) for each in problems)
    return tuple(problems)


def _of_existing(reason: Reason, vmi: Object, cluster: Cluster) -> Reason:
    """Return a reason that is about a claim with what can be done about one that exists: its access
    modes do not change (kubernetes/kubernetes:pkg/apis/core/validation/validation.go
    #ValidatePersistentVolumeClaimUpdate).
    """
    name, space = reason.value, vms.namespace_of(vmi)
    is_of_claim = reason.remedy == migratability.SHARE_CLAIM and isinstance(name, str)
    if not is_of_claim or find(cluster, PVC, space, str(name)) is None:
        return reason
    if engine := engine_limits.of_claim(space, str(name), cluster):
        return reason._replace(what=f"{reason.what}, {engine}", remedy="")
    return reason._replace(
        remedy="copy it to a ReadWriteMany claim, as the access modes of a claim do not change"
    )


_LONGEST: Final = 200
"""Characters of KubeVirt's own words."""


_OPT_IN: Final = (
    f"annotate its template with {migratability.BRIDGE_OPT_IN}, if the network plugin keeps the "
    "address of a moved pod"
)
"""KubeVirt then migrates a guest with a bridge on the pod network
(pkg/network/vmispec/interface.go#VerifyVMIMigratable).
"""


def _problem(
    name: str, found: list[Reason], said: str, reaction: Reaction, cluster: Cluster
) -> Problem:
    """Return one reason as a problem. ``said``: KubeVirt's own words about it."""
    what = ", ".join(dict.fromkeys(reason.what for reason in found)) or said
    shown = f" ({what})" if what else ""
    remedies = dict.fromkeys(_named(reason) for reason in found if reason.remedy)
    known = versions.has_release(cluster, Feature.BRIDGE_OPT_IN.since)
    bridged = any(reason.value == "bridge" for reason in found)
    opt_in = _OPT_IN if known and bridged and len(remedies) == 1 else ""
    remedy = ", or ".join(
        filter(None, (" and ".join(remedies), opt_in, "let drains shut the guest down"))
    )
    reason = f"{reaction.strategy.phrase}, but cannot migrate: {name}{shown}"
    return Problem(reason, remedy, name or ProblemCause.NOT_MIGRATABLE)


def _named(reason: Reason) -> str:
    """Return the remedy of a reason with the name of what it is about instead of "it"."""
    return reason.remedy.replace(" them", " it").replace(" it", f" {reason.what}", 1)


def together(problems: Sequence[Problem]) -> str:
    """Return the reasons of all problems of a VM as one text,
    without repeating what they begin with.
    """
    first, *more = (problem.reason for problem in problems)
    shared = f"{first.partition(_CANNOT)[0]}{_CANNOT}"
    return "; ".join((first, *(reason.removeprefix(shared) for reason in more)))


_CANNOT: Final = ", but cannot migrate: "


def slow_copy(remedy: str, vmi: Object, cluster: Cluster) -> str:
    """Return the remedy of a migration that may not end, with the command for its settings."""
    if not typed_remedies.is_of_load(remedy):
        return remedy
    alone = "; or set it in a MigrationPolicy that selects this VM alone"
    own = "" if migration_timeouts.policy(vmi, cluster) is not None else alone
    return typed(f"{remedy}{own}", typed_remedies.edit_limits(vmi, cluster))


def unread(vmi: Object, placement: Placement, cluster: Cluster) -> Iterator[str]:
    """Yield what could not be read although it may keep a VMI from migrating."""
    if not placement.is_certain and not placement.has_candidate:
        yield from placement.unseen
        yield from (f"room on node {name}" for name in placement.undetermined)
        yield str(NODE)
    for kind in (LIMIT_RANGE, RESOURCE_QUOTA, VMIM):
        unseen = cluster.cached(_unread_in)(kind, vms.namespace_of(vmi))
        if unseen:
            yield unseen


def _unread_in(cluster: Cluster) -> Callable[[Kind, str], str]:
    """Return what could not be read if more objects of a kind may exist in a namespace; empty:
    all are known.

    A namespace is listed once for all of its VMs.
    """
    return functools.cache(lambda kind, namespace: gather(cluster.list(kind, namespace))[1])


def of_unseen(what: str) -> tuple[str, str]:
    """Return why an outcome cannot be determined, and the remedy.

    What has too many terms was read, but not searched.
    """
    if NOT_SEARCHED in what:
        return what, "reduce them, so that they can be judged"
    if what.startswith(network_reach.CHOSEN):
        where = "set the network up on that node, in Harvester by a VlanConfig that selects it"
        return (
            f"it is not known {what}",
            f"{where}, or select its label in the VM"
            if "network " in what
            else "select nodes that its volumes reach in the VM",
        )
    if what.startswith(candidates.OFFERED):
        see = shell("kubectl", "get", "nodes", "-L", argument(what.rpartition(" label ")[2]))
        return f"it is not known {what}", typed("see why virt-handler does not label it", see)
    return f"cannot see {what}", "let virt-admit read it"
