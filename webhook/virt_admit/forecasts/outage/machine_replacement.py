"""How the pods of a lost node go when its Machine is deleted: the dead node is drained first.

KubeVirt refuses the eviction of VMs that must migrate, so the drain ends when their deletion time has passed. Sources:
openshift/machine-api-operator:pkg/controller/machine/drain_controller.go;
kubernetes-sigs/cluster-api:core/reconcilers/machine/drain/filters.go#shouldSkipPod.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Final, NamedTuple

from virt_admit.forecasts.outage.loss import Loss
from virt_admit.forecasts.outage.time_parts import NODE_GONE, Detach, Part, Seconds, detection
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import expand, lifecycle, vmis
from virt_admit.model.kubevirt.instances.lifecycle import Eviction
from virt_admit.model.remediation import machine_drain

_UNDRAINED: Final = ("machine.openshift.io/exclude-node-draining", "machine.cluster.x-k8s.io/exclude-node-draining")
TOLERATED: Final = 300
"""Seconds that a pod without its own toleration stays on an unreachable node (defaulttolerationseconds)."""
_GRACE: Final = 30
"""Seconds that KubeVirt gives a guest of a VMI without its own grace period (DefaultGracePeriodSeconds)."""
_LAUNCHER_GRACE: Final = 30
"""Seconds that virt-launcher gets in addition (template.go#renderLaunchManifest)."""
UNREACHABLE: Final = "node.kubernetes.io/unreachable"


class FreedPods(NamedTuple):
    """How the pods of a node go after its remediator begins."""

    takes: Seconds
    gone: Part
    detach: Detach
    not_before: int | None = None
    """Seconds from the loss before which a drain of the dead node does not end."""
    unseen: tuple[str, ...] = ()
    """What could not be read, so that the pods may never go."""


def by_deletion(machine: Object | None, node: str, loss: Loss) -> FreedPods | str:
    """Return how the pods of a node go when its Machine is deleted: its controller drains the dead node first."""
    if machine is not None and any(machine.annotation(key).present for key in _UNDRAINED):
        return FreedPods(Seconds(0, None), NODE_GONE, Detach.FORCED)
    if machine is not None and (stuck := _stuck(machine, loss)):
        return stuck
    limit = _drain_timeout(machine)
    refusing, perhaps, unread = _refusing(node, loss)
    ends = _drain_end(refusing, node, loss)
    if ends is None and limit is None:
        if _perhaps_first(node, loss):
            first = f"whether {node} is tainted before its zone counts as in trouble"
            return FreedPods(Seconds(0, None), NODE_GONE, Detach.FORCED, unseen=(first,))
        return (
            "the drain of the dead node never ends: KubeVirt refuses the eviction of its VMs, and nothing else "
            "deletes their pods"
        )
    takes = Seconds(0, None)
    if limit is not None and (ends is None or ends > limit):
        return FreedPods(Seconds(limit, None), NODE_GONE, Detach.FORCED)
    unseen = unread if limit is None and _drain_end([*refusing, *perhaps], node, loss) is None else ()
    return FreedPods(takes, NODE_GONE, Detach.FORCED, not_before=ends, unseen=unseen)


def _stuck(machine: Object, loss: Loss) -> str:
    """Return that a Machine is being deleted already, and waits for volumes that nothing detaches; empty: it does not.

    Nothing deletes the pods of a dead node before its Machine is gone, so their volumes stay attached
    (machine_controller.go#shouldWaitForNodeVolumes).
    """
    began = machine_drain.volume_wait(machine) if machine.deleted else None
    age = clock.since(began, loss.cluster)
    if age is None or age < _DETACHED or machine_drain.detach_timeout(machine) is not None:
        return ""
    return (
        f"Machine {machine.name} is being deleted and has waited {int(age.total_seconds() // 60)} min for volumes to be "
        "detached, which nothing does on a dead node: nodeVolumeDetachTimeout is not set"
    )


def remedy(machine: Object | None, loss: Loss) -> str:
    """Return what lets the deletion of a Machine end; empty: nothing about the Machine holds it up."""
    stuck = machine is not None and _stuck(machine, loss)
    return f"set nodeVolumeDetachTimeout of Machine {machine.name}" if machine is not None and stuck else ""


_DETACHED: Final = datetime.timedelta(minutes=10)
"""kube-controller-manager detaches the volumes of pods that are gone within six minutes."""


def _drain_timeout(machine: Object | None) -> int | None:
    """Return after how many seconds Cluster API ends the drain; None: never, as on OpenShift."""
    return machine_drain.timeout(machine) if machine is not None else None


def _drain_end(refusing: Sequence[Object], node: str, loss: Loss) -> int | None:
    """Return how many seconds after the loss a drain of a dead node ends at the earliest; None: never.

    KubeVirt refuses the eviction of VMs that must migrate. Their pods are skipped once their deletion time has passed.
    """
    if not refusing:
        return 0
    if loss.taint_delay(node) is None:
        return None
    tolerated = [_tolerated(vmi) for vmi in refusing]
    grace = [vmi.at("spec", "terminationGracePeriodSeconds").integer for vmi in refusing]
    ends = [
        None if seconds is None else seconds + (_GRACE if period is None else period) + _LAUNCHER_GRACE
        for seconds, period in zip(tolerated, grace, strict=True)
    ]
    known = [end for end in ends if end is not None]
    return detection(loss).low + max(known) + 1 if len(known) == len(ends) else None


def _perhaps_first(node: str, loss: Loss) -> bool:
    """Return whether chance decides on the VMs of a node in a zone in trouble. Where several nodes have VMs, the drain of
    all but one of them never ends."""
    others = (name for name in loss.in_zone_of(node) if name != node)
    if not loss.taints_the_first(node) or any(_refusing(other, loss)[0] for other in others):
        return False
    return all(_tolerated(vmi) is not None for vmi in _refusing(node, loss)[0])


def _refusing(node: str, loss: Loss) -> tuple[list[Object], list[Object], tuple[str, ...]]:
    """Return the VMIs of a node whose eviction KubeVirt refuses, those of which that is not known, and why."""
    refusing: list[Object] = []
    perhaps: list[Object] = []
    unread: dict[str, None] = {}
    for vmi in loss.vmis(node):
        try:
            if _stays(vmi, loss.cluster):
                refusing.append(vmi)
        except Unseen as unseen:
            perhaps.append(vmi)
            unread[unseen.what] = None
    return refusing, perhaps, tuple(unread)


def _stays(vmi: Object, cluster: Cluster) -> bool:
    strategy = expand.strategy(vmi, cluster).value
    return lifecycle.eviction(strategy, vmis.migratable(vmi)) is not Eviction.SHUTS_DOWN


def _tolerated(vmi: Object) -> int | None:
    """Return how many seconds the pod of a VMI stays on an unreachable node; None: forever."""
    for toleration in vmi.at("spec", "tolerations").items():
        key, effect = toleration["key"].text, toleration["effect"].text
        if key in (None, "", UNREACHABLE) and effect in (None, "", "NoExecute"):
            return toleration["tolerationSeconds"].integer
    return TOLERATED
