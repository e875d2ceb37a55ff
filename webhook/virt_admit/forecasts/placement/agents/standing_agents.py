"""Agents of nodes that VMs need and that stay down, or whose roll-out stands, whatever product they
are of.

What an agent does on its node is read from what it mounts there, as an operator that is not known
has no other sign: the folders of network plugins, or those where the kubelet finds CSI drivers and
device plugins. One that sets up the network of its host is privileged or has NET_ADMIN. An agent of
which no VM needs anything is left out, and those of KubeVirt and CDI tell more by their own
objects. Sources: containernetworking/cni:SPEC.md (CNI_PATH); kubernetes/kubernetes:
pkg/kubelet/pluginmanager (plugins_registry), :pkg/kubelet/cm/devicemanager (device-plugins).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from virt_admit.forecasts.placement import pod_networks
from virt_admit.forecasts.placement.agents import agent_rollouts
from virt_admit.forecasts.placement.agents.agent_rollouts import AgentRollout, host_of
from virt_admit.forecasts.placement.components import driver_daemons, node_drivers, node_pods
from virt_admit.model.commands import kubectl, typed
from virt_admit.model.evidence import forbidden_pods
from virt_admit.model.kubernetes import nodes
from virt_admit.model.kubernetes.cluster import Cluster, cached
from virt_admit.model.kubernetes.kinds import DAEMON_SET, NODE, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.lookups import find
from virt_admit.model.messages import capital, count, names, sentence

READS: Final[Reads] = union(
    agent_rollouts.READS,
    node_drivers.READS,
    pod_networks.READS,
    vmis.READS,
    {
        NODE: ("metadata.labels",),
        VMI: ("spec.domain.devices", "spec.networks", "spec.volumes", "spec.utilityVolumes"),
    },
)
_DRIVERS: Final = re.compile(r"/plugins_registry\Z")
_DRIVER: Final = re.compile(r"/plugins/([\w-]+\.[\w.-]+)\Z")
"""The folder of a driver, which mostly has its name."""
_DEVICES: Final = re.compile(r"/device-plugins\Z")
_OF_KUBEVIRT: Final = ("kubevirt.io", "cdi.kubevirt.io")
_CRITICAL: Final = "system-node-critical"
_SYSTEM: Final = "kube-system"
"""A namespace of many products."""
_ASIDE: Final = re.compile(
    r"exporter|discover|monitor|metrics|\blogs?\b|logging|collector|telemetry|\bui\b|validator"
)
"""In the names of what observes others."""


class AgentRole(enum.Enum):
    """What an agent does for the VMs of its node."""

    NETWORK = "network"
    STORAGE = "storage"
    DEVICES = "devices"
    HOST = "host"


class StandingAgent(NamedTuple):
    """An agent of nodes that stays down, or whose roll-out stands."""

    rollout: AgentRollout
    role: AgentRole
    driver: str
    """The CSI driver that it serves, or that is of the same software; empty: none."""
    nodes: tuple[str, ...]
    """The nodes where it is down."""
    reason: str
    """As the beginning of a sentence, without its end."""
    brief: str
    """The same for one of these nodes."""
    state: str
    """The same without what it means."""
    remedy: str

    @property
    def may_hold(self) -> bool:
        """Whether the drains of an upgrade may fail for it: each node that restarts gets the new
        template, after which VMs cannot move there."""
        return self.rollout.spreads and self.role is not AgentRole.HOST

    @property
    def note(self) -> str:
        """What is said of it beside a drain."""
        return sentence(f"{self.reason}. {self.remedy}")


@cached
def held(cluster: Cluster) -> Sequence[StandingAgent]:
    """Return the agents of which VMs need something, by name."""
    every = (_of(each, cluster) for each in agent_rollouts.unfinished(cluster))
    return tuple(each for each in every if each is not None)


def untold(node: str, cluster: Cluster) -> Iterator[StandingAgent]:
    """Yield the agents that are down on a node and of which nothing else is told there."""
    for each in held(cluster):
        if node in each.nodes and not _is_told(each, node, cluster):
            yield each


def _is_told(agent: StandingAgent, node: str, cluster: Cluster) -> bool:
    """Return whether the forecasts of VMs tell it: that the network or a driver does not work on a
    node."""
    if agent.role is AgentRole.STORAGE:
        return agent.driver in node_drivers.unserving(cluster).get(node, frozenset())
    pod = pod_networks.agent(cluster, node) if agent.role is AgentRole.NETWORK else None
    return pod is not None and agent_rollouts.key_of(pod) == agent.rollout.key


def notes(node: Object, cluster: Cluster) -> Iterator[str]:
    """Yield what is said beside the drain of a node: VMs that leave it may come to where an agent
    is down."""
    here = cluster.cached(vmis.by_node).get(node.name, ()) if held(cluster) else ()
    for each in held(cluster):
        if each.nodes != (node.name,) and any(_is_noted(each, vmi, cluster) for vmi in here):
            yield each.note


def of_vmi(vmi: Object, cluster: Cluster) -> Iterator[str]:
    """Yield what is said of the agents that a VM needs where it starts or arrives."""
    yield from (each.note for each in held(cluster) if _is_noted(each, vmi, cluster))


def _is_noted(agent: StandingAgent, vmi: Object, cluster: Cluster) -> bool:
    """Return whether a VM needs an agent, of which its forecast does not tell all."""
    told = not agent.may_hold and all(_is_told(agent, each, cluster) for each in agent.nodes)
    return not told and _is_needed(agent, vmi, cluster)


def _is_needed(agent: StandingAgent, vmi: Object, cluster: Cluster) -> bool:
    """Return whether a VM needs an agent on the node where it starts or arrives."""
    match agent.role:
        case AgentRole.NETWORK:
            return True
        case AgentRole.STORAGE:
            return agent.driver in _drivers_of(vmi, cluster)
        case AgentRole.DEVICES:
            return _uses_devices(vmi)
    return False


def _of(rollout: AgentRollout, cluster: Cluster) -> StandingAgent | None:
    pods = [each.pod for each in rollout.broken]
    pod = pods[0] if pods else _template(rollout)
    if pod is None or any(key in pod.labels for key in _OF_KUBEVIRT):
        return None
    role, driver = _role(rollout, pod, cluster)
    if role is None:
        return None
    down = map(host_of, pods) if pods else _lacking(rollout, cluster)
    where = tuple(dict.fromkeys(each for each in down if _matters(each, role, cluster)))
    if not where:
        return None
    own = tuple(each for each in rollout.broken if host_of(each.pod) in where)
    rollout = replace(rollout, broken=own)
    told = _state(rollout, where)
    reason = f"{told}. {_EFFECTS[role].format(where=_where(where), driver=driver)}"
    if rollout.spreads:
        reason += f". {_FURTHER}"
    brief = f"{told}. {_EFFECTS[role].format(where='here', driver=driver)}"
    remedy = capital(_remedy(rollout))
    return StandingAgent(rollout, role, driver, where, reason, brief, told, remedy)


def _lacking(rollout: AgentRollout, cluster: Cluster) -> Iterator[str]:
    """Yield the nodes that lack a pod which nothing but the API server keeps away."""
    for node in cluster.known(NODE):
        if rollout.workload is not None and node.name not in rollout.nodes:
            absent = driver_daemons.of_daemon(rollout.workload, "", node.name, cluster)
            if absent is not None and (absent.refused or not absent.lasts):
                yield node.name


def _template(rollout: AgentRollout) -> Object | None:
    """Return a pod as the template of a workload makes it, where there is none."""
    if rollout.workload is None:
        return None
    made = rollout.workload.at("spec", "template").map
    return Object({"metadata": made.get("metadata"), "spec": made.get("spec")}, rollout.namespace)


# --- what it does for VMs -------------------------------------------------------------------------


def _role(rollout: AgentRollout, pod: Object, cluster: Cluster) -> tuple[AgentRole | None, str]:
    """Return what VMs need of an agent, and the driver; None: nothing that is known."""
    paths = node_pods.host_paths(pod["spec"])
    if any(map(_DRIVERS.search, paths)):
        driver = _driver(pod, paths, cluster)
        return (AgentRole.STORAGE, driver) if driver else (None, "")
    if node_pods.is_of_network(pod):
        return (None if pod_networks.is_thin(pod) else AgentRole.NETWORK), ""
    if any(map(_DEVICES.search, paths)):
        return (AgentRole.DEVICES if cluster.cached(_use_devices) else None), ""
    if not _is_privileged(pod) or _ASIDE.search(rollout.name):
        return None, ""
    if driver := _beside(_DRIVERS, pod, cluster):
        return AgentRole.STORAGE, driver
    if _beside(_DEVICES, pod, cluster) and cluster.cached(_use_devices):
        return AgentRole.DEVICES, ""
    is_host = pod.at("spec", "hostNetwork").boolean and (
        pod.at("spec", "priorityClassName").text == _CRITICAL
        or nodes.is_control_plane(find(cluster, NODE, "", host_of(pod)) or Object({}))
    )
    return (AgentRole.HOST if is_host else None), ""


def _beside(mounted: re.Pattern[str], pod: Object, cluster: Cluster) -> str:
    """Return the DaemonSet in the namespace of a pod that mounts such a folder, or the driver that
    it registers and VMs use; empty: there is none."""
    for daemon in () if pod.namespace == _SYSTEM else cluster.known(DAEMON_SET, pod.namespace):
        paths = node_pods.host_paths(daemon.at("spec", "template", "spec"))
        if any(map(mounted.search, paths)):
            found = daemon.name if mounted is _DEVICES else _named(daemon.name, paths, cluster)
            if found:
                return found
    return ""


def _driver(pod: Object, paths: Sequence[str], cluster: Cluster) -> str:
    owner = pod.controller
    name = owner["name"].text or "" if owner is not None else ""
    return _named(name, paths, cluster)


def _named(name: str, paths: Sequence[str], cluster: Cluster) -> str:
    """Return the driver that an agent registers, if VMs use it: by its folder, else by its name;
    empty: no VM uses it."""
    used = cluster.cached(_used_drivers)
    folders = {each[1] for path in paths if (each := _DRIVER.search(path))}
    known = sorted(used & folders)
    return known[0] if known else node_pods.likely_driver(name, sorted(used - folders))


def _used_drivers(cluster: Cluster) -> frozenset[str]:
    """Return the CSI drivers of the volumes of VMs that run or start."""
    return frozenset(driver for vmi in _alive(cluster) for driver in _drivers_of(vmi, cluster))


def _drivers_of(vmi: Object, cluster: Cluster) -> tuple[str, ...]:
    return node_drivers.needed_by(vmi.namespace, launcher_pod.all_claims(vmi["spec"]), cluster)


def _use_devices(cluster: Cluster) -> bool:
    return any(map(_uses_devices, _alive(cluster)))


def _uses_devices(vmi: Object) -> bool:
    """Return whether a VM has a device that a plugin gives out."""
    devices = vmi.at("spec", "domain", "devices")
    functions = (each["sriov"].present for each in devices["interfaces"].items())
    return devices["gpus"].present or devices["hostDevices"].present or any(functions)


def _alive(cluster: Cluster) -> Iterator[Object]:
    """Yield the VMs that run or start."""
    yield from (vmi for vmi in cluster.known(VMI) if not vmi.ended)


def _is_privileged(pod: Object) -> bool:
    contexts = (each["securityContext"] for each in pod.at("spec", "containers").items())
    return any(
        each["privileged"].boolean
        or any(added.text in _POWERS for added in each.at("capabilities", "add").items())
        for each in contexts
    )


_POWERS: Final = ("NET_ADMIN", "SYS_ADMIN", "ALL")


def _matters(node: str, role: AgentRole, cluster: Cluster) -> bool:
    """Return whether VMs run on a node, or come there."""
    own = find(cluster, NODE, "", node)
    if own is None:
        return False
    if nodes.SCHEDULABLE in own.labels or node in cluster.cached(vmis.by_node):
        return True
    return role is AgentRole.HOST and nodes.is_control_plane(own)


# --- in words -------------------------------------------------------------------------------------

_EFFECTS: Final = {
    AgentRole.NETWORK: "A VM that starts or arrives {where} may get no network",
    AgentRole.STORAGE: "A VM that starts or arrives {where} may not get its volumes of {driver}",
    AgentRole.DEVICES: "A VM that needs a device may not start {where}",
    AgentRole.HOST: "The addresses, bridges and routes that it sets up may be missing {where}",
}
_FURTHER: Final = (
    "Each other node gets the new template as well once its pod is not ready, as after a restart, "
    "whatever maxUnavailable says"
)


def _where(where: Sequence[str]) -> str:
    return f"on {names(where, 80)}"


def _state(rollout: AgentRollout, where: Sequence[str]) -> str:
    """Return what stands, and why, as ``DaemonSet a/b does not finish its roll-out …``."""
    by = f" ({rollout.owner})" if rollout.owner else ""
    if not rollout.broken:
        return f"{rollout.title}{by} cannot create its pod on {names(where, 80)}: {rollout.refused}"
    first = next((each for each in rollout.broken if each.why), rollout.broken[0])
    more = len(rollout.broken) - 1
    others = f" (and {count(more, 'other pod')})" if more else ""
    told = f"pod {first.pod.name} on {host_of(first.pod)} is not ready{first.since}{others}"
    told += f": {first.why}" if first.why else ""
    if not rollout.rolls:
        return f"{rollout.title}{by} is down on {names(where, 80)}: {told}"
    made = f"{rollout.new} of {rollout.pods} pods of its present template"
    return f"{rollout.title}{by} does not finish its roll-out ({made}): {told}"


def _remedy(rollout: AgentRollout) -> str:
    """Return what lets the agent work again."""
    if not rollout.broken:
        return _allowed(rollout)
    first = next((each for each in rollout.broken if each.why), rollout.broken[0])
    if not rollout.broken_new or not rollout.former_ready:
        return first.remedy
    by, ready = rollout.owner or "what writes it", count(rollout.former_ready, "ready pod")
    back = f"or let {by} go back to the former template, which has {ready}"
    return f"{first.remedy}; {back}"


def _allowed(rollout: AgentRollout) -> str:
    if forbidden_pods.of(rollout.refused) is not None:
        return forbidden_pods.remedy(rollout.namespace)
    described = kubectl("describe", DAEMON_SET, rollout.name, rollout.namespace)
    return typed("Let its pods be created, which the API server refuses with this", described)
