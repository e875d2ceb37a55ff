"""Volumes for which the deletion of a Machine waits after the drain of its node,
and the pods that keep them attached.

A drain leaves pods of DaemonSets and of files there. Releases of Cluster API that count the volumes
of such pods wait until the pods are gone. Source:
kubernetes-sigs/cluster-api:core/reconcilers/machine/machine_controller.go#shouldWaitForNodeVolumes
#isNodeVolumeDetachingAllowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.budgets import evicted_pods
from virt_admit.forecasts.drain.endless import given_time_outs
from virt_admit.forecasts.drain.states import vm_states_times
from virt_admit.forecasts.placement import volume_attachments
from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.clock import duration
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, PVC, VOLUME_ATTACHMENT
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import names
from virt_admit.model.remediation import machine_drain
from virt_admit.model.scheduler.pods import claim_names

_EXCLUDE: Final = "machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach"
PATIENCE: Final = timedelta(minutes=10)
"""The attach controller of Kubernetes waits six minutes for a volume to be unmounted,
then it is detached by force.
"""


class KeptVolumes(NamedTuple):
    """What the deletion of a Machine waits for, without a limit."""

    machine: Object
    since: datetime | None
    volumes: Sequence[str]
    pods: Sequence[Object]
    """The pods on the node that use them."""
    set_in: str
    """The object in which a limit of this wait is set."""

    @property
    def holders(self) -> Sequence[Object]:
        """The pods that no drain ends, if all volumes are theirs:
        then the wait does not end by itself.
        """
        return self.pods if self.pods and all(map(_stays, self.pods)) else ()

    @property
    def remedy(self) -> str:
        """What ends the wait."""
        who = names([pod.full_name for pod in self.pods], 120)
        skip = about("annotate", self.machine, CAPI_MACHINE, f"{_EXCLUDE}=")
        over = typed("or, as the drain is over, wait for no volume", skip)
        limit = f"set nodeVolumeDetachTimeout of {self.set_in}"
        return f"keep pod {who} off this node; or {limit}; {over}"


def _stays(pod: Object) -> bool:
    return evicted_pods.is_left_alone(pod) and not pod.deleted


def may_wait(node: str, cluster: Cluster) -> bool:
    """Return whether a volume is attached to a node, or may be."""
    return bool(volume_attachments.attached(node, cluster) or unlisted(cluster, VOLUME_ATTACHMENT))


def of_machine(machine: Object, node: str, cluster: Cluster) -> KeptVolumes | None:
    """Return the volumes of a node for which a Machine waits without a limit; None: it does not."""
    since = machine_drain.volume_wait(machine)
    if since is None or machine_drain.detach_timeout(machine) is not None:
        return None
    volumes = volume_attachments.attached(node, cluster)
    users, limit = _users(node, volumes, cluster), given_time_outs.set_in(machine, cluster)
    return KeptVolumes(machine, clock.instant(since), volumes, users, limit)


def certain(machine: Object, node: str, cluster: Cluster) -> KeptVolumes | None:
    """Return the same if it certainly does not end by itself:
    each volume is used by a pod that no drain ends.
    """
    kept = of_machine(machine, node, cluster)
    if (
        kept is None
        or not kept.holders
        or not vm_states_times.is_older(kept.since, PATIENCE, cluster)
    ):
        return None
    used = {
        claim.at("spec", "volumeName").text
        for claim in _claims(kept.volumes, cluster)
        if _uses(kept.pods, claim)
    }
    return kept if used.issuperset(kept.volumes) else None


def _claims(volumes: Sequence[str], cluster: Cluster) -> list[Object]:
    return [claim for claim in cluster.known(PVC) if claim.at("spec", "volumeName").text in volumes]


def _uses(pods: Sequence[Object], claim: Object) -> bool:
    return any(pod.namespace == claim.namespace and claim.name in claim_names(pod) for pod in pods)


def _users(node: str, volumes: Sequence[str], cluster: Cluster) -> list[Object]:
    """Return the pods of a node that use these volumes."""
    claims = _claims(volumes, cluster)
    pods = (
        pod
        for claim in claims
        for pod in volume_attachments.users(claim.namespace, claim.name, cluster)
    )
    here = {pod.full_name: pod for pod in pods if pod.at("spec", "nodeName").text == node}
    return [here[name] for name in sorted(here)]


def note(machine: Object, node: str, cluster: Cluster) -> str:
    """Return that a Machine whose node was drained waits for volumes; empty: it does not."""
    since, limit = machine_drain.volume_wait(machine), machine_drain.detach_timeout(machine)
    if since is None:
        return ""
    attached = volume_attachments.attached(node, cluster)
    which = f"volumes {names(attached, 120)}" if attached else "the volumes of the node"
    ends = (
        f"for at most {duration(timedelta(seconds=limit))}"
        if limit is not None
        else "without a limit"
    )
    age = clock.since(since, cluster)
    waits = f"waits{f' for {duration(age)}' if age is not None else ''} until {which} are detached"
    why = (
        f", as {given_time_outs.lack(machine, cluster, 'nodeVolumeDetachTimeout')}. "
        f"{_way_out(machine, node, cluster)}"
        if limit is None
        else "."
    )
    return (
        f"Machine {machine.full_name} is being deleted: its node was drained, and it {waits}, "
        f"{ends}{why}"
    )


def _way_out(machine: Object, node: str, cluster: Cluster) -> str:
    kept = certain(machine, node, cluster)
    if kept is None:
        return (
            "Free the volumes: a pod that stays, such as one of a DaemonSet, keeps its own "
            f"attached. Or set that field of {given_time_outs.set_in(machine, cluster)}."
        )
    who = names([pod.full_name for pod in kept.pods], 120)
    return (
        f"Pod {who}, which no drain ends, keeps them attached, so this does not end. To end it, "
        f"{kept.remedy}"
    )
