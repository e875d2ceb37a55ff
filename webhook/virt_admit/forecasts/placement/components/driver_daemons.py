"""Why the DaemonSet that registers a CSI driver has no pod on a node.

A pod that runs stays when its node is tainted (``NoSchedule``), and does not come back after the
next reboot. CSINode goes on listing the driver. Sources:
kubernetes/kubernetes:pkg/controller/daemon/daemon_controller.go#NodeShouldRunDaemonPod,
:pkg/controller/daemon/util/daemonset_util.go#AddOrUpdateDaemonPodTolerations;
rook/rook:pkg/operator/ceph/csi/spec.go (CSI_PLUGIN_TOLERATIONS, up to 1.18);
longhorn/longhorn-manager:types/setting.go#SettingNameTaintToleration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from virt_admit.forecasts.placement.components import node_pods
from virt_admit.model.commands import about, argument, json_patch, kubectl, shell, typed
from virt_admit.model.evidence import forbidden_pods
from virt_admit.model.kubernetes import nodes
from virt_admit.model.kubernetes.cluster import Cluster, cached, entry, unlisted
from virt_admit.model.kubernetes.json_patch import Patch
from virt_admit.model.kubernetes.kinds import (
    CSI_NODE,
    DAEMON_SET,
    HCO,
    KUBEVIRT,
    LONGHORN_SETTING,
    NODE,
    POD,
    Kind,
)
from virt_admit.model.kubernetes.objects import Field, Object, Path
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.settings import configuration, migration_limits, written_settings
from virt_admit.model.lookups import find
from virt_admit.model.messages import capital, names
from virt_admit.model.scheduler import controller_taints
from virt_admit.model.scheduler import pods as scheduled_pods
from virt_admit.model.scheduler.node_selectors import tolerates

READS: Final[Reads] = union(
    node_pods.READS,
    forbidden_pods.READS,
    {
        DAEMON_SET: (
            "metadata.ownerReferences",
            "spec.template.spec.affinity",
            "spec.template.spec.nodeSelector",
            "spec.template.spec.tolerations",
        ),
        NODE: ("metadata.labels", "spec.taints", "spec.unschedulable"),
        CSI_NODE: ("spec.drivers.name",),
        HCO: (),
        KUBEVIRT: (),
    },
)

NO_POD: Final = "no pod there: "
HANDLER: Final = "virt-handler"
"""KubeVirt's DaemonSet, which serves a node as a driver does."""
_OWN: Final = tuple(
    {"key": f"node.kubernetes.io/{what}", "operator": "Exists"}
    for what in (
        "disk-pressure",
        "memory-pressure",
        "network-unavailable",
        "not-ready",
        "pid-pressure",
        "unreachable",
        "unschedulable",
    )
)
"""The tolerations that each pod of a DaemonSet gets;
that of the network where it uses the network of the node.
"""
_BINDING: Final = frozenset(("NoSchedule", "NoExecute"))
_CONFIG_MAP: Final = Kind("", ("v1",), "configmaps", "ConfigMap")
_LONGHORN: Final = "driver.longhorn.io"
_CEPH: Final = ".csi.ceph.com"
_ROOK: Final = "rook-ceph-operator"
"""The Deployment of Rook's operator, which sets the tolerations of its DaemonSets again."""


class AbsentPod(NamedTuple):
    """A DaemonSet without a pod on a node."""

    why: str
    """``DaemonSet NAMESPACE/NAME does not tolerate taint dedicated=gpu:NoSchedule``."""
    remedy: str
    lasts: bool = True
    """Whether it certainly does not come by itself, as after an update of the DaemonSet."""
    daemon: Object | None = None
    """The DaemonSet, where a taint keeps its pod away."""
    for_ending: str = ""
    """The remedy where pods that end there wait for its pod; empty: the other one does."""
    refused: bool = False
    """Whether the API server refuses its pod, which nothing else keeps away."""

    @property
    def words(self) -> str:
        """Return ``no pod there: DaemonSet NAMESPACE/NAME does not tolerate …``."""
        return f"{NO_POD}{self.why}"


def absent(driver: str, node: str, cluster: Cluster) -> AbsentPod | None:
    """Return why the DaemonSet of a driver has no pod on a node; None: it has one,
    or that is not known.
    """
    if _has_pod(driver, node, cluster):
        return None
    daemon = of_driver(driver, cluster)
    return of_daemon(daemon, driver, node, cluster) if daemon is not None else None


def _has_pod(driver: str, node: str, cluster: Cluster) -> bool:
    """Return whether a node has a pod that may register a driver: one of its DaemonSet, which may
    serve several drivers, or another one that is not rather of another driver."""
    here, daemon = node_pods.of_node(node, cluster), entry(cluster, _of_drivers, driver)
    if daemon is not None and any(node_pods.daemon(pod) == daemon.name for pod in here):
        return True
    return any(True for _ in node_pods.may_register(driver, here, cluster.cached(_listed)))


def of_daemon(daemon: Object, driver: str, node: str, cluster: Cluster) -> AbsentPod | None:
    """Return why a DaemonSet of the software of a driver has no pod on a node; None:
    that cannot be determined.

    No pod of it is known there.
    """
    found = find(cluster, NODE, "", node)
    if found is None or unlisted(cluster, POD):
        return None
    begin = f"DaemonSet {daemon.full_name}"
    described = about("describe", daemon, DAEMON_SET)
    refusing = list(_untolerated(daemon, found))
    if taints := [each for each in refusing if not _goes_again(each, cluster)]:
        several = len(taints) > 1
        tolerate = f"let DaemonSet {daemon.full_name} tolerate {'them' if several else 'it'}"
        setting = _setting(driver, daemon, taints, cluster)
        instead = f" (or, as a decision, take the taint{'s' * several} off {node})"
        # nodes for VMs alone are tainted on purpose
        instead = "" if driver == HANDLER else instead
        remedy = typed(f"{tolerate}{setting.where}{instead}", setting.command)
        why = f"{begin} does not tolerate {_written(taints)}"
        evicts = any(each["effect"].text == "NoExecute" for each in taints)
        at_once = _untainted(found, taints) if driver == _LONGHORN and evicts else ""
        return AbsentPod(why, remedy, daemon=daemon, for_ending=at_once)
    if demands := list(_unmet(daemon, found)):
        setting = _setting(driver, daemon, (), cluster)
        where = setting.where if driver == HANDLER else ""
        remedy = typed(
            f"let it run on {node}: change what it demands{where}; or label the node",
            setting.command if where else described,
        )
        return AbsentPod(f"{begin} demands {names(demands, 200)}", remedy)
    if refusing:
        waits = typed("it comes back once what set that is over", described)
        return AbsentPod(f"{begin} does not tolerate {_written(refusing)}", waits, lasts=False)
    if (forbidden := forbidden_pods.of_maker(daemon, cluster)) is not None:
        level = forbidden_pods.level(daemon.namespace, forbidden, cluster)
        why = f"{begin} cannot create its pod, which {level}"
        return AbsentPod(why, forbidden_pods.remedy(daemon.namespace), refused=True)
    return AbsentPod(
        f"{begin} has none although {node} is one of its nodes",
        typed("see in its events why", described),
        lasts=False,
    )


@cached
def stale(cluster: Cluster) -> Mapping[str, Mapping[str, AbsentPod]]:
    """Return by node the drivers of its CSINode whose pod cannot come back:
    the entry is of the past.
    """
    found = {
        node: {driver: gone for driver, gone in each.items() if gone.lasts}
        for node, each in without_pod(cluster).items()
    }
    return {node: each for node, each in found.items() if each}


def also_at_risk(gone: AbsentPod, node: str, cluster: Cluster) -> list[str]:
    """Return the other nodes with a pod of a DaemonSet that would not come back because of a
    taint.
    """
    daemon = gone.daemon
    if daemon is None:
        return []
    return sorted(
        other.name
        for other in cluster.known(NODE)
        if other.name != node
        and any(not _goes_again(each, cluster) for each in _untolerated(daemon, other))
        and any(
            node_pods.daemon(pod) == daemon.name and pod.namespace == daemon.namespace
            for pod in node_pods.of_node(other.name, cluster)
        )
    )


def lost(node: Object, cluster: Cluster) -> Iterator[str]:
    """Yield which drivers a CSINode lists although the pod that registers them cannot come back to
    a node.
    """
    for driver, gone in stale(cluster).get(node.name, {}).items():
        yield (
            f"No volume of driver {driver} can be mounted on this node, although its CSINode still "
            f"lists the driver: {gone.words}. {capital(gone.remedy)}"
        )


@cached
def without_pod(cluster: Cluster) -> Mapping[str, Mapping[str, AbsentPod]]:
    """Return by node the drivers that its CSINode lists, but whose DaemonSet has no pod there.

    The kubelet forgets a driver with a reboot, its CSINode does not. A DaemonSet without any pod is
    left out, as its driver may be registered by something else.
    """
    found: dict[str, dict[str, AbsentPod]] = {}
    running = cluster.cached(_running)
    for own in () if unlisted(cluster, POD) else cluster.known(CSI_NODE):
        for driver in filter(
            None, (each["name"].text for each in own.at("spec", "drivers").items())
        ):
            daemon = entry(cluster, _of_drivers, driver)
            runs = daemon is not None and daemon.full_name in running
            if daemon is None or not runs or _has_pod(driver, own.name, cluster):
                continue
            if (why := of_daemon(daemon, driver, own.name, cluster)) is not None:
                found.setdefault(own.name, {})[driver] = why
    return found


def _of_drivers(cluster: Cluster) -> dict[str, Object]:
    """Return the DaemonSet of each driver that a CSINode lists."""
    listed = sorted(cluster.cached(_listed))
    pairs = ((driver, of_driver(driver, cluster)) for driver in listed)
    return {driver: daemon for driver, daemon in pairs if daemon is not None}


def _listed(cluster: Cluster) -> frozenset[str]:
    """Return the drivers that any CSINode lists."""
    return frozenset(
        name
        for own in cluster.known(CSI_NODE)
        for each in own.at("spec", "drivers").items()
        if (name := each["name"].text)
    )


def _running(cluster: Cluster) -> frozenset[str]:
    """Return the DaemonSets that have pods, so that those of all nodes would be known."""
    pods = ((pod, node_pods.daemon(pod)) for pod in cluster.known(POD))
    return frozenset(f"{pod.namespace}/{name}" for pod, name in pods if name)


def of_driver(driver: str, cluster: Cluster) -> Object | None:
    """Return the DaemonSet that most likely registers a CSI driver; None: none does."""
    return node_pods.most_likely(driver, ((each.name, each) for each in cluster.known(DAEMON_SET)))


def _untolerated(daemon: Object, node: Object) -> Iterator[Field]:
    given = daemon.at("spec", "template", "spec", "tolerations").value
    tolerations = [*(given if isinstance(given, list) else []), *_OWN]
    for taint in node.at("spec", "taints").items():
        if taint["effect"].text in _BINDING and not tolerates(tolerations, taint.value):
            yield taint


def _goes_again(taint: Field, cluster: Cluster) -> bool:
    """Return whether a controller or a drain set a taint.

    To take it off by hand would undo a fence.
    """
    key = taint["key"].text or ""
    return key == migration_limits.drain_taint(cluster) or bool(controller_taints.owner(key))


def _written(taints: Sequence[Field]) -> str:
    """Return taints as words, as ``taint dedicated=gpu:NoSchedule``."""
    return f"taint{'s' * (len(taints) > 1)} {names(map(nodes.written, taints), 120)}"


def _unmet(daemon: Object, node: Object) -> Iterator[str]:
    """Yield what a DaemonSet demands of its nodes that a node does not have."""
    own = daemon.at("spec", "template", "spec")
    spec = {key: own[key].value for key in ("affinity", "nodeSelector") if own[key].present}
    pod = scheduled_pods.read(Object({"metadata": {"namespace": daemon.namespace}, "spec": spec}))
    for key, value in pod.node_selector.items():
        if (has := node.labels.get(key)) != value:
            yield f"label {key}={value}{f' ({node.name} has {has})' if has else ''}"
    if pod.node_affinity is not None and not pod.node_affinity.matches(node.name, node.labels):
        yield "another node by its node affinity"


def _untainted(node: Object, taints: Sequence[Field]) -> str:
    """Return that taints are taken off a node whose volumes no pod of Longhorn can detach:
    its own setting waits for that. What the taints were set for need not be over.
    """
    name = argument(node.name)
    first = f", after a cordon ({shell('kubectl', 'cordon', name)})"
    first = "" if node.at("spec", "unschedulable").boolean else first
    these = (f"{nodes.written(each)}-" for each in taints)
    return typed(
        f"take the taint{'s' * (len(taints) > 1)} off {node.name}{first} (Longhorn's setting "
        "taint-toleration waits until all its volumes are detached), and next time drain first",
        shell("kubectl", "taint", "nodes", name, *these),
    )


class _Setting(NamedTuple):
    """Where the tolerations of a DaemonSet are set: the words after its name, and the command."""

    where: str
    command: str


def _setting(driver: str, daemon: Object, taints: Sequence[Field], cluster: Cluster) -> _Setting:
    """Return where the tolerations of a DaemonSet are set, so that no owner takes them back."""
    owner = daemon.controller
    kubevirt = configuration.known_or_none(configuration.kubevirt, cluster)
    if driver == HANDLER and kubevirt is not None:
        added = [nodes.toleration(each) for each in taints]
        command = written_settings.tolerating(kubevirt, added, cluster)
        return _Setting(f" by {written_settings.placement(kubevirt, cluster)}", command)
    if driver.endswith(_CEPH) and _is_of_rook(daemon, cluster):
        settings = kubectl("edit", _CONFIG_MAP, f"{_ROOK}-config", daemon.namespace)
        return _Setting(" by CSI_PLUGIN_TOLERATIONS of Rook's operator", settings)
    if driver == _LONGHORN:
        setting = "taint-toleration"
        applied = "which Longhorn applies once all its volumes are detached"
        command = kubectl("edit", LONGHORN_SETTING, setting, daemon.namespace)
        return _Setting(f" by Longhorn's setting {setting}, {applied}", command)
    if owner is not None:
        kind, name = owner["kind"].text or "", owner["name"].text or ""
        group = (owner["apiVersion"].text or "").rpartition("/")[0]
        which = f"{kind.lower()}.{group}" if group else kind.lower()
        edit = shell("kubectl", "edit", which, argument(name), "-n", daemon.namespace)
        return _Setting(f" in {kind} {name}, which owns it", edit)
    return _Setting(", also in its chart or operator", _tolerating(daemon, taints))


def wanted(daemon: Object, node: Object, cluster: Cluster) -> Sequence[dict[str, Any]]:
    """Return the tolerations that a DaemonSet lacks for a node,
    but for taints that go by themselves.
    """
    taints = _untolerated(daemon, node)
    return [nodes.toleration(each) for each in taints if not _goes_again(each, cluster)]


def _is_of_rook(daemon: Object, cluster: Cluster) -> bool:
    """Return whether the operator of Rook makes a DaemonSet: it owns it, or runs next to it."""
    owner = daemon.controller
    if owner is not None:
        return owner["name"].text == _ROOK
    return any(pod.name.startswith(f"{_ROOK}-") for pod in cluster.known(POD, daemon.namespace))


def _tolerating(daemon: Object, taints: Sequence[Field]) -> str:
    """Return the command that adds tolerations to a DaemonSet and leaves those that it has."""
    keys = [(each["key"].text, each["effect"].text) for each in taints]
    added = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in keys]
    path = Path("spec", "template", "spec", "tolerations")
    steps = [Patch("add", path, added)]
    if any(True for _ in daemon.at(*path).items()):
        steps = [Patch("add", path / "-", each) for each in added]
    return json_patch(DAEMON_SET, daemon.name, daemon.namespace, steps)
