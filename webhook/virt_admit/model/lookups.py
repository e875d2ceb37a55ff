"""Looking up an object where what cannot be read counts as not known."""

from __future__ import annotations

from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Object


def find(cluster: Cluster, kind: Kind, namespace: str, name: str) -> Object | None:
    """Return an object that is known; None: it is not, or does not exist."""
    try:
        return cluster.get(kind, namespace, name)
    except Unseen:
        return None
