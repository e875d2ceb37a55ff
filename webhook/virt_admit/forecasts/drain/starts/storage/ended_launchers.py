"""Launcher pods that have ended and that a VMI still names: virt-handler then finds two launchers,
and mounts nothing.

virt-controller writes all pods of a VMI into ``status.activePods``, also those that a migration
left behind. virt-handler wants exactly one whose files are on its node. Sources:
kubevirt/kubevirt:pkg/virt-controller/watch/vmi/lifecycle.go#setActivePods,
:pkg/virt-handler/hotplug-disk/mount.go#findVirtlauncherUID #IsMounted, pull request
kubevirt/kubevirt#18287.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from virt_admit.forecasts.drain.states import stuck_starts, vm_states_motion
from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem

_SAYS: Final = "Unable to determine virt-launcher UID"


def of(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return which ended pods hide the launcher of a VMI from virt-handler; None: none is known."""
    said, node = stuck_starts.unsynchronized(vmi), vmi.at("status", "nodeName").text
    ended = _ended(vmi, cluster) if _SAYS.lower() in said.lower() else ()
    if not any(pod.at("spec", "nodeName").text == node for pod in ended):
        return None
    called = names(f"{pod.name} ({pod.at('spec', 'nodeName').text or '?'})" for pod in ended)
    words = (
        f"virt-handler on {node} does not find the launcher of the VM ({_SAYS}), because "
        "status.activePods of the VMI still "
        f"names launcher pods that have ended: {called}"
    )
    named = (argument(pod.name) for pod in ended)
    delete = shell("kubectl", "delete", "pod", *named, "-n", vms.namespace_of(vmi))
    pods = "pod that has" if len(ended) == 1 else "pods that have"
    ways = (
        f"delete only the launcher {pods} ended; KubeVirt with kubevirt#18287 does not name such "
        "pods"
    )
    return Problem(words, typed(ways, delete))


def _ended(vmi: Object, cluster: Cluster) -> Sequence[Object]:
    """Return the pods of a VMI that have ended, exist and are named as active."""
    own = vm_states_motion.pods(vmi, cluster)
    active = vmi.at("status", "activePods").map
    return [
        pod
        for pod in own
        if not vm_states_motion.lives(pod)
        and not pod.deleted
        and (pod.metadata["uid"].text or "-") in active
    ]
