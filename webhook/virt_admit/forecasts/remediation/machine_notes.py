"""Machines and control planes that an upgrade of nodes leaves out:
an estimate counts nodes that exist.

Sources:
kubernetes-sigs/cluster-api:core/reconcilers/machineset/machineset_preflight.go#controlPlaneStablePreflightCheck;
:api/controlplane/kubeadm/v1beta2/kubeadm_control_plane_types.go#KubeadmControlPlaneStatus.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from virt_admit.forecasts.remediation import control_plane_deadlocks
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE_SET, KUBEADM
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.remediation import machine_drain, machine_starts

READS: Final[Reads] = union(
    control_plane_deadlocks.READS,
    {
        CAPI_MACHINE_SET: (
            *("status.conditions.type", "status.conditions.status", "status.conditions.message"),
            *(f"status.v1beta2.conditions.{field}" for field in ("type", "status", "message")),
        )
    },
)
_MOST: Final = 3
_STABLE: Final = "ControlPlaneIsStable"


def of_cluster_api(cluster: Cluster) -> Iterator[str]:
    """Yield the roll-outs of control planes that are under way."""
    stuck = {each.owner.full_name for each in control_plane_deadlocks.deadlocks(cluster).values()}
    owners = sorted(cluster.known(KUBEADM), key=lambda each: each.full_name)
    for owner in [each for each in owners if _is_rolling(each) and each.full_name not in stuck][
        :_MOST
    ]:
        wanted, status = owner.at("spec", "replicas").integer, owner["status"]
        done = _updated(owner)
        so_far = f"{done} of {wanted} Machines are up to date, and " if done is not None else ""
        held = ", before which MachineSets create no Machine" if _holds(owner, cluster) else ""
        to = owner.at("spec", "version").text
        version = f" to {to}" if to and status["version"].text not in (None, to) else ""
        of_owner = (
            f"{owner.kind} {owner.full_name}{version} ({so_far}its own nodes are not counted)"
        )
        yield f"the end of the roll-out of {of_owner}{held}"


def of_openshift(cluster: Cluster) -> Iterator[str]:
    """Yield the Machines that should be nodes by now.

    An update of the nodes does not wait for them.
    """
    for late in machine_starts.overdue_of_openshift(cluster)[:_MOST]:
        yield f"the nodes that exist: {late.why}"


def _is_rolling(owner: Object) -> bool:
    wanted, every = owner.at("spec", "replicas").integer, owner.at("status", "replicas").integer
    done = _updated(owner)
    is_short = wanted is not None and done is not None and done < wanted
    return wanted is not None and (is_short or (every is not None and every > wanted))


def _updated(owner: Object) -> int | None:
    """Return how many Machines are up to date, in either version of the API."""
    status = owner["status"]
    newer = status["upToDateReplicas"].integer
    return status["updatedReplicas"].integer if newer is None else newer


def _holds(owner: Object, cluster: Cluster) -> bool:
    """Return whether a MachineSet says that it creates no Machine because of this control plane."""
    for machine_set in cluster.known(CAPI_MACHINE_SET, owner.namespace):
        for kind in ("MachinesCreated", "ScalingUp"):
            said = machine_drain.condition(machine_set, kind)["message"].text or ""
            if _STABLE in said and f" {owner.full_name} " in f" {said} ":
                return True
    return False
