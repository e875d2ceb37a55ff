"""The network plugin that gives a pod no network:
it is to blame only if it gives others none either.

Kube-OVN prepares the port of a migration's target in the phase Scheduling, and KubeVirt enters that
phase only when the target pod and the pod that attaches hotplugged volumes are ready: both wait for
each other. Sources: issues kubeovn/kube-ovn#7416;
kubevirt/kubevirt:pkg/virt-controller/watch/migration/migration.go#processMigrationPhase.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.placement.components import broken_pods, node_pods
from virt_admit.forecasts.placement.components.broken_pods import BrokenPod
from virt_admit.model import address_pools
from virt_admit.model.commands import argument, logs_of, pods_on, shell, typed
from virt_admit.model.evidence import full_ranges
from virt_admit.model.evidence.full_ranges import UsedUpRange
from virt_admit.model.kubernetes import clock, events
from virt_admit.model.kubernetes.cluster import Cluster, cached, entry, unlisted
from virt_admit.model.kubernetes.kinds import DAEMON_SET, NODE, POD
from virt_admit.model.kubernetes.objects import FINAL_PHASES, Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.launcher.launcher_pod import MIGRATION_JOB, is_launcher
from virt_admit.model.lookups import find, grouped
from virt_admit.model.messages import count, cut_middle, names

READS: Final[Reads] = union(
    full_ranges.READS,
    {
        POD: (
            *("metadata.labels", "spec.containers.args", "spec.hostNetwork", "spec.nodeName"),
            "status.phase",
        )
    },
)

NAMED: Final = re.compile(r'plugin type=\\?"([\w.-]{1,60})\\?"')
"""How container runtimes name the network plugin that fails
(containernetworking/cni:libcni/api.go#addNetwork).

An error within an error has its quotes escaped.
"""
KUBE_OVN: Final = "kube-ovn"
_NO_PORT: Final = re.compile(r"ovs interface \S{1,60} (is not ready(?: after \w{1,9})?)")
OFF: Final = "enable-live-migration-optimize=false"


def remedy(
    plugin: str, pod: Object, since: datetime | None, cluster: Cluster, said: str = ""
) -> str:
    """Return what is to be done about a network plugin that gives a pod no network.

    Args:
        plugin: its name.
        pod: the pod that has no network.
        since: when the plugin began to fail for it; None: when the pod was created.
        cluster: the cluster.
        said: its error.
    """
    plugin = _CALICO if _REFUSED_CALICO in said else plugin
    node = pod.at("spec", "nodeName").text or ""
    found = node_pods.of_plugin(plugin, node_pods.of_node(node, cluster))
    listed = pods_on(node)
    logs = logs_of(found) if found is not None else listed
    broken = broken_agent(plugin, pod, since, cluster) or broken_agent(plugin, pod, None, cluster)
    if broken is not None and broken.why:
        return repair(broken, cluster)
    other = served(node, since or clock.instant(pod.created), cluster)
    if other is not None:
        works = f"{_called(plugin)} works on {node} for pod {other.full_name}"
        return typed(f"{works}, so see what it lacks for this one", logs)
    if found is not None and plugin == _CALICO and _UNAUTHORIZED.search(said):
        return _new_token(found, node)
    way = f"repair the {_called(plugin)} on {node}"
    return typed(f"{way}, or restart its pod there" if found is not None else way, logs)


def _called(plugin: str) -> str:
    """Return ``network plugin calico``; older container runtimes do not name it."""
    return f"network plugin {plugin}".rstrip()


def _new_token(agent: Object, node: str) -> str:
    """Return what gives Calico's plugin a token that the API server accepts.

    calico-node writes it for the plugin as it starts, and again before it expires
    (projectcalico/calico:node/pkg/cni/token_watch.go; issues projectcalico/calico#5712).
    """
    way = f"restart pod {agent.full_name}, which then gives plugin {_CALICO} a new token"
    again = f"if it is refused again, correct the clock of {node}"
    delete = shell("kubectl", "delete", "pod", argument(agent.name), "-n", agent.namespace)
    return typed(f"{way} ({again})", delete)


_CALICO: Final = "calico"
_REFUSED_CALICO: Final = "ClusterInformation: connection is unauthorized: Unauthorized"
"""What Calico's plugin says, also where Multus calls it
(projectcalico/calico:libcalico-go/lib/errors/errors.go#ErrorConnectionUnauthorized)."""
_UNAUTHORIZED: Final = re.compile(r"\bUnauthorized\b")
"""Calico calls the connection unauthorized also where its token only lacks a right
(:libcalico-go/lib/backend/k8s/resources/errors.go#K8sErrorToCalico)."""


class FailingPlugin(NamedTuple):
    """A network plugin that fails for several pods of a node, and has served none since."""

    plugin: str
    """Its name; empty: it is not told."""
    pods: tuple[Object, ...]
    error: str
    since: datetime
    full: UsedUpRange | None = None
    """What lacks the pods an address; None: another cause."""

    def words(self, cluster: Cluster) -> str:
        """Return ``network plugin calico fails for 14 min (3 pods, such as shop/a): ERROR``."""
        lasts = clock.lasting(self.since.isoformat(), cluster)
        some, first = count(len(self.pods), "pod"), self.pods[0].full_name
        if self.full is not None:
            waiting = "pod" if len(self.pods) == 1 else "pods"
            waiting += f" {names((pod.full_name for pod in self.pods), _LONGEST)}"
            return f"{self.full.reason} ({waiting} without one{lasts})"
        error = cut_middle(self.error, _LONGEST)
        return f"{_called(self.plugin)} fails{lasts} ({some}, such as {first}): {error}"

    @property
    def brief(self) -> str:
        """The same in a few words."""
        return self.full.reason if self.full is not None else f"{_called(self.plugin)} fails"

    def remedy(self, cluster: Cluster) -> str:
        """Return what repairs it, with a command."""
        if self.full is not None:
            return self.full.remedy
        return remedy(self.plugin, self.pods[0], self.since, cluster, self.error)


def failing(cluster: Cluster, node: str) -> FailingPlugin | None:
    """Return the plugin that gives no pod of a node a network; None: none is known."""
    return entry(cluster, _failing, node)


class _Error(NamedTuple):
    """That a pod gets no network."""

    pod: Object
    said: str
    begun: datetime
    full: UsedUpRange | None


def _failing(cluster: Cluster) -> Mapping[str, FailingPlugin]:
    """Return by node the plugin that fails for several pods, as their newest events say.

    An agent that starts, as after a reboot, lets its plugin fail for a moment. The errors of
    multus may be about one secondary network, and those of Kube-OVN about one migration. Of a full
    range of the node itself one pod tells enough.
    """
    groups: dict[tuple[str, str], dict[str, _Error]] = {}
    if unlisted(cluster, POD):
        return {}  # a pod that is not known may have its network
    for event, pod in recent_errors(cluster):
        found = _error(event, pod, cluster)
        if found is None:
            continue
        plugin, error = found
        group = groups.setdefault((pod.at("spec", "nodeName").text or "", plugin), {})
        begun = min(error.begun, group.get(pod.full_name, error).begun)
        group[pod.full_name] = error._replace(begun=begun)
    failing: dict[str, FailingPlugin] = {}
    for (node, plugin), group in groups.items():
        errors = sorted(group.values(), key=lambda each: (not is_launcher(each.pod), each.begun))
        first, full = errors[0], next((each.full for each in errors if each.full), None)
        begun = min(each.begun for each in errors)
        age = clock.since(begun.isoformat(), cluster)
        enough = len(errors) >= _SEVERAL or (full is not None and full.of_node)
        lasts = age is not None and age >= PATIENCE
        if node and lasts and enough and not _has_served(node, begun, cluster):
            pods = tuple(each.pod for each in errors)
            failing[node] = FailingPlugin(plugin, pods, first.said, begun, full)
    return failing


def _error(event: Object, pod: Object, cluster: Cluster) -> tuple[str, _Error] | None:
    """Return the network plugin that an event is about, and its error; None: it may be about that
    pod alone.
    """
    said, begun = events.message(event), clock.instant(event["firstTimestamp"].text)
    begun = begun or clock.instant(event.created)
    named, error = NAMED.search(said), _ERROR.search(said) or _UNNAMED.search(said)
    plugin, full = named[1] if named else "", full_ranges.of(said, _node(pod), cluster)
    if error is None or begun is None:
        return None
    of_migration = is_target(pod) and waits_for_migration(said, cluster)
    if full is None and ("multus" in said.lower() or of_migration):
        return None
    if address_pools.full_range(said, cluster) or (full is not None and full.of_network):
        return None
    return plugin, _Error(pod, error[1].replace("\\", "").rstrip('"] '), begun, full)


def _node(pod: Object) -> str:
    return pod.at("spec", "nodeName").text or ""


def recent_errors(cluster: Cluster) -> Iterator[tuple[Object, Object]]:
    """Yield the newest events of pods that get no network, or cannot give it back, with the pod."""
    recent = clock.ago(PATIENCE, cluster)
    for reason in ("FailedCreatePodSandBox", "FailedKillPod"):
        for event in events.known(POD.kind, reason, cluster):
            of, time = event["involvedObject"], events.time_of(event)
            pod = find(cluster, POD, of["namespace"].text or "", of["name"].text)
            if pod is None or recent is None or time is None or time < recent:
                continue
            ends = reason == "FailedKillPod"
            phase = pod.at("status", "phase").text
            if (ends and pod.deleted) or (not ends and phase not in (*FINAL_PHASES, "Running")):
                yield event, pod


def _has_served(node: str, since: datetime, cluster: Cluster) -> bool:
    """Return whether a pod that was created on a node after a time has got its network there."""
    for pod in entry(cluster, _ready_pods, node) or ():
        created = clock.instant(pod.created)
        if created is None or created >= since:
            return True
    return False


def _ready_pods(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    """Return the ready pods that are not in the network of their node, by node."""
    own = (pod for pod in cluster.known(POD) if not pod.at("spec", "hostNetwork").boolean)
    ready = (pod for pod in own if pod.is_true("Ready"))
    return grouped(ready, _node)


PATIENCE: Final = timedelta(minutes=5)
"""A restart or an update of the agent of a network takes less."""
_SEVERAL: Final = 2
_LONGEST: Final = 120
_UNNAMED: Final = re.compile(
    r"(?:failed to set ?up network for sandbox [^:]{1,200}|failed to set up pod [^:]{1,400} network"
    r"): (.{1,2000})"
)
"""The same in older container runtimes, which do not name the plugin."""
_ERROR: Final = re.compile(r"plugin type=[^:]{1,200} failed \((?:add|delete)\): (.{1,2000})")


def broken_agent(
    plugin: str, pod: Object, since: datetime | None, cluster: Cluster
) -> BrokenPod | None:
    """Return an agent of a plugin that is not ready on the node of a pod; None: all are, or they
    gave others a network.

    Arguments as above.
    """
    node = pod.at("spec", "nodeName").text or ""
    begun = since or clock.instant(pod.created)
    if served(node, begun, cluster) is not None:
        return None
    agents = node_pods.all_of_plugin(plugin, node_pods.of_node(node, cluster))
    found = (broken_pods.of_pod(each, cluster) for each in agents)
    return next((each for each in found if each is not None), None)


def with_agent(words: str, said: str, pod: Object, cluster: Cluster, *, brief: bool = False) -> str:
    """Return why a pod has no network, with the state of its plugin's agent if that is not ready.

    The agent is the cause of an error that says that it does not answer, or has not set the plugin
    up, as calico-node writes its nodename and its token. Another error has a cause of its own,
    which the agent may have met too.
    """
    named = NAMED.search(said)
    broken = broken_agent(named[1], pod, None, cluster) if named is not None else None
    if broken is None or not broken.why:
        return words
    if _NO_ANSWER.search(said):
        return broken.full_words if brief else f"{words}, because {broken.full_words}"
    return words if brief else f"{words}, and {broken.full_words}"


_NO_ANSWER: Final = re.compile(
    r"connection (?:refused|reset)|\.sock\b|no such file or directory|failed to find plugin|"
    r"not initialized|uninitialized|time[d ]*out|deadline exceeded|\bunavailable\b|\bEOF\b|"
    r"not (?:ready|running|responding)|unauthorized",
    re.IGNORECASE,
)


def repair(broken: BrokenPod, cluster: Cluster) -> str:
    """Return what repairs the agent of a network, with a command."""
    return _own_address(broken, cluster) or broken.remedy


def _own_address(broken: BrokenPod, cluster: Cluster) -> str:
    """Return what ends a conflict of the addresses of Calico; empty: the agent reports none.

    By default it takes that of the first interface, which on hosts with bridges may be the same on
    each of them. The record of a node that was renamed keeps the address of the node, too
    (projectcalico/calico:node/pkg/lifecycle/startup/startup.go, #checkConflictingNodes).
    """
    node = find(cluster, NODE, "", broken.pod.at("spec", "nodeName").text)
    found = _TAKEN.search(broken.why)
    if node is None or not _addresses(node):
        return ""
    if found is not None and found[3] in _addresses(node):
        return _stale(found[1], found[3], cluster)
    if found is not None:
        return _choose(broken.pod, node, found[2], found[3], cluster)
    announced = _foreign(node, "4") if broken.pod.labels.get("k8s-app") == "calico-node" else ""
    if announced and "BGP" in broken.why:
        return _choose(broken.pod, node, "4", announced, cluster)
    return ""


def _choose(pod: Object, node: Object, family: str, address: str, cluster: Cluster) -> str:
    """Return how calico-node takes an address of its node; empty:
    its address is chosen on purpose.
    """
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
        return typed(
            f"{way} ({field})", shell("kubectl", "edit", _INSTALLATION.lower(), argument(top))
        )
    container = ("-n", pod.namespace, "-c", "calico-node")
    command = shell(
        "kubectl", "set", "env", f"daemonset/{name}", *container, f"{method}=kubernetes-internal-ip"
    )
    return typed(f"{way} ({method} of DaemonSet {name}), before another node restarts", command)


def _stale(holder: str, address: str, cluster: Cluster) -> str:
    """Return what frees the own address of a node, which another record of Calico has."""
    shown = shell("kubectl", "get", "nodes", "-o", "wide")
    if not unlisted(cluster, NODE) and find(cluster, NODE, "", holder) is None:
        gone = (
            f"if no host {holder} exists any more, as after a rename, delete its record in Calico"
        )
        return typed(
            f"{gone} (calicoctl delete node {argument(holder)}), which has {address}", shown
        )
    return typed(
        f"see which of both nodes {address} belongs to, as Calico has it for {holder} too", shown
    )


def _elsewhere_foreign(own: Object, family: str, address: str, cluster: Cluster) -> bool:
    """Return whether Calico announces other nodes by addresses that Kubernetes does not know,
    each by its own.

    These may be chosen on purpose, such as those of a second network. A bridge has the same one on
    each node.
    """
    others = (_foreign(node, family) for node in cluster.known(NODE) if node.name != own.name)
    return any(each not in ("", address) for each in others)


def _foreign(node: Object, family: str) -> str:
    """Return the address with which Calico announces a node, if that is none of the node's own."""
    announced = (node.annotations.get(f"projectcalico.org/IPv{family}Address") or "").partition(
        "/"
    )[0]
    own = _addresses(node)
    return announced if own and announced not in own else ""


def _addresses(node: Object) -> set[str]:
    return {each["address"].text or "" for each in node.at("status", "addresses").items()}


def _chosen(pod: Object) -> set[str]:
    """Return the settings of a pod that choose an address on purpose."""
    boxes = pod.at("spec", "containers").items()
    given = (
        each for box in boxes for each in box["env"].items() if each["value"].text != "first-found"
    )
    return {each["name"].text or "" for each in given}


_METHODS: Final = {"4": "IP_AUTODETECTION_METHOD", "6": "IP6_AUTODETECTION_METHOD"}
"""The settings that choose an address, by family."""
_FAMILIES: Final = {
    "4": re.compile(r"[\d.]{7,15}"),
    "6": re.compile(r"[\da-f.]{0,15}:[\da-f:.]{1,45}"),
}
_INSTALLATION: Final = "Installation"
"""The kind of Tigera's operator."""
_TAKEN: Final = re.compile(
    r"Calico node '([\w.-]{1,253})' is already using the IPv([46]) address "
    r"([\da-fA-F.:]{2,44}[\da-fA-F])"
)


def is_target(pod: Object) -> bool:
    """Return whether a pod is the target of a migration, which shares the port of its VM."""
    return bool(pod.labels.get(MIGRATION_JOB))


@cached
def ovn_controllers(cluster: Cluster) -> tuple[Object, ...]:
    """Return the pods of Kube-OVN's controller."""
    begin = f"{KUBE_OVN}-controller-"
    return tuple(pod for pod in cluster.known(POD) if pod.name.startswith(begin))


def lacks_ports(node: str, cluster: Cluster) -> bool:
    """Return whether Kube-OVN gives a pod of a node no port that is the target of no migration."""
    return bool(entry(cluster, _without_ports, node))


def _without_ports(cluster: Cluster) -> Mapping[str, bool]:
    said = (
        (pod, events.message(event)) for event, pod in recent_errors(cluster) if not is_target(pod)
    )
    return {_node(pod): True for pod, text in said if waits_for_migration(text, cluster)}


def waits_for_migration(said: str, cluster: Cluster) -> str:
    """Return that a target pod has no network since Kube-OVN prepares its port later in the
    migration; empty: it has.

    ``said``: what its kubelet says.
    """
    plugin, port = NAMED.search(said), _NO_PORT.search(said)
    if plugin is None or plugin[1] != KUBE_OVN or port is None:
        return ""
    arguments = (
        each.text or ""
        for pod in ovn_controllers(cluster)
        for box in pod.at("spec", "containers").items()
        for each in box["args"].items()
    )
    return "" if any(OFF in each for each in arguments) else f"its ovs interface {port[1]}"


def served(node: str, since: datetime | None, cluster: Cluster) -> Object | None:
    """Return the pod of a VM that was created on a node after a time, and got its network there;
    None: none is known.
    """
    for pod in entry(cluster, _ready_pods, node) or ():
        created = clock.instant(pod.created)
        if is_launcher(pod) and since is not None and created is not None and created >= since:
            return pod
    return None
