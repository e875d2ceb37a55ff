"""VMs that are nodes of a tenant cluster, and whose new start has wiped the node.

A disk of the kind containerDisk or ephemeral begins again with each VMI. With it goes what the node
had joined its cluster with, and the token of its bootstrap data ends once it has joined: the guest
runs, and its node stays away. A Machine that is replaced gets new bootstrap data. Sources:
kubernetes-sigs/cluster-api-provider-kubevirt#70; kubernetes-sigs/cluster-api:
bootstrap/kubeadm/internal/controllers/kubeadmconfig_controller.go#refreshBootstrapTokenIfNeeded.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.remediation.unwatched import guest_machines
from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, CAPI_MHC, VMI
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads, union

READS: Final[Reads] = union(
    clock.READS,
    guest_machines.READS,
    {VMI: ("metadata.creationTimestamp", "spec.volumes", "status.phase")},
)
_WIPED: Final = ("containerDisk", "ephemeral")
_KEPT: Final = ("dataVolume", "persistentVolumeClaim", "hostDisk")
_BOOTS: Final = timedelta(minutes=10)
"""A guest has started, and its kubelet reports, by then."""


class WipedGuest(NamedTuple):
    """A node of a tenant cluster that is away since its VM was started again."""

    volume: Field
    reason: str
    remedy: str
    brief: str
    """The reason in fewer words."""


def of_vmi(vmi: Object, cluster: Cluster) -> WipedGuest | None:
    """Return that a new start of a VM has wiped the node of a tenant cluster; None: it has not,
    something else may replace its Machine, or that is not known.
    """
    volumes = list(vmi.at("spec", "volumes").items())
    wiped = [(each, kind) for each in volumes for kind in _WIPED if each[kind].present]
    kept = any(each[kind].present for each in volumes for kind in _KEPT)
    machine = guest_machines.machine(vmi, cluster) if wiped and not kept else None
    if machine is None or vmi.deleted or not _is_away_since(vmi, machine, cluster):
        return None
    if guest_machines.may_be_watched(machine, cluster) or unlisted(cluster, CAPI_MHC):
        return None
    (volume, kind), named = wiped[0], f"Machine {machine.full_name}"
    disk = f"volume {volume['name'].text} ({kind})"
    reason = (
        f"the node of {named} is away since this VMI was made at {vmi.created}: {disk} began "
        "again as in its image, without what the node had joined its cluster with, and "
        "the bootstrap data are those of the first start"
    )
    brief = f"the node of {named} is away since {vmi.created}: a new VMI has wiped {disk}"
    replaced = "which its MachineSet replaces, as no MachineHealthCheck does"
    remedy = typed(
        f"delete Machine {machine.name}, {replaced}",
        about("delete", machine, CAPI_MACHINE),
        "and give its template a root disk that stays (a DataVolume)",
    )
    return WipedGuest(volume, reason, remedy, brief)


def _is_away_since(vmi: Object, machine: Object, cluster: Cluster) -> bool:
    """Return whether a Machine had its node before the VMI was made, and is without it since then,
    and for longer than a boot takes.
    """
    healthy, joined = machine.condition("NodeHealthy"), machine.condition("InfrastructureReady")
    owned = machine.controller is not None and machine.controller["kind"].text == "MachineSet"
    age = clock.age(vmi, cluster)
    made, first, away = (
        clock.instant(each)
        for each in (
            vmi.created,
            joined["lastTransitionTime"].text,
            healthy["lastTransitionTime"].text,
        )
    )
    if made is None or first is None or away is None or age is None:
        return False
    has_joined = machine.at("status", "nodeRef", "name").present and first < made
    is_away = healthy["status"].text in ("False", "Unknown") and away < made + _BOOTS
    return owned and not machine.deleted and has_joined and is_away and age > _BOOTS
