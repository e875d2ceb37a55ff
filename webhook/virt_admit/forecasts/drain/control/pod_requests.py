"""Admission webhooks that keep a drain from evicting the ordinary pods of a node."""

from __future__ import annotations

from dataclasses import replace

from virt_admit.forecasts.drain.budgets import evicted_pods
from virt_admit.forecasts.drain.control import control_path, webhook_reach
from virt_admit.forecasts.drain.pod_evictions import Blocker, PodEvictions
from virt_admit.model.kubernetes.cluster import Cluster, entry


def with_webhooks(found: PodEvictions, node: str, cluster: Cluster) -> PodEvictions:
    """Return the evictions of a node with the webhooks that refuse those of ordinary pods, as far as known."""
    here = entry(cluster, evicted_pods.by_node, node) or ()
    pods = [pod for pod in here if evicted_pods.is_evicted(pod) and not evicted_pods.is_of_vm(pod) and not pod.deleted]
    blockers: list[Blocker] = []
    unseen: list[str] = []
    for hindrance in webhook_reach.of_pods(pods, node, cluster):
        if hindrance.stops:
            blockers.append(control_path.blocker(hindrance))
        else:
            unseen.append(hindrance.reason)
    return replace(found, blockers=(*found.blockers, *blockers), unseen=(*found.unseen, *unseen))
