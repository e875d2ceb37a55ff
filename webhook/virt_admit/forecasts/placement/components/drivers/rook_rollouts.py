"""Updates of Rook and of Ceph that stay half done: the monitors are new, the OSDs are not.

Rook compares the releases of all daemons first, and changes none while Ceph is neither HEALTH_OK
nor HEALTH_WARN: also where the new monitors alone make it so. It skips the OSDs of a node that its
placement does not fit, which any taint does that it does not tolerate, also PreferNoSchedule; then
CephCluster is Ready. Sources: rook/rook:pkg/operator/ceph/cluster/version.go#validateCephVersion,
:pkg/operator/ceph/cluster/osd/update.go#updateExistingOSDs, :pkg/operator/k8sutil/node.go#ValidNode
#NodeIsTolerable, :pkg/operator/k8sutil/k8sutil.go#RookVersionLabelKey,
:pkg/apis/ceph.rook.io/v1/placement.go#GetOSDPlacement,
:Documentation/Storage-Configuration/Advanced/cephx-key-rotation.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

from virt_admit.forecasts.placement.components.drivers import ceph_keys, refusing_storage
from virt_admit.model.commands import about, merge_patch, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, cached
from virt_admit.model.kubernetes.kinds import CEPH_CLUSTER, DEPLOYMENT, NODE, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import count, cut_middle, names
from virt_admit.model.node_updates import talos_upgrades
from virt_admit.model.scheduler.node_selectors import tolerates

_ROOK: Final = "rook-version"
_HOST: Final = "topology-location-host"
READS: Final[Reads] = union(
    clock.READS,
    ceph_keys.READS,
    talos_upgrades.READS,
    {
        CEPH_CLUSTER: (
            *("spec.external.enable", "spec.placement", "spec.security.cephx"),
            *("status.ceph", "status.cephx", "status.conditions", "status.message"),
            "status.phase",
        ),
        DEPLOYMENT: ("metadata.labels",),
        NODE: ("spec.taints",),
        POD: ("metadata.labels", "metadata.creationTimestamp"),
    },
)
_REFUSES: Final = "refusing to upgrade"
_ERROR: Final = "HEALTH_ERR"
_USUAL: Final = timedelta(minutes=15)
"""Rook tries again each few minutes, and an OSD that restarts is back by then."""
_SETTLED: Final = timedelta(minutes=30)
"""An operator that is new has gone through its CephCluster by then, which is Ready after that."""
_RELEASE: Final = re.compile(r"ceph version (\d{1,3}\.\d{1,3}\.\d{1,3})")
_KEYS: Final = ("AUTH_INSECURE_SERVICE_KEY_TYPE", "AUTH_INSECURE_SERVICE_TICKETS")
"""What new monitors say of the keys of old daemons (CVE-2025-30156)."""
_NOT_OF_DAEMONS: Final = ("csi", "rbdMirrorPeer")
_DATA: Final = ("PG_", "OSD_", "MON_", "OBJECT_")
_PLACEMENTS: Final = ("all", "osd")
_OWN_TAINTS: Final = "node.kubernetes.io/"
"""Of nodes that are cordoned or not Ready, as while they are updated."""


class HeldStorageUpdate(NamedTuple):
    """An update of storage that does not go on."""

    owner: Object
    reason: str
    """As the beginning of a sentence, without its end."""
    brief: str
    remedy: str
    holds: bool
    """Whether storage is not what it should be until it goes on; else it only lags behind."""


@cached
def held(cluster: Cluster) -> Sequence[HeldStorageUpdate]:
    """Return the updates of Rook and Ceph that do not go on."""
    known = [each for each in cluster.known(CEPH_CLUSTER) if not _is_external(each)]
    return tuple(
        found
        for ceph in sorted(known, key=lambda each: each.full_name)
        for found in (_refused(ceph, cluster) or _skipped(ceph, cluster),)
        if found is not None
    )


def _is_external(ceph: Object) -> bool:
    return ceph.at("spec", "external", "enable").boolean is True


# --- the health of Ceph ---------------------------------------------------------------------------


def _refused(ceph: Object, cluster: Cluster) -> HeldStorageUpdate | None:
    """Return that Rook refuses to go on for the health of Ceph; None: it does not, or only since a
    moment.
    """
    status = ceph["status"]
    progressing = ceph.condition("Progressing")
    said = status["message"].words
    # each try changes the condition, which then has the time of that try
    since = status["ceph"]["lastChanged"].text or progressing["lastTransitionTime"].text
    if _REFUSES not in said or _REFUSES not in progressing["message"].words:
        return None
    if status["ceph"]["health"].text != _ERROR or not clock.has_lasted(since, _USUAL, cluster):
        return None
    errors = {
        code: each["message"].words
        for code, each in status["ceph"]["details"].entries()
        if each["severity"].text == _ERROR
    }
    why = names((f"{code}: {text}" for code, text in errors.items()), 240) or said
    lasts = clock.lasting(since, cluster)
    stands = _releases(ceph)
    begin = f"Rook refuses to go on with the update of CephCluster {ceph.full_name}{stands}"
    reason = f"{begin}, as Ceph is {_ERROR}{lasts} ({cut_middle(why, 300)})"
    health = f"Ceph is {_ERROR}{lasts} ({names(errors)})"
    brief = f"Rook refuses to go on with the update{stands}, as {health}"
    return HeldStorageUpdate(ceph, reason, brief, _after_health(ceph, errors), holds=True)


def _releases(ceph: Object) -> str:
    """Return which daemons have which release, as ``: mon 20.2.4, osd 20.2.3``; empty: all have
    the same, or it is not known.
    """
    versions = ceph.at("status", "ceph", "versions")
    found = {
        daemon: sorted({each[1] for key in versions[daemon].map if (each := _RELEASE.search(key))})
        for daemon in ("mon", "mgr", "osd", "mds", "rgw")
    }
    known = {daemon: releases for daemon, releases in found.items() if releases}
    if len({each for releases in known.values() for each in releases}) < 2:
        return ""
    parts = (f"{daemon} {names(releases)}" for daemon, releases in known.items())
    return f" ({', '.join(parts)})"


def _after_health(ceph: Object, errors: Mapping[str, str]) -> str:
    """Return what lets Rook go on.

    Rook checks the health before it writes any key, so that a rotation alone is never begun. Its
    check is skipped for that only where nothing speaks of data: it also restarts OSDs unasked then.
    """
    details = ceph.at("status", "ceph", "details").map
    of_data = [code for code in details if code.startswith(_DATA)]
    if not errors or set(errors) - {*_KEYS} or of_data:
        return typed(
            f"End what Ceph reports ({names(errors) or _ERROR}), after which Rook goes on by "
            "itself. Do not set skipUpgradeChecks for it: OSDs then restart without a look at "
            "their data",
            about("describe", ceph, CEPH_CLUSTER),
        )
    made = [
        number
        for key, each in ceph.at("status", "cephx").entries()
        if key not in _NOT_OF_DAEMONS and (number := each["keyGeneration"].integer) is not None
    ]
    own = ceph.at("spec", "security", "cephx", "daemon", "keyGeneration").integer or 0
    keys = {"keyRotationPolicy": "KeyGeneration", "keyGeneration": max([own, *made]) + 1}
    if own > max(made, default=0):
        keys["keyGeneration"] = own  # it was asked for, and has not begun
    change = {"skipUpgradeChecks": True, "security": {"cephx": {"daemon": keys}}}
    where, shown = ceph_keys.writer(ceph)
    words = (
        "Let Rook make new keys of the daemons (spec.security.cephx.daemon), and skip its check of "
        f"the health for that alone, as no data is degraded{where}"
    )
    patch = merge_patch(CEPH_CLUSTER, ceph.name, ceph.namespace, {"spec": change})
    back = (
        "set skipUpgradeChecks to false again once all OSDs have the new release, and drain no "
        "node before. The keys of CSI stay as they are: their new type needs Linux 7.0 on each node"
    )
    return typed(words, shown or patch, f"then {back}")


# --- OSDs that are skipped ------------------------------------------------------------------------


def _skipped(ceph: Object, cluster: Cluster) -> HeldStorageUpdate | None:
    """Return that Rook has left OSDs at its former release, for a taint of their nodes; None: it
    has not, or is not done.
    """
    if ceph.at("status", "phase").text != "Ready":
        return None
    release = _operator_release(ceph, cluster)
    osds = [each for each in _deployments(ceph, "rook-ceph-osd", cluster) if _is_on_node(each)]
    old = [each for each in osds if each.labels.get(_ROOK) not in (None, release)]
    if not release or not old:
        return None
    tolerated = _tolerations(ceph)
    taints: dict[str, tuple[Mapping[str, Any], list[str]]] = {}
    for osd in old:
        node = find(cluster, NODE, "", osd.labels.get(_HOST, ""))
        for taint in node.at("spec", "taints").items() if node is not None else ():
            key = taint["key"].text or ""
            if not key.startswith(_OWN_TAINTS) and not tolerates(tolerated, taint.value):
                title = f"{key}:{taint['effect'].text}"
                taints.setdefault(title, (taint.map, []))[1].append(osd.labels[_HOST])
    if not taints or not _is_settled(cluster):
        return None
    ids = names(sorted(each.labels.get(refusing_storage.OSD_ID, each.name) for each in old), 80)
    former = names(sorted({each.labels[_ROOK] for each in old}), 60)
    which = names((f"{title} of {names(on, 80)}" for title, (_, on) in taints.items()), 240)
    stay, are = ("stays", "is") if len(old) == 1 else ("stay", "are")
    lag = f"OSD {ids} of CephCluster {ceph.full_name} {stay} at Rook {former}"
    reason = (
        f"{lag}, while its operator and monitors have {release}: Rook skips the OSDs of a node "
        f"with a taint that spec.placement does not tolerate, also PreferNoSchedule ({which})"
    )
    reason += _setter(taints, cluster)
    brief = (
        f"OSD {ids} {stay} at Rook {former} and {are} skipped, as no placement tolerates {which}"
    )
    return HeldStorageUpdate(ceph, reason, brief, _tolerating(ceph, taints), holds=False)


def _setter(keys: Iterable[str], cluster: Cluster) -> str:
    """Return what keeps the taint on nodes, as a clause; empty: that is not known."""
    if not any(key.startswith(talos_upgrades.OUTDATED) for key in keys):
        return ""
    waits = talos_upgrades.before_nodes(cluster)
    return f". tuppr removes it with the update of the node{f', and {waits}' if waits else ''}"


def _is_on_node(osd: Object) -> bool:
    """Return whether an OSD has the disk of a node: those on claims are not skipped."""
    return "ceph.rook.io/pvc" not in osd.labels and _HOST in osd.labels


def _deployments(ceph: Object, app: str, cluster: Cluster) -> list[Object]:
    known = cluster.known(DEPLOYMENT, ceph.namespace)
    return [each for each in known if each.labels.get("app") == app]


def _operator_release(ceph: Object, cluster: Cluster) -> str:
    """Return the release of Rook that all monitors and managers have, which come before the OSDs;
    empty: they differ.
    """
    apps = ("rook-ceph-mon", "rook-ceph-mgr")
    own = [each for app in apps for each in _deployments(ceph, app, cluster)]
    found = {each.labels.get(_ROOK) for each in own}
    return found.pop() or "" if len(found) == 1 else ""


def _is_settled(cluster: Cluster) -> bool:
    """Return whether the operator certainly runs for long enough to have been at the OSDs."""
    own = [each for each in cluster.known(POD) if each.labels.get("app") == _OPERATOR]
    late = (clock.has_lasted(each.created, _SETTLED, cluster) for each in own)
    return bool(own) and all(late)


_OPERATOR: Final = "rook-ceph-operator"


def _tolerations(ceph: Object) -> list[Any]:
    return [
        each.value
        for place in _PLACEMENTS
        for each in ceph.at("spec", "placement", place, "tolerations").items()
    ]


def _tolerating(ceph: Object, taints: Mapping[str, tuple[Mapping[str, Any], list[str]]]) -> str:
    """Return what lets Rook update the OSDs: a toleration, or the end of the taint."""
    keys = dict.fromkeys(str(taint.get("key")) for taint, _ in taints.values())
    own = [each.value for each in ceph.at("spec", "placement", "osd", "tolerations").items()]
    more = [{"key": key, "operator": "Exists"} for key in keys]
    change = {"spec": {"placement": {"osd": {"tolerations": [*own, *more]}}}}
    where, shown = ceph_keys.writer(ceph)
    words = f"Let spec.placement of the OSDs tolerate {names(keys)}{where}"
    nodes = {name for _, on in taints.values() for name in on}
    ends = (
        f"or wait until what set the taint removes it from {count(len(nodes), 'node')}, after "
        "which Rook updates their OSDs with its next look at CephCluster"
    )
    return typed(words, shown or merge_patch(CEPH_CLUSTER, ceph.name, ceph.namespace, change), ends)
