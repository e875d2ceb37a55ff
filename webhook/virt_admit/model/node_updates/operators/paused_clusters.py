"""Clusters of Cluster API that are paused, and the changes that wait for that.

``clusterctl move`` pauses a Cluster, and one that fails leaves it so. Its controllers then do
nothing for the Cluster and what belongs to it, and say so in the condition Paused alone. Cluster
API provider KubeVirt is an exception: it looks at the annotation of an object, but not at its
Cluster, so that its reaction to an eviction may go on. Sources:
kubernetes-sigs/cluster-api:util/paused/paused.go,
:cmd/clusterctl/client/cluster/mover.go#setClusterPause;
kubernetes-sigs/cluster-api-provider-kubevirt:controllers/kubevirtmachine_controller.go#SetupWithManager;
issues kubernetes-sigs/cluster-api#7407. The status of a MachineSet that is paused is old, so that
its Machines are counted (#4473). HyperShift pauses what it makes as its own objects say, and
sets it again (openshift/hypershift:hypershift-operator/controllers/nodepool/capi.go#Pause).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.model.commands import about, argument, merge_patch, shell, typed
from virt_admit.model.kubernetes import clock, kinds
from virt_admit.model.kubernetes.cluster import Cluster, cached, unlisted
from virt_admit.model.kubernetes.kinds import (
    CAPI_CLUSTER,
    CAPI_MACHINE,
    CAPI_MACHINE_SET,
    KUBEADM,
    MACHINE,
    MACHINE_DEPLOYMENT,
    MACHINE_SET,
    Kind,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import grouped
from virt_admit.model.messages import names
from virt_admit.model.node_updates import node_phases
from virt_admit.model.remediation import machine_drain
from virt_admit.model.remediation.health_checks import PAUSED

_MARKED: Final = (KUBEADM, MACHINE_DEPLOYMENT, CAPI_MACHINE_SET)
"""The kinds of which one object may be paused alone, by an annotation."""
READS: Final[Reads] = union(
    clock.READS,
    dict.fromkeys((CAPI_CLUSTER, CAPI_MACHINE, *_MARKED), ()),
    {MACHINE: ("metadata.ownerReferences",), MACHINE_SET: ("spec.replicas", "status.replicas")},
)
_LABEL: Final = "cluster.x-k8s.io/cluster-name"
_MACHINE: Final = "capk.cluster.x-k8s.io/kubevirt-machine-namespace"
"""The label with the namespace of the KubevirtMachine of a VM, which is that of its Cluster."""
PATIENCE: Final = timedelta(hours=1)
"""A move takes minutes."""


class PausedCluster(NamedTuple):
    """A Cluster that is paused, or one object of it."""

    obj: Object
    age: timedelta | None
    """For how long; None: it does not say so, as before Cluster API 1.9."""
    waiting: tuple[str, ...]
    """What certainly waits for it, in words."""
    is_short: bool = False
    """Whether fewer Machines exist than it wants."""

    @property
    def title(self) -> str:
        """Return ``Cluster tenant-a/team-a is paused for 3 h 20 (spec.paused)``."""
        since = clock.lasts(self.age)
        how = "spec.paused" if self._is_cluster else f"annotation {PAUSED}"
        return f"{self.obj.kind} {self.obj.full_name} is paused{since} ({how})"

    @property
    def reason(self) -> str:
        """Return that Cluster API does nothing for it, with what waits."""
        waits = f": {names(self.waiting, 240)}" if self.waiting else ""
        return f"{self.title}, so Cluster API does nothing for it{waits}"

    @property
    def hosted(self) -> str:
        """Return the object of HyperShift that pauses it, as ``NodePool clusters/np``; empty:
        none.
        """
        key = "cluster" if self._is_cluster else "nodePool"
        name = self.obj.annotations.get(f"hypershift.openshift.io/{key}")
        return f"{'HostedCluster' if self._is_cluster else 'NodePool'} {name}" if name else ""

    @property
    def remedy(self) -> str:
        """Return what ends it, with a command unless a move may run at this moment."""
        if self.hosted:
            word, _, full = self.hosted.partition(" ")
            namespace, _, name = full.rpartition("/")
            resource = f"{word.lower()}s.hypershift.openshift.io"  # Karpenter has NodePools, too
            shown = shell(
                "kubectl", "get", resource, argument(name), "-n", argument(namespace), "-o", "yaml"
            )
            return typed(f"HyperShift sets it: see spec.pausedUntil of {self.hosted}", shown)
        kind = None if self._is_cluster else kinds.of(self.obj)
        if kind is not None and (self.age is not None or self.is_short):  # no move does that
            unmark = about("annotate", self.obj, kind, f"{PAUSED}-")
            return typed(
                f"see who has paused {self.obj.kind} {self.obj.name}, then unpause it", unmark
            )
        if self.age is None:
            return "see who has paused it, and since when; unpause it once that is over"
        if not is_long(self):
            return "wait, as a clusterctl move may run, which takes minutes and unpauses it itself"
        data = {"spec": {"paused": False}}
        command = merge_patch(CAPI_CLUSTER, self.obj.name, self.obj.namespace, data)
        return typed("make sure that no clusterctl move runs, then unpause it", command)

    @property
    def _is_cluster(self) -> bool:
        return self.obj.kind == CAPI_CLUSTER.kind


def of(obj: Object, cluster: Cluster) -> PausedCluster | None:
    """Return that a Cluster is paused, or its control plane, MachineDeployment or MachineSet; None:
    it is not.
    """
    if obj.kind == CAPI_CLUSTER.kind:
        is_paused, waiting = obj.at("spec", "paused").boolean is True, _waiting(obj, cluster)
    else:
        is_paused, waiting = PAUSED in obj.annotations, _unseen_change(obj)
    if not is_paused or (kinds.of(obj) is CAPI_MACHINE_SET and obj.namespace == _MIRRORS):
        return None
    since = node_phases.true_since(machine_drain.condition(obj, "Paused"))
    short = shortage(obj, cluster)
    waits = (short, *waiting) if short else tuple(waiting)
    return PausedCluster(obj, clock.elapsed(since, cluster), waits, bool(short))


def shortage(owner: Object, cluster: Cluster) -> str:
    """Return that fewer Machines exist than a MachineSet or a MachineDeployment wants, as ``2 of 3
    Machines exist``; empty: that is not so, or not known.

    One that is being deleted exists, as its owner waits for its end.
    """
    kind, wanted = kinds.of(owner), owner.at("spec", "replicas").integer
    if kind not in (MACHINE_DEPLOYMENT, CAPI_MACHINE_SET, MACHINE_SET) or wanted is None:
        return ""
    of = MACHINE if kind is MACHINE_SET else CAPI_MACHINE
    sets = {owner.name: 0}
    if kind is MACHINE_DEPLOYMENT:  # what its MachineSets want and lack is theirs
        own = owned(owner, CAPI_MACHINE_SET, cluster)
        sets = {each.name: each.at("spec", "replicas").integer or 0 for each in own}
        if sum(sets.values()) >= wanted or unlisted(cluster, CAPI_MACHINE_SET):
            return ""
    if unlisted(cluster, of):
        return ""
    made = cluster.cached(_by_controller(of))
    exist = sum(len(made.get((owner.namespace, MACHINE_SET.kind, name), ())) for name in sets)
    status = owner.at("status", "replicas").integer or 0
    old = f", although its status says {status}" if status > exist else ""
    return f"{exist} of {wanted} Machines exist{old}" if exist < wanted else ""


def owned(owner: Object, kind: Kind, cluster: Cluster) -> Sequence[Object]:
    """Return the known objects of a kind that an object of the same namespace controls."""
    known = cluster.cached(_by_controller(kind))
    return known.get((owner.namespace, owner.kind, owner.name), ())


@functools.cache
def _by_controller(kind: Kind) -> Callable[[Cluster], Mapping[_Key, Sequence[Object]]]:
    """Return what lists the objects of a kind by the controller of each, in the order of names."""
    return lambda cluster: grouped(sorted(cluster.known(kind), key=_name), _controller)


_Key = tuple[str, str, str]


def _controller(obj: Object) -> _Key:
    """Return the namespace of an object, and kind and name of its controller."""
    owner = obj.controller
    kind, name = (owner["kind"].text, owner["name"].text) if owner is not None else ("", "")
    return obj.namespace, kind or "", name or ""


def _name(obj: Object) -> str:
    return obj.name


_MIRRORS: Final = "openshift-cluster-api"
"""Where OpenShift keeps a copy of each MachineSet, which is paused as long as its own API counts
(openshift/cluster-capi-operator:pkg/controllers/machinesetsync)."""


def of_vmi(vmi: Object, cluster: Cluster) -> PausedCluster | None:
    """Return that the Cluster is paused to which a VM belongs as a node; None: it is not, or that
    is not known."""
    name, namespace = vmi.labels.get(_LABEL), vmi.labels.get(_MACHINE) or vmi.namespace
    return _paused(cluster).get((namespace, name or ""))


def of_member(obj: Object, cluster: Cluster) -> PausedCluster | None:
    """Return that the Cluster is paused to which an object of Cluster API belongs; None: it is not,
    or that is not known."""
    if PAUSED in obj.annotations:
        return of(obj, cluster)
    return _paused(cluster).get(cluster_of(obj))


@cached
def _paused(cluster: Cluster) -> Mapping[tuple[str, str], PausedCluster]:
    """Return the whole Clusters that are paused by namespace and name, as many objects ask."""
    found = (of(each, cluster) for each in cluster.known(CAPI_CLUSTER))
    return {(each.obj.namespace, each.obj.name): each for each in found if each is not None}


def cluster_of(obj: Object) -> tuple[str, str]:
    """Return namespace and name of the Cluster to which an object of Cluster API belongs, or that
    it is.
    """
    own = obj.name if obj.kind == CAPI_CLUSTER.kind else obj.labels.get(_LABEL, "")
    return obj.namespace, obj.at("spec", "clusterName").text or own


def held(cluster: Cluster) -> tuple[PausedCluster, ...]:
    """Return the Clusters that are paused for longer than a move needs although something waits."""
    known = (each for kind in (CAPI_CLUSTER, *_MARKED) for each in cluster.known(kind))
    found = (of(each, cluster) for each in sorted(known, key=lambda each: each.full_name))
    return tuple(each for each in found if each is not None and each.waiting and is_long(each))


def is_long(paused: PausedCluster) -> bool:
    """Return whether a Cluster is paused for longer than a move needs, as far as it says so."""
    return paused.age is None or paused.age >= PATIENCE


def _waiting(owner: Object, cluster: Cluster) -> Iterator[str]:
    """Yield the changes of a Cluster that its controllers have not seen, and its Machines that are
    being deleted."""
    for kind in (KUBEADM, MACHINE_DEPLOYMENT):
        for obj in _members(kind, owner, cluster):
            yield from _unseen_change(obj)
    for obj in _members(CAPI_MACHINE_SET, owner, cluster):
        if short := shortage(obj, cluster):
            yield f"of {obj.kind} {obj.name}, {short}"
    for machine in _members(CAPI_MACHINE, owner, cluster):
        if machine.deleted:
            yield f"the deletion of Machine {machine.name} waits"


def _unseen_change(obj: Object) -> Iterator[str]:
    """Yield the change of an object that its controller has not seen."""
    generation = obj.metadata["generation"].integer
    seen = obj.at("status", "observedGeneration").integer
    if generation is None or seen is None or seen >= generation:
        return
    wanted, present = obj.at("spec", "version").text, obj.at("status", "version").text
    if wanted and present and wanted != present:
        yield f"the update of {obj.kind} {obj.name} from {present} to {wanted} waits"
    else:
        yield f"a change of {obj.kind} {obj.name} waits"


def _members(kind: Kind, owner: Object, cluster: Cluster) -> Sequence[Object]:
    return _by_cluster(cluster).get((kind.kind, owner.namespace, owner.name), ())


@cached
def _by_cluster(cluster: Cluster) -> Mapping[_Key, Sequence[Object]]:
    """Return what belongs to Clusters by its kind and their namespace and name."""
    found: dict[_Key, list[Object]] = {}
    for kind in (*_MARKED, CAPI_MACHINE):
        for obj in sorted(cluster.known(kind), key=_name):
            for name in {obj.at("spec", "clusterName").text, obj.labels.get(_LABEL)} - {None, ""}:
                found.setdefault((kind.kind, obj.namespace, name or ""), []).append(obj)
    return found
