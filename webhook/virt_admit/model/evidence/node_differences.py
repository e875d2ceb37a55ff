"""What one node has, or lacks, unlike all others of its role: often where a fault of a single node
comes from, such as a label that an operator has left, another kubelet, or a device that is missing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from virt_admit.model.evidence import status_errors
from virt_admit.model.kubernetes.cluster import Cluster, cached, unlisted
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.kubernetes.nodes import HOSTNAME, SCHEDULABLE, is_control_plane, is_of_moment
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.lookups import find, grouped
from virt_admit.model.messages import cut_middle, names

READS: Final[Reads] = {
    NODE: (
        *("metadata.annotations", "metadata.labels", "spec.taints"),
        *("status.allocatable", "status.nodeInfo"),
    )
}
MOST: Final = 8
"""Differences that are shown: with more, the node is one of another kind."""
_FEWEST: Final = 2
"""Other nodes of the role: one alone does not show what is usual."""
_LONGEST: Final = 63
"""Characters of a value, as in a label: a longer one is of one node, such as a list."""
_SYSTEM: Final = ("containerRuntimeVersion", "kernelVersion", "osImage", "kubeletVersion")
_SHOWN: Final = 80
_OF_PROCESSOR: Final = re.compile(
    r"(?:(?:cpu|host-model|machine|hyperv)[\w-]*\.node\.|scheduling\.node\.)kubevirt\.io/"
)
"""Labels by which KubeVirt tells processors apart: their consequences are said for each VM."""
_OF_MOMENT: Final = re.compile(rf"{re.escape(SCHEDULABLE)}|{re.escape(HOSTNAME)}|.*heartbeat.*")
_SECRET: Final = re.compile(r"(?i)passw|pwd|secret|token|credential|private|auth|api-?key")
_OWN: Final = re.compile(
    r"\d{4}-\d\d-\d\dT|\d+\.\d+\.\d+\.\d+|[0-9a-f]{12,}|[0-9a-f]{8}-[0-9a-f]{4}-|:[0-9a-f]*:"
)
"""In values that differ from node to node: times, addresses, hashes and UIDs."""


@dataclass(frozen=True, slots=True)
class NodeDifference:
    """One thing in which a node differs from all others of its role."""

    what: str
    """``label example.com/tier``"""
    own: str | None
    """The value of the node. None: it has none."""
    others: str | None
    """The value that all others have. None: they have none."""


def of(name: str, cluster: Cluster) -> tuple[NodeDifference, ...]:
    """Return in what a node differs from all other nodes of its role, which agree about it; empty:
    in nothing, in too much, there are too few others, or perhaps more than the known ones.

    The role is to run VMs, for others to be a part of the control plane or not.
    """
    node = find(cluster, NODE, "", name)
    if node is None or unlisted(cluster, NODE):
        return ()
    role = _role(node)
    others = [
        _facts(each) for each in cluster.known(NODE) if each.name != name and _role(each) == role
    ]
    if len(others) < _FEWEST:
        return ()
    found = tuple(_differences(_facts(node), others, name))
    return found if len(found) <= MOST else ()


class UnlikeNode(NamedTuple):
    """What the system of a node has unlike those of some other nodes."""

    node: str
    fields: Sequence[tuple[str, str, Sequence[str]]]
    """Each with the value of the node and those of the others."""
    alike: Sequence[str]
    """Other nodes of KubeVirt that have the same values as the node."""

    @property
    def words(self) -> str:
        """``w1 has osImage B (there A), like w2``."""
        what = ", ".join(
            f"{field} {own} (there {names(theirs, _SHOWN)})" for field, own, theirs in self.fields
        )
        also = f", like {names(self.alike, _SHOWN)}" if self.alike else ""
        return f"{self.node} has {what}{also}"


class System(NamedTuple):
    """What a node runs, by the fields of its ``nodeInfo``; empty: not reported."""

    runtime: str
    kernel: str
    image: str
    kubelet: str


def system(node: Object) -> System:
    """Return what a node runs."""
    info = node.at("status", "nodeInfo")
    return System(*(info[field].text or "" for field in _SYSTEM))


def unlike(node: Object, others: Collection[System], cluster: Cluster) -> UnlikeNode | None:
    """Return in what the system of a node differs from each of others; None: in nothing."""
    fields = {
        index: (field, own, sorted({each[index] for each in others}))
        for index, (field, own) in enumerate(zip(_SYSTEM, system(node), strict=True))
        if own and all(each[index] not in ("", own) for each in others)
    }
    if not fields or not others:
        return None
    alike = [
        name
        for each, found in _by_system(cluster).items()
        if all(each[index] == own for index, (_, own, _) in fields.items())
        for name in found
        if name != node.name
    ]
    return UnlikeNode(node.name, list(fields.values()), sorted(alike))


@cached
def _by_system(cluster: Cluster) -> Mapping[System, Sequence[str]]:
    """Return the nodes of KubeVirt by what they run."""
    found = [
        (system(node), node.name) for node in cluster.known(NODE) if SCHEDULABLE in node.labels
    ]
    by_system = grouped(found, lambda each: each[0])
    return {key: [name for _, name in each] for key, each in by_system.items()}


def _role(node: Object) -> tuple[bool, bool]:
    return SCHEDULABLE in node.labels, is_control_plane(node)


def _differences(
    own: Mapping[str, str], others: Sequence[Mapping[str, str]], name: str
) -> Iterator[NodeDifference]:
    first, itself = others[0], re.compile(rf"\b{re.escape(name)}\b")
    for what in sorted({*own, *first}):
        mine, theirs = own.get(what), first.get(what)
        if mine == theirs or any(each.get(what) != theirs for each in others):
            continue
        values = [each for each in (mine, theirs) if each is not None]
        if not any(_is_of_one(each) or itself.search(each) for each in values):
            yield NodeDifference(what, mine, theirs)


def _is_of_one(value: str) -> bool:
    """Return whether a value is one that each node has of its own."""
    return len(value) > _LONGEST or _OWN.search(value) is not None


def _facts(node: Object) -> Mapping[str, str]:
    """Return what is compared of a node."""
    found = {
        f"{kind} {key}": _value(key, value)
        for kind, texts in (("label", node.labels), ("annotation", node.annotations))
        for key, value in texts.items()
        if not (_OF_MOMENT.fullmatch(key) or _OF_PROCESSOR.match(key))
    }
    taints: dict[str, set[str]] = {}
    for taint in node.at("spec", "taints").items():
        key = taint["key"].text or ""
        if key and not is_of_moment(taint):
            said = taint["value"].text, taint["effect"].text
            taints.setdefault(key, set()).add(":".join(filter(None, said)))
    found |= {f"taint {key}": ", ".join(sorted(effects)) for key, effects in taints.items()}
    for key in _SYSTEM:
        if text := node.at("status", "nodeInfo", key).text:
            found[key] = cut_middle(status_errors.plain(text), _LONGEST)
    for key, amount in node.at("status", "allocatable").map.items():
        # a device; of processors and memory each node has its own amount
        if "/" in key and str(amount) != "0":
            found[f"device {key}"] = "some"
    return found


def _value(key: str, value: str) -> str:
    return "…" if _SECRET.search(key) else status_errors.plain(value[: _LONGEST + 1])
