"""The pods behind a Service, and what is wrong with them where none of them is ready."""

from __future__ import annotations

from typing import Final

from virt_admit.forecasts.placement.components import broken_pods
from virt_admit.forecasts.placement.components.broken_pods import BrokenPod
from virt_admit.model.kubernetes import selectors
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import POD, SERVICE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads

READS: Final[Reads] = {POD: ("metadata.labels",), SERVICE: ("spec.selector",)}


def of_service(service: tuple[str, str], cluster: Cluster) -> list[Object]:
    """Return the known pods that a Service selects. ``service``: its namespace and name.

    Raises:
        Unseen: the Service could not be read.
    """
    namespace, name = service
    found = cluster.get(SERVICE, namespace, name)
    chosen = found.at("spec", "selector").value if found is not None else None
    selector = selectors.parse({"matchLabels": chosen} if chosen else None)
    return [pod for pod in cluster.known(POD, namespace) if chosen and selector.matches(pod.labels)]


def broken(service: tuple[str, str], cluster: Cluster) -> BrokenPod | None:
    """Return the pod behind a Service that is not ready; None: none of them says so."""
    try:
        return broken_pods.first(of_service(service, cluster), cluster)
    except Unseen:
        return None


def unready(service: tuple[str, str], cluster: Cluster) -> str:
    """Return which pods behind a Service are not ready, in words; empty: none of them says so."""
    first = broken(service, cluster)
    if first is None:
        return ""
    pods = of_service(service, cluster)
    number = sum(broken_pods.of_pod(pod, cluster) is not None for pod in pods)
    if number < 2:
        return first.words
    why = f": {first.why}" if first.why else ""
    return f"its {number} pods are not ready, as {first.pod.name}{first.since}{why}"


def starts(service: tuple[str, str], cluster: Cluster) -> bool:
    """Return whether a pod behind a Service may become ready in a moment."""
    try:
        return any(broken_pods.starts(pod, cluster) for pod in of_service(service, cluster))
    except Unseen:
        return False
