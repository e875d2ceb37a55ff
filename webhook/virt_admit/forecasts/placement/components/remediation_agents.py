"""Why Self Node Remediation does nothing for a node: no agent of it runs there that can reboot it.

Its manager sets no taint and counts no time before it has found the pod of the agent on the node
and the annotation that this agent writes, whatever the peers say. Sources:
medik8s/self-node-remediation: internal/controller/selfnoderemediation_controller.go#prepareReboot,
#isNodeRebootCapable; :internal/utils/pods.go#GetSelfNodeRemediationAgentPod;
:internal/utils/annotations.go #UpdateNodeAnnotations;
:internal/controller/selfnoderemediationconfig_controller.go #updateDsTolerations
(customDsTolerations).
"""

from __future__ import annotations

from typing import Final

from virt_admit.forecasts.placement.components import driver_daemons
from virt_admit.forecasts.placement.components.driver_daemons import AbsentPod
from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import DAEMON_SET, NODE, POD, SNR, SNR_CONFIG
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import command_of
from virt_admit.model.remediation.remediators import REBOOT_CAPABLE

_LABELS: Final = {
    "app.kubernetes.io/name": "self-node-remediation",
    "app.kubernetes.io/component": "agent",
}
"""How the manager finds the agents."""
READS: Final[Reads] = union(
    driver_daemons.READS,
    {
        DAEMON_SET: ("spec.template.metadata.labels",),
        POD: ("metadata.labels", "spec.nodeName"),
        NODE: (f"metadata.annotations.{REBOOT_CAPABLE}",),
    },
)
_TOLERATIONS: Final = "customDsTolerations"
_INTOLERANT: Final = " does not tolerate "
WITHOUT: Final = f"no {SNR.kind} agent"


def missing(name: str, cluster: Cluster) -> AbsentPod | None:
    """Return why no agent can reboot a node; None: one can, or that is not known.

    Only a cluster with the DaemonSet of the agents and pods of it on other nodes is judged.
    """
    daemon, node = cluster.cached(_daemon), find(cluster, NODE, "", name)
    agents = cluster.cached(_agents)
    if daemon is None or node is None or not agents or unlisted(cluster, POD):
        return None
    if name not in agents:
        return _absent(daemon, name, cluster)
    capable = node.annotations.get(REBOOT_CAPABLE)
    if capable == "true":
        return None
    why = (
        f"its {SNR.kind} agent does not say that it can reboot it (annotation {REBOOT_CAPABLE} is "
        f"{capable or 'not set'})"
    )
    way = (
        "give it a watchdog device or set isSoftwareRebootEnabled: true, and see the log of its "
        "agent"
    )
    pod = agents[name]
    return AbsentPod(why, typed(way, about("logs", pod, POD)), lasts=capable is not None)


def reason(name: str, cluster: Cluster) -> str:
    """Return why Self Node Remediation leaves a node alone; empty: it acts on it,
    as far as is known.
    """
    found = missing(name, cluster)
    return found.why if found is not None and found.lasts else ""


def _absent(daemon: Object, name: str, cluster: Cluster) -> AbsentPod | None:
    found = driver_daemons.of_daemon(daemon, "", name, cluster)
    if found is None:
        return None
    why = found.why.replace("no pod there:", f"{WITHOUT} runs there:", 1)
    owner = daemon.controller
    if found.daemon is None or owner is None or owner["kind"].text != SNR_CONFIG.kind:
        return found._replace(why=why)
    taints = why.partition(_INTOLERANT)[2]
    config = f"{owner['kind'].text} {owner['name'].text}"
    way = f"set {_TOLERATIONS} of {config} for {taints}, so that its agent runs there"
    return found._replace(why=why, remedy=typed(way, command_of(found.remedy)))


def _daemon(cluster: Cluster) -> Object | None:
    """Return the DaemonSet of the agents; None: none is known."""
    known = sorted(cluster.known(DAEMON_SET), key=lambda each: each.full_name)
    return next(
        (
            each
            for each in known
            if _is_agent(each.at("spec", "template", "metadata", "labels").map)
        ),
        None,
    )


def _agents(cluster: Cluster) -> dict[str, Object]:
    """Return the agents by their nodes."""
    found = (
        (pod.at("spec", "nodeName").text, pod)
        for pod in cluster.known(POD)
        if _is_agent(pod.labels)
    )
    return {node: pod for node, pod in found if node}


def _is_agent(labels: object) -> bool:
    return isinstance(labels, dict) and _LABELS.items() <= labels.items()
