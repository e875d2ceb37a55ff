"""A token of Multus that the API server refuses: every new pod of the node then lacks its network.

The pod of the thin plugin writes its own token to a file of the node as it starts. It writes it
again only while it watches it: with ``--cleanup-config-on-exit`` and without
``--skip-config-watch``. A token lasts a year, and an hour with the API server's
``--service-account-extend-token-expiration=false``, as in the CIS profile of RKE2. Sources:
k8snetworkplumbingwg/multus-cni:cmd/thin_entrypoint/main.go#createKubeConfig, #main (watchChanges);
kubernetes/kubernetes:pkg/registry/core/serviceaccount/storage/token.go#Create; issue
rancher/rke2#9313.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from virt_admit.forecasts.placement.components import network_plugins, node_pods
from virt_admit.forecasts.placement.starts.started_pods import PodStart, StartFault
from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.kubernetes import clock, events
from virt_admit.model.kubernetes.cluster import Cluster, cached, unlisted
from virt_admit.model.kubernetes.kinds import POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.lookups import grouped
from virt_admit.model.messages import names

READS: Final[Reads] = {
    POD: (
        *("metadata.creationTimestamp", "metadata.labels", "metadata.ownerReferences"),
        *("spec.containers.args", "spec.containers.command", "spec.nodeName"),
        "status.containerStatuses",
    )
}
_PLUGIN: Final = "multus"
_REFUSED: Final = re.compile(
    r"Multus: \[[^\[\]]{1,700}\]: error (?:getting|waiting for) pod: Unauthorized\b"
)
"""Multus looks up the pod first. A plugin that it calls has a token of its own, as Calico's has
(k8snetworkplumbingwg/multus-cni:pkg/multus/multus.go#getPod #CmdAdd)."""
_SHORT: Final = "--service-account-extend-token-expiration=false"
_WATCH: Final = "--cleanup-config-on-exit"
_NO_WATCH: Final = "--skip-config-watch"
_HOUR: Final = timedelta(hours=1)


def fault(start: PodStart) -> StartFault | None:
    """Return that the token of Multus is refused, on the node of a pod or on all nodes; None: it is
    not known to be.
    """
    named, cluster = network_plugins.NAMED.search(start.said), start.cluster
    if named is None or named[1] != _PLUGIN or not _REFUSED.search(start.said):
        return None
    agent = node_pods.of_plugin(_PLUGIN, node_pods.of_node(start.on, cluster))
    begun = start.since or clock.instant(start.pod.created)
    broken = network_plugins.broken_agent(_PLUGIN, start.pod, start.since, cluster)
    served = network_plugins.served(start.on, begun, cluster)
    if agent is None or (broken is not None and broken.why) or served is not None:
        return None
    daemon = f"DaemonSet {agent.namespace}/{node_pods.daemon(agent)}"
    nodes, short = _refused(cluster), _short_lived(cluster)
    own = agent.namespace, node_pods.daemon(agent)
    expired = bool(short) and own in _expired(cluster)
    of_all = expired or len(nodes | {start.on}) > 1
    if not of_all:
        way = f"restart pod {agent.full_name}, which then writes {_PLUGIN} a new token"
        delete = shell("kubectl", "delete", "pod", argument(agent.name), "-n", agent.namespace)
        return StartFault(start.words, start.brief, typed(way, delete), of_node=True)
    where = "every node" if expired else names(sorted(nodes | {start.on}), 80)
    why = f"the API server refuses the token that {daemon} wrote to {where} as its pods started"
    if expired:
        why += f"; it lasts an hour, as {short[0].full_name} has {_SHORT}"
    return StartFault(
        f"{start.words}: {why}",
        f"{daemon} has a refused token",
        _renewed(agent, short),
        lasts=expired,
    )


def _renewed(agent: Object, short: Sequence[Object]) -> str:
    """Return what writes new tokens on all nodes, and what keeps them from ending again."""
    name, space = node_pods.daemon(agent), agent.namespace
    restart = shell("kubectl", "rollout", "restart", f"daemonset/{name}", "-n", space)
    words = f"restart DaemonSet {space}/{name}, whose pods then write new tokens on all nodes"
    if not short or _watches(agent):
        return typed(words, restart)
    chart = f" (HelmChartConfig {name} in {space})" if name.startswith("rke2-") else ""
    lasting = f"to keep them from ending again after an hour, start it with {_WATCH}=true{chart}"
    return typed(words, restart, f"{lasting}, or update it to a release that renews them")


@cached
def _refused(cluster: Cluster) -> frozenset[str]:
    """Return the nodes on which the token of Multus is refused, as their newest events say."""
    found = ((events.message(event), pod) for event, pod in network_plugins.recent_errors(cluster))
    return frozenset(
        pod.at("spec", "nodeName").text or ""
        for said, pod in found
        if (named := network_plugins.NAMED.search(said)) is not None
        and (named[1] == _PLUGIN and _REFUSED.search(said))
    )


@cached
def _short_lived(cluster: Cluster) -> Sequence[Object]:
    """Return the pods of the API server, if each of them lets tokens end after an hour."""
    found = cluster.known(POD)
    servers = [pod for pod in found if pod.labels.get("component") == "kube-apiserver"]
    short = [pod for pod in servers if _SHORT in _arguments(pod)]
    return sorted(short, key=lambda pod: pod.full_name) if len(short) == len(servers) else ()


@cached
def _expired(cluster: Cluster) -> frozenset[tuple[str, str]]:
    """Return the DaemonSets, by namespace and name, whose pods all started more than an hour ago
    and renew no token.
    """
    if unlisted(cluster, POD):
        return frozenset()
    made = (pod for pod in cluster.known(POD) if node_pods.daemon(pod))
    pods = grouped(made, lambda pod: (pod.namespace, node_pods.daemon(pod)))
    return frozenset(
        own for own, each in pods.items() if all(_is_old(pod, cluster) for pod in each)
    )


def _is_old(pod: Object, cluster: Cluster) -> bool:
    age = clock.elapsed(_started(pod), cluster)
    return age is not None and age > _HOUR and not _watches(pod)


def _started(pod: Object) -> datetime | None:
    """Return when the newest container of a pod started, which is when it last wrote the token."""
    states = pod.at("status", "containerStatuses").items()
    stamps = (each.at("state", "running", "startedAt").text for each in states)
    times = (clock.instant(each) for each in (pod.created, *stamps))
    return max(filter(None, times), default=None)


def _watches(pod: Object) -> bool:
    given = _arguments(pod)
    ends = any(each in (_WATCH, f"{_WATCH}=true") for each in given)
    skips = any(each in (_NO_WATCH, f"{_NO_WATCH}=true") for each in given)
    return ends and not skips


def _arguments(pod: Object) -> list[str]:
    return [
        each.text or ""
        for box in pod.at("spec", "containers").items()
        for part in ("command", "args")
        for each in box[part].items()
    ]
