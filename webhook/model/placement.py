"""Where a VMI may run (virtual-machine.md 6): the hosts that its spec names, and the nodes that could take it.

KubeVirt looks at none of this when it publishes ``LiveMigratable``. So a VMI with one possible node counts as
migratable, its migration target never schedules, and a drain of that node waits for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from webhook.model.objects import Field, Path
from webhook.model.scheduling import NAME_FIELD, parse_node_selector

HOSTNAME: Final = "kubernetes.io/hostname"

_NOTHING: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class Pin:
    """What ties a VMI spec to hosts by name: ``hosts`` is empty where the restrictions contradict each other."""

    hosts: frozenset[str]
    path: Path

    @property
    def tight(self) -> bool:
        """Whether at most one host is left: the VMI is *pinned*, it can migrate nowhere."""
        return len(self.hosts) <= 1


def pin(spec: Field, inherited: Mapping[str, str] = _NOTHING, source: Path | None = None) -> Pin | None:
    """What ties the VMI spec ``T`` to hosts by name, and where that is said; None if nothing does.

    ``inherited`` is the node selector of an instance type, which stands at ``source``; it counts where ``T`` itself
    has no such key. Preferred affinity, ``NotIn`` and ``Exists`` tie to nothing.
    """
    selector = spec["nodeSelector"]
    terms = spec.at("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
    named = _affinity_hosts(spec)
    host = selector.texts.get(HOSTNAME)
    path = selector.path
    if host is None and HOSTNAME in inherited:
        host, path = inherited[HOSTNAME], source or selector.path
    if host is None:
        return None if named is None else Pin(named, terms.path)
    return Pin(frozenset((host,)) if named is None else named & {host}, path)


def hosts(spec: Field, inherited: Mapping[str, str] = _NOTHING) -> frozenset[str] | None:
    """The hosts that the VMI spec ``T`` names as the only ones that may run it, or None if it names none."""
    found = pin(spec, inherited)
    return None if found is None else found.hosts


def _affinity_hosts(spec: Field) -> frozenset[str] | None:
    """The union over the alternatives, if each of them names hosts; a term without requirements is no alternative."""
    required = spec.at("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    if not required.is_map:
        return None
    terms = [term for term in parse_node_selector(required.value).terms if term.labels or term.fields]
    union: frozenset[str] = frozenset()
    for term in terms:
        choices = [values for key in (HOSTNAME, NAME_FIELD) if (values := term.allowed_values(key)) is not None]
        if not choices:
            return None
        union |= frozenset.intersection(*choices)
    return union if terms else None
