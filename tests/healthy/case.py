"""One healthy cluster and what has to be said about it."""

import dataclasses
from collections.abc import Iterable, Mapping

from .parts import Object

YES = frozenset({True})
UNKNOWN = frozenset({None})

NO_CHECK = frozenset({"node-without-health-check"})
COVERED: frozenset[str] = frozenset()
# KubeVirt never updates the launchers of VMs that cannot migrate, so the rule that says so is
# right.
NEVER_UPDATED = frozenset({"workload-update-live-migrate-only"})

Verdicts = frozenset[bool | None]


@dataclasses.dataclass(frozen=True)
class Healthy:
    """A cluster without a fault, written from upstream sources.

    Attributes:
        source: where upstream decides the expected answer.
        nodes: for each node the answers of `drain` that are right.
        vms: for each VM the outcome of a drain of its node.
        upgrade: the right answers of `upgrade`.
        outage: a node and the right answers of `outage` for it, where upstream decides them.
        findings: the rules that warn, because what they say is true of this cluster.
        wider: whether two nodes may be updated at once: neither etcd nor a storage operator would
            stop working.
    """

    name: str
    source: str
    snapshot: Object
    nodes: Mapping[str, Verdicts]
    vms: Mapping[str, str]
    upgrade: Verdicts = YES
    outage: tuple[str, Verdicts] | None = None
    findings: frozenset[str] = NO_CHECK
    wider: bool = False


def all_yes(names: Iterable[str]) -> dict[str, Verdicts]:
    return dict.fromkeys(names, YES)
