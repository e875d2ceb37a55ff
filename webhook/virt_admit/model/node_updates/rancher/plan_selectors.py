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

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes import selectors
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import NODE, PLAN
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubernetes.selectors import Requirement, Selector
from virt_admit.model.kubernetes.units import show
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
    begun = any(plan.at("status", "applying").items())
    if plan.at("spec", "nodeSelector").is_map and not begun and not unlisted(cluster, NODE):
        own = selectors.parse_custom(plan.at("spec", "nodeSelector").value)
        every = cluster.known(NODE)
        if not any(own.matches(node.labels) for node in every):
            return next(_misses(plan, own, every), None)
    return None


def _misses(plan: Object, own: Selector, every: Sequence[Object]) -> Iterator[StandingOrder]:
    for asked in own.requirements:
        rest = replace(own, requirements=own.requirements - {asked})
        missed = [node for node in every if _has_other(asked, node) and rest.matches(node.labels)]
        old = [node for node in missed if _is_older(plan, node)]
        if old:
            yield _order(plan, asked, old)


def _has_other(asked: Requirement, node: Object) -> bool:
    """Return whether a node has a role, and the other value of its label than is asked for."""
    role = asked.key.startswith(_ROLE) and asked.operator == selectors.IN
    return role and asked.values <= _VALUES and node.labels.get(asked.key) in _VALUES - asked.values


def _is_older(plan: Object, node: Object) -> bool:
    """Return whether a node has certainly an older version than a Plan installs: one of a newer
    node would be put back.
    """
    wanted = _RELEASE.fullmatch(plan.at("status", "latestVersion").text or "")
    has = _RELEASE.fullmatch(node.at("status", "nodeInfo", "kubeletVersion").text or "")
    return wanted is not None and has is not None and _order_of(has) < _order_of(wanted)


def _order_of(release: re.Match[str]) -> tuple[int, ...]:
    return tuple(int(each or 0) for each in release.groups())


def _order(plan: Object, asked: Requirement, old: Sequence[Object]) -> StandingOrder:
    title = update_orders.title(plan)
    which = names([node.name for node in old], 120)
    has = old[0].labels.get(asked.key, "")
    wanted = ", ".join(show(each) for each in sorted(asked.values))
    many, version = len(old) > 1, old[0].at("status", "nodeInfo", "kubeletVersion").text
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
