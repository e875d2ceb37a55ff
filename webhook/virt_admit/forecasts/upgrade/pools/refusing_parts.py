"""Parts of Harvester for which its webhook refuses an Upgrade: nodes, Machines, backups, add-ons.

Sources: harvester/harvester:pkg/webhook/resources/upgrade/validator.go#Create #checkNodes
#checkMachines #checkVMBackups #checkScheduleVMBackups (both since 1.4), #checkAddons (since 1.7),
:pkg/controller/master/backup/util.go#IsBackupProgressing, :pkg/util/addon/addon.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.remediation import hand_reboots
from virt_admit.model.commands import about, argument, merge_patch, shell, typed
from virt_admit.model.evidence.writes.fleet_objects import LOCAL
from virt_admit.model.kubernetes import clock, workloads
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import (
    CAPI_CLUSTER,
    CAPI_MACHINE,
    DEPLOYMENT,
    HARVESTER_ADDON,
    HARVESTER_BACKUP,
    HARVESTER_SCHEDULE,
    HARVESTER_SETTING,
    HARVESTER_UPGRADE,
    HARVESTER_VERSION,
    NODE,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, NAME, Reads, union
from virt_admit.model.kubevirt.settings.versions import Version, parse_version
from virt_admit.model.lookups import fields, find
from virt_admit.model.messages import names
from virt_admit.model.node_updates import (
    harvester_upgrades,
    maintenance_updates,
    update_orders,
    updaters,
)
from virt_admit.model.node_updates.node_phases import IN_FLIGHT
from virt_admit.model.node_updates.rancher import nodeless_machines

SPACE: Final = "harvester-system"
_STATE: Final = "harvesterhci.io/upgradeState"
_CLEANUP: Final = "harvesterhci.io/upgradeCleanup"
READS: Final[Reads] = union(
    clock.READS,
    harvester_upgrades.READS,
    hand_reboots.READS,
    maintenance_updates.READS,
    nodeless_machines.READS,
    updaters.READS,
    {
        HARVESTER_UPGRADE: (
            *(f"metadata.labels.{_STATE}", f"metadata.labels.{_CLEANUP}"),
            *("metadata.creationTimestamp", "status.conditions"),
        ),
        HARVESTER_BACKUP: (
            *("metadata.creationTimestamp", "status.readyToUse"),
            *("status.error", "status.progress"),
        ),
        HARVESTER_SCHEDULE: ("status.suspended",),
        HARVESTER_VERSION: NAME,
        HARVESTER_ADDON: (
            *("spec.enabled", "status.status", "metadata.creationTimestamp"),
            *(*CONDITIONS, "status.conditions.lastUpdateTime"),
        ),
        HARVESTER_SETTING: ("value", "default"),
        DEPLOYMENT: ("spec.template.spec.containers",),
        CAPI_CLUSTER: ("metadata.creationTimestamp", "status.phase", *CONDITIONS),
        CAPI_MACHINE: (
            *("metadata.creationTimestamp", "metadata.deletionTimestamp", "status.phase"),
        ),
        NODE: ("spec.unschedulable", *CONDITIONS),
    },
)
BACKUPS: Final = Version(1, 4)
ADDONS: Final = Version(1, 7)
_LONG: Final = timedelta(hours=1)
"""A Machine that is made or leaves, a change of an add-on or of the Cluster, and the cleanup after
an upgrade are over by then.
"""
_BEGINS: Final = timedelta(minutes=10)
"""Harvester has labelled an Upgrade by then."""
_BACKUP: Final = timedelta(days=1)
"""The backup of a large disk is over by then."""


class StartRefusal(NamedTuple):
    """Something for which the webhook refuses an Upgrade."""

    obj: Object
    why: str
    """A clause, to follow ``while``."""
    remedy: str
    until: str = ""
    """What ends it, as a clause to follow ``until``: a wait, or a step of its administrator at the
    start of each upgrade. Empty: the state has to be repaired.
    """
    certain: bool = True
    """False: only some releases refuse it, or a setting is not known."""
    is_step: bool = False
    """Whether it lasts until its administrator ends it, by the remedy: without that the upgrade
    never begins. A VM that is only shut down, or an annotation of the Upgrade, is none.
    """


def release(cluster: Cluster) -> Version | None:
    """Return the release of Harvester, whose webhook decides; None: not known."""
    said = fields(cluster, HARVESTER_SETTING, "", "server-version")["value"].text
    webhook = fields(cluster, DEPLOYMENT, SPACE, "harvester-webhook")
    tags = workloads.image_tags(webhook.at("spec", "template", "spec"))
    return parse_version(said) or next(filter(None, map(parse_version, tags)), None)


def offered(cluster: Cluster) -> str:
    """Return the newest release that Harvester offers for an upgrade; empty: none that is known."""
    runs = release(cluster)
    found = ((parse_version(each.name), each.name) for each in cluster.known(HARVESTER_VERSION))
    newer = [(to, name) for to, name in found if to is not None and runs is not None and to > runs]
    return max(newer)[1] if newer else ""


def refusals(cluster: Cluster) -> Iterator[StartRefusal]:
    """Yield what refuses an Upgrade now, in the order of the webhook."""
    yield from _earlier(cluster)
    yield from _cluster(cluster)
    own = release(cluster)
    if own is None or own >= BACKUPS:
        found = (*_backups(cluster), *_schedules(cluster))
        yield from (each._replace(certain=own is not None) for each in found)
    if own is None or own >= ADDONS:
        yield from (each._replace(certain=own is not None) for each in _addons(cluster))
    yield from _nodes(cluster)
    yield from _machines(cluster)


def _earlier(cluster: Cluster) -> Iterator[StartRefusal]:
    for upgrade in sorted(cluster.known(HARVESTER_UPGRADE), key=lambda each: each.name):
        see, title = about("describe", upgrade, HARVESTER_UPGRADE), update_orders.title(upgrade)
        if upgrade.labels.get(_CLEANUP) == "Pending":
            over = update_orders.since(upgrade.condition("Completed")) or upgrade.created
            late = clock.has_lasted(over, _LONG, cluster)
            lasts = clock.lasting(over, cluster) if late else ""
            yield StartRefusal(
                upgrade,
                f"{title} cleans up after itself{lasts} ({_CLEANUP} Pending)",
                typed("see why its cleanup does not end", see),
                "" if late else f"the cleanup of {title} has ended",
            )
        if upgrade.labels.get(_STATE) not in ("Succeeded", "Failed"):
            yield _unmarked(upgrade, see, cluster)


def _unmarked(upgrade: Object, see: str, cluster: Cluster) -> StartRefusal:
    """Return that an Upgrade counts as one that goes on: the webhook asks its label alone, and
    takes none for that, too.
    """
    title, state = update_orders.title(upgrade), upgrade.labels.get(_STATE)
    label = f"{_STATE} {state}" if state else f"without label {_STATE}"
    if upgrade.condition("Completed")["status"].text in ("True", "False"):
        why = f"{title} counts as not ended ({label})"
        return StartRefusal(upgrade, why, typed("delete it, as it has ended", see))
    if not state and (age := clock.age(upgrade, cluster)) is not None and age < _BEGINS:
        return StartRefusal(upgrade, f"{title} begins", see, f"{title} has ended")
    why = f"{title} has not ended ({label}), although it is not the latest"
    page = "finish it, or delete it as the page of Harvester on a failed one says"
    return StartRefusal(upgrade, why, typed(page, see))


def lacks_cluster(cluster: Cluster) -> bool:
    """Return whether the Cluster that has to be Provisioned is not known."""
    return _local(cluster) is None


def _local(cluster: Cluster) -> Object | None:
    return find(cluster, CAPI_CLUSTER, LOCAL, "local")


def _cluster(cluster: Cluster) -> Iterator[StartRefusal]:
    found = _local(cluster)
    phase = found.at("status", "phase").text if found is not None else None
    if found is not None and phase != "Provisioned":
        title = f"Cluster {found.full_name} of Cluster API"
        last = _last_change(found)
        late = clock.has_lasted(last, _LONG, cluster)
        lasts = clock.lasting(last, cluster) if late else ""
        passes = phase in (None, "", "Pending", "Provisioning") and not late
        until = f"{title} is Provisioned" if passes else ""
        see = typed("see why it is not", about("describe", found, CAPI_CLUSTER))
        yield StartRefusal(found, f"{title} is {phase or _NEW}{lasts}", see, until)


_NEW: Final = "without a phase"


def _last_change(obj: Object) -> str:
    """Return when the last condition of an object changed, else when it was made."""
    said = obj.at("status", "conditions").items()
    return max(filter(None, map(update_orders.since, said)), default=obj.created)


def _backups(cluster: Cluster) -> Iterator[StartRefusal]:
    every = sorted(cluster.known(HARVESTER_BACKUP), key=lambda each: each.full_name)
    for backup in every:
        status = backup["status"]
        if status["error"].present or status["readyToUse"].boolean:
            continue
        done = status["progress"].integer
        far = f" ({done}% done)" if done is not None else ""
        late = clock.has_lasted(backup.created, _BACKUP, cluster)
        title = update_orders.title(backup)
        made = clock.lasting(backup.created, cluster) if late else ""
        see = "see what keeps it, as the rest of a backup that nothing finishes is to be deleted"
        yield StartRefusal(
            backup,
            f"{title} is not ready to use{far}{made}",
            typed(see, about("describe", backup, HARVESTER_BACKUP)),
            "" if late else f"{title} is ready to use{far}",
        )


def _schedules(cluster: Cluster) -> Iterator[StartRefusal]:
    every = sorted(cluster.known(HARVESTER_SCHEDULE), key=lambda each: each.full_name)
    going = [each for each in every if not each.at("status", "suspended").boolean]
    if going:
        which = names((each.full_name for each in going), 80)
        verb = "are" if going[1:] else "is"
        until = f"{HARVESTER_SCHEDULE.kind} {which} {verb} suspended"
        them = "each of them" if going[1:] else "it"
        back = "them" if going[1:] else "it"
        way = f"suspend {them}, and resume {back} (spec.suspend false) once the upgrade has ended"
        remedy = typed(way, _suspend(going[0]))
        why = f"{HARVESTER_SCHEDULE.kind} {which} runs"
        yield StartRefusal(going[0], why, remedy, until, is_step=True)


def _suspend(schedule: Object) -> str:
    data = {"spec": {"suspend": True}}
    return merge_patch(HARVESTER_SCHEDULE, schedule.name, schedule.namespace, data)


_ADDON_DONE: Final = {True: ("AddonDeploySuccessful",), False: ("AddonDisabled", "")}


def _addons(cluster: Cluster) -> Iterator[StartRefusal]:
    for addon in sorted(cluster.known(HARVESTER_ADDON), key=lambda each: each.full_name):
        enabled = addon.at("spec", "enabled").boolean is True
        state = addon.at("status", "status").text or ""
        if state in _ADDON_DONE[enabled]:
            continue
        last = _last_change(addon)
        late = clock.has_lasted(last, _LONG, cluster)
        wanted = "enabled" if enabled else "disabled"
        title = f"{HARVESTER_ADDON.kind} {addon.full_name}"
        for_long = clock.lasting(last, cluster) if late else ""
        yield StartRefusal(
            addon,
            f"{title} is {wanted} and has state {state or 'none'}{for_long}",
            typed("see why it does not end", about("describe", addon, HARVESTER_ADDON)),
            "" if late else f"{title} is {'deployed' if enabled else 'disabled'}",
        )


def _nodes(cluster: Cluster) -> Iterator[StartRefusal]:
    away = {**updaters.maintenances(cluster), **hand_reboots.phases(cluster)}
    for node in sorted(cluster.known(NODE), key=lambda each: each.name):
        update, ready = away.get(node.name), node.condition("Ready")
        passes = update is not None and update.phase in IN_FLIGHT
        if node.at("spec", "unschedulable").boolean:
            words, command = maintenance_updates.way_back(node)
            until = f"the maintenance of {node.name} is over" if passes else ""
            yield StartRefusal(node, f"{node.name} is cordoned", typed(words, command), until)
        elif ready["status"].text in ("False", "Unknown"):
            late = clock.has_lasted(ready["lastTransitionTime"].text, hand_reboots.LONGEST, cluster)
            lasts = clock.lasting(ready["lastTransitionTime"].text, cluster)
            see = shell("kubectl", "describe", "node", argument(node.name))
            until = "" if late else f"{node.name} is Ready"
            yield StartRefusal(
                node, f"{node.name} is not Ready{lasts}", typed("repair the node", see), until
            )


def _machines(cluster: Cluster) -> Iterator[StartRefusal]:
    for machine in sorted(cluster.known(CAPI_MACHINE, LOCAL), key=lambda each: each.name):
        phase = machine.at("status", "phase").text
        if phase == "Running":
            continue
        began = machine.metadata["deletionTimestamp"].text or machine.created
        passes = machine.deleted or phase in (None, "", "Pending", "Provisioning", "Provisioned")
        late = clock.has_lasted(began, _LONG, cluster)
        title = update_orders.title(machine)
        until = f"{title} is {'gone' if machine.deleted else 'Running'}"
        see = typed("see why it is not Running", about("describe", machine, CAPI_MACHINE))
        why = f"{title} is {phase or _NEW}"
        if late and (left := nodeless_machines.left_over(machine, cluster)) is not None:
            yield StartRefusal(machine, f"{why}: {left.why}", left.remedy)
            continue
        yield StartRefusal(machine, why, see, until if passes and not late else "")
