"""Upgrades of Harvester that stand still because Rancher waits: for its own cluster, or for bundles
that nothing applies.

Rancher updates Kubernetes on the nodes after the bundle of the system-upgrade-controller is ready.
The agent of Fleet applies bundles, so an agent that was scaled down stops all of it without an
error. Sources: harvester/harvester: package/upgrade/upgrade_manifests.sh,
:pkg/controller/master/upgrade/upgrade_controller.go; rancher/rancher:
pkg/controllers/provisioningv2/managedchart, :pkg/controllers/capr/managesystemagent;
rancher/fleet:internal/cmd/agent; https://github.com/harvester/harvester/issues/4119 and #4525.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.model.commands import about, kubectl, typed
from virt_admit.model.evidence.writes import refused_writes
from virt_admit.model.evidence.writes.fleet_objects import LOCAL
from virt_admit.model.evidence.writes.refused_writes import RefusedWrite
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import (
    DEPLOYMENT,
    FLEET_BUNDLE,
    NODE,
    RANCHER_CLUSTER,
    STATEFUL_SET,
    Kind,
)
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import capital, cut, names
from virt_admit.model.node_updates import harvester_upgrades, update_orders
from virt_admit.model.node_updates.node_phases import IN_FLIGHT
from virt_admit.model.node_updates.rancher import helm_releases
from virt_admit.model.node_updates.rancher.helm_releases import HeldRelease
from virt_admit.model.node_updates.update_orders import StandingOrder

_REPLICAS: Final = ("spec.replicas", "status.readyReplicas")

READS: Final[Reads] = union(
    clock.READS,
    harvester_upgrades.READS,
    helm_releases.READS,
    refused_writes.READS,
    {
        RANCHER_CLUSTER: ("spec.kubernetesVersion", "status.conditions"),
        FLEET_BUNDLE: ("status.conditions", "status.display"),
        DEPLOYMENT: (*_REPLICAS, "status.conditions"),
        STATEFUL_SET: _REPLICAS,
        NODE: ("status.nodeInfo.kubeletVersion",),
    },
)

_PAUSE: Final = timedelta(minutes=15)
"""An upgrade scales such a controller down for less, while it changes its charts."""
_USUAL: Final = timedelta(minutes=30)
"""A bundle is applied, and the first node is chosen, by then."""


class _Wait(NamedTuple):
    """Something for which an upgrade waits."""

    obj: Object
    words: str
    condition: Field
    """What says that it is not done."""

    @property
    def since(self) -> str | None:
        return update_orders.since(self.condition)


class _Controller(NamedTuple):
    """A controller without which a wait does not end."""

    kind: Kind
    namespace: str
    name: str
    applies: bool
    """Whether it applies bundles; the others act on the cluster of Rancher."""


_CONTROLLERS: Final = (
    _Controller(DEPLOYMENT, "cattle-fleet-local-system", "fleet-agent", True),
    _Controller(STATEFUL_SET, "cattle-fleet-local-system", "fleet-agent", True),
    _Controller(DEPLOYMENT, "cattle-fleet-system", "fleet-controller", True),
    _Controller(DEPLOYMENT, "cattle-system", "rancher", False),
    _Controller(DEPLOYMENT, "cattle-provisioning-capi-system", "capi-controller-manager", False),
)


def standing(cluster: Cluster) -> Iterator[StandingOrder]:
    """Yield the upgrade of Harvester that waits for Rancher, if no node of it is under way."""
    for upgrade, update in harvester_upgrades.going(cluster):
        begun = any(node.phase in IN_FLIGHT for node in update.nodes.values())
        if not begun and not update.paused:
            yield from _of(upgrade, cluster)


def _of(upgrade: Object, cluster: Cluster) -> Iterator[StandingOrder]:
    waits = [*_clusters(cluster), *_bundles(cluster)]
    ages = [age for each in waits if (age := clock.since(each.since, cluster)) is not None]
    lasts = max(ages, default=timedelta())
    young = clock.age(upgrade, cluster)
    # what was so before the upgrade does not hold it for longer
    lasts = lasts if young is None else min(lasts, young)
    if not waits or lasts < _PAUSE:
        return
    title, words = update_orders.title(upgrade), ". ".join(each.words for each in waits[:2])
    moved = f"no node of it has begun, and it has not moved for {clock.duration(lasts)}: {words}"
    off, silent = _idle(waits, cluster)
    also = scale = ""
    if off is not None:
        also = f"{off.kind.kind} {off.namespace}/{off.name} has 0 replicas"
        scale = kubectl("scale", off.kind, off.name, off.namespace, "--replicas=1")
    if off is not None and not _changes_charts(upgrade, cluster) and not _is_fresh(off, cluster):
        does = "applies it" if off.applies else "goes on with it"
        reason = f"{title}: {moved}. Nothing {does}, because {also}"
        remedy = typed("Scale it up, after which the upgrade goes on by itself", scale)
        held, begun = update_orders.title(waits[-1].obj), clock.duration(lasts)
        brief = f"no node has begun for {begun}: {also}, and {held} waits for it"
        yield StandingOrder(upgrade, reason, remedy, True, brief)
    elif (denied := _refused(waits, cluster)) is not None:
        held, refused = update_orders.title(denied[0]), denied[1]
        brief = f"{held} is not written for {clock.duration(lasts)}: {refused.brief}"
        reason = f"{title}: {moved}. {refused.words}"
        yield StandingOrder(upgrade, reason, capital(refused.remedy), True, brief)
    elif (release := _held(waits, cluster)) is not None and lasts >= _USUAL:
        reason = f"{title}{'' if release.known else ' goes on'}: {moved}. {capital(release.reason)}"
        brief = release.reason if release.known else ""
        yield StandingOrder(upgrade, reason, release.remedy, release.known, brief)
    elif lasts >= _USUAL:
        waiting = waits[-1].obj
        of = FLEET_BUNDLE if waits[-1].obj.kind == FLEET_BUNDLE.kind else RANCHER_CLUSTER
        see, why = typed("See what it waits for", about("describe", waiting, of)), ""
        if off is not None:
            why = f". {also}"
            see = typed("Scale it up if the upgrade does not do so by itself", scale)
        elif silent is not None:
            why = f". {silent.kind.kind} {silent.namespace}/{silent.name} has no ready pod"
            see = typed(
                "Repair that first", kubectl("describe", silent.kind, silent.name, silent.namespace)
            )
        yield StandingOrder(upgrade, f"{title} goes on: {moved}{why}", see, False)


def _refused(waits: Sequence[_Wait], cluster: Cluster) -> tuple[Object, RefusedWrite] | None:
    """Return the first of these that says what the API server refuses, and why; None: none does."""
    for each in waits:
        said, since = each.condition["message"].words, clock.instant(each.since)
        if (refused := refused_writes.of(said, cluster, since)) is not None:
            return each.obj, refused
    return None


def _held(waits: Sequence[_Wait], cluster: Cluster) -> HeldRelease | None:
    """Return which release of Helm keeps Fleet from applying one of these; None: none does."""
    then = "after which the upgrade goes on by itself"
    bundles = [each for each in waits if each.obj.kind == FLEET_BUNDLE.kind]
    found = (helm_releases.of_bundle(each.obj, each.words, then, cluster) for each in bundles)
    return next(filter(None, found), None)


def restarts_controllers(cluster: Cluster) -> bool:
    """Return whether an upgrade of Harvester changes charts, or did a moment ago."""
    return any(_changes_charts(each, cluster) for each, _ in harvester_upgrades.going(cluster))


def _changes_charts(upgrade: Object, cluster: Cluster) -> bool:
    """Return whether an upgrade changes charts, or did a moment ago:
    it scales controllers down itself meanwhile.
    """
    charts = upgrade.condition("SystemServicesUpgraded")
    if harvester_upgrades.stage(upgrade)[0].startswith("ClusterUpgrad"):  # of an UpgradePlan
        return True
    if charts.present and charts["status"].text != "True":
        return True
    lasts = clock.since(charts["lastUpdateTime"].text, cluster)
    return lasts is not None and lasts < _PAUSE


def _is_fresh(controller: _Controller, cluster: Cluster) -> bool:
    """Return whether the state of a controller has changed a moment ago."""
    own = find(cluster, controller.kind, controller.namespace, controller.name)
    conditions = own.at("status", "conditions").items() if own is not None else ()
    stamps = (
        each[when].text for each in conditions for when in ("lastUpdateTime", "lastTransitionTime")
    )
    return any(age < _PAUSE for stamp in stamps if (age := clock.since(stamp, cluster)) is not None)


def _clusters(cluster: Cluster) -> Iterator[_Wait]:
    """Yield the cluster of Rancher in which it runs, while it is not updated."""
    for each in cluster.known(RANCHER_CLUSTER, LOCAL):
        updated = each.condition("Updated")
        if updated["status"].text in ("False", "Unknown"):
            said = update_orders.quoted(updated["message"].text)
            yield _Wait(
                each,
                f"{update_orders.title(each)}{_step(each, cluster)} is not updated{said}",
                updated,
            )


def _step(each: Object, cluster: Cluster) -> str:
    """Return from which release to which a cluster is updated."""
    new = each.at("spec", "kubernetesVersion").text
    old = {node.at("status", "nodeInfo", "kubeletVersion").text for node in cluster.known(NODE)} - {
        None,
        new,
    }
    return f" ({names(sorted(map(str, old)), 60)} to {cut(new, 40)})" if new and old else ""


def _bundles(cluster: Cluster) -> Iterator[_Wait]:
    """Yield the bundles for this cluster that are not ready.

    Nothing waits for one that is Modified.
    """
    for each in sorted(cluster.known(FLEET_BUNDLE, LOCAL), key=lambda each: each.name):
        ready, state = each.condition("Ready"), each.at("status", "display", "state").text or ""
        if ready["status"].text == "False" and state in (
            "WaitApplied",
            "ErrApplied",
            "NotReady",
            "Pending",
        ):
            said = "" if state == "WaitApplied" else update_orders.quoted(ready["message"].text)
            lasts = clock.lasting(update_orders.since(ready), cluster)
            yield _Wait(each, f"{update_orders.title(each)} is {state}{lasts}{said}", ready)


def _idle(
    waits: Sequence[_Wait], cluster: Cluster
) -> tuple[_Controller | None, _Controller | None]:
    """Return the first controller of these waits that has no replicas,
    and the first one without a ready pod.
    """
    bundles = any(each.obj.kind == FLEET_BUNDLE.kind for each in waits)
    off = silent = None
    for each in _CONTROLLERS:
        if each.applies and not bundles:
            continue
        found = find(cluster, each.kind, each.namespace, each.name)
        if found is None:
            continue
        if found.at("spec", "replicas").integer == 0:
            off = off or each
        elif not found.at("status", "readyReplicas").integer:
            silent = silent or each
    return off, silent
