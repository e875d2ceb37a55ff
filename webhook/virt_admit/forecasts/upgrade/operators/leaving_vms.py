"""Whether the VMs that are left on a node explain that its drain lasts: only as long as one blocks
it, which is told apart, or something of them moves.

KubeVirt makes a migration at once for a VM that is evicted, up to its limits. Source:
kubevirt/kubevirt:pkg/virt-controller/watch/drain/evacuation/evacuation.go#sync.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from virt_admit.forecasts.drain import vm_outcomes
from virt_admit.forecasts.drain.states import vm_states_motion, vm_states_queue, vm_states_times
from virt_admit.forecasts.drain.vm_outcomes import VmOutcome
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, entry
from virt_admit.model.kubernetes.kinds import VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import migrations, vmis
from virt_admit.model.node_updates.update_orders import LONG

READS: Final[Reads] = union(vm_outcomes.READS, vmis.READS, migrations.READS)


def explain(node: str, cluster: Cluster) -> bool:
    """Return whether the VMs of a node that is drained explain that this has not ended."""
    left = of_node(node, cluster)
    since = max(filter(None, (_asked(left, cluster), last_left(node, cluster))), default=None)
    return bool(left) and (
        (since is not None and not vm_states_times.is_older(since, LONG, cluster))
        or any(_moves(vmi, cluster) or _is_told(vmi, cluster) for vmi in left)
    )


def of_node(node: str, cluster: Cluster) -> Sequence[Object]:
    """Return the known VMIs of a node."""
    return entry(cluster, vmis.by_node, node) or ()


def last_left(node: str, cluster: Cluster) -> datetime | None:
    """Return when a VM migrated away from a node last: a drain with many of them goes on."""
    return entry(cluster, _last_left, node)


def _last_left(cluster: Cluster) -> Mapping[str, datetime]:
    found: dict[str, datetime] = {}
    for state in (vmi.at("status", "migrationState") for vmi in cluster.known(VMI)):
        node, end = state["sourceNode"].text, clock.instant(state["endTimestamp"].text)
        if node and end is not None and state["completed"].boolean:
            found[node] = max(end, found.get(node, end))
    return found


def _asked(left: Sequence[Object], cluster: Cluster) -> datetime | None:
    """Return when the eviction or the end of one of these VMs was asked for last."""
    return max(filter(None, (clock.instant(each) for each in _stamps(left, cluster))), default=None)


def _stamps(left: Sequence[Object], cluster: Cluster) -> Iterator[str | None]:
    for vmi in left:
        yield vmi.condition("EvictionRequested")["lastTransitionTime"].text
        for each in (vmi, *vm_states_motion.pods(vmi, cluster)):
            yield each.metadata["deletionTimestamp"].text
        for each in migrations.of_vmi(vmi, cluster):
            yield each.created


def _moves(vmi: Object, cluster: Cluster) -> bool:
    """Return whether a VM migrates, or waits for the places that others have."""
    if any(not each.ended for each in migrations.of_vmi(vmi, cluster)):
        return True
    return vm_states_queue.is_marked(vmi) and bool(vm_states_motion.motion(cluster).moving)


def _is_told(vmi: Object, cluster: Cluster) -> bool:
    """Return whether something else says that a VM does not leave, or may not."""
    outcome = vm_outcomes.forecast(vmi, cluster).outcome
    return outcome in (VmOutcome.BLOCKS, VmOutcome.UNKNOWN)
