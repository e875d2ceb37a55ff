"""Services and the ready endpoints behind them,
as an API server finds them before it calls a webhook.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from virt_admit.model.kubernetes.cluster import Cluster, Unseen, gather
from virt_admit.model.kubernetes.kinds import ENDPOINT_SLICE, SERVICE
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads

READS: Final[Reads] = {
    SERVICE: ("spec.type",),
    ENDPOINT_SLICE: (
        "metadata.labels",
        "endpoints.conditions.ready",
        "endpoints.nodeName",
        "endpoints.targetRef",
    ),
}

_SERVICE_NAME: Final = "kubernetes.io/service-name"


class Backing(NamedTuple):
    """What answers the requests to a Service."""

    problem: str
    """Why nothing answers; empty: something does."""
    nodes: frozenset[str] = frozenset()
    """The nodes of the ready endpoints. Empty: not known, or they are not pods."""
    pods: tuple[str, ...] = ()
    """The names of the pods behind them, in the namespace of the Service."""


def is_described(cluster: Cluster) -> bool:
    """Return whether Services are part of what is known.

    Every cluster has the Service ``default/kubernetes``, so one without any is a hand-made one that
    leaves them out.

    Raises:
        Unseen: none is known, but Services may exist.
    """
    return cluster.cached(_described).unless_unseen()


class _Described(NamedTuple):
    known: bool
    unseen: str

    def unless_unseen(self) -> bool:
        if not self.known and self.unseen:
            raise Unseen(self.unseen)
        return self.known


def _described(cluster: Cluster) -> _Described:
    found, unseen = gather(cluster.list(SERVICE))
    return _Described(bool(found), unseen)


def backing(cluster: Cluster, namespace: str, name: str) -> Backing:
    """Return what answers the requests to a Service.

    Raises:
        Unseen: the Service or its endpoints cannot be determined.
    """
    service = cluster.get(SERVICE, namespace, name)
    if service is None:
        return Backing(f"Service {namespace}/{name} does not exist")
    if service.at("spec", "type").text == "ExternalName":
        return Backing("")
    slices = cluster.cached(_slices)
    ready = [
        endpoint
        for found in slices.by_service.get((namespace, name), ())
        for endpoint in _ready(found)
    ]
    if ready:
        nodes = frozenset(endpoint["nodeName"].text or "" for endpoint in ready)
        pods = tuple(endpoint.at("targetRef", "name").text or "" for endpoint in ready)
        return Backing("", frozenset() if "" in nodes else nodes, tuple(sorted(filter(None, pods))))
    if slices.unseen:
        raise Unseen(slices.unseen)
    return Backing(f"Service {namespace}/{name} has no ready endpoint")


def _ready(found: Object) -> Sequence[Field]:
    """Return the endpoints that get requests: a missing condition counts as ready (discovery/v1
    EndpointConditions).
    """
    return [
        each
        for each in found["endpoints"].items()
        if each.at("conditions", "ready").boolean is not False
    ]


class _Slices(NamedTuple):
    by_service: Mapping[tuple[str, str], Sequence[Object]]
    unseen: str


def _slices(cluster: Cluster) -> _Slices:
    found, unseen = gather(cluster.list(ENDPOINT_SLICE))
    by_service: dict[tuple[str, str], list[Object]] = {}
    for each in found:
        service = each.labels.get(_SERVICE_NAME)
        if service:
            by_service.setdefault((each.namespace, service), []).append(each)
    return _Slices(by_service, unseen)
