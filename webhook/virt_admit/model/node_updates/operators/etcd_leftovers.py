"""Control planes of Cluster API whose etcd keeps a member that never started.

``kubeadm join`` adds the member before etcd runs. If the Machine then fails and is replaced,
KubeadmControlPlane finds no node whose name the member has, and leaves it. etcd takes one learner
at a time (``--max-learners``), so no later Machine joins, and each is replaced in its turn. While a
Machine starts, a member without a name may also be its own. Sources: kubernetes-sigs/cluster-api
#13221 (the fault), #13685 (1.14 removes the member);
:controlplane/kubeadm/pkg/workload_cluster_conditions.go#compareMachinesAndMembers;
etcd-io/etcd:server/etcdserver/api/membership/membership_options.go#DefaultMaxLearners.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from virt_admit.model.commands import shell, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, KUBEADM
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut, cut_middle, names
from virt_admit.model.remediation import machine_drain, machine_owners, machine_starts, machines

READS: Final[Reads] = union(machine_starts.READS, machine_drain.READS, {KUBEADM: ()})
_LEFT: Final = re.compile(
    r"Etcd member (\d{1,20}) \(Name not yet assigned\) does not have a corresponding Machine"
)
_JOINED: Final = timedelta(minutes=20)
"""A Machine that joins has started its member by then."""
_SPACE: Final = "capk.cluster.x-k8s.io/kubevirt-machine-namespace"
_CLUSTER: Final = "cluster.x-k8s.io/cluster-name"
_PKI: Final = "/etc/kubernetes/pki/etcd"


class EtcdLeftover(NamedTuple):
    """A control plane that an unstarted member of etcd holds."""

    owner: Object
    reason: str
    brief: str
    remedy: str
    advice: str
    """The remedy in as few words as a finding has."""


def of(owner: Object, cluster: Cluster) -> EtcdLeftover | None:
    """Return that a member which never started holds a control plane; None: it does not, or the
    member may be that of a Machine which joins now.

    Raises:
        Unseen: not all Machines are known, and such a Machine may be among them.
    """
    healthy = machine_drain.condition(owner, "EtcdClusterHealthy")
    members = _LEFT.findall(healthy["message"].text or "")
    since = healthy["lastTransitionTime"].text
    age = clock.since(since, cluster)
    if len(members) != 1 or healthy["status"].text != "False" or age is None or age < _JOINED:
        return None
    own = sorted(machine_owners.owned(owner, cluster), key=lambda each: each.name)
    waiting = [each for each in own if not machines.node_name(each) and not each.deleted]
    replaced = owner.at("status", "lastRemediation")
    when = clock.instant(replaced["time"].text or replaced["timestamp"].text)
    begun = clock.instant(since)
    if when is None or begun is None or when < begun:
        return None
    if not all(_has_failed(each, begun, cluster) for each in waiting):
        return None
    number = members[0]
    subject = f"{owner.kind} {owner.full_name}"
    held = f"{_rollout(owner, cluster)}, as its etcd has a member without a name and a Machine"
    last = cut_middle(replaced["machine"].text or "?", 63)
    left = f"it is left from a Machine that was replaced (the last one: {last})"
    without = names([each.name for each in waiting])
    one, has = ("Machine", "has") if len(waiting) == 1 else ("Machines", "have")
    later = f", and {one} {without} {has} no Node" if waiting else ""
    effect = f"etcd takes one such member at a time, so no new Machine joins{later}"
    return EtcdLeftover(
        owner,
        f"{subject} {held} ({number}) for {clock.duration(age)}: {left}; {effect}",
        f"{owner.kind} {owner.name} {held} ({number}), left from a Machine that was replaced: no "
        f"new one joins{later}",
        _remedy(number, own, owner),
        f"In cluster {_guest(owner)}: etcdctl member remove {int(number):x}, if it still has no "
        "name and all others are started.",
    )


def of_vmi(vmi: Object, cluster: Cluster) -> EtcdLeftover | None:
    """Return what holds the control plane to which a VM belongs as a Machine."""
    namespace = vmi.labels.get(_SPACE) or vmi.namespace
    machine = find(cluster, CAPI_MACHINE, namespace, vmi.name) if _CLUSTER in vmi.labels else None
    owner = machine.owned_by(KUBEADM.kind) if machine is not None else ""
    found = find(cluster, KUBEADM, namespace, owner)
    with contextlib.suppress(Unseen):
        return of(found, cluster) if found is not None else None
    return None


def held(cluster: Cluster) -> tuple[EtcdLeftover, ...]:
    """Return the control planes that an unstarted member of etcd holds."""
    found: list[EtcdLeftover | None] = []
    for each in sorted(cluster.known(KUBEADM), key=lambda each: each.full_name):
        with contextlib.suppress(Unseen):
            found.append(of(each, cluster))
    return tuple(each for each in found if each is not None)


def _has_failed(machine: Object, begun: datetime, cluster: Cluster) -> bool:
    """Return whether a Machine was made after the fault began, and has had the time to join."""
    age, born = clock.age(machine, cluster), clock.instant(machine.created)
    return age is not None and born is not None and born > begun and age >= _JOINED


def _guest(owner: Object) -> str:
    return owner.labels.get(_CLUSTER, owner.name)


def _rollout(owner: Object, cluster: Cluster) -> str:
    """Return ``does not go on with its roll-out to v1.33.4, for 2 h 05``."""
    rolling = machine_drain.condition(owner, "RollingOut")
    if rolling["status"].text != "True":
        return "creates no Machine that joins"
    to = cut(owner.at("spec", "version").text or "", 40)
    lasts = clock.lasting(rolling["lastTransitionTime"].text, cluster)
    return f"does not end its roll-out{f' to {to}' if to else ''}, which lasts{lasts}"


def _remedy(number: str, own: Sequence[Object], owner: Object) -> str:
    """Return how the member is removed: after a look at it, as a member that has started holds
    data."""
    member = f"{int(number):x}"
    name = _guest(owner)
    remove = (
        f"if member {member} still has no name there and all others are started, remove it there "
        f"(etcdctl member remove {member})"
    )
    working = [
        machines.node_name(each)
        for each in own
        if machine_drain.condition(each, "EtcdMemberHealthy")["status"].text == "True"
        and not each.deleted
    ]
    first = f"see the members of etcd of cluster {name}"
    later = "the control plane then goes on by itself"
    pod = next((f"etcd-{node}" for node in working if node), "")
    command = shell(
        *("kubectl", "--kubeconfig", f"{name}.kubeconfig", "exec", "-n", "kube-system", pod),
        *("--", "etcdctl", "--cacert", f"{_PKI}/ca.crt", "--cert", f"{_PKI}/server.crt"),
        *("--key", f"{_PKI}/server.key", "member", "list", "-w", "table"),
    )
    return typed(
        f"{first}, with its kubeconfig (clusterctl get kubeconfig {name} -n {owner.namespace}); "
        f"{remove}; {later}",
        command if pod else "",
    )
