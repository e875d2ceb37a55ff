"""Clusters of Cluster API that are paused, and the changes that wait for that.

``clusterctl move`` pauses a Cluster, and one that fails leaves it so. Its controllers then do nothing for the Cluster and what
belongs to it, and say so in the condition Paused alone. Cluster API provider KubeVirt is an exception: it looks at the
annotation of an object, but not at its Cluster, so that its reaction to an eviction may go on. Sources:
kubernetes-sigs/cluster-api:util/paused/paused.go, :cmd/clusterctl/client/cluster/mover.go#setClusterPause;
kubernetes-sigs/cluster-api-provider-kubevirt:controllers/kubevirtmachine_controller.go#SetupWithManager;
issues kubernetes-sigs/cluster-api#7407.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.model.commands import merge_patch, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import CAPI_CLUSTER, CAPI_MACHINE, KUBEADM, MACHINE_DEPLOYMENT, Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import names
from virt_admit.model.remediation import machine_drain

READS: Final[Reads] = union(clock.READS, dict.fromkeys((CAPI_CLUSTER, CAPI_MACHINE, KUBEADM, MACHINE_DEPLOYMENT), ()))
_LABEL: Final = "cluster.x-k8s.io/cluster-name"
_MACHINE: Final = "capk.cluster.x-k8s.io/kubevirt-machine-namespace"
"""The label with the namespace of the KubevirtMachine of a VM, which is that of its Cluster."""
PATIENCE: Final = timedelta(hours=1)
"""A move takes minutes."""


class PausedCluster(NamedTuple):
    """A Cluster that is paused."""

    cluster: Object
    age: timedelta | None
    """For how long; None: it does not say so, as before Cluster API 1.9."""
    waiting: tuple[str, ...]
    """What certainly waits for it, in words."""

    @property
    def title(self) -> str:
        """Return ``Cluster tenant-a/team-a is paused for 3 h 20``."""
        since = f" for {clock.duration(self.age)}" if self.age is not None else ""
        return f"Cluster {self.cluster.full_name} is paused{since} (spec.paused)"

    @property
    def reason(self) -> str:
        """Return that Cluster API does nothing for it, with what waits."""
        waits = f": {names(self.waiting, 240)}" if self.waiting else ""
        return f"{self.title}, so Cluster API does nothing for it{waits}"

    @property
    def remedy(self) -> str:
        """Return what ends it, with a command."""
        command = merge_patch(CAPI_CLUSTER, self.cluster.name, self.cluster.namespace, {"spec": {"paused": False}})
        return typed("make sure that no clusterctl move runs, then unpause it", command)


def of(owner: Object, cluster: Cluster) -> PausedCluster | None:
    """Return that a Cluster is paused; None: it is not."""
    if owner.at("spec", "paused").boolean is not True:
        return None
    said = machine_drain.condition(owner, "Paused")
    age = clock.since(said["lastTransitionTime"].text, cluster) if said["status"].text == "True" else None
    return PausedCluster(owner, age, tuple(_waiting(owner, cluster)))


def of_vmi(vmi: Object, cluster: Cluster) -> PausedCluster | None:
    """Return that the Cluster is paused to which a VM belongs as a node; None: it is not, or that is not known."""
    name, namespace = vmi.labels.get(_LABEL), vmi.labels.get(_MACHINE) or vmi.namespace
    owner = find(cluster, CAPI_CLUSTER, namespace, name) if name else None
    return of(owner, cluster) if owner is not None else None


def of_member(obj: Object, cluster: Cluster) -> PausedCluster | None:
    """Return that the Cluster is paused to which an object of Cluster API belongs; None: it is not, or that is not known."""
    name = obj.at("spec", "clusterName").text or obj.labels.get(_LABEL)
    owner = find(cluster, CAPI_CLUSTER, obj.namespace, name) if name else None
    return of(owner, cluster) if owner is not None else None


def held(cluster: Cluster) -> tuple[PausedCluster, ...]:
    """Return the Clusters that are paused for longer than a move needs although something waits."""
    found = (of(each, cluster) for each in sorted(cluster.known(CAPI_CLUSTER), key=lambda each: each.full_name))
    return tuple(each for each in found if each is not None and each.waiting and is_long(each))


def is_long(paused: PausedCluster) -> bool:
    """Return whether a Cluster is paused for longer than a move needs, as far as it says so."""
    return paused.age is None or paused.age >= PATIENCE


def _waiting(owner: Object, cluster: Cluster) -> Iterator[str]:
    """Yield the changes of a Cluster that its controllers have not seen, and its Machines that are being deleted."""
    for kind in (KUBEADM, MACHINE_DEPLOYMENT):
        for obj in _members(kind, owner, cluster):
            generation, seen = obj.metadata["generation"].integer, obj.at("status", "observedGeneration").integer
            if generation is not None and seen is not None and seen < generation:
                wanted, present = obj.at("spec", "version").text, obj.at("status", "version").text
                what = f"the update of {kind.kind} {obj.name} from {present} to {wanted}"
                yield f"{what if wanted and present and wanted != present else f'a change of {kind.kind} {obj.name}'} waits"
    for machine in _members(CAPI_MACHINE, owner, cluster):
        if machine.deleted:
            yield f"the deletion of Machine {machine.name} waits"


def _members(kind: Kind, owner: Object, cluster: Cluster) -> Iterator[Object]:
    for obj in sorted(cluster.known(kind, owner.namespace), key=lambda each: each.name):
        if owner.name in (obj.at("spec", "clusterName").text, obj.labels.get(_LABEL)):
            yield obj
