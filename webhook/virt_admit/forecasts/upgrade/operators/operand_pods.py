"""The pod behind the words of an operator: ``DaemonSet "/ns/a" rollout is not making progress``.

An operator reports the workload that it waits for; that workload waits for a pod, and the pod says
why. The text of ClusterOperators is free, so pods are found by the names of their owners in it.
Sources: openshift/cluster-network-operator:pkg/controller/statusmanager/pod_status.go;
openshift/library-go:pkg/operator/apiserver/controller/workload/workload.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Set
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.placement.agents.agent_rollouts import explained
from virt_admit.forecasts.placement.components import broken_pods
from virt_admit.forecasts.placement.components.broken_pods import BrokenPod
from virt_admit.forecasts.placement.refusals import dying_claims
from virt_admit.forecasts.placement.starts import pod_starts
from virt_admit.model.kubernetes import node_health
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.node_updates import cluster_updates
from virt_admit.model.node_updates.cluster_updates import ClusterUpdate

READS: Final[Reads] = union(
    dying_claims.READS,
    broken_pods.CHANGED_READS,
    pod_starts.READS,
    node_health.READS,
    {
        POD: (
            *("spec.containers", "status.conditions"),
            *("status.containerStatuses", "status.initContainerStatuses"),
        )
    },
)
_STARTS: Final = timedelta(minutes=10)
"""A new pod is not ready for some minutes, with a large image too."""
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")


def broken(update: ClusterUpdate, cluster: Cluster) -> BrokenPod | None:
    """Return the pod whose fault an update of OpenShift waits for; None: none is known.

    The words of the update or of its operators name the pod or its owner, and it has not been ready
    for ten minutes.
    """
    said = [update.stop.reason if update.stop is not None else update.doubt]
    for operator in update.operators:
        said += [each["message"].text or "" for each in operator.at("status", "conditions").items()]
    named = set(_NAME.findall(" ".join(said)))
    found = _named(update.operators, named, cluster)
    broken = first((pod for pod in found if _lasts(pod, cluster)), cluster)
    if broken is None:
        return None
    dying = next(dying_claims.of_pod(broken.pod, cluster), None)
    if dying is None or broken.pod.at("spec", "nodeName").text:
        return broken_pods.changed(broken, cluster)
    return broken._replace(why=f"it has no node: {dying.why(cluster)}", remedy=dying.remedy)


def first(pods: Iterable[Object], cluster: Cluster) -> BrokenPod | None:
    """Return the first of these pods that is not ready, one whose cause is known before others;
    None: all are.

    A container that has not been created does not say why: the events of its pod do.
    """
    found = [explained(each, cluster) for pod in pods if (each := broken_pods.of_pod(pod, cluster))]
    return broken_pods.telling(found)


def _named(operators: Iterable[Object], named: Set[str], cluster: Cluster) -> Iterator[Object]:
    spaces = {*named}.union(*(cluster_updates.spaces(each) for each in operators))
    for pod in sorted(cluster.known(POD), key=lambda pod: pod.full_name):
        if pod.namespace in spaces and not named.isdisjoint(_names(pod)):
            yield pod


def _names(pod: Object) -> Iterator[str]:
    """Yield the names of a pod, its owner, and the Deployment of a ReplicaSet."""
    yield pod.name
    owner = pod.controller
    if owner is not None and (name := owner["name"].text):
        yield name
        if owner["kind"].text == "ReplicaSet":
            yield name.rpartition("-")[0]


def _lasts(pod: Object, cluster: Cluster) -> bool:
    node = find(cluster, NODE, "", pod.at("spec", "nodeName").text)
    age = node_health.pod_unready_for(pod, node, cluster)
    return age is not None and age >= _STARTS
