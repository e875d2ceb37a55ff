"""Jobs of RKE2's own charts that fail on a server which has not got the new release yet.

The first server that is updated brings the new charts. Each asks for the Kubernetes of its release,
so that its Job waits for the API server, and Helm asks the one of the server on which the pod runs.
A pod on an old server fails until that is updated too, and its chart stays at the old release.
Sources: rancher/rke2#7642, #3787, pull request 2456 (the requirement is meant so);
k3s-io/helm-controller:pkg/controllers/chart/chart.go (bootstrap charts use the host's network).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.placement.components.controllers.hook_jobs import HeldHook
from virt_admit.model.commands import about, shell, typed
from virt_admit.model.evidence import container_states
from virt_admit.model.kubernetes import clock, nodes
from virt_admit.model.kubernetes.cluster import Cluster, cached
from virt_admit.model.kubernetes.kinds import JOB, NODE, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.settings.versions import parse_version
from virt_admit.model.lookups import find
from virt_admit.model.messages import names

_CHART: Final = "helmcharts.helm.cattle.io/chart"
READS: Final[Reads] = {
    JOB: (f"metadata.labels.{_CHART}", "status.active"),
    POD: (
        *(f"metadata.labels.{_CHART}", "metadata.ownerReferences", "metadata.creationTimestamp"),
        *("spec.nodeName", *container_states.FIELDS),
    ),
    NODE: ("metadata.labels", "status.nodeInfo.kubeletVersion"),
}
_SAID: Final = re.compile(
    r"chart requires kubeVersion: ([^\n]{1,80}?) which is incompatible with Kubernetes (v[\w.+-]+)"
)
_USUAL: Final = timedelta(minutes=30)
"""An updated server has the new API server after some minutes, and other servers follow."""


@cached
def held(cluster: Cluster) -> Sequence[HeldHook]:
    """Return the Jobs whose pod is on a server with an older kubelet than another server has."""
    pods = (pod for pod in cluster.known(POD) if pod.labels.get(_CHART))
    found = (_of(pod, cluster) for pod in sorted(pods, key=lambda pod: pod.full_name))
    return tuple(each for each in found if each is not None)


def _of(pod: Object, cluster: Cluster) -> HeldHook | None:
    job = find(cluster, JOB, pod.namespace, pod.owned_by(JOB.kind) or "")
    on = pod.at("spec", "nodeName").text or ""
    node, age = find(cluster, NODE, "", on), clock.age(pod, cluster)
    said = next(filter(None, map(_SAID.search, _words(pod))), None)
    if job is None or node is None or said is None or age is None or age < _USUAL or pod.deleted:
        return None
    own, refused = _kubelet(node), said[2]
    older, newer = _servers(node, said[1], cluster)
    if own != refused or not newer or not nodes.is_server(node):
        return None
    chart, has = pod.labels[_CHART], "has" if len(newer) == 1 else "have"
    begin = f"Job {job.full_name} has not brought chart {chart} to its new release"
    why = (
        f"the chart needs Kubernetes {said[1]}, which {names(newer, 60)} {has}, and its pod "
        f"{pod.name} runs on {on}, which still has {own}"
    )
    first = f"Go on with the update of {names(older, 80)}, after which the Job ends by itself"
    again = "or delete the pod, so that its next one may start on an updated server"
    delete = about("delete", pod, POD)
    remedy = typed(f"{first}; {again} ({delete})", shell("kubectl", "get", "nodes"))
    return HeldHook(job, f"{begin} for {clock.duration(age)}: {why}", f"{begin}: {why}", remedy)


def _words(pod: Object) -> Iterator[str]:
    for _, ended in container_states.terminations(pod):
        yield ended["message"].text or ""


def _servers(node: Object, needs: str, cluster: Cluster) -> tuple[list[str], list[str]]:
    """Return the servers with the release of a server or an older one, and those with a newer
    one that a chart accepts.
    """
    own, least = (parse_version(each) for each in (_kubelet(node), needs.lstrip(">=~^ ")))
    older, newer = list[str](), list[str]()
    for each in sorted(cluster.known(NODE), key=lambda each: each.name):
        release = parse_version(_kubelet(each)) if nodes.is_server(each) else None
        if own is None or least is None or release is None:
            continue
        if release <= own:
            older.append(each.name)
        elif release >= least:
            newer.append(each.name)
    return older, newer


def _kubelet(node: Object) -> str:
    return node.at("status", "nodeInfo", "kubeletVersion").text or ""
