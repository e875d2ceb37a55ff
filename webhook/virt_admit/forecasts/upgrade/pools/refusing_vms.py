"""Volumes and VMs for which the webhook of Harvester refuses an Upgrade.

Sources: harvester/harvester:pkg/webhook/resources/upgrade/validator.go#hasDegradedVolume (from
three nodes on), #checkSingleReplicaVolumes #skipSingleReplicaDetachedVolCheck (detached ones since
1.5), #checkNonLiveMigratableVMs (restoreVM since 1.6), #checkStaleHotplugVolumes (since 1.8.2),
:pkg/util/virtualmachineinstance/virtualmachineinstance.go#GetAllNonLiveMigratableVMINames
(CD-ROM and container disk before 1.8);
longhorn/longhorn-manager:types/setting.go#SettingDefinitionConcurrentReplicaRebuildPerNodeLimit
#SettingDefinitionReplicaReplenishmentWaitInterval.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.drain.targets import rebuilt_volumes
from virt_admit.forecasts.placement.components.longhorn import awaited_health, unplaced_replicas
from virt_admit.forecasts.upgrade.pools import refusing_parts
from virt_admit.forecasts.upgrade.pools.refusing_parts import StartRefusal
from virt_admit.model.commands import about, kubectl, merge_patch, typed, virtctl
from virt_admit.model.kubernetes import clock, json_codec
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import (
    HARVESTER_SETTING,
    LONGHORN_ENGINE,
    LONGHORN_SETTING,
    LONGHORN_VOLUME,
    NODE,
    VM,
    VMI,
)
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.settings.versions import Version
from virt_admit.model.lookups import find, find_named
from virt_admit.model.messages import count, names
from virt_admit.model.scheduler.node_selectors import parse_node_selector
from virt_admit.model.scheduler.pod_terms import REQUIRED

_Takers = Callable[[str], Sequence[str]]
WITNESS: Final = "node-role.harvesterhci.io/witness"
_CONFIG: Final = "upgrade-config"
_LIMIT: Final = "concurrent-replica-rebuild-per-node-limit"
READS: Final[Reads] = union(
    clock.READS,
    awaited_health.READS,
    rebuilt_volumes.READS,
    refusing_parts.READS,
    {
        NODE: ("metadata.labels", "spec.unschedulable"),
        LONGHORN_VOLUME: (
            *("spec.numberOfReplicas", "status.kubernetesStatus", "status.state"),
            "status.lastDegradedAt",
        ),
        LONGHORN_SETTING: ("value",),
        VM: ("spec.template.spec.volumes", "status.volumeRequests"),
        VMI: (
            *("spec.nodeSelector", "spec.affinity", "spec.domain.devices.hostDevices"),
            *("spec.domain.devices.disks", "spec.volumes", "status.nodeName", "status.phase"),
        ),
    },
)
_DETACHED: Final = Version(1, 5)
_RESTORE: Final = Version(1, 6)
_REMOVABLE: Final = Version(1, 8)
_HOTPLUGS: Final = Version(1, 8, 2)
_FEW: Final = 3
"""Nodes from which on volumes have to be healthy."""
_INTERVAL: Final = "replica-replenishment-wait-interval"
_TEN_MINUTES: Final = 600
"""Its default: so long Longhorn waits for a failed replica to come back."""
_DIGITS: Final = 7
"""More seconds are months."""
_BEGUN: Final = timedelta(hours=1)
"""A rebuild has begun by then, if no other one goes on for which it waits."""
_REBUILT: Final = timedelta(days=1)
"""A large volume is rebuilt by then."""
_ACTIVE: Final = ("creating", "attached", "attaching")


def refusals(cluster: Cluster) -> Iterator[StartRefusal]:
    """Yield what refuses an Upgrade now, in the order of the webhook."""
    yield from _degraded(cluster)
    if len(cluster.known(NODE)) > 1:
        yield from _single(cluster)
    release, nodes, restores = refusing_parts.release(cluster), _guests(cluster), _restores(cluster)
    if len(nodes) > 1 and restores is not True:
        found = (*_unmovable(nodes, release, cluster), *_hotplugs(release, cluster))
        yield from (each._replace(certain=each.certain and restores is False) for each in found)


def asks_hotplugs(cluster: Cluster) -> bool:
    """Return whether a VM may refuse an Upgrade for volumes that were plugged in."""
    release = refusing_parts.release(cluster)
    told = release is not None and release < _HOTPLUGS
    return not told and len(_guests(cluster)) > 1 and _restores(cluster) is not True


def _guests(cluster: Cluster) -> Sequence[Object]:
    """Return the nodes that run VMs."""
    return [node for node in cluster.known(NODE) if WITNESS not in node.labels]


def _restores(cluster: Cluster) -> bool | None:
    """Return whether Harvester stops VMs that cannot migrate and starts them again; None: not
    known.
    """
    release = refusing_parts.release(cluster)
    if release is not None and release < _RESTORE:
        return False
    setting = find(cluster, HARVESTER_SETTING, "", _CONFIG)
    if setting is None:
        return None
    found = json_codec.embedded(setting["value"].text or setting["default"].text)
    return found.get("restoreVM") is True if isinstance(found, dict) else None


# --- volumes --------------------------------------------------------------------------------------


def _degraded(cluster: Cluster) -> Iterator[StartRefusal]:
    """Yield that volumes are degraded. One that no node takes is told by ``harvester_waits``, but
    for a node that comes back.
    """
    every = sorted(cluster.known(LONGHORN_VOLUME), key=lambda each: each.name)
    sick = [each for each in every if each.at("status", "robustness").text == "degraded"]
    if not sick or len(cluster.known(NODE)) < _FEW:
        return
    engines = cluster.cached(rebuilt_volumes.write_only)
    rebuilt = [each for each in sick if each.name in engines]
    in_turn = (*rebuilt, *(each for each in sick if each.name not in engines))
    which = names((_claim(each) for each in in_turn), 80)
    total = count(len(sick), "degraded volume")
    limit = find_named(cluster, LONGHORN_SETTING, _LIMIT)
    if limit is not None and limit["value"].text == "0":
        patch = merge_patch(LONGHORN_SETTING, _LIMIT, limit.namespace, {"value": "5"})
        yield StartRefusal(
            limit,
            f"Longhorn has {total} ({which}), and its setting {_LIMIT} 0 lets it rebuild none",
            typed("set the limit that Longhorn has by default", patch),
        )
        return
    left = (each for each in in_turn if not unplaced_replicas.is_stuck(each))
    late = next((each for each in left if _is_late(each, engines, cluster)), None)
    if late is not None:
        yield _unrebuilt(late, f"Longhorn has {total}", engines, cluster)
        return
    short = (unplaced_replicas.of(each, cluster) for each in sick)
    waits = next((f": {each.why}" for each in short if each is not None), "")
    now = f"{len(rebuilt)} of them now: " if rebuilt and len(rebuilt) < len(sick) else ""
    until = f"Longhorn has rebuilt {total} ({now}{which}{waits})"
    see = kubectl("get", LONGHORN_VOLUME, "", sick[0].namespace)
    yield StartRefusal(sick[0], f"Longhorn has {total}", typed("let it rebuild them", see), until)


def _is_late(volume: Object, engines: Mapping[str, Object], cluster: Cluster) -> bool:
    """Return whether a volume is degraded for longer than rebuilding, or its turn, explains."""
    busy = bool(engines) or bool(unlisted(cluster, LONGHORN_ENGINE))
    interval = find_named(cluster, LONGHORN_SETTING, _INTERVAL)
    wanted = interval["value"].text if interval is not None else ""
    known = int(wanted) if wanted and wanted.isdecimal() and len(wanted) < _DIGITS else _TEN_MINUTES
    usual = _REBUILT if busy else timedelta(seconds=known) + _BEGUN
    return clock.has_lasted(volume.at("status", "lastDegradedAt").text, usual, cluster)


def _unrebuilt(
    volume: Object, begin: str, engines: Mapping[str, Object], cluster: Cluster
) -> StartRefusal:
    lasts = clock.lasting(volume.at("status", "lastDegradedAt").text, cluster)
    rebuilt = volume.name in engines
    state = "a copy of it is being rebuilt all the same" if rebuilt else "no copy of it is rebuilt"
    state = "" if unlisted(cluster, LONGHORN_ENGINE) and not rebuilt else f", and {state}"
    see = about("describe", volume, LONGHORN_VOLUME)
    why = f"{begin}: {_claim(volume)} has been degraded{lasts}{state}"
    return StartRefusal(volume, why, typed("see why it does not become healthy", see))


def _claim(volume: Object) -> str:
    known = volume.at("status", "kubernetesStatus")
    claim, space = known["pvcName"].text, known["namespace"].text
    return f"{space}/{claim}" if claim and space else volume.name


def _single(cluster: Cluster) -> Iterator[StartRefusal]:
    """Yield that volumes have one replica, so that its node takes them away with it."""
    every = sorted(cluster.known(LONGHORN_VOLUME), key=lambda each: each.name)
    found = [each for each in every if each.at("spec", "numberOfReplicas").integer == 1]
    active = [each for each in found if each.at("status", "state").text in _ACTIVE]
    idle = [each for each in found if each.at("status", "state").text not in _ACTIVE]
    release = refusing_parts.release(cluster)
    skips = release is None or release >= _DETACHED
    if active:
        first = active[0]
        data = {"spec": {"numberOfReplicas": 2}}
        patch = merge_patch(LONGHORN_VOLUME, first.name, first.namespace, data)
        way = f"give {'each of them' if active[1:] else 'it'} a second one"
        also = f", and give the Upgrade annotation {_SKIP}" if skips else ""
        stop = f"or shut the VMs that use them down meanwhile{also}"
        yield StartRefusal(first, _one_replica(active, ""), typed(way, patch, stop))
    if idle and skips:
        why = _one_replica(idle, "detached ")
        until = f"the Upgrade is made with annotation {_SKIP}, as {why}"
        yield StartRefusal(idle[0], why, "", until, certain=release is not None)


_SKIP: Final = 'harvesterhci.io/skipSingleReplicaDetachedVol: "true"'
"""With any text, the webhook asks volumes in use alone."""


def _one_replica(volumes: Sequence[Object], state: str) -> str:
    verb = "has" if len(volumes) == 1 else "have"
    total = count(len(volumes), f"{state}Longhorn volume")
    return f"{total} {verb} a single replica ({names(map(_claim, volumes), 80)})"


# --- VMs ------------------------------------------------------------------------------------------


def _unmovable(
    nodes: Sequence[Object], release: Version | None, cluster: Cluster
) -> Iterator[StartRefusal]:
    """Yield the VMs that Harvester takes as not migratable, whatever KubeVirt says of them."""
    by_why: dict[str, list[Object]] = {}
    takers = _takers(nodes)
    for vmi in sorted(cluster.known(VMI), key=lambda each: each.full_name):
        if why := _why(vmi, takers, release):
            by_why.setdefault(why, []).append(vmi)
    for why, found in by_why.items():
        which = names((each.full_name for each in found), 80)
        stop = virtctl("stop", found[0].name, found[0].namespace)
        vm = f"VMs {which} are" if found[1:] else f"VM {which} is"
        until = f"{vm} shut down ({stop}{_or_restore(release)}), as it migrates no VM with {why}"
        certain = why != _MEDIA or release is not None
        yield StartRefusal(found[0], f"VM {which} runs with {why}", "", until, certain)


def _or_restore(release: Version | None) -> str:
    if release is not None and release < _RESTORE:
        return ""
    return f", or restoreVM in Setting {_CONFIG}, which stops and starts such VMs in the upgrade"


_MEDIA: Final = "a CD-ROM or a container disk"


def _why(vmi: Object, takers: _Takers, release: Version | None) -> str:
    spec = vmi["spec"]
    if spec["nodeSelector"].present:
        return "a node selector"
    if spec.at("domain", "devices", "hostDevices").present:
        return "a host device"
    required = spec.at("affinity", "nodeAffinity", REQUIRED)
    own = vmi.at("status", "nodeName").text
    wanted = json.dumps(required.value, default=str) if required.present else ""
    if wanted and all(name == own for name in takers(wanted)):
        return "a node affinity that no other node meets"
    media = any(disk["cdrom"].present for disk in spec.at("domain", "devices", "disks").items())
    media |= any(each["containerDisk"].present for each in spec["volumes"].items())
    return _MEDIA if media and (release is None or release < _REMOVABLE) else ""


def _takers(nodes: Sequence[Object]) -> _Takers:
    """Return what tells the nodes that a node affinity lets a VM go to, cordoned or not: a cordon
    is told by itself. Many VMs have the same one.
    """

    @functools.cache
    def found(affinity: str) -> Sequence[str]:
        selector = parse_node_selector(json.loads(affinity))
        return [each.name for each in nodes if selector.matches(each.name, each.labels)]

    return found


def _hotplugs(release: Version | None, cluster: Cluster) -> Iterator[StartRefusal]:
    """Yield the VMs whose volumes were plugged in a way that the next release does not continue."""
    if release is not None and release < _HOTPLUGS:
        return
    known = {vm.full_name: vm for vm in cluster.known(VM)}
    waiting = [vm for vm in known.values() if any(vm.at("status", "volumeRequests").items())]
    found = [
        (vm, f"VM {vm.full_name} has status.volumeRequests", "stop and start it") for vm in waiting
    ]
    for vmi in cluster.known(VMI):
        vm, running = known.get(vmi.full_name), vmi.at("status", "phase").text == "Running"
        if vm is None or not running:
            continue
        kept = {each["name"].text for each in vms.vmi_spec(vm)["volumes"].items()}
        lost = [each["name"].text or "" for each in vmi.at("spec", "volumes").items() if _hot(each)]
        lost = [name for name in lost if name not in kept]
        if lost:
            why = (
                f"volume {names(lost, 60)} of VM {vm.full_name} is plugged in, and not in its spec"
            )
            found.append((vm, why, "remove it, or add it to the VM"))
    for vm, why, remedy in sorted(found, key=lambda each: each[0].full_name):
        see = kubectl("get", VM, vm.name, vm.namespace, "-o", "yaml")
        yield StartRefusal(vm, why, typed(remedy, see), certain=release is not None)


def _hot(volume: Field) -> bool:
    sources = (volume["persistentVolumeClaim"], volume["dataVolume"])
    return any(each["hotpluggable"].boolean for each in sources)
