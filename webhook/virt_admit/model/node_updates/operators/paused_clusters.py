"""Clusters of Cluster API that are paused, and the changes that wait for that.

``clusterctl move`` pauses a Cluster, and one that fails leaves it so. Its controllers then do
nothing for the Cluster and what belongs to it, and say so in the condition Paused alone. Cluster
API provider KubeVirt is an exception: it looks at the annotation of an object, but not at its
Cluster, so that its reaction to an eviction may go on. Sources:
kubernetes-sigs/cluster-api:util/paused/paused.go,
:cmd/clusterctl/client/cluster/mover.go#setClusterPause;
kubernetes-sigs/cluster-api-provider-kubevirt:controllers/kubevirtmachine_controller.go#SetupWithManager;
issues kubernetes-sigs/cluster-api#7407. HyperShift pauses what it makes as its own objects say, and
sets it again (openshift/hypershift:hypershift-operator/controllers/nodepool/capi.go#Pause).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.model.commands import about, argument, merge_patch, shell, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import (
    CAPI_CLUSTER,
    CAPI_MACHINE,
    KUBEADM,
    MACHINE_DEPLOYMENT,
    Kind,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import names
from virt_admit.model.remediation import machine_drain
from virt_admit.model.remediation.health_checks import PAUSED

READS: Final[Reads] = union(
    clock.READS, dict.fromkeys((CAPI_CLUSTER, CAPI_MACHINE, KUBEADM, MACHINE_DEPLOYMENT), ())
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

    @property
    def title(self) -> str:
        """Return ``Cluster tenant-a/team-a is paused for 3 h 20 (spec.paused)``."""
        since = f" for {clock.duration(self.age)}" if self.age is not None else ""
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
        if self.age is None:
            return "see who has paused it, and since when; unpause it once that is over"
        if not self._is_cluster:
            kind = KUBEADM if self.obj.kind == KUBEADM.kind else MACHINE_DEPLOYMENT
            unmark = about("annotate", self.obj, kind, f"{PAUSED}-")
            return typed("see who has paused it, then unpause it", unmark)
        data = {"spec": {"paused": False}}
        command = merge_patch(CAPI_CLUSTER, self.obj.name, self.obj.namespace, data)
        return typed("make sure that no clusterctl move runs, then unpause it", command)

    @property
    def _is_cluster(self) -> bool:
        return self.obj.kind == CAPI_CLUSTER.kind


def of(obj: Object, cluster: Cluster) -> PausedCluster | None:
    """Return that a Cluster is paused, or its control plane or MachineDeployment; None:
    it is not.
    """
    if obj.kind == CAPI_CLUSTER.kind:
        is_paused, waiting = obj.at("spec", "paused").boolean is True, _waiting(obj, cluster)
    else:
        is_paused, waiting = PAUSED in obj.annotations, _unseen_change(obj)
    if not is_paused:
        return None
    said = machine_drain.condition(obj, "Paused")
    age = clock.since(said["lastTransitionTime"].text, cluster)
    return PausedCluster(obj, age if said["status"].text == "True" else None, tuple(waiting))


def of_vmi(vmi: Object, cluster: Cluster) -> PausedCluster | None:
    """Return that the Cluster is paused to which a VM belongs as a node; None: it is not, or that
    is not known."""
    name, namespace = vmi.labels.get(_LABEL), vmi.labels.get(_MACHINE) or vmi.namespace
    owner = find(cluster, CAPI_CLUSTER, namespace, name) if name else None
    return of(owner, cluster) if owner is not None else None


def of_member(obj: Object, cluster: Cluster) -> PausedCluster | None:
    """Return that the Cluster is paused to which an object of Cluster API belongs; None: it is not,
    or that is not known."""
    if PAUSED in obj.annotations:
        return of(obj, cluster)
    name = obj.at("spec", "clusterName").text or obj.labels.get(_LABEL)
    owner = find(cluster, CAPI_CLUSTER, obj.namespace, name) if name else None
    return of(owner, cluster) if owner is not None else None


def held(cluster: Cluster) -> tuple[PausedCluster, ...]:
    """Return the Clusters that are paused for longer than a move needs although something waits."""
    known = (
        each for kind in (CAPI_CLUSTER, KUBEADM, MACHINE_DEPLOYMENT) for each in cluster.known(kind)
    )
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
    for machine in _members(CAPI_MACHINE, owner, cluster):
        if machine.deleted:
            yield f"the deletion of Machine {machine.name} waits"


def _unseen_change(obj: Object) -> Iterator[str]:
    """Yield the change of an object that its controller has not seen."""
    generation, seen = (
        obj.metadata["generation"].integer,
        obj.at("status", "observedGeneration").integer,
    )
    if generation is None or seen is None or seen >= generation:
        return
    wanted, present = obj.at("spec", "version").text, obj.at("status", "version").text
    if wanted and present and wanted != present:
        yield f"the update of {obj.kind} {obj.name} from {present} to {wanted} waits"
    else:
        yield f"a change of {obj.kind} {obj.name} waits"


def _members(kind: Kind, owner: Object, cluster: Cluster) -> Iterator[Object]:
    for obj in sorted(cluster.known(kind, owner.namespace), key=lambda each: each.name):
        if owner.name in (obj.at("spec", "clusterName").text, obj.labels.get(_LABEL)):
            yield obj
