"""What the drain of a node in a roll-out waits for, without an end that any object tells.

Sources: kubernetes-sigs/cluster-api:core/reconcilers/machine/machine_controller.go#reconcileDelete;
harvester/harvester:package/upgrade/upgrade_node.sh#command_pre_drain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from virt_admit.forecasts.drain import node_notes
from virt_admit.forecasts.drain.states import vm_states_times
from virt_admit.forecasts.placement import volume_attachments
from virt_admit.forecasts.upgrade.rollouts import Driver, Pool
from virt_admit.model import machine_nodes
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, entry
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, MACHINE, MACHINE_DEPLOYMENT, NODE, PVC
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut, names
from virt_admit.model.node_updates.node_phases import Phase, PoolUpdate
from virt_admit.model.remediation import machine_drain

_PATIENCE: Final = timedelta(minutes=10)
"""The attach controller of Kubernetes waits six minutes for a volume to be unmounted, then it is detached by force."""


def unknown(driver: Driver, pools: Sequence[Pool], begun: Sequence[PoolUpdate], cluster: Cluster) -> Iterator[str]:
    """Yield what is not known of the drains that are under way, in a roll-out or because a Machine is deleted alone."""
    flying = ((name, update) for pool in begun for name, update in pool.nodes.items())
    drained = {
        name: update.kind == MACHINE_DEPLOYMENT.kind for name, update in flying if update.phase is Phase.DRAINING
    }
    if driver in (Driver.CLUSTER_API, Driver.PLAIN):  # a Machine that is deleted takes its node out of any order
        drained |= dict.fromkeys((name for pool in pools for name in pool.to_do), True)
    for name, by_machine in drained.items():
        yield from of_node(name, cluster, by_machine=by_machine)


def of_node(name: str, cluster: Cluster, *, by_machine: bool) -> Iterator[str]:
    """Yield what the drain of a node waits for. ``by_machine``: it is drained because its Machine is being deleted."""
    if by_machine:
        for machine in entry(cluster, _deleted, name) or ():
            yield from _of_machine(machine, name, cluster)
    node = find(cluster, NODE, "", name)
    if node is not None:
        yield from node_notes.not_asked(node, cluster)


def _deleted(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    """Return the Machines that are being deleted, by the name of their node."""
    found: dict[str, list[Object]] = {}
    for machine in (each for kind in (CAPI_MACHINE, MACHINE) for each in cluster.known(kind) if each.deleted):
        found.setdefault(machine_nodes.node_name(machine, cluster), []).append(machine)
    return found


def _of_machine(machine: Object, node: str, cluster: Cluster) -> Iterator[str]:
    """Yield what the deletion of a Machine waits for: the owner of a hook, and volumes without a time limit."""
    hooks, last = machine_drain.holding_hooks(machine), machine_drain.terminating_hooks(machine)
    volumes, ending = (
        clock.instant(since) for since in (machine_drain.volume_wait(machine), machine_drain.terminate_wait(machine))
    )
    if hooks:
        yield f"when the owner removes the pre-drain hook {names(hooks, 120)} of Machine {machine.full_name}"
    elif last and (ending is None or vm_states_times.is_older(ending, _PATIENCE, cluster)):
        which = f"the pre-terminate hook {names(last, 120)} of Machine {machine.full_name}"
        waits = _since(ending, cluster)
        yield f"when the owner removes {which}{f', which{waits}' if waits else ''}"
    elif machine_drain.detach_timeout(machine) is None and vm_states_times.is_older(volumes, _PATIENCE, cluster):
        attached = volume_attachments.attached(node, cluster)
        which = f"volumes {names(attached, 120)}" if attached else "the volumes"
        errors = [volume_attachments.detach_error(each) for each in volume_attachments.stuck(node, cluster)]
        why = f" ({cut(errors[0], 200)})" if errors else ""
        users = _users(node, attached, cluster)
        end = f"keep pod {names(users, 120)}, which uses them, off this node, or " if users else ""
        yield (
            f"when {which} of {node} are detached{why}: Machine {machine.full_name}{_since(volumes, cluster)}; "
            f"{end}set its nodeVolumeDetachTimeout"
        )


def _users(node: str, volumes: Sequence[str], cluster: Cluster) -> list[str]:
    """Return the pods of a node that use these volumes: a drain leaves those of DaemonSets there."""
    claims = [claim for claim in cluster.known(PVC) if claim.at("spec", "volumeName").text in volumes]
    pods = (pod for claim in claims for pod in volume_attachments.users(claim.namespace, claim.name, cluster))
    return sorted({pod.full_name for pod in pods if pod.at("spec", "nodeName").text == node})


def _since(began: datetime | None, cluster: Cluster) -> str:
    age = vm_states_times.age(began, cluster)
    return f" waits for that since {age}" if age else ""


def rests_on(driver: Driver, pools: Sequence[Pool], cluster: Cluster) -> Iterator[str]:
    """Yield which owners have to remove pre-drain hooks while Cluster API deletes the Machines that are left."""
    to_do = {node for pool in pools for node in pool.to_do}
    hooks: dict[str, list[str]] = {}
    for machine in cluster.known(CAPI_MACHINE) if driver is Driver.CLUSTER_API else ():
        if not machine.deleted and machine_nodes.node_name(machine, cluster) in to_do:
            for hook in machine_drain.pre_drain_hooks(machine):
                hooks.setdefault(hook, []).append(machine.full_name)
    for hook, held in sorted(hooks.items()):
        them = "it is" if len(held) == 1 else "they are"
        yield f"the owner of the pre-drain hook {hook} removes it from {names(sorted(held))} once {them} deleted"
