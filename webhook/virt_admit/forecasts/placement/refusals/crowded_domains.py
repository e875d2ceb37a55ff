"""Why topology spread constraints refuse nodes that have room: how many pods they count in
each domain, and which emptier domain takes none although it counts.

A cordoned node counts unless the constraint says ``nodeTaintsPolicy: Honor``. Sources:
kubernetes/kubernetes:pkg/scheduler/framework/plugins/podtopologyspread/filtering.go,
common.go#matchNodeInclusionPolicies; issue kubernetes/kubernetes#106127; KEP 3094.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from virt_admit.forecasts.placement import candidates
from virt_admit.forecasts.placement.candidates import SchedulingTarget
from virt_admit.model.commands import typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.messages import count, names
from virt_admit.model.problems import Problem
from virt_admit.model.scheduler.node_labels import counts_for_spread
from virt_admit.model.scheduler.pods import Spread
from virt_admit.model.scheduler.snapshot import Node
from virt_admit.model.scheduler.topology_spread import SPREAD, SpreadDomains, spread_domains


def of(target: SchedulingTarget, refusals: Mapping[str, str], cluster: Cluster) -> Problem | None:
    """Return which closed nodes are the emptiest, after a colon, and that the constraints may leave
    them out; None: that opens no node.
    """
    found = _first(target, refusals, cluster)
    if found is None or not _opens(target, refusals, cluster):
        return None
    keys = names(dict.fromkeys(each.topology_key for each in target.pod.spread))
    way = f"set nodeTaintsPolicy: Honor in its topology spread over {keys} and restart the VM"
    return Problem(f": {_counted(*found, f'on {found[1]}', cluster)}", way)


def completed(
    found: Problem, target: SchedulingTarget, refusals: Mapping[str, str], cluster: Cluster
) -> Problem:
    """Return that nodes are closed, with what their being empty means for the others."""
    first = _first(target, refusals, cluster)
    if first is None:
        return found
    constraint = first[0].constraint
    refused = f"{first[1]} is refused by {SPREAD}{constraint.topology_key}"
    counted = _counted(*first, "there", cluster)
    why = f"{found.reason}; {refused} (maxSkew {constraint.max_skew}): {counted}"
    found = found._replace(reason=why)
    if not _opens(target, refusals, cluster):
        return found
    way = "set nodeTaintsPolicy: Honor in that constraint of the VM and restart it"
    return found._replace(remedy=typed(found.remedy, found.command, f"or {way}"), command="")


def _counted(
    domains: SpreadDomains, refused: str, emptiest: list[str], there: str, cluster: Cluster
) -> str:
    """Return how many pods are on a refused node (``there``) and on the emptiest closed ones."""
    nodes = candidates.scheduler(cluster).state.nodes
    number = domains.counts.get(nodes[refused].labels[domains.constraint.topology_key], 0)
    verb = "counts" if len(emptiest) == 1 else "count"
    cordoned = all(nodes[each].cordoned for each in emptiest)
    where = f"{'cordoned ' * cordoned}{names(emptiest)}"
    return (
        f"{count(number, 'matching pod')} {there}, {domains.least} on {where}, which {verb}"
        f"{'' if cordoned else ' when cordoned too'}"
    )


def _first(
    target: SchedulingTarget, refusals: Mapping[str, str], cluster: Cluster
) -> tuple[SpreadDomains, str, list[str]] | None:
    """Return the first constraint that alone refuses a node, that node, and the closed nodes in
    the emptiest domains; None: there is none.

    Cordoned nodes are closed, and the node of the VM, which a drain cordons.
    """
    pod, here = target.pod, target.placement.without
    if not pod.spread:
        return None
    scheduler = candidates.scheduler(cluster)
    nodes = scheduler.state.nodes
    closed = {node.name for node in nodes.values() if node.cordoned or node.name == here}
    for domains in scheduler.spread(pod, target.gone):
        key = domains.constraint.topology_key
        refused = sorted(each for each, why in refusals.items() if why == SPREAD + key)
        refused = [each for each in refused if key in nodes[each].labels]
        open_domains = {node.labels.get(key) for node in nodes.values() if node.name not in closed}
        emptiest = sorted(
            name
            for name in closed
            if (value := nodes[name].labels.get(key, "")) not in open_domains
            and domains.counts.get(value) == domains.least
        )
        if refused and emptiest and not domains.constraint.honor_taints:
            return domains, refused[0], emptiest
    return None


def _opens(target: SchedulingTarget, refusals: Mapping[str, str], cluster: Cluster) -> bool:
    """Return whether a node takes the pod if its constraints leave closed nodes out."""
    pod, gone = target.pod, frozenset(map(id, target.gone))
    state = candidates.scheduler(cluster).state

    def counts(node: Node, constraint: Spread) -> bool:
        cordoned = node.cordoned or node.name == target.placement.without
        return counts_for_spread(pod, replace(node, cordoned=cordoned), constraint)

    honoring = (replace(each, honor_taints=True) for each in pod.spread)
    spread = [spread_domains(pod, each, state, counts, gone) for each in honoring]
    return any(
        all(cause.startswith(SPREAD) for cause in why.split("; "))
        and not any(domains.refuses(state.nodes[name].labels) for domains in spread)
        for name, why in refusals.items()
    )
