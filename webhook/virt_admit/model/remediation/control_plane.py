"""The control-plane nodes, each with its member of etcd: which are down,
and whether another may be rebooted.

kubeadm, Cluster API and Talos refuse to go on while a member is down
(kubernetes/kubernetes:cmd/kubeadm/app/phases/ upgrade/health.go#controlPlaneNodesReady;
kubernetes-sigs/cluster-api:controlplane/kubeadm/reconcilers/kubeadmcontrolplane/
preflight.go#preflightChecks). What only reboots nodes does not look, and then etcd loses its
majority. A node that has left etcd, as one that is being replaced, does not count.
Its etcd ends with the words of etcd-io/etcd:server/etcdserver/api/rafthttp/util.go
#errMemberRemoved, and the operator of etcd takes its hook from the Machine
(openshift/cluster-etcd-operator:pkg/operator/machinedeletionhooks).
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from virt_admit.model import machine_nodes
from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.clock import duration
from virt_admit.model.kubernetes.cluster import Cluster, cached, more_may_exist
from virt_admit.model.kubernetes.kinds import MACHINE, NODE, POD
from virt_admit.model.kubernetes.nodes import is_control_plane, votes_in_etcd
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import count, names
from virt_admit.model.problems import ProblemCause, ProblemId, problem_of
from virt_admit.model.remediation import etcd_guard, machines

_SINCE: Final = (*CONDITIONS, "status.conditions.lastTransitionTime")
READS: Final[Reads] = union(
    clock.READS,
    machine_nodes.READS,
    {
        MACHINE: etcd_guard.HOOK_READS[MACHINE],
        NODE: ("metadata.labels", *_SINCE),
        POD: (
            "metadata.labels",
            "spec.nodeName",
            "status.phase",
            "status.containerStatuses.lastState.terminated.message",
            "status.containerStatuses.state.running",
            "status.containerStatuses.state.terminated.message",
            *_SINCE,
        ),
    },
)

_REBOOT: Final = datetime.timedelta(minutes=30)
"""A node that does not report for longer than this is not rebooting, also not on bare metal."""

_REMOVED: Final = "permanently removed from the cluster"
_ETCD_PODS: Final = {"kube-system": "component", "openshift-etcd": "app"}
_ETCD: Final = frozenset((("kube-system", "etcd"), ("openshift-etcd", "etcd")))


class Member(NamedTuple):
    """A control-plane node with its member of etcd."""

    node: Object
    up: bool | None
    """None: it is not Ready, but it may be rebooting, or its member of etcd may work."""
    why: str = ""
    """Why it is not certainly up, such as ``cp-2 does not report for 3 h 20``."""


class RebootRisk(NamedTuple):
    """Why a control-plane node must not be rebooted now."""

    certain: bool
    """Whether the others are too few in any case. False: that depends on a node that may be up."""
    node: str
    """The node to be rebooted."""
    reason: str
    remedy: str
    problem: ProblemId
    """Of the first node that is down."""


def majority(members: int) -> int:
    """Return how many members must be up for etcd to answer."""
    return members // 2 + 1


@cached
def members(cluster: Cluster) -> Mapping[str, Member]:
    """Return the known control-plane nodes by name.

    Empty: the control plane is outside of the cluster.
    """
    nodes = cluster.known(NODE)
    voters = [node for node in nodes if votes_in_etcd(node)]
    gone = left(cluster)
    found = [
        _member(node, cluster)
        for node in voters or filter(is_control_plane, nodes)
        if node.name not in gone
    ]
    if sum(member.up is not False for member in found) < majority(len(found)):
        # the API server answered, so most members are up: silent nodes are cut off from it, but not
        # from each other
        found = [member._replace(up=member.up or None) for member in found]
    return {member.node.name: member for member in found}


@cached
def left(cluster: Cluster) -> frozenset[str]:
    """Return the nodes whose members have been removed from etcd: their etcd says so, or their
    Machine is being deleted and its hook was taken away, which other Machines have.
    """
    hooked = any(etcd_guard.has_hook(each) for each in cluster.known(MACHINE))
    freed = (
        machine_nodes.node_name(machine, cluster)
        for machine in cluster.known(MACHINE)
        if hooked
        and machine.deleted
        and any(machine.labels.get(key) == machines.MASTER for key in machines.ROLE_LABELS)
        and not etcd_guard.has_hook(machine)
    )
    told = (node for node, pod in cluster.cached(_broken_etcd).items() if _says_removed(pod))
    return frozenset((*freed, *told)) - {""}


def _says_removed(pod: Object) -> bool:
    """Return whether etcd ended with these words and does not run: one that was added again keeps
    the message of its last end.
    """
    return any(
        _REMOVED in (status.at(state, "terminated", "message").text or "")
        for status in pod.at("status", "containerStatuses").items()
        if not status.at("state", "running").present
        for state in ("state", "lastState")
    )


def _member(node: Object, cluster: Cluster) -> Member:
    ready = node.condition("Ready")
    status = ready["status"].text
    if status in (None, "True"):
        pod = cluster.cached(_broken_etcd).get(node.name)
        if pod is None:
            return Member(node, up=True)
        return _down(node, "etcd on {} is not ready", pod, cluster)
    if status == "False":
        return Member(node, None, f"{node.name} is not Ready")
    return _down(node, "{} does not report", node, cluster)


def _down(node: Object, words: str, shows: Object, cluster: Cluster) -> Member:
    """Return a member that is certainly down if an object has not been Ready for longer than a
    reboot takes.
    """
    lasts = clock.since(shows.condition("Ready")["lastTransitionTime"].text, cluster)
    why = words.format(node.name)
    if lasts is None:
        return Member(node, None, why)
    return Member(node, False if lasts > _REBOOT else None, f"{why} for {duration(lasts)}")


def _broken_etcd(cluster: Cluster) -> Mapping[str, Object]:
    """Return the static pods of etcd that run, but are not ready, by node: kubeadm,
    RKE2 and OpenShift run them.
    """
    return {
        pod.at("spec", "nodeName").text or "": pod
        for pod in cluster.known(POD)
        if (pod.namespace, pod.labels.get(_ETCD_PODS.get(pod.namespace, "-"))) in _ETCD
        and pod.condition("Ready")["status"].text == "False"
        and not pod.ended
    }


def reboot_risk(
    name: str, cluster: Cluster, coming_back: Collection[str] = ()
) -> RebootRisk | None:
    """Return why a node must not be rebooted now.

    None: enough others are up, or all of them, who wait for its return. Two members that are left
    of three are the state between a removal and the addition of the member that replaces it.

    Args:
        name: the node.
        cluster: the cluster.
        coming_back: nodes that are being updated: the next one waits for them.
    """
    every = members(cluster)
    if name not in every:
        return None
    others = [member for node, member in every.items() if node != name and node not in coming_back]
    down, doubtful = ([each for each in others if each.up is up] for up in (False, None))
    up, needed = len(every) - 1 - len(down), majority(len(every))
    gone = [node for each in sorted(left(cluster)) if (node := find(cluster, NODE, "", each))]
    all_of_them = count(len(every), "etcd member" if gone else "control-plane node")
    certain = not any(more_may_exist(cluster, NODE))
    if down and up < needed and certain:
        return _risk(name, down, f"leaves {up} of {all_of_them}", certain=True)
    if gone and not down and up < needed:
        verb = "leaves" if certain else "may leave"
        return _of_left(name, gone, f"{verb} {up} of {all_of_them}", certain=certain)
    if (down or doubtful) and up - len(doubtful) < needed:
        broken = (*down, *doubtful)
        return _risk(
            name, broken, f"may leave {up - len(doubtful)} of {all_of_them}", certain=False
        )
    return None


def _risk(name: str, broken: Sequence[Member], leaves: str, *, certain: bool) -> RebootRisk:
    first = broken[0].node
    them = names(member.node.name for member in broken)
    it = "it and its member" if len(broken) == 1 else "them and their members"
    remedy = typed(
        f"Repair {them} first, or remove {it} of etcd and add a new node",
        about("describe", first, NODE),
    )
    why = names([member.why for member in broken], 200)
    problem = problem_of(ProblemCause.CONTROL_PLANE_DOWN, first)
    return RebootRisk(certain, name, _reason(name, why, leaves, certain=certain), remedy, problem)


def _of_left(name: str, gone: Sequence[Object], leaves: str, *, certain: bool) -> RebootRisk:
    """Return the risk of a reboot while nodes have left etcd and no others took their places."""
    them = names((node.name for node in gone), 120)
    why = f"{them} {'has' if len(gone) == 1 else 'have'} left etcd"
    remedy = typed(
        f"Add the member that takes the place of {them} first", about("describe", gone[0], NODE)
    )
    problem = problem_of(ProblemCause.CONTROL_PLANE_DOWN, gone[0])
    return RebootRisk(certain, name, _reason(name, why, leaves, certain=certain), remedy, problem)


def _reason(name: str, why: str, leaves: str, *, certain: bool) -> str:
    stops = "stops" if certain else "would stop"
    return f"{why}: a reboot of {name} {leaves}, too few for etcd, and the API {stops}"
