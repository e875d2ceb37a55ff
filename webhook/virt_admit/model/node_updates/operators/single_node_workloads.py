"""Pods of a workload that all run on one node, which a ClusterOperator reports without names.

An annotated claim lets the operator move its pod, and delete the claim only if its volume is bound
to a zone. Source: openshift/cluster-monitoring-operator:pkg/operator/operator.go#Upgradeable,
pkg/rebalancer/rebalancer.go#WorkloadCorrectlyBalanced #RebalanceWorkloads (removed later).
"""

from __future__ import annotations

import re
from typing import Final

from virt_admit.model.commands import kubectl, typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import POD, PVC
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem
from virt_admit.model.scheduler.pods import claim_names

READS: Final[Reads] = {
    POD: ("metadata.labels", "spec.nodeName", "spec.volumes.persistentVolumeClaim", "status.phase")
}
_WORKLOAD: Final = re.compile(
    r"workload in namespace ([a-z0-9-]{1,63}), with label "
    r'map\["([^"]{1,317})":"([^"]{0,63})"\]'
)
_MARK: Final = "openshift.io/cluster-monitoring-drop-pvc"


def named_in(words: str, cluster: Cluster) -> Problem | None:
    """Return that the pods which a refusal means run on one node; None: it means none, or they are
    on several nodes.

    Without a remedy, their operator does not move them.
    """
    for namespace, key, value in _WORKLOAD.findall(words):
        pods = sorted(_pods(namespace, key, value, cluster), key=lambda pod: pod.name)
        nodes = {pod.at("spec", "nodeName").text for pod in pods}
        if len(pods) > 1 and len(nodes) == 1:
            which = names(pod.name for pod in pods)
            where = f"pods {which} of {namespace} all run on {nodes.pop()}"
            return Problem(where, _moved(pods[-1], words))
    return None


def _pods(namespace: str, key: str, value: str, cluster: Cluster) -> list[Object]:
    known = cluster.known(POD, namespace)
    running = (pod for pod in known if pod.at("status", "phase").text == "Running")
    return [pod for pod in running if pod.label(key).text == value]


def _moved(pod: Object, words: str) -> str:
    claim = next(claim_names(pod), "")
    if not claim or _MARK not in words:
        return ""
    what = f"Mark the claim of {pod.name}, so that the operator moves this pod to another node"
    lost = "; it deletes the claim with its data if the volume is bound to a zone"
    return typed(f"{what}{lost}", kubectl("annotate", PVC, claim, pod.namespace, f"{_MARK}=yes"))
