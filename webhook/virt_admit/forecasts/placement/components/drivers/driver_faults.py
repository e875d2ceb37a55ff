"""CSI drivers that attach no volume at all: their login, their connection or their backend fails.

The error is not of a volume, so each new attachment of that driver fails, on every node. It is
certain where volumes fail alike for minutes on several nodes and none has been attached since, or
where an object of the driver says so. Of one volume or one node it is a doubt: drivers call a node
by names of their own. external-attacher writes each error with its time, and tries again at the
latest after five minutes. Sources:
kubernetes-csi/external-attacher:pkg/controller/csi_handler.go, :cmd/csi-attacher/main.go
(retry-interval-max); kubernetes/api:storage/v1/types.go#VolumeError.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.placement.components import node_pods
from virt_admit.forecasts.placement.components.drivers import (
    absent_attachers,
    ceph_keys,
    trident_backends,
)
from virt_admit.model.commands import kubectl, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, cached
from virt_admit.model.kubernetes.kinds import CSI_DRIVER, NODE, PV, PVC, VOLUME_ATTACHMENT
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import fields, find, volume_of
from virt_admit.model.messages import cut_middle
from virt_admit.model.problems import Problem

_ATTRIBUTES: Final = ("clusterID", "backendUUID")
"""How volumes of ceph-csi and Trident name the storage in which they are."""
READS: Final[Reads] = union(
    clock.READS,
    node_pods.READS,
    absent_attachers.READS,
    ceph_keys.READS,
    trident_backends.READS,
    {
        VOLUME_ATTACHMENT: (
            "metadata.creationTimestamp",
            "spec.attacher",
            "spec.nodeName",
            "spec.source.persistentVolumeName",
            "status.attached",
            "status.attachError",
        ),
        PV: (
            *(f"spec.csi.volumeAttributes.{each}" for each in _ATTRIBUTES),
            *("spec.claimRef", "spec.csi.driver", "spec.csi.volumeHandle", "spec.storageClassName"),
        ),
        PVC: ("spec.volumeName",),
        NODE: ("status.addresses",),
    },
)
ATTACHES_NONE: Final = " has attached no volume "
"""Words of each reason of such a fault, after the name of its driver."""
_RECENT: Final = timedelta(minutes=10)
_LASTING: Final = timedelta(minutes=5)
"""Parts of a storage restart within minutes."""
_SEVERAL: Final = 2
_SHORT: Final = 40
_NAME: Final = 63
"""As long as the name of a namespace, which is the clusterID of Rook."""
_LONGEST: Final = 160
_INNERMOST: Final = 60
_CALL: Final = re.compile(r"rpc error: code = (\w+) desc = ")
_CODES: Final = frozenset(("PermissionDenied", "Unauthenticated", "Unavailable"))
_ID: Final = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4,12})+\b|\b[0-9a-f]{16,}\b|\b\d{5,}\b")
_OF_STORAGE: Final = re.compile(
    r"(?i)\b(?:connecting failed|connection (?:refused|reset|timed out)|no route to host"
    r"|failed to (?:connect|get connection|establish|log ?in|authenticate)\b"
    r"|(?:cannot|could not|unable to) (?:connect|complete login|log ?in|authenticate)\b"
    r"|network is unreachable|no such host|i/o timeout|x509|certificate has expired"
    r"|unauthori[sz]ed|UnauthorizedOperation|unauthenticated|AuthFailure|AuthorizationFailed"
    r"|authentication (?:error|failed|failure|required)|not authorized"
    r"|invalid (?:client secret|credentials?|password|token|user ?name)"
    r"|incorrect (?:password|user ?name)|ExpiredToken|token (?:has |is )?expired"
    r"|access ?denied|permission denied|operation not permitted|backend \S+ is not)"
)
"""What is said of a login, a connection or a backend, not of a volume."""
_MAYBE_OWN: Final = re.compile(r"(?i)\bKMS\b|\bexport[- ]polic")
"""What is refused to each volume by its own settings, and to others not."""


class DriverScope(NamedTuple):
    """The volumes that have driver and storage in common."""

    driver: str
    storage: str
    """The cluster or backend that the volumes name; else their storage class."""


class FailingVolume(NamedTuple):
    """A volume that is not attached, for an error of its driver."""

    volume: Object
    node: str
    since: datetime
    error: str
    """Without what it says of the volume."""


class DriverFault(NamedTuple):
    """A driver that attaches no volume of a storage."""

    driver: str
    reason: str
    """``CSI driver D has attached no volume for 19 min: …``, without a semicolon. Never shortened.
    """
    brief: str
    """The same without the error of the driver, where an object tells the cause."""
    remedy: str
    error: str = ""
    """Without what it says of a volume; empty: no volume has failed yet."""
    claims: tuple[str, ...] = ()
    """What waits for it, with the namespaces."""
    certain: bool = True
    """Whether the next volume certainly fails too; else one fails, or those of one node,
    or a backend only says so.
    """


def of_volume(name: str, error: str, cluster: Cluster) -> DriverFault | None:
    """Return the fault of the driver of a PersistentVolume that is not attached; None: there is
    none, or the error is another one.
    """
    volume = find(cluster, PV, "", name)
    found = by_scope(cluster).get(_scope(volume)) if volume is not None else None
    if (
        volume is None
        or found is None
        or not found.certain
        or _key(_error(volume, error)) != _key(found.error)
    ):
        return None
    return found


def without_handle(name: str, error: str, cluster: Cluster) -> str:
    """Return an error without the clause that only names its volume, and without the long handle of
    it, which would push the cause out.
    """
    error = re.sub(rf"(?<![\w.-])(?:Controller\w+ failed for )?{re.escape(name)}: ", "", error)
    handle = fields(cluster, PV, "", name).at("spec", "csi", "volumeHandle").text or ""
    return error.replace(handle, "…") if len(handle) > _SHORT and handle != name else error


def of_driver(driver: str, cluster: Cluster) -> DriverFault | None:
    """Return the first certain fault of a driver; None: there is none."""
    return next((each for each in all_of(driver, cluster) if each.certain), None)


def all_of(driver: str, cluster: Cluster) -> Iterator[DriverFault]:
    """Yield the faults of a driver, in the order of its storages."""
    known = sorted(by_scope(cluster).items())
    yield from (fault for scope, fault in known if scope.driver == driver)


def refusals(
    namespace: str, claims: Iterable[str], nodes: Collection[str], cluster: Cluster
) -> dict[str, str]:
    """Return why none of these nodes gets the volumes of a pod, by node.

    A node to which a volume is attached has it.
    """
    found: dict[str, str] = {}
    for name, fault in _of_claims(namespace, claims, cluster):
        there = cluster.cached(_attached_to).get(name, frozenset())
        if not fault.certain:
            continue
        found |= {node: fault.reason for node in nodes if node not in there and node not in found}
    return found


def first(namespace: str, claims: Iterable[str], cluster: Cluster) -> DriverFault | None:
    """Return the certain fault of a driver of these claims; None: there is none."""
    found = (fault for _, fault in _of_claims(namespace, claims, cluster))
    return next((fault for fault in found if fault.certain), None)


def doubt(namespace: str, claims: Iterable[str], cluster: Cluster) -> Problem | None:
    """Return why the volumes of a pod may not be attached to another node; None: no doubt."""
    found = (fault for _, fault in _of_claims(namespace, claims, cluster))
    fault = next((fault for fault in found if not fault.certain), None)
    if fault is not None:
        return Problem(f"its volumes may not be attached elsewhere: {fault.reason}", fault.remedy)
    return None


def _of_claims(
    namespace: str, claims: Iterable[str], cluster: Cluster
) -> Iterator[tuple[str, DriverFault]]:
    """Yield the volumes of claims, each with the fault of its driver."""
    known = by_scope(cluster)
    for claim in claims if known else ():
        volume = volume_of(find(cluster, PVC, namespace, claim), cluster)
        if volume is not None and (fault := known.get(_scope(volume))) is not None:
            yield volume.name, fault


@cached
def by_scope(cluster: Cluster) -> Mapping[DriverScope, DriverFault]:
    """Return the drivers that attach no volume, by the volumes that are concerned."""
    failing: dict[DriverScope, list[FailingVolume]] = {}
    for each in _failing(cluster):
        failing.setdefault(_scope(each.volume), []).append(each)
    attached = _last_attached(cluster) if failing else {}
    found: dict[DriverScope, DriverFault] = {}
    for scope, volumes in failing.items():
        last = attached.get(scope)
        since = [each for each in volumes if last is None or each.since > last]
        if (fault := _fault(scope, since, cluster)) is not None:
            found[scope] = fault
    return {**_offline(cluster), **found, **_unattached(cluster)}


def _failing(cluster: Cluster) -> Iterator[FailingVolume]:
    """Yield the volumes that fail with an error which may be of their driver."""
    for attachment in cluster.known(VOLUME_ATTACHMENT):
        said = attachment.at("status", "attachError")
        if not said.present or attachment.deleted or _is_attached(attachment):
            continue
        volume = find(cluster, PV, "", _volume(attachment))
        created = clock.instant(attachment.created)
        error = _recent(attachment, volume, cluster) if volume is not None else ""
        if volume is not None and created is not None and error:
            node = attachment.at("spec", "nodeName").text or ""
            yield FailingVolume(volume, node, created, error)


def _last_attached(cluster: Cluster) -> dict[DriverScope, datetime]:
    """Return when the newest attachment was made that succeeded, by its volumes."""
    found: dict[DriverScope, datetime] = {}
    for attachment in filter(_is_attached, cluster.known(VOLUME_ATTACHMENT)):
        volume = find(cluster, PV, "", _volume(attachment))
        created = clock.instant(attachment.created)
        if volume is not None and created is not None:
            scope = _scope(volume)
            found[scope] = max(created, found.get(scope, created))
    return found


def _offline(cluster: Cluster) -> dict[DriverScope, DriverFault]:
    """Return the backends that are not online and have volumes, of which none may have failed yet.

    Since when they are so is not known.
    """
    driver, backends = trident_backends.DRIVER, list(trident_backends.offline(cluster))
    used = {_scope(each) for each in cluster.known(PV)} if backends else frozenset()
    found: dict[DriverScope, DriverFault] = {}
    for backend in backends:
        scope = DriverScope(driver, backend["backendUUID"].text or "")
        if scope in used:
            failed = trident_backends.words(backend)
            reason = f"{failed}, and while it is so CSI driver {driver} attaches no volume of it"
            remedy = trident_backends.remedy(cluster)
            found[scope] = DriverFault(driver, reason, reason, remedy, certain=False)
    return found


def _unattached(cluster: Cluster) -> dict[DriverScope, DriverFault]:
    """Return the drivers whose controller is down, of which no volume may have failed yet."""
    scopes = {_scope(each) for each in cluster.known(PV)}
    found: dict[DriverScope, DriverFault] = {}
    for driver in {each.driver for each in scopes}:
        if (down := absent_attachers.problem(driver, cluster)) is not None:
            why = down.reason.replace("; ", ", ")
            reason = f"CSI driver {driver}{ATTACHES_NONE}while {why}"
            fault = DriverFault(driver, reason, reason, down.remedy)
            found |= {each: fault for each in scopes if each.driver == driver}
    return found


def _attached_to(cluster: Cluster) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for attachment in filter(_is_attached, cluster.known(VOLUME_ATTACHMENT)):
        node = attachment.at("spec", "nodeName").text or ""
        found.setdefault(_volume(attachment), set()).add(node)
    return {name: frozenset(nodes) for name, nodes in found.items()}


def _fault(
    scope: DriverScope, failing: Sequence[FailingVolume], cluster: Cluster
) -> DriverFault | None:
    """Return the fault of a driver with which volumes fail; None: they may fail on their own."""
    alike: dict[str, list[FailingVolume]] = {}
    for each in failing:
        alike.setdefault(_key(each.error), []).append(each)
    if not alike:
        return None
    most = max(alike.values(), key=_weight)
    error = most[0].error
    lasts = clock.since(clock.stamp(min(each.since for each in most)), cluster)
    if lasts is None or lasts < _LASTING:
        return None
    cause = trident_backends.cause(scope.driver, scope.storage, error, cluster) or ceph_keys.cause(
        scope.driver, scope.storage, error, cluster
    )
    several = min(_weight(most)) >= _SEVERAL and not _MAYBE_OWN.search(error)
    certain = several or cause is not None
    said = cut_middle(error, _LONGEST).replace("; ", ", ")
    begin = (
        f"CSI driver {scope.driver}{ATTACHES_NONE}{_of(scope, cluster)}for {clock.duration(lasts)}"
    )
    brief = f"{begin}: {cause.reason if cause is not None else said}"
    reason = f"{brief} ({_innermost(said)})" if cause is not None else brief
    remedy = cause.remedy if cause is not None else _remedy(scope.driver, cluster)
    claims = tuple(sorted({name for each in most if (name := _claim(each.volume))}))
    return DriverFault(scope.driver, reason, brief, remedy, error, claims, certain)


def _weight(alike: Sequence[FailingVolume]) -> tuple[int, int]:
    """Return on how many nodes volumes fail, up to several, and how many volumes."""
    nodes = {each.node for each in alike}
    return min(len(nodes), _SEVERAL), len({each.volume.name for each in alike})


def _innermost(error: str) -> str:
    """Return the last clauses of an error, of which an object tells the cause."""
    clauses = error.split(": ")
    shown = clauses.pop()
    while clauses and len(clauses[-1]) + len(shown) + 2 <= _INNERMOST:
        shown = f"{clauses.pop()}: {shown}"
    return shown


def _of(scope: DriverScope, cluster: Cluster) -> str:
    """Return which storage of a driver is concerned, if it has several; else empty."""
    others = cluster.cached(_storages).get(scope.driver, set[str]()) - {scope.storage}
    name = scope.storage if len(scope.storage) <= _NAME else f"{scope.storage[: _NAME - 1]}…"
    return f"of {name} " if others and name else ""


def _storages(cluster: Cluster) -> dict[str, set[str]]:
    """Return the storages of each driver."""
    found: dict[str, set[str]] = {}
    for driver, storage in map(_scope, cluster.known(PV)):
        found.setdefault(driver, set()).add(storage)
    return found


def _remedy(driver: str, cluster: Cluster) -> str:
    pod = node_pods.controller_of(driver, cluster)
    look = node_pods.logs(pod) if pod is not None else kubectl("describe", CSI_DRIVER, driver)
    words = (
        "see whether the storage answers, and whether the driver's login there is valid; until "
        "then drain no node with such a VM"
    )
    return typed(words, look)


def _recent(attachment: Object, volume: Object, cluster: Cluster) -> str:
    """Return the error of an attachment that is still tried, if it is of the driver; else empty."""
    said = attachment.at("status", "attachError")
    time, whole = clock.instant(said["time"].text), said["message"].words
    now = clock.now(cluster)
    if not whole or time is None or now is None or now - time > _RECENT:
        return ""
    error = _error(volume, whole)
    codes = {found[1] for found in _CALL.finditer(whole)}
    of_storage = bool(_OF_STORAGE.search(error) or codes & _CODES)
    return error if of_storage and not _names_node(error, attachment, cluster) else ""


def _names_node(error: str, attachment: Object, cluster: Cluster) -> bool:
    """Return whether an error is about the node: then others may get the volume."""
    name = attachment.at("spec", "nodeName").text or ""
    addresses = fields(cluster, NODE, "", name).at("status", "addresses").items()
    return any(
        each and each in error for each in (name, *(each["address"].text for each in addresses))
    )


def _error(volume: Object, said: str) -> str:
    """Return an error without its frame and without the clauses up to the one about its volume."""
    own = (volume.name, volume.at("spec", "csi", "volumeHandle").text or volume.name)
    parts = _CALL.sub("", " ".join(said.split())).rstrip(". ").split(": ")
    last = max(
        (at for at, part in enumerate(parts) if any(name in part for name in own)), default=-1
    )
    return ": ".join(parts[last + 1 :] or parts)


def _key(error: str) -> str:
    return _ID.sub("…", error)


def _scope(volume: Object) -> DriverScope:
    csi = volume.at("spec", "csi")
    named = (csi["volumeAttributes"][each].text for each in _ATTRIBUTES)
    storage = next(filter(None, named), None) or volume.at("spec", "storageClassName").text
    return DriverScope(csi["driver"].text or "", storage or "")


def _is_attached(attachment: Object) -> bool:
    return attachment.at("status", "attached").boolean is True


def _volume(attachment: Object) -> str:
    return attachment.at("spec", "source", "persistentVolumeName").text or ""


def _claim(volume: Object) -> str:
    claim = volume.at("spec", "claimRef")
    return f"{claim['namespace'].text}/{claim['name'].text}" if claim["name"].text else ""
