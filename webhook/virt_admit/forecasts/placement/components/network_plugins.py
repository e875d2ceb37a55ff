"""The network plugin that gives a pod no network: it is to blame only if it gives others none either.

Kube-OVN prepares the port of a migration's target in the phase Scheduling, and KubeVirt enters that phase only when the target
pod and the pod that attaches hotplugged volumes are ready: both wait for each other. Sources: issues
kubeovn/kube-ovn#7416; kubevirt/kubevirt:pkg/virt-controller/watch/migration/migration.go#processMigrationPhase.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from virt_admit.forecasts.placement.components import broken_pods, node_pods
from virt_admit.model.commands import logs_of, shell, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, entry
from virt_admit.model.kubernetes.kinds import POD
from virt_admit.model.kubernetes.objects import Object

NAMED: Final = re.compile(r'plugin type="([\w.-]{1,60})"')
"""How container runtimes name the network plugin that fails (containernetworking/cni:libcni/api.go#addNetwork)."""
_KUBE_OVN: Final = "kube-ovn"
_NO_PORT: Final = re.compile(r"ovs interface \S{1,60} (is not ready(?: after \w{1,9})?)")
_OFF: Final = "enable-live-migration-optimize=false"


def remedy(plugin: str, pod: Object, since: datetime | None, cluster: Cluster) -> str:
    """Return what is to be done about a network plugin that gives a pod no network.

    Args:
        plugin: its name.
        pod: the pod that has no network.
        since: when the plugin began to fail for it; None: when the pod was created.
        cluster: the cluster.
    """
    node = pod.at("spec", "nodeName").text or ""
    found = node_pods.of_plugin(plugin, node_pods.of_node(node, cluster))
    listed = shell("kubectl", "get", "pods", "-A", "-o", "wide", f"--field-selector=spec.nodeName={node}")
    logs = logs_of(found) if found is not None else listed
    other = _served(node, since or clock.instant(pod.metadata["creationTimestamp"].text), cluster)
    if other is not None:
        words = f"network plugin {plugin} works on {node} for pod {other.full_name}, so see what it lacks for this one"
        return typed(words, logs)
    broken = broken_pods.of_pod(found, cluster) if found is not None else None
    if broken is not None and broken.why:
        return broken.remedy
    words = f"repair the network plugin {plugin} on {node}"
    return typed(f"{words}, or restart its pod there" if found is not None else words, logs)


def waits_for_migration(said: str, cluster: Cluster) -> str:
    """Return that a target pod has no network since Kube-OVN prepares its port later in the migration; empty: it has.

    ``said``: what its kubelet says. It is so only for VMs with hotplugged volumes.
    """
    plugin, port = NAMED.search(said), _NO_PORT.search(said)
    if plugin is None or plugin[1] != _KUBE_OVN or port is None:
        return ""
    controllers = (pod for pod in cluster.known(POD) if pod.name.startswith(f"{_KUBE_OVN}-controller-"))
    arguments = (
        each.text or ""
        for pod in controllers
        for box in pod.at("spec", "containers").items()
        for each in box["args"].items()
    )
    return "" if any(_OFF in each for each in arguments) else f"its ovs interface {port[1]}"


def _served(node: str, since: datetime | None, cluster: Cluster) -> Object | None:
    """Return the pod of a VM that was created on a node after a time, and got its network there; None: none is known."""
    for pod in entry(cluster, _launchers, node) or ():
        created = clock.instant(pod.metadata["creationTimestamp"].text)
        if since is not None and created is not None and created >= since:
            return pod
    return None


def _launchers(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    """Return the ready pods of VMs by node."""
    found: dict[str, list[Object]] = {}
    for pod in cluster.known(POD):
        if pod.labels.get("kubevirt.io") == "virt-launcher" and pod.condition("Ready")["status"].text == "True":
            found.setdefault(pod.at("spec", "nodeName").text or "", []).append(pod)
    return found
