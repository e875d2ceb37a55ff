"""What objects around the stops of an upgrade report as wrong, beside its verdict."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from virt_admit.forecasts.upgrade.rehearsal import Rehearsal
from virt_admit.model.evidence import reported
from virt_admit.model.evidence.reported import WholeCluster

_UPDATERS: Final = re.compile(
    r"^(?!hypershift\.)(.*\.)?(openshift\.io|operators\.coreos\.com|cattle\.io|harvesterhci\.io|"
    r"cluster\.x-k8s\.io|kubevirt\.io)$"
)
"""The API groups of what updates nodes, KubeVirt and the operators of VMs. HyperShift reports on
hosted clusters, whose nodes are VMs of this one.
"""


def with_reported(result: Rehearsal, cluster: WholeCluster) -> Rehearsal:
    """Return a rehearsal with what the objects that its stops name, and those around them, report.

    Where nothing stops it, what updaters report counts: it may be what the rehearsal does not know.
    """
    stops = tuple(text for stop in result.stops for text in (stop.reason, stop.remedy))
    held = tuple(
        text for operator in result.operators for text in (operator.reason, operator.remedy)
    )
    said = (*stops, *held)
    named = reported.around_named(cluster, said) if said else ()
    refused = () if result.refused is None else tuple(each.reason for each in result.refused.by)
    told = (
        *said,
        *(each.text for each in named),
        *refused,
        result.before_nodes,
        *result.conditions,
    )
    updaters = () if stops else reported.of_cluster(cluster, told, _UPDATERS)
    every = dict.fromkeys((*named, *updaters))
    return replace(result, reported=tuple(every)[: max(reported.MOST, len(named))])
