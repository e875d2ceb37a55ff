"""What the drain of a node in a roll-out waits for, without an end that any object tells.

Sources: kubernetes-sigs/cluster-api:core/reconcilers/machine/machine_controller.go#reconcileDelete;
harvester/harvester:package/upgrade/upgrade_node.sh#command_pre_drain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.drain import node_notes
from virt_admit.forecasts.drain.states import vm_states_times
from virt_admit.forecasts.placement import volume_attachments
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, MACHINE_DEPLOYMENT, NODE
from virt_admit.model.messages import cut, names
from virt_admit.model.node_updates.node_phases import Phase, PoolUpdate
from virt_admit.model.remediation import machine_drain

_PATIENCE: Final = timedelta(minutes=10)
"""The attach controller of Kubernetes waits six minutes for a volume to be unmounted, then it is detached by force."""


def unknown(begun: Sequence[PoolUpdate], cluster: Cluster) -> Iterator[str]:
    """Yield what is not known of the drains that are under way."""
    flying = ((name, update) for pool in begun for name, update in pool.nodes.items())
    kind_of = {name: update.kind for name, update in flying if update.phase is Phase.DRAINING}
    yield from _machines({name for name, kind in kind_of.items() if kind == MACHINE_DEPLOYMENT.kind}, cluster)
    for node in cluster.known(NODE):
        if node.name in kind_of:
            yield from node_notes.not_asked(node, cluster)


def _machines(draining: Collection[str], cluster: Cluster) -> Iterator[str]:
    """Yield what the deletion of a Machine waits for: the owner of a hook, and volumes without a time limit."""
    for machine in cluster.known(CAPI_MACHINE):
        node = machine.at("status", "nodeRef", "name").text or ""
        if node not in draining:
            continue
        hooks = list(machine_drain.pre_drain_hooks(machine))
        since = clock.instant(machine_drain.volume_wait(machine))
        if hooks:
            yield f"when the owner removes the pre-drain hook {names(hooks, 120)} of Machine {machine.full_name}"
        elif machine_drain.detach_timeout(machine) is None and vm_states_times.is_older(since, _PATIENCE, cluster):
            errors = [volume_attachments.detach_error(each) for each in volume_attachments.stuck(node, cluster)]
            why = f" ({cut(errors[0], 200)})" if errors else ""
            age = vm_states_times.age(since, cluster)
            yield f"when the volumes of {node} are detached{why}: Machine {machine.full_name} waits for that since {age}"
