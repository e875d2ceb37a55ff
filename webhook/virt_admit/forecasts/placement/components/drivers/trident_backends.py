"""Backends of NetApp Trident that are not online: Trident publishes no volume of them.

Old releases look at a backend once, when the controller starts: one that failed then stays failed.
Newer ones look again every few minutes. Sources:
NetApp/trident:storage/backend.go#PublishVolume #ensureOnlineOrDeleting,
:persistent_store/crd/apis/netapp/v1/types.go#TridentBackend,
:frontend/csi/controller_server.go (backendUUID in the attributes of a volume);
issues NetApp/trident#676, #512.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from virt_admit.forecasts.placement.components import node_pods
from virt_admit.forecasts.placement.components.drivers.driver_causes import DriverCause
from virt_admit.model.commands import about, kubectl, shell, typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import DEPLOYMENT, POD, TRIDENT_BACKEND
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find

DRIVER: Final = "csi.trident.netapp.io"
READS: Final[Reads] = union(
    node_pods.READS,
    {
        TRIDENT_BACKEND: ("backendName", "backendUUID", "state"),
        DEPLOYMENT: ("metadata.ownerReferences",),
    },
)
_SERVES: Final = frozenset(("online", "deleting"))
_NAMED: Final = re.compile(r"(?i)\bbackend (\S+) is not online")


def cause(driver: str, uuid: str, error: str, cluster: Cluster) -> DriverCause | None:
    """Return the backend that is not online, of a volume that Trident does not attach; None:
    nothing says so.

    ``uuid``: the backend as the volume names it.
    """
    named = _NAMED.search(error) if driver == DRIVER else None
    if named is None:
        return None
    for backend in offline(cluster):
        if backend["backendUUID"].text == uuid or backend["backendName"].text == named[1]:
            return DriverCause(words(backend), remedy(cluster))
    return None


def offline(cluster: Cluster) -> Iterator[Object]:
    """Yield the backends in a state in which Trident publishes no volume of them."""
    for backend in sorted(cluster.known(TRIDENT_BACKEND), key=lambda each: each.full_name):
        if (backend["state"].text or "online").lower() not in _SERVES:
            yield backend


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
    owner = find(cluster, DEPLOYMENT, pod.namespace, name) if name else None
    if owner is not None and owner.controller is None:
        restart = shell("kubectl", "rollout", "restart", "deployment", name, "-n", pod.namespace)
        return typed(f"{look}{again}", restart)
    return typed(f"{look}{again}", kubectl("delete", POD, pod.name, pod.namespace))
