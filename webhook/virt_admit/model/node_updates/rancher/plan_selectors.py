"""Plans of the system-upgrade-controller that select no node, because they ask for another value of
a role's label than the nodes have.

RKE2 and k3s write ``node-role.kubernetes.io/control-plane: "true"``, kubeadm and Cluster API write
the empty value. A Plan without a node is Complete at once: no Job is made, and nothing reports an
error. The Plan of the agents waits in ``prepare`` until each server has the new version. Sources:
rancher/system-upgrade-controller:pkg/upgrade/handle_upgrade.go#handlePlans,
:pkg/upgrade/plan/plan.go#SelectConcurrentNodes;
rancher/rke2-upgrade:scripts/upgrade.sh#verify_masters_versions.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes import selectors
from virt_admit.model.kubernetes.cluster import Cluster, cached, unlisted
from virt_admit.model.kubernetes.kinds import NODE, PLAN
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubernetes.selectors import Requirement, Selector
from virt_admit.model.kubernetes.units import show
from virt_admit.model.lookups import grouped
from virt_admit.model.messages import names
from virt_admit.model.node_updates import update_orders
from virt_admit.model.node_updates.update_orders import StandingOrder

READS: Final[Reads] = {PLAN: (), NODE: ("metadata.labels", "status.nodeInfo.kubeletVersion")}
_ROLE: Final = "node-role.kubernetes.io/"
"""Labels of which only the presence has a meaning, with one of two values."""
_RELEASE: Final = re.compile(r"v(\d{1,6})\.(\d{1,6})\.(\d{1,6})(?:[+-](?:rke2r|k3s)(\d{1,6}))?")
_VALUES: Final = frozenset(("", "true"))


def selects_none(plan: Object, cluster: Cluster) -> StandingOrder | None:
    """Return that a Plan selects no node for the value of a role's label; None: it selects some,
    the nodes have its version, or it cannot be determined.
    """
    begun, chosen = any(plan.at("status", "applying").items()), plan.at("spec", "nodeSelector")
    if not chosen.is_map or begun or unlisted(cluster, NODE):
        return None
    own, wanted = selectors.parse_custom(chosen.value), plan.at("status", "latestVersion").text
    found = _missing(cluster)(own, wanted or "")
    return _order(plan, *found) if found is not None else None


_Finder = Callable[[Selector, str], tuple[Requirement, Sequence[Object]] | None]


@cached
def _missing(cluster: Cluster) -> _Finder:
    """Return what finds the nodes older than a version that a selector misses for the value of a
    role's label, with that; None: it selects a node, or misses none. Many Plans have the same one.
    """
    every = cluster.known(NODE)

    @functools.cache
    def missed(own: Selector) -> Sequence[tuple[Requirement, Mapping[str, Sequence[Object]]]]:
        roles = sorted(filter(_is_role, own.requirements))
        if not roles or any(own.matches(node.labels) for node in every):
            return ()
        return [(asked, grouped(_missed(asked, own, every), _version)) for asked in roles]

    @functools.cache
    def older(own: Selector, wanted: str) -> tuple[Requirement, Sequence[Object]] | None:
        for asked, found in missed(own):
            if old := [node for has in found if _is_older(has, wanted) for node in found[has]]:
                return asked, sorted(old, key=_name)
        return None

    return older


def _missed(asked: Requirement, own: Selector, every: Sequence[Object]) -> Iterator[Object]:
    """Yield the nodes that have the role, and the other value of its label than is asked for."""
    rest = replace(own, requirements=own.requirements - {asked})
    for node in every:
        if node.labels.get(asked.key) in _VALUES - asked.values and rest.matches(node.labels):
            yield node


def _is_role(asked: Requirement) -> bool:
    is_asked = asked.key.startswith(_ROLE) and asked.operator == selectors.IN
    return is_asked and asked.values <= _VALUES


def _is_older(version: str, wanted: str) -> bool:
    """Return whether a version is certainly older than the one that a Plan installs: a newer node
    would be put back.
    """
    has, asked = _RELEASE.fullmatch(version), _RELEASE.fullmatch(wanted)
    return has is not None and asked is not None and _order_of(has) < _order_of(asked)


def _version(node: Object) -> str:
    return node.at("status", "nodeInfo", "kubeletVersion").text or ""


def _name(node: Object) -> str:
    return node.name


def _order_of(release: re.Match[str]) -> tuple[int, ...]:
    return tuple(int(each or 0) for each in release.groups())


def _order(plan: Object, asked: Requirement, old: Sequence[Object]) -> StandingOrder:
    title = update_orders.title(plan)
    which = names([node.name for node in old], 120)
    has = old[0].labels.get(asked.key, "")
    wanted = ", ".join(show(each) for each in sorted(asked.values))
    many, version = len(old) > 1, _version(old[0])
    reason = (
        f"{title} selects no node: it asks for {asked.key} In [{wanted}], and {which} "
        f"{'have' if many else 'has'} {show(has)} there. So it makes no Job, and "
        f"{'they stay' if many else f'{old[0].name} stays'} at {version}"
    )
    remedy = typed(
        f"Ask for {asked.key} with operator Exists in spec.nodeSelector of {title}",
        about("edit", plan, PLAN),
    )
    return StandingOrder(plan, reason, remedy, True)
