"""Nodes without the static CPU manager, which dedicated CPUs need, and the setting that does not
reach them.

On OpenShift a KubeletConfig sets it for MachineConfigPools. It says Success once it has made their
configuration, with or without nodes: a node of the masters stays in pool master, whichever custom
pool selects it too. Sources: openshift/machine-config-operator:pkg/helpers/helpers.go
#GetPoolsForNode, :pkg/controller/kubelet-config/kubelet_config_controller.go
#getPoolsForKubeletConfig, issue 3090; kubevirt/kubevirt:pkg/virt-handler/heartbeat/heartbeat.go
#isCPUManagerEnabled; harvester/harvester:pkg/controller/master/node/cpu_manager_controller.go.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from virt_admit.forecasts.placement.refusals.refusal_remedies import common_causes
from virt_admit.model import machine_pools
from virt_admit.model.commands import argument, kubectl, shell
from virt_admit.model.evidence import writers
from virt_admit.model.kubernetes import nodes, selectors
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import KUBELET_CONFIG, MACHINE_CONFIG_POOL, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.kubernetes.selectors import Selector
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.messages import names
from virt_admit.model.node_updates.operators import kubelet_configs
from virt_admit.model.node_updates.operators.kubelet_configs import Pools, SelectedPools
from virt_admit.model.problems import Problem

READS: Final[Reads] = union(
    kubelet_configs.READS,
    {
        KUBELET_CONFIG: ("metadata.ownerReferences", "spec.kubeletConfig.cpuManagerPolicy"),
        MACHINE_CONFIG_POOL: (*CONDITIONS, "spec.paused"),
        NODE: ("metadata.labels",),
    },
)
CAUSE: Final = "dedicated CPUs"
"""How a refusal begins for the label that virt-handler sets (model/kubevirt/launcher/
launcher_pod.py)."""
_STATIC: Final = "cpuManagerPolicy static"
_RESERVED: Final = "reservedSystemCPUs"
_WITHOUT: Final = "remove dedicatedCpuPlacement from the VM"
_POOL_LABEL: Final = "pools.operator.machineconfiguration.openshift.io/"
"""How a label of the pools begins that the operator makes (openshift/machine-config-operator)."""
_RESTARTS: Final = "whose nodes are then drained and restarted in turn"


def of(refusals: Mapping[str, str], cluster: Cluster) -> Problem | None:
    """Return what does not reach the nodes that all lack the static CPU manager, after a colon, and
    what sets it there; None: they lack something else.
    """
    if not any(cause.startswith(CAUSE) for cause in common_causes(refusals)):
        return None
    labels = shell("kubectl", "get", "nodes", "-L", launcher_pod.cpu_manager_label(cluster))
    pools = machine_pools.of_cluster(cluster)
    refusing = ((pool, [node for node in own if node.name in refusals]) for pool, own in pools)
    own = [(pool, there) for pool, there in refusing if there]
    if not own:
        by = ", on OpenShift by a KubeletConfig" if unlisted(cluster, MACHINE_CONFIG_POOL) else ""
        way = f"set {_STATIC} (with reserved CPUs) in the kubelet of a drained node{by}"
        if nodes.has_harvester(cluster):
            way = (
                "enable the CPU Manager of a host in Harvester 1.4 or later (Hosts > Enable CPU "
                f"Manager, one control-plane host at a time), which sets {_STATIC} there and "
                "restarts its kubelet"
            )
        return Problem("", f"{way}, so that virt-handler labels it; or {_WITHOUT}", command=labels)
    settings = [kubelet_configs.selected(each, pools) for each in _static(cluster)]
    for each in settings:
        if here := [pool for pool, _ in each.pools if any(pool is other for other, _ in own)]:
            return _under_way(each.config, here[0], labels)
    unread = unlisted(cluster, KUBELET_CONFIG) or unlisted(cluster, MACHINE_CONFIG_POOL)
    target, _ = own[-1]  # that of the masters is the first one
    if not settings or unread or unlisted(cluster, NODE):
        reason = "" if unread or settings else f": no KubeletConfig sets {_STATIC}"
        other = kubelet_configs.last_of(target, cluster)
        where = _named(other, target)
        if other is None and unread:
            its = f"the KubeletConfig of MachineConfigPool {target.name}"
            where = f"{its}, or in a new one if it has none"
        way = f"set {_STATIC} and {_RESERVED} in {where}, {_RESTARTS}"
        return Problem(reason, f"{way}; or {_WITHOUT}", command=labels)
    return _unreached(settings[0], target, own, cluster)


def _named(config: Object | None, pool: Object) -> str:
    if config is None:
        return f"a KubeletConfig for MachineConfigPool {pool.name}"
    owner = writers.owner_above(config)
    title = f"KubeletConfig {config.name}" if owner is None else owner.title
    return f"{title}, which MachineConfigPool {pool.name} has already"


def _static(cluster: Cluster) -> list[Object]:
    known = sorted(cluster.known(KUBELET_CONFIG), key=lambda each: each.name)
    return [each for each in known if _policy(each) == "static"]


def _policy(config: Object) -> str | None:
    return config.at("spec", "kubeletConfig", "cpuManagerPolicy").text


def _under_way(config: Object, pool: Object, labels: str) -> Problem:
    """Return that the setting is for the pool of these nodes, which do not have it."""
    state = ""
    if pool.at("spec", "paused").boolean:
        state = ", which is paused"
    elif pool.condition("Updated")["status"].text == "False":
        state = ", which is not updated yet"
    reason = f": KubeletConfig {config.name} sets {_STATIC} for MachineConfigPool "
    see = kubectl("describe", MACHINE_CONFIG_POOL, pool.name) if state else labels
    way = f"see what keeps MachineConfigPool {pool.name} from its nodes"
    if not state:
        way = "see what the kubelet of a node and virt-handler there log about it"
    return Problem(f"{reason}{pool.name}{state}", f"{way}; or {_WITHOUT}", command=see)


def _unreached(setting: SelectedPools, target: Object, own: Pools, cluster: Cluster) -> Problem:
    """Return which setting reaches none of these nodes, and why."""
    config = setting.config
    begin = f": KubeletConfig {config.name} sets {_STATIC} for "
    if not setting.pools:
        why = "none has the labels of its machineConfigPoolSelector"
        if setting.selector is None:
            why = "it has no machineConfigPoolSelector"
        reason = f"{begin}no MachineConfigPool: {why}"
    else:
        stay = {each.name for _, there in own for each in there}
        told = (_where(pool, there, stay, cluster) for pool, there in setting.pools)
        reason = f"{begin}MachineConfigPool {'; and for '.join(told)}"
    if joins := _joins(setting, target, own):
        return Problem(reason, f"{joins[0]}; or {_WITHOUT}", command=joins[1])
    other = kubelet_configs.last_of(target, cluster)
    if other is not None:
        way = f"set {_STATIC} and {_RESERVED} in {_named(other, target)}"
        return Problem(reason, f"{way}, {_RESTARTS}; or {_WITHOUT}", command=_edit(other))
    above = writers.owner_above(config)
    title = above.title if above is not None else f"KubeletConfig {config.name}"
    label = f"{_POOL_LABEL}{target.name}"
    by = f" by its label {label}" if label in target.labels else ""
    # a new label of the pool is not noticed: only a change of the KubeletConfig is
    way = f"let the selector of {title} select MachineConfigPool {target.name}{by}"
    return Problem(reason, f"{way}, {_RESTARTS}; or {_WITHOUT}", command=_edit(config))


def _edit(config: Object) -> str:
    """Return the command that edits a KubeletConfig, or shows the object that writes it."""
    owner = writers.owner_above(config)
    if owner is not None:
        return owner.command("describe")
    return kubectl("edit", KUBELET_CONFIG, config.name)


def _joins(setting: SelectedPools, target: Object, own: Pools) -> tuple[str, str] | None:
    """Return how a worker joins a custom pool that has the setting, and the command; None: no such
    pool takes workers by their labels.
    """
    if machine_pools.is_of_masters(target) or machine_pools.is_custom(target):
        return None
    for pool, _ in setting.pools:
        labels = _labels(machine_pools.selector_of(pool)) if machine_pools.is_custom(pool) else []
        if labels:
            node = min(each.name for each in own[-1][1])
            way = f"give a node, such as {node}, the label of MachineConfigPool {pool.name}"
            command = shell("kubectl", "label", "node", argument(node), *labels)
            return f"{way}, which then drains and restarts it", command
    return None


def _where(pool: Object, there: Sequence[Object], stay: Collection[str], cluster: Cluster) -> str:
    """Return which nodes a pool has, and which it selects that belong to another one."""
    has = f"has {names(each.name for each in there)} alone" if there else "has no node"
    selector = machine_pools.selector_of(pool)
    every = (each for each in cluster.known(NODE) if each.name in stay)
    lost = sorted(each.name for each in every if selector and selector.matches(each.labels))
    if not lost:
        return f"{pool.name}, which {has}"
    masters = f"{names(lost)} {'has' if len(lost) == 1 else 'have'} its label, but stay"
    masters += "s" if len(lost) == 1 else ""
    return f"{pool.name}, which {has}: {masters} in pool master, as masters always do"


def _labels(selector: Selector | None) -> list[str]:
    """Return the labels that a selector demands; empty: it demands something else too."""
    found = selector.requirements if selector is not None else ()
    if not all(each.operator == selectors.IN and len(each.values) == 1 for each in found):
        return []
    return [f"{each.key}={next(iter(each.values))}" for each in found]
