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
from virt_admit.forecasts.placement.components.broken_pods import BrokenPod
from virt_admit.model.commands import argument, logs_of, shell, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, entry, unlisted
from virt_admit.model.kubernetes.kinds import DAEMON_SET, NODE, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.lookups import find

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
    broken = broken_agent(plugin, pod, since, cluster)
    if broken is not None and broken.why:
        return repair(broken, cluster)
    other = _served(node, since or clock.instant(pod.metadata["creationTimestamp"].text), cluster)
    if other is not None:
        works = f"network plugin {plugin} works on {node} for pod {other.full_name}"
        return typed(f"{works}, so see what it lacks for this one", logs)
    way = f"repair the network plugin {plugin} on {node}"
    return typed(f"{way}, or restart its pod there" if found is not None else way, logs)


def broken_agent(plugin: str, pod: Object, since: datetime | None, cluster: Cluster) -> BrokenPod | None:
    """Return the agent of a plugin that is not ready on the node of a pod; None: it is, or it gave
    others a network.

    Arguments as above.
    """
    node = pod.at("spec", "nodeName").text or ""
    found = node_pods.of_plugin(plugin, node_pods.of_node(node, cluster))
    begun = since or clock.instant(pod.metadata["creationTimestamp"].text)
    if found is None or _served(node, begun, cluster) is not None:
        return None
    return broken_pods.of_pod(found, cluster)


def words(broken: BrokenPod) -> str:
    """Return ``pod NAMESPACE/NAME (DaemonSet NAME) is not ready for 15 h: REASON``."""
    which = f"pod {broken.pod.full_name} (DaemonSet {node_pods.daemon(broken.pod)})"
    return f"{which} is not ready{broken.since}{f': {broken.why}' if broken.why else ''}"


def repair(broken: BrokenPod, cluster: Cluster) -> str:
    """Return what repairs the agent of a network, with a command."""
    return _own_address(broken, cluster) or broken.remedy


def _own_address(broken: BrokenPod, cluster: Cluster) -> str:
    """Return what ends a conflict of the addresses of Calico; empty: the agent reports none.

    By default it takes that of the first interface, which on hosts with bridges may be the same on
    each of them. The record of a node that was renamed keeps the address of the node, too
    (projectcalico/calico:node/pkg/lifecycle/startup/startup.go, #checkConflictingNodes).
    """
    node = find(cluster, NODE, "", broken.pod.at("spec", "nodeName").text or "")
    found = _TAKEN.search(broken.why)
    if node is None or not _addresses(node):
        return ""
    if found is not None and found[3] in _addresses(node):
        return _stale(found[1], found[3], cluster)
    if found is not None:
        return _choose(broken.pod, node, found[2], found[3], cluster)
    announced = _foreign(node, "4") if broken.pod.labels.get("k8s-app") == "calico-node" else ""
    return _choose(broken.pod, node, "4", announced, cluster) if announced and "BGP" in broken.why else ""


def _choose(pod: Object, node: Object, family: str, address: str, cluster: Cluster) -> str:
    """Return how calico-node takes an address of its node; empty: its address is chosen on purpose."""
    method = _METHODS[family]
    if method in _chosen(pod) or _elsewhere_foreign(node, family, address, cluster):
        return ""
    way = f"let calico-node use the node's own address instead of {address}"
    name = node_pods.daemon(pod)
    daemon = find(cluster, DAEMON_SET, pod.namespace, name)
    owner = daemon.controller if daemon is not None else None
    has_own = any(_FAMILIES[family].fullmatch(each) for each in _addresses(node))
    if daemon is None or not has_own or (owner is not None and owner["kind"].text != _INSTALLATION):
        described = shell("kubectl", "describe", f"daemonset/{name}", "-n", pod.namespace)
        return typed(f"{way}, as far as its {method} can be changed", described)
    if owner is not None:
        top = owner["name"].text or ""
        field = f"spec.calicoNetwork.nodeAddressAutodetectionV{family} of {_INSTALLATION} {top}"
        return typed(f"{way} ({field})", shell("kubectl", "edit", _INSTALLATION.lower(), argument(top)))
    container = ("-n", pod.namespace, "-c", "calico-node")
    command = shell("kubectl", "set", "env", f"daemonset/{name}", *container, f"{method}=kubernetes-internal-ip")
    return typed(f"{way} ({method} of DaemonSet {name}), before another node restarts", command)


def _stale(holder: str, address: str, cluster: Cluster) -> str:
    """Return what frees the own address of a node, which another record of Calico has."""
    shown = shell("kubectl", "get", "nodes", "-o", "wide")
    if not unlisted(cluster, NODE) and find(cluster, NODE, "", holder) is None:
        gone = f"if no host {holder} exists any more, as after a rename, delete its record in Calico"
        return typed(f"{gone} (calicoctl delete node {argument(holder)}), which has {address}", shown)
    return typed(f"see which of both nodes {address} belongs to, as Calico has it for {holder} too", shown)


def _elsewhere_foreign(own: Object, family: str, address: str, cluster: Cluster) -> bool:
    """Return whether Calico announces other nodes by addresses that Kubernetes does not know, each by its own.

    These may be chosen on purpose, such as those of a second network. A bridge has the same one on each node.
    """
    others = (_foreign(node, family) for node in cluster.known(NODE) if node.name != own.name)
    return any(each not in ("", address) for each in others)


def _foreign(node: Object, family: str) -> str:
    """Return the address with which Calico announces a node, if that is none of the node's own."""
    announced = (node.annotations.get(f"projectcalico.org/IPv{family}Address") or "").partition("/")[0]
    own = _addresses(node)
    return announced if own and announced not in own else ""


def _addresses(node: Object) -> set[str]:
    return {each["address"].text or "" for each in node.at("status", "addresses").items()}


def _chosen(pod: Object) -> set[str]:
    """Return the settings of a pod that choose an address on purpose."""
    boxes = pod.at("spec", "containers").items()
    given = (each for box in boxes for each in box["env"].items() if each["value"].text != "first-found")
    return {each["name"].text or "" for each in given}


_METHODS: Final = {"4": "IP_AUTODETECTION_METHOD", "6": "IP6_AUTODETECTION_METHOD"}
"""The settings that choose an address, by family."""
_FAMILIES: Final = {"4": re.compile(r"[\d.]{7,15}"), "6": re.compile(r"[\da-f.]{0,15}:[\da-f:.]{1,45}")}
_INSTALLATION: Final = "Installation"
"""The kind of Tigera's operator."""
_TAKEN: Final = re.compile(
    r"Calico node '([\w.-]{1,253})' is already using the IPv([46]) address ([\da-fA-F.:]{2,44}[\da-fA-F])"
)


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
