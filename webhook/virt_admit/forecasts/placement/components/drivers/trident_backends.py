"""Backends of NetApp Trident that are not online: Trident publishes no volume of them.

Old releases look at a backend once, when the controller starts: one that failed then stays failed.
Newer ones look again every few minutes. Sources:
NetApp/trident:storage/backend.go#PublishVolume #ensureOnlineOrDeleting,
:persistent_store/crd/apis/netapp/v1/types.go#TridentBackend,
:frontend/csi/controller_server.go (backendUUID in the attributes of a volume);
issues NetApp/trident#676, #512, #541; docs.netapp.com/us-en/trident:
trident-use/backend_ops_kubectl.html (a Secret that is changed updates the backend).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from virt_admit.forecasts.placement.components import node_pods
from virt_admit.model.commands import about, argument, kubectl, shell, typed
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import DEPLOYMENT, POD, TRIDENT_BACKEND
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut_middle
from virt_admit.model.problems import Problem

DRIVER: Final = "csi.trident.netapp.io"
READS: Final[Reads] = union(
    node_pods.READS,
    {
        TRIDENT_BACKEND: ("backendName", "backendUUID", "state"),
        DEPLOYMENT: ("metadata.ownerReferences",),
    },
)
_SERVES: Final = frozenset(("online", "deleting"))
_CONFIG: Final = kinds.guess("trident.netapp.io/v1", "TridentBackendConfig")
_NONE_LEFT: Final = re.compile(r"(?i)\bno available backends\b")
_LOGIN: Final = re.compile(r"(?i)\b401\b|unauthori[sz]ed|credentials")
_LONGEST: Final = 130
_NAMED: Final = re.compile(r"(?i)\bbackend (\S+) is not online")


def cause(driver: str, uuid: str, error: str, cluster: Cluster) -> Problem | None:
    """Return the backend that is not online, of a volume that Trident does not attach; None:
    nothing says so. The reason is a clause, ``TridentBackend trident/tbe-1 (backend nas) is
    failed``, and is never shortened.

    ``uuid``: the backend as the volume names it.
    """
    named = _NAMED.search(error) if driver == DRIVER else None
    if named is None:
        return None
    for backend in offline(cluster):
        if backend["backendUUID"].text == uuid or backend["backendName"].text == named[1]:
            return Problem(words(backend), remedy(cluster))
    return None


def of_class(storage_class: Object, error: str, cluster: Cluster) -> Problem | None:
    """Return the backend that is not online, where Trident finds none for a class; None: nothing
    says so, or the class does not ask for it.

    Where the class may ask for another one, or this one may not have what it asks for, it is named
    as a possible cause.
    """
    if storage_class["provisioner"].text != DRIVER or not _NONE_LEFT.search(error):
        return None
    every = sorted(cluster.known(TRIDENT_BACKEND), key=lambda each: each.full_name)
    fitting = [(each, fits) for each in every if (fits := _fits(each, storage_class, cluster))]
    found = [(each, fits) for each, fits in fitting if _is_offline(each)]
    if not found:
        return None
    backend, fits = max(found, key=lambda each: each[1])
    config = _config(backend, cluster)
    if fits >= _POOLS and len(fitting) == 1 and not unlisted(cluster, TRIDENT_BACKEND):
        failed = _failed(backend, config, cluster)
        return failed if fits == _SURE else failed._replace(reason=f"{_MAYBE}{failed.reason}")
    look = about("describe", backend, TRIDENT_BACKEND)
    way = f"see whether class {storage_class.name} is to use this backend, and why it is not online"
    return Problem(f"{_MAYBE}{_why(backend, config)}", typed(way, look))


_MAYBE: Final = "this may be because "
_MAY, _POOLS, _SURE = 1, 2, 3
"""How far a backend is known to fit a class: it may; the names of its pools do; all of it does."""


def _fits(backend: Object, storage_class: Object, cluster: Cluster) -> int:
    """Return how far a backend is known to have what a class asks for; 0: it does not have it.

    All parameters that are not about pools or the file system are attributes, and a pool must have
    each of them; so is an annotation. Source: NetApp/trident:frontend/csi/controller_helpers/
    kubernetes/helper.go#processStorageClass.
    """
    parameters = storage_class["parameters"].map
    own = (each for each in storage_class.annotations if each.startswith(_ANNOTATION))
    config, wanted = _config(backend, cluster), parameters.get(_TYPE)
    kind = config.at("spec", "storageDriverName").text if config is not None else None
    pools = _has_pools(backend, storage_class)
    if pools is False or (wanted and kind and wanted != kind):
        return 0
    known = {"fsType", _POOL_LIST, *((_TYPE,) if wanted == kind else ())}
    attributes = {*parameters, *own} - known
    is_sure = all(each.startswith("csi.storage.k8s.io/") for each in attributes)
    return (_SURE if is_sure else _POOLS) if pools else _MAY


def _has_pools(backend: Object, storage_class: Object) -> bool | None:
    """Return whether a class takes the pools of a backend by their names; None: it may.

    The names of backends and pools are regular expressions, and a backend does not say the names
    of its pools. Source: NetApp/trident:storage_class/storage_class.go#Matches.
    """
    parameters, name = storage_class["parameters"], backend["backendName"].text
    if name is None or any(parameters[each].present for each in _OTHER_POOLS):
        return None
    given = parameters[_POOL_LIST].text
    if not given:
        return True
    fits: bool | None = False
    for each in given.split(";"):
        wanted, _, pools = each.strip().partition(":")
        wanted = wanted.removeprefix("^").removesuffix("$")
        if wanted in (name, _ANY):
            if _ANY in pools.split(","):
                return True
            fits = None
        elif not _LITERAL.fullmatch(wanted):
            fits = None
    return fits


_OTHER_POOLS: Final = ("additionalStoragePools", "requiredStorage", "excludeStoragePools")
_POOL_LIST: Final = "storagePools"
_TYPE: Final = "backendType"
_ANNOTATION: Final = "trident.netapp.io/"
_ANY: Final = ".*"
_LITERAL: Final = re.compile(r"[\w-]+")


def _why(backend: Object, config: Object | None) -> str:
    """Return that a backend is not online, with what its TridentBackendConfig says of it."""
    if config is None or config.at("status", "lastOperationStatus").text != "Failed":
        return words(backend)
    said = cut_middle(config.at("status", "message").words, _LONGEST)
    return f"{words(backend)} ({config.kind} {config.full_name}: {said})"


def _failed(backend: Object, config: Object | None, cluster: Cluster) -> Problem:
    """Return that a backend of a class is not online, and what brings it back."""
    why = _why(backend, config)
    if config is None or config.at("status", "lastOperationStatus").text != "Failed":
        return Problem(why, remedy(cluster))
    secret = config.at("spec", "credentials", "name").text
    if not (secret and _LOGIN.search(config.at("status", "message").words)):
        return Problem(why, remedy(cluster))
    edit = shell("kubectl", "edit", "secret", argument(secret), "-n", config.namespace)
    way = f"put a valid login into Secret {secret}, after which Trident updates its backend"
    return Problem(why, typed(way, edit))


def _config(backend: Object, cluster: Cluster) -> Object | None:
    """Return what a backend is made of; None: it is not known, or Trident's own tool made it."""
    uuid = backend["backendUUID"].text
    own = (each for each in cluster.known(_CONFIG) if uuid and _uuid(each) == uuid)
    return next(own, None)


def _uuid(config: Object) -> str | None:
    return config.at("status", "backendInfo", "backendUUID").text


def offline(cluster: Cluster) -> Iterator[Object]:
    """Yield the backends in a state in which Trident publishes no volume of them."""
    for backend in sorted(cluster.known(TRIDENT_BACKEND), key=lambda each: each.full_name):
        if _is_offline(backend):
            yield backend


def _is_offline(backend: Object) -> bool:
    return (backend["state"].text or "online").lower() not in _SERVES


def words(backend: Object) -> str:
    """Return that a backend is not online, with its name in Trident."""
    name = backend["backendName"].text or "?"
    state = backend["state"].text
    return f"TridentBackend {backend.full_name} (backend {name}) is {state}, not online"


def remedy(cluster: Cluster) -> str:
    """Return what brings a backend online: its storage, then a restart of the controller.

    A Deployment of an operator is left alone: its pod is deleted, and made again.
    """
    look = "see that its storage system answers, and that Trident's login there is valid"
    pod = node_pods.controller_of(DRIVER, cluster)
    if pod is None:
        known = next(offline(cluster), None)
        described = about("describe", known, TRIDENT_BACKEND) if known is not None else ""
        return typed(f"{look}; if it stays so then, restart the controller of Trident", described)
    again = "; if it stays so then, restart Trident's controller, which logs in again"
    name = node_pods.deployment_of(pod)
    owner = find(cluster, DEPLOYMENT, pod.namespace, name)
    if owner is not None and owner.controller is None:
        restart = shell("kubectl", "rollout", "restart", "deployment", name, "-n", pod.namespace)
        return typed(f"{look}{again}", restart)
    return typed(f"{look}{again}", kubectl("delete", POD, pod.name, pod.namespace))
