"""Nodes that the controller of a CSI driver does not know: it attaches no volume there.

Many drivers keep an object for each node, which its pod there creates when it starts. CSINode lists
the driver even where that failed. Sources:
container-storage-interface/spec:spec.md#controllerpublishvolume-errors (NOT_FOUND);
NetApp/trident:frontend/csi/node_server.go#nodeRegisterWithController, issues NetApp/trident#811,
#328.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from virt_admit.forecasts.placement.components import broken_pods, node_pods
from virt_admit.model.commands import kubectl, typed
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, Snapshot
from virt_admit.model.kubernetes.kinds import BUILT_IN_GROUPS, CSI_NODE, NODE, POD, Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut_middle, names
from virt_admit.model.problems import Problem

_WORDS: Final = re.compile(r"[a-z0-9]+")
_GENERAL: Final = frozenset(
    (
        "com",
        "csi",
        "dev",
        "driver",
        "io",
        "k8s",
        "kubernetes",
        "local",
        "net",
        "node",
        "org",
        "storage",
        "x",
    )
)
"""Words of domains that do not tell whose a driver or an API group is."""
_CALL: Final = re.compile(r"^(?:rpc error: code = \w+ desc = )+")
_LONGEST: Final = 100
_UNKNOWN: Final = (
    r"(?i)\bnode \W?{node}\W? (?:was |is )?(?:not found|unknown|not registered|does not exist)"
)


def unknown(driver: str, node: str, error: str, cluster: Cluster) -> Problem | None:
    """Return that the controller of a driver does not know a node; None: nothing says so.

    ``driver D does not know w3 (its error) and attaches no volume there: no TridentNode w3 exists,
    as for w1``.
    """
    if not driver or not node or node not in error or find(cluster, NODE, "", node) is None:
        return None
    lacks = _lacks(driver, node, cluster)
    if not lacks and not re.search(_UNKNOWN.format(node=re.escape(node)), error):
        return None
    pod = node_pods.of_driver(driver, node_pods.of_node(node, cluster))
    broken = broken_pods.of_pod(pod, cluster) if pod is not None else None
    runs = (
        f", {broken.words}"
        if broken is not None
        else f", although pod {pod.name} of it runs there"
        if pod
        else ""
    )
    said = cut_middle(_CALL.sub("", error).rstrip(". "), _LONGEST)
    words = (
        f"driver {driver} does not know {node} ({said}), so no volume is attached "
        f"there{f': {lacks}' if lacks else ''}{runs}"
    )
    return Problem(
        words,
        broken.remedy if broken is not None else _remedy(pod, node, driver, certain=bool(lacks)),
    )


def _remedy(pod: Object | None, node: str, driver: str, *, certain: bool) -> str:
    if pod is None:
        words = f"see why the pod of driver {driver} on {node} does not register the node"
        return typed(words, kubectl("describe", CSI_NODE, node))
    if not certain:
        words = f"see whether pod {pod.name} registered {node} with the controller of the driver"
        return typed(words, node_pods.logs(pod))
    words = (
        f"delete pod {pod.name}, whose successor registers {node} when it starts; if it does not, "
        "see in its logs why it does not reach the controller of the driver"
    )
    return typed(words, kubectl("delete", POD, pod.name, pod.namespace))


def _lacks(driver: str, node: str, cluster: Cluster) -> str:
    """Return which object each other node of a driver has and this one lacks; empty: none."""
    registered = {
        each.name
        for each in cluster.known(CSI_NODE)
        if each.at("spec", "drivers").named(driver).present
    }
    others = sorted(registered - {node})
    if node not in registered or not others:
        return ""
    own = _own_words(driver)
    for (group, kind), named in cluster.cached(names_by_kind).items():
        if own & _own_words(group) and node not in named and named.issuperset(others):
            return f"no {kind} {node} exists, as one does for {names(others)}"
    return ""


def names_by_kind(cluster: Cluster) -> Mapping[tuple[str, str], frozenset[str]]:
    """Return the names of the objects of each kind that a driver may have and that is complete.

    Of a live cluster, what has read the kinds provides them.
    """
    found: dict[Kind, set[str]] = {}
    for obj in cluster if isinstance(cluster, Snapshot) else ():
        if obj.group not in BUILT_IN_GROUPS:
            kind = kinds.of(obj) or kinds.guess(obj.api_version, obj.kind)
            found.setdefault(kind, set()).add(obj.name)
    complete = (kind for kind in found if isinstance(cluster, Snapshot) and cluster.sees_all(kind))
    return {(kind.group, kind.kind): frozenset(found[kind]) for kind in sorted(complete)}


def _own_words(name: str) -> frozenset[str]:
    return frozenset(_WORDS.findall(name.lower())) - _GENERAL
