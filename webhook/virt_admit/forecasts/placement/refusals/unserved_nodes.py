"""Nodes that virt-handler does not offer for VMs: whether it is absent, does not answer, or works
and says so itself.

virt-handler labels its node as not schedulable while one of its device plugins is not registered
with the kubelet, and goes on with its heartbeat. A device that the host lacks does not do that: its
plugin registers, and reports it as not healthy. Sources:
kubevirt/kubevirt:pkg/virt-handler/heartbeat/heartbeat.go#do,
pkg/virt-handler/device-manager/{device_controller.go#Initialized,generic_device.go#Start}.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Final

from virt_admit.forecasts.placement import virt_handlers
from virt_admit.forecasts.placement.refusals import kubelet_roots, unreached_nodes
from virt_admit.forecasts.placement.refusals.kubelet_roots import OtherRoot
from virt_admit.model.commands import kubectl, typed
from virt_admit.model.kubernetes import clock, node_health
from virt_admit.model.kubernetes.cluster import Cluster, keep, unlisted
from virt_admit.model.kubernetes.kinds import KUBEVIRT, NODE, POD
from virt_admit.model.kubernetes.nodes import SCHEDULABLE, of_kubevirt
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.launcher import without_kvm
from virt_admit.model.kubevirt.launcher.launcher_pod import UNSERVED
from virt_admit.model.kubevirt.settings.versions import Version, kubevirt_version, parse_version
from virt_admit.model.lookups import find
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem, ProblemCause

READS: Final[Reads] = union(
    virt_handlers.READS,
    kubelet_roots.READS,
    unreached_nodes.READS,
    without_kvm.READS,
    {
        KUBEVIRT: ("status.observedKubeVirtVersion",),
        NODE: ("metadata.labels", "status.allocatable", "status.nodeInfo.kubeletVersion"),
        POD: ("status.conditions",),
    },
)

_PREFIX: Final = "devices.kubevirt.io/"
_DEVICES: Final = ("kvm", "tun", "vhost-net")
_SETTLES_WITHIN: Final = timedelta(minutes=5)
_SERVES_FIRST: Final = Version(0, 58)
"""The first release that serves a device plugin before it registers it: kubevirt/kubevirt#8451."""
_DIALS_AT_ONCE: Final = Version(1, 25)
"""The first kubelet that refuses other ones: kubernetes/kubernetes#112395."""


# --- device plugins -------------------------------------------------------------------------------


def is_unregistered(name: str, cluster: Cluster) -> bool:
    """Return whether the virt-handler of a node is known to work, and to say for longer than a
    start takes that its device plugins are not registered.
    """
    return keep(cluster, (is_unregistered, name), partial(_is_unregistered, name=name))


def _is_unregistered(cluster: Cluster, name: str) -> bool:
    node, handler = find(cluster, NODE, "", name), virt_handlers.pod(cluster, name)
    if node is None or handler is None or node.labels.get(SCHEDULABLE) != "false":
        return False
    ready = handler.condition("Ready")
    age = clock.since(ready["lastTransitionTime"].text, cluster)
    settled = ready["status"].text == "True" and age is not None and age > _SETTLES_WITHIN
    if not settled or node_health.silence(node, cluster):
        return False
    return virt_handlers.beats(cluster, name) and not virt_handlers.is_starting(cluster, name)


def unregistered(cluster: Cluster) -> tuple[str, ...]:
    """Return the nodes whose virt-handler works, and whose device plugins are not registered."""
    return tuple(sorted(node.name for node in cluster.known(NODE) if _asked(node, cluster)))


def _asked(node: Object, cluster: Cluster) -> bool:
    return node.labels.get(SCHEDULABLE) == "false" and is_unregistered(node.name, cluster)


def lacked(name: str, cluster: Cluster) -> str:
    """Return which devices of virt-handler a node does not offer, in words; empty: it offers all
    that each node has.
    """
    node = find(cluster, NODE, "", name)
    offered = node.at("status", "allocatable").map if node is not None else {}
    lacks = names(each for each in _DEVICES if str(offered.get(f"{_PREFIX}{each}", 0)) == "0")
    return f"{_PREFIX}{lacks}" if lacks else ""


def why(found: Sequence[str], cluster: Cluster) -> str:
    """Return what is wrong with nodes whose device plugins are not registered."""
    none, verb = lacked(found[0], cluster), "are" if len(found) > 1 else "is"
    root = _root(found, cluster)
    offers = f" and {'offer' if len(found) > 1 else 'offers'} no {none}" if none else ""
    which = "its device plugins are not registered" if none else "one of its device plugins is not"
    beats = "" if root else " and sends its heartbeat"
    with_whom = root.words if root else f"{'' if none else ' registered'} with the kubelet"
    return (
        f"{names(found)} {verb} labelled {SCHEDULABLE}=false{offers}, although virt-handler is "
        f"Ready there{beats}: {which}{with_whom}"
    )


def _root(found: Sequence[str], cluster: Cluster) -> OtherRoot | None:
    """Return the root directory of the kubelet of all these nodes if it is why none of their device
    plugins is registered."""
    if not lacked(found[0], cluster):
        return None
    roots = {kubelet_roots.of_node(name, cluster) for name in found}
    return roots.pop() if len(roots) == 1 else None


def versions(found: Sequence[str], cluster: Cluster) -> str:
    """Return the releases that meet on these nodes, in words; empty: not known, or not why."""
    if (root := _root(found, cluster)) is not None and root.certain:
        return ""
    kubelets, running = _kubelets(found, cluster), kubevirt_version(cluster)
    parts = [f"kubelet {names(kubelets)}"] if kubelets else []
    return " with ".join((*parts, *([f"KubeVirt v{running}"] if running else [])))


def is_everywhere(found: Sequence[str], cluster: Cluster) -> bool:
    """Return whether these are all nodes of KubeVirt, and several."""
    every = of_kubevirt(cluster) or ()
    return len(found) > 1 and {node.name for node in every} == set(found)


def remedy(found: Sequence[str], cluster: Cluster) -> str:
    """Return what registers the device plugins of nodes again, with a command."""
    if (root := _root(found, cluster)) is not None and root.certain:
        return root.remedy(found, cluster)
    logs = virt_handlers.logs(cluster, found[0])
    running = kubevirt_version(cluster)
    kubelets = [parse_version(each) for each in _kubelets(found, cluster)]
    dials = bool(kubelets) and all(each is not None and each >= _DIALS_AT_ONCE for each in kubelets)
    if running is not None and running < _SERVES_FIRST and dials:
        return typed(
            f"update KubeVirt v{running} to 0.58 or later: before, it registers its device plugins "
            "before it serves them, which kubelets since 1.25 refuse. Its log shows that",
            logs,
        )
    if root is not None:
        return typed(root.look, logs)
    return typed(
        "see in the log of virt-handler why its device plugins do not register (it looks for the "
        "socket of the kubelet in /var/lib/kubelet/device-plugins of the host)",
        logs,
    )


def _kubelets(found: Sequence[str], cluster: Cluster) -> list[str]:
    nodes = filter(None, (find(cluster, NODE, "", name) for name in found))
    versions_ = (node.at("status", "nodeInfo", "kubeletVersion").text or "" for node in nodes)
    return sorted(set(filter(None, versions_)))


# --- what keeps a pod off -------------------------------------------------------------------------


def problem(refusals: Mapping[str, str], begin: str, cluster: Cluster) -> Problem | None:
    """Return that nodes would take a pod once their device plugins are registered; None: none
    would.

    ``begin``: how the reason begins.
    """
    found = [
        name
        for name, causes in sorted(refusals.items())
        if virt_handlers.lacks_handler(causes) and is_unregistered(name, cluster)
    ]
    if not found:
        return _off(refusals, begin, cluster)
    others = dict.fromkeys(causes for name, causes in refusals.items() if name not in found)
    besides = f"; the other nodes: {names(others)}" if others else ""
    known = versions(found, cluster)
    reason = f"{begin}{why(found, cluster)}{f' ({known})' if known else ''}{besides}"
    return Problem(reason, remedy(found, cluster), ProblemCause.NO_TARGET)


def _off(refusals: Mapping[str, str], begin: str, cluster: Cluster) -> Problem | None:
    """Return that nodes would take a pod if virtualization were on there; None: none would."""
    if not (nodes := without_kvm.opened(refusals, cluster)):
        return None
    others = dict.fromkeys(causes for name, causes in refusals.items() if name not in nodes)
    besides = f"; the other nodes: {names(others)}" if others else ""
    also = any(without_kvm.hides_cpu(refusals[name]) for name in nodes)
    fits = ", and whether the CPU fits" if also else ""
    then = f"then restart virt-handler there, and see that the node offers {without_kvm.KVM}{fits}"
    look = kubectl("describe", NODE, nodes[0])
    remedy = typed(f"{without_kvm.way(nodes, cluster)}; {then}", look)
    return Problem(f"{begin}{without_kvm.words(nodes)}{besides}", remedy, ProblemCause.NO_TARGET)


def told(name: str, causes: str, cluster: Cluster) -> str:
    """Return why a node refuses a pod, with the state of virt-handler there as the first cause."""
    if without_kvm.is_off(name, cluster):
        return without_kvm.told(causes)
    each = causes.split("; ")
    state = _state(name, each, cluster) if UNSERVED in each else ""
    return "; ".join((state, *(one for one in each if one != UNSERVED))) if state else causes


def without_effects(causes: str) -> str:
    """Return the causes of ``told`` without what only follows from the state of virt-handler."""
    state, *others = causes.split("; ")
    if not state.startswith(_STATES):
        return causes
    if state != _UNREGISTERED and any(_PREFIX in cause for cause in others):
        return state
    return "; ".join((state, *(one for one in others if not virt_handlers.is_of_handler(one))))


_READY: Final = frozenset(("not Ready", "taint node.kubernetes.io/unreachable"))
"""How a node is refused that does not report."""
_UNINITIALIZED: Final = "/uninitialized"
"""The end of the taint of a new node that its controller has not initialized."""
_UNREGISTERED: Final = (
    f"virt-handler works there, but its device plugins are not registered ({SCHEDULABLE}=false)"
)


_ABSENT: Final = "KubeVirt does not run there"
_NO_POD: Final = "no pod of virt-handler runs there"
_STARTS: Final = "virt-handler starts there"
_SILENT: Final = "not Ready, so virt-handler does not work there"
_THERE: Final = "virt-handler there"
_STATES: Final = (_ABSENT, _NO_POD, _SILENT, _STARTS, _THERE, _UNREGISTERED)


def _state(name: str, causes: Sequence[str], cluster: Cluster) -> str:
    """Return why virt-handler does not offer a node; empty: not known."""
    if not _READY.isdisjoint(causes):
        return _SILENT
    if is_unregistered(name, cluster):
        return _UNREGISTERED
    if virt_handlers.is_starting(cluster, name):
        return _STARTS
    if fault := virt_handlers.problem(cluster, name):
        return fault.replace(f"{virt_handlers.BROKEN}{name}", _THERE, 1)
    node = find(cluster, NODE, "", name)
    if node is None or virt_handlers.pod(cluster, name) is not None:
        return ""
    taint = next((each for each in causes if each.endswith(_UNINITIALIZED)), "")
    gone = unreached_nodes.of_node(node, cluster)
    if gone is not None:
        return f"{_ABSENT}: {gone.why}"
    if SCHEDULABLE not in node.labels:
        return f"{_ABSENT}{f', as no pod goes there: {taint}' if taint else ''}"
    return "" if unlisted(cluster, POD) else _NO_POD
