"""What objects around the stops of an upgrade report as wrong, beside its verdict."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.upgrade.rehearsal import Rehearsal
from virt_admit.model.evidence import reported
from virt_admit.model.evidence.reported import WholeCluster
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.remediation import bare_metal
from virt_admit.reports import platform_objects
from virt_admit.reports.drain import surroundings


def with_reported(result: Rehearsal, cluster: WholeCluster) -> Rehearsal:
    """Return a rehearsal with what the objects that its stops name, and those around them, report.

    Where nothing stops it, what the platform reports counts: it may be what the rehearsal does not
    know.
    """
    stops = tuple(text for stop in result.stops for text in (stop.reason, stop.remedy))
    stuck = (each for each in result.operators if not each.is_step)
    held = tuple(text for operator in stuck for text in (operator.reason, operator.remedy))
    said = (*stops, *held)
    drains = tuple(_of_drains(said, cluster))
    back = bare_metal.serviced_machines(cluster)
    named = reported.around_named(cluster, said, drains, back) if said else ()
    refused = () if result.refused is None else tuple(each.reason for each in result.refused.by)
    texts = (each.text for each in named)
    told = (*said, *texts, *refused, result.before_nodes, *result.conditions)
    platform = () if stops else platform_objects.reporting(cluster, told)
    every = dict.fromkeys((*named, *platform))
    return replace(result, reported=tuple(every)[: max(reported.MOST, len(named))])


def _of_drains(said: Collection[str], cluster: WholeCluster) -> Iterator[str]:
    """Yield what ``drain`` says of the cordoned nodes in texts, if each of them becomes empty.

    What drains such a node reports each round that ends before its VMs have left.
    """
    for node in cluster.known(NODE):
        if node.at("spec", "unschedulable").boolean and any(node.name in text for text in said):
            plan = drain_plan.node_plan(node.name, cluster)
            yield from surroundings.said(plan) if plan.drainable else ()
