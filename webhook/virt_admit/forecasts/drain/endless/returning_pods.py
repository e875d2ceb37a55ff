"""Pods that come back to a node while it is drained, as their workload tolerates the cordon.

Cluster API looks at all pods of the node each time, and drains until none is left; each eviction
makes the next pod, and the empty node is the best place for it. Drains with kubectl's library
(``kubectl drain``, the machine config operator, NodeMaintenance, Harvester, kured) wait for the
pods that they found at the beginning, and end. Sources:
kubernetes-sigs/cluster-api:core/reconcilers/machine/drain/drain.go#GetPodsForEviction (tolerations
do not count); kubernetes/kubernetes:staging/src/k8s.io/kubectl/pkg/drain/drain.go#waitForDelete (by
UID); rancher/fleet:internal/cmd/controller/agentmanagement/agent/manifest.go (agentTolerations);
issue rancher/fleet#5617 (a taint of a cordoned node is copied there).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.drain import progress
from virt_admit.forecasts.drain.budgets import evicted_pods
from virt_admit.forecasts.drain.budgets.drain_obstacles import Blocker
from virt_admit.model import machine_nodes, pod_owners
from virt_admit.model.commands import argument, kubectl, shell, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, entry
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, FLEET_CLUSTER, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import maker_of
from virt_admit.model.messages import capital
from virt_admit.model.problems import ProblemCause
from virt_admit.model.remediation import machine_drain
from virt_admit.model.scheduler.node_selectors import tolerates

READS: Final[Reads] = union(
    clock.READS,
    progress.READS,
    pod_owners.READS,
    machine_drain.READS,
    {
        CAPI_MACHINE: ("metadata.deletionTimestamp",),
        POD: ("metadata.creationTimestamp", "metadata.ownerReferences", "spec.tolerations"),
        FLEET_CLUSTER: ("spec.agentTolerations", "spec.agentNamespace", "status.agent.namespace"),
    },
)
_KEY: Final = "node.kubernetes.io/unschedulable"
_CORDON: Final = {"key": _KEY, "effect": "NoSchedule"}
_MAKERS: Final = ("Deployment", "ReplicaSet", "StatefulSet")
"""What makes a pod again as soon as one is evicted, and can be scaled."""
_LONG: Final = timedelta(minutes=10)
"""A drain of fewer pods than this takes minutes."""
_BEGUN: Final = timedelta(minutes=2)
"""Pods that a controller made before it saw the cordon are older than this."""
_AGENT: Final = "fleet-agent"


class ReturningPod(NamedTuple):
    """A pod that was made for a node after it was cordoned."""

    pod: Object
    kind: str
    name: str
    """Kind and name of its workload."""
    age: timedelta
    every_taint: bool
    """Whether it tolerates every taint, and not this one by its name."""

    @property
    def workload(self) -> str:
        """Kind and full name of the workload."""
        return f"{self.kind} {self.pod.namespace}/{self.name}"

    @property
    def tolerates(self) -> str:
        """What it tolerates, in words."""
        return f"every taint, {_KEY} too" if self.every_taint else _KEY


def blocker(pod: Object, cluster: Cluster) -> Blocker | None:
    """Return that a pod comes back again and again to a node that Cluster API drains until none is
    left; None: that is not certain."""
    node = pod.at("spec", "nodeName").text or ""
    machine = entry(cluster, _draining, node)
    began = _began(machine) if machine is not None else None
    if machine is None or began is None or machine_drain.spared(pod, machine, cluster) is not None:
        return None
    lasts = clock.elapsed(began, cluster)
    back = _of_pod(pod, began, cluster)
    if back is None or lasts is None or lasts < _LONG or back.age > _LONG:
        return None  # one that stays is not evicted, so that its workload makes no other
    made = f"{pod.name} is {clock.duration(back.age)} old"
    reason = (
        f"its pods come back to this node ({made}), as it tolerates {back.tolerates}, and Cluster "
        "API drains until none is left"
    )
    place = back.kind, pod.namespace, back.name
    return Blocker(
        *place, reason, capital(_remedy(back, cluster)), now=True, cause=ProblemCause.POD_RETURNS
    )


def note(node: Object, cluster: Cluster) -> Iterator[str]:
    """Yield which pods come back to a cordoned node, where no drain waits for them."""
    start = progress.start(node, cluster)
    cordoned = node.at("spec", "unschedulable").boolean is True
    if start is None or start.since is None or not cordoned:
        return
    if entry(cluster, _draining, node.name) is not None:
        return  # it blocks that drain
    here = entry(cluster, evicted_pods.by_node, node.name) or ()
    found = (_of_pod(pod, start.since, cluster) for pod in here)
    by_workload = {each.workload: each for each in found if each is not None}
    for back in by_workload.values():
        yield (
            f"Pods of {back.workload} come back to this cordoned node ({back.pod.name} is "
            f"{clock.duration(back.age)} old): it tolerates {back.tolerates}. kubectl drain ends "
            "all the same, as it waits for the pods of its beginning alone. Cluster API, which "
            f"drains a node before it deletes its Machine, would never end: before that, "
            f"{_remedy(back, cluster)}"
        )


def _of_pod(pod: Object, began: datetime, cluster: Cluster) -> ReturningPod | None:
    made, age = clock.instant(pod.created), clock.age(pod, cluster)
    if made is None or age is None or made < began + _BEGUN or evicted_pods.is_of_vm(pod):
        return None
    own = pod.at("spec", "tolerations")
    maker = maker_of(pod, cluster)
    kind, name = (maker["kind"].text, maker["name"].text) if maker is not None else ("", "")
    if not evicted_pods.is_evicted(pod) or kind not in _MAKERS or not name:
        return None
    if not tolerates(own.value, _CORDON):
        return None
    by_name = any(each["key"].text == _KEY for each in own.items())
    return ReturningPod(pod, kind, name, age, every_taint=not by_name)


def _draining(cluster: Cluster) -> Mapping[str, Object]:
    """Return the Machines of Cluster API that drain a node now and without a time-out, by node."""
    found = (each for each in cluster.known(CAPI_MACHINE) if machine_drain.cordons_again(each))
    return {
        node: machine
        for machine in found
        if not machine_drain.is_drained(machine)
        if (node := machine_nodes.emptied_node(machine, cluster))
    }


def _began(machine: Object) -> datetime | None:
    _, began = machine_drain.reported(machine)
    return began or clock.instant(machine.metadata["deletionTimestamp"].text)


def _remedy(back: ReturningPod, cluster: Cluster) -> str:
    """Return what ends the loop, with a command."""
    zero = f"scale {back.workload} to 0 until the node is gone"
    fleet = _fleet_cluster(back, cluster)
    if fleet is not None:
        words = (
            f"take {_KEY} out of spec.agentTolerations of Fleet's Cluster {fleet.full_name}, which "
            f"{back.workload} has it from"
        )
        return typed(
            words, kubectl("edit", FLEET_CLUSTER, fleet.name, fleet.namespace), f"or {zero}"
        )
    way = (
        "let it tolerate the taints that it needs, by their keys, and not every taint"
        if back.every_taint
        else "take that toleration out of it"
    )
    where = ("-n", argument(back.pod.namespace))
    edit = shell("kubectl", "edit", back.kind.lower(), argument(back.name), *where)
    return typed(way, edit, f"or {zero}")


def _fleet_cluster(back: ReturningPod, cluster: Cluster) -> Object | None:
    """Return the Cluster of Fleet from which its agent has the toleration; None: none is known."""
    if back.name != _AGENT:
        return None
    for each in cluster.known(FLEET_CLUSTER):
        spaces = (each.at("status", "agent", "namespace"), each.at("spec", "agentNamespace"))
        space = next((found.text for found in spaces if found.text), "")
        keys = [one["key"].text for one in each.at("spec", "agentTolerations").items()]
        if space == back.pod.namespace and _KEY in keys:
            return each
    return None
