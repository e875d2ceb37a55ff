"""Nodes that an upgrade reboots without a drain, which ends their guests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from virt_admit.forecasts.drain.drain_plan import NodePlan, Plan
from virt_admit.forecasts.drain.vm_outcomes import Forecast, VmOutcome
from virt_admit.forecasts.upgrade.rollouts import Driver, Pool
from virt_admit.model.kubernetes import nodes
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, unlisted
from virt_admit.model.kubernetes.kinds import KUBEVIRT, MACHINE_CONFIG_POOL, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.lookups import find
from virt_admit.model.messages import names
from virt_admit.model.scheduler.packing import Packing

_UNLESS: Final = "or off if the guest shuts down cleanly before"
"""When a VM with ``RerunOnFailure`` stays off although its node comes back."""
_TOPOLOGY: Final = "machineconfiguration.openshift.io/controlPlaneTopology"


def _is_not_drained(node: Object) -> bool:
    """Return whether the machine config operator reboots a node without a drain:
    its control plane is one node.

    Source: openshift/machine-config-operator:pkg/daemon/drain.go#drainRequired.
    """
    return node.annotations.get(_TOPOLOGY) == "SingleReplica"


def without_drains(plan: Plan, driver: Driver, cluster: Cluster) -> Plan:
    """Return the drains of all nodes as an updater skips them, which shuts the guests down."""
    skipped = set(skips(driver, cluster))
    up = {node.name for node in plan.nodes if "not Ready" not in node.state}
    found = (
        _rebooted(node, driver, cluster) if node.name in skipped & up else node
        for node in plan.nodes
    )
    return replace(plan, nodes=tuple(found))


def skips(driver: Driver, cluster: Cluster) -> list[str]:
    """Return the nodes that an updater does not drain."""
    if driver is Driver.PLAIN:
        return list(filter(None, (nodes.only_of_harvester(cluster),)))
    found = (each.name for each in cluster.known(NODE) if _is_not_drained(each))
    return sorted(found) if driver is Driver.MACHINE_CONFIG else []


def without_unread(
    plans: Sequence[NodePlan], driver: Driver, cluster: Cluster
) -> Sequence[NodePlan]:
    """Return the drains without those that an updater perhaps skips, as the node or the updater
    could not be read: nothing certainly keeps them. OpenShift and Harvester skip that of a single
    node.
    """
    found = {each.name: find(cluster, NODE, "", each.name) for each in plans}
    harvester = any(each.namespace == _HARVESTER for each in cluster.known(KUBEVIRT))
    single = driver is Driver.MACHINE_CONFIG or (driver is Driver.PLAIN and harvester)
    if single and unlisted(cluster, NODE):
        return [each for each in plans if found[each.name] is not None]
    if driver is Driver.MACHINE_CONFIG or not unlisted(cluster, MACHINE_CONFIG_POOL):
        return plans
    kept = {name for name, node in found.items() if node is None or not _is_not_drained(node)}
    return [each for each in plans if each.name in kept]


_HARVESTER: Final = "harvester-system"


def _rebooted(node: NodePlan, driver: Driver, cluster: Cluster) -> NodePlan:
    shut = _stopped if driver is Driver.PLAIN else _shut_down
    forecasts = tuple(shut(row, node.name, cluster) for row in node.forecasts)
    pods, room = replace(node.pods, blockers=(), waits=(), unseen=()), Packing(True, {})
    return replace(
        node, forecasts=forecasts, pods=pods, packing=room, moving=room, doubts=(), visitors=()
    )


def _stopped(row: Forecast, node: str, _: Cluster) -> Forecast:
    """Return what Harvester does to a VM of its only node: it is stopped as by ``virtctl stop``."""
    reason = f"Harvester stops it before it updates {node}, its only node"
    remedy = (
        "start it afterwards, or set restoreVM in Setting upgrade-config before, if it has that"
    )
    end = VmOutcome.STOPS
    return replace(row, outcome=end, reason=reason, remedy=remedy, unseen="", problems=())


def _shut_down(row: Forecast, node: str, cluster: Cluster) -> Forecast:
    """Return what the reboot of its node does to a VM.

    Nothing evicts its pod. Usually the guest is killed, which counts as a failure: virt-handler
    finds no launcher after the reboot (kubevirt/kubevirt:pkg/virt-handler/vm.go#isUnresponsive).
    """
    try:
        clean = vmis.comes_back(row.vmi, cluster)
        after = clean if clean.comes else vmis.comes_back(row.vmi, cluster, lost=True)
    except Unseen as blind:
        reason = f"the reboot ends it, and whether it comes back: cannot see {blind.what}"
        end = VmOutcome.UNKNOWN  # the reason says what is unseen, which is none of the drain
        return replace(row, outcome=end, reason=reason, remedy="", unseen="", problems=())
    outcome = VmOutcome.AWAITS_NODE if after.comes else VmOutcome.STOPS
    unless = "" if clean.comes or not after.comes else _UNLESS
    reason = f"the reboot ends it, as OpenShift does not drain {node}; {after.why}"
    remedy = after.remedy
    return replace(
        row, outcome=outcome, reason=reason, remedy=remedy, unseen="", problems=(), unless=unless
    )


def not_drained(driver: Driver, pools: Sequence[Pool], cluster: Cluster) -> Iterator[str]:
    """Yield which nodes are updated without a drain."""
    to_do = {node for pool in pools for node in pool.to_do}
    found = [name for name in skips(driver, cluster) if name in to_do]
    if found:
        yield in_words(found, driver)


def in_words(skipped: Sequence[str], driver: Driver) -> str:
    """Return that these nodes are updated without a drain."""
    if driver is Driver.PLAIN:
        return f"Harvester stops all VMs and does not drain {skipped[0]}, its only node"
    return (
        f"OpenShift reboots {names(skipped)} without a drain, as controlPlaneTopology is "
        "SingleReplica"
    )
