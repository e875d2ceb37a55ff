"""kube-scheduler and kube-controller-manager where none of them is ready: without the one no pod
gets a node, without the other no volume is attached to a node.

They run as static pods of the control plane. Where they are no pods (k3s, managed and hosted
control planes), or where a leader renews its Lease, nothing is said. OpenShift keeps that of
kube-scheduler in its own namespace.
Sources: openshift/cluster-kube-scheduler-operator:bindata/assets/config/defaultconfig.yaml;
kubernetes/kubernetes:cmd/kube-scheduler/app/server.go#Run,
:pkg/controller/volume/attachdetach/attach_detach_controller.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.placement.components import broken_pods
from virt_admit.model.kubernetes import clock, node_health
from virt_admit.model.kubernetes.cluster import Cluster, cached, unlisted
from virt_admit.model.kubernetes.kinds import LEASE, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.lookups import fields
from virt_admit.model.messages import sentence
from virt_admit.model.problems import Problem, ProblemCause, ProblemId

READS: Final[Reads] = union(
    node_health.READS, {POD: ("spec.containers.name", "status.containerStatuses", *CONDITIONS)}
)
LEASE_READS: Final[Reads] = {LEASE: ("spec.renewTime",)}
"""Without these, as in ``watch``, which would get the heartbeats of all nodes too, pods decide."""
SCHEDULER: Final = "kube-scheduler"
MANAGER: Final = "kube-controller-manager"
_SYSTEM: Final = "kube-system"
RENEWED_WITHIN: Final = timedelta(minutes=2)
"""virt-controller renews its Lease within 15 seconds, kube-scheduler within two, that of OpenShift
within 26. One minute is the time that a listing takes.
"""


def down(name: str, cluster: Cluster) -> Problem | None:
    """Return that no pod of such a controller has been ready for minutes; None: one is, another may
    be, or there are no such pods.

    ``name``: ``SCHEDULER`` or ``MANAGER``. The reason is a clause:
    ``kube-scheduler has no Ready pod (pod P is not ready for 90 min: CrashLoopBackOff)``.
    """
    return _every(cluster)[name]


@cached
def _every(cluster: Cluster) -> Mapping[str, Problem | None]:
    """Return the same for both: each VM and each node asks."""
    return {name: _down(name, cluster) for name in (SCHEDULER, MANAGER)}


def _down(name: str, cluster: Cluster) -> Problem | None:
    pods = _pods(name, cluster)
    if unlisted(cluster, POD) or not all(_is_down(name, pod) for pod in pods):
        return None
    broken = broken_pods.all_down(pods, cluster)
    if broken is None or any(_leads(name, each, cluster) for each in _spaces(name)):
        return None
    place = ProblemId(ProblemCause.COMPONENT, broken.pod.namespace, broken.pod.name)
    return Problem(f"{name} has no Ready pod ({broken.words})", sentence(broken.remedy), id=place)


def places_none(cluster: Cluster) -> Problem | None:
    """Return that no new pod gets a node; None: one may."""
    return _with(down(SCHEDULER, cluster), "no new pod gets a node")


def replaces_none(cluster: Cluster) -> Problem | None:
    """Return that no pod of a lost node is replaced; None: one may be."""
    return _with(down(MANAGER, cluster), "no pod of a lost node is replaced")


def restarts_none(cluster: Cluster) -> bool:
    """Return whether no pod of a lost node runs again: nothing replaces it, or gives it a node."""
    return replaces_none(cluster) is not None or places_none(cluster) is not None


def _with(found: Problem | None, effect: str) -> Problem | None:
    return found and found._replace(reason=f"{found.reason}, so {effect}")


def lease_age(namespace: str, name: str, cluster: Cluster) -> timedelta | None:
    """Return how long ago the leader of a controller renewed its Lease; None: not known."""
    lease = fields(cluster, LEASE, namespace, name)
    return clock.since(lease.at("spec", "renewTime").text, cluster)


def _leads(name: str, namespace: str, cluster: Cluster) -> bool:
    """Return whether a controller works, whatever its pod says."""
    age = lease_age(namespace, name, cluster)
    return age is not None and age <= RENEWED_WITHIN


def _spaces(name: str) -> tuple[str, str]:
    return _SYSTEM, f"openshift-{name}"


def _pods(name: str, cluster: Cluster) -> Sequence[Object]:
    """Return the pods whose container has the name, where Kubernetes and OpenShift run them."""
    return [
        pod
        for namespace in _spaces(name)
        for pod in cluster.known(POD, namespace)
        if not pod.ended
        and any(each["name"].text == name for each in pod.at("spec", "containers").items())
    ]


def _is_down(name: str, pod: Object) -> bool:
    """Return whether the container itself may not be ready: others of its pod only watch over its
    certificates."""
    states = pod.at("status", "containerStatuses").items()
    own = next((each for each in states if each["name"].text == name), None)
    return own is None or own["ready"].boolean is False
