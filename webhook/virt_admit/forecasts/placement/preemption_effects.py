"""What preemption means for VMs: kube-scheduler deletes the launcher pods of its victims, and their
guests are shut down.

A drain asks the Eviction API, so KubeVirt can answer with a migration. Preemption deletes pods
without asking, also those of VMs with ``LiveMigrate`` (kubevirt/enhancements: VEP 56).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from virt_admit.forecasts.placement import candidates, running_launchers
from virt_admit.forecasts.placement.candidates import SchedulingTarget
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem
from virt_admit.model.scheduler.preemption import HIGHEST, Preemption

UNSEEN: Final = "whether kube-scheduler preempts pods of lower priority"
"""What cannot be determined, for lists of what could not be read."""


def problem(
    target: SchedulingTarget, cluster: Cluster, preemptor: Preemption | None = None
) -> Problem | None:
    """Return why it cannot be determined whether a pod finds room; None:
    it does not depend on preemption.

    ``preemptor``: kube-scheduler over another state than that of the cluster now, such as after a
    loss of nodes.
    """
    node, priority = target.placement.preempting, target.pod.priority
    if not node:
        return None
    does = "would preempt" if priority < HIGHEST else "may preempt"
    reason = (
        f"no node takes it now, and kube-scheduler {does} pods of lower priority, such as on node "
        f"{node}"
    )
    vm_names = cluster.cached(_vm_names)
    victims = (preemptor or candidates.preemption(cluster)).victims(node, priority)
    found = sorted(vm_names[pod.full_name] for pod in victims if pod.full_name in vm_names)
    if found:
        reason += f"; VMs among them would be shut down: {names(found)}"
    return Problem(reason, "free room on another node, or accept that such pods are deleted")


def _vm_names(cluster: Cluster) -> Mapping[str, str]:
    """Return the VM of each launcher pod, both as ``namespace/name``."""
    by_vmi = running_launchers.launchers(cluster).by_vmi
    return {pod.full_name: "/".join(vmi) for vmi, launchers in by_vmi.items() for pod in launchers}
