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
from virt_admit.model.commands import about, logs_of, merge_patch, typed
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
        SNR_CONFIG: ("spec.customDsTolerations", "spec.isSoftwareRebootEnabled"),
    },
)
_TOLERATIONS: Final = "customDsTolerations"
_BY_SOFTWARE: Final = "isSoftwareRebootEnabled"
_INTOLERANT: Final = " does not tolerate "
WITHOUT: Final = f"no {SNR.kind} agent"


def missing(name: str, cluster: Cluster) -> AbsentPod | None:
    """Return why no agent can reboot a node; None: one can, or that is not known.

    Only a cluster with the DaemonSet of the agents and pods of it on other nodes is judged.
    """
    daemon, node = cluster.cached(daemon_set), find(cluster, NODE, "", name)
    agents = cluster.cached(_agents)
    if daemon is None or node is None or not agents or unlisted(cluster, POD):
        return None
    if name not in agents:
        return _absent(daemon, name, cluster)
    capable = node.annotations.get(REBOOT_CAPABLE)
    if capable == "true":
        return None
    says = "says that it cannot" if capable == "false" else "does not say that it can"
    why = (
        f"its {SNR.kind} agent {says} reboot it (annotation {REBOOT_CAPABLE} is "
        f"{capable or 'not set'})"
    )
    way = f"give it a watchdog device or set {_BY_SOFTWARE}: true"
    config = _config(daemon, cluster)
    if config is not None and config.at("spec", _BY_SOFTWARE).boolean is False:
        remedy = typed(way, about("edit", config, SNR_CONFIG))
    else:
        remedy = typed(f"{way}, and see the log of its agent", logs_of(agents[name]))
    return AbsentPod(why, remedy, lasts=capable is not None)


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
    why = f"{WITHOUT} runs there: {found.why}"
    config, node = _config(daemon, cluster), find(cluster, NODE, "", name)
    owner, command = daemon.owned_by(SNR_CONFIG.kind), command_of(found.remedy)
    if config is not None and node is not None:
        given = [each.value for each in config.at("spec", _TOLERATIONS).items()]
        data = {"spec": {_TOLERATIONS: [*given, *driver_daemons.wanted(daemon, node, cluster)]}}
        owner, command = config.name, merge_patch(SNR_CONFIG, config.name, config.namespace, data)
    if found.daemon is None or not owner:
        return found._replace(why=why)
    taints = why.partition(_INTOLERANT)[2]
    way = f"set {_TOLERATIONS} of {SNR_CONFIG.kind} {owner} for {taints}, so that its agent runs"
    return found._replace(why=why, remedy=typed(way, command))


def _config(daemon: Object, cluster: Cluster) -> Object | None:
    """Return what the operator makes the DaemonSet of: it takes back what is changed there.

    There is one in a cluster (``selfnoderemediationconfig_types.go#ConfigCRName``).
    """
    own = (each for each in cluster.known(SNR_CONFIG) if each.namespace == daemon.namespace)
    name = daemon.owned_by(SNR_CONFIG.kind)
    return next((each for each in own if not name or each.name == name), None)


def daemon_set(cluster: Cluster) -> Object | None:
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
