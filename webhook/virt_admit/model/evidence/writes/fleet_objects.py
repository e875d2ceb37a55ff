"""Objects that Fleet applies from a chart: a change by hand makes its bundle Modified,
and is lost with the next sync.

Source: rancher/fleet:internal/cmd/agent/deployer/desiredset/plan.go#GetSetID (the bundle is part of
the mark of its objects); rancher/rancher:pkg/controllers/provisioningv2/managedchart (the bundle of
a ManagedChart begins with ``mcc-``).
"""

from __future__ import annotations

import re
from typing import Final

from virt_admit.model.commands import kubectl
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.kinds import KUBEVIRT, MANAGED_CHART
from virt_admit.model.kubernetes.objects import Object

MARK: Final = "objectset.rio.cattle.io/id"
"""The annotation of an object that Fleet applies, with its bundle."""
_OF_CHART: Final = re.compile(r"(?:^|-)mcc-([a-z0-9.-]{1,253})-cattle-fleet-[a-z0-9-]{1,63}$")
HARVESTER: Final = "harvester"
"""The ManagedChart of Harvester, which writes KubeVirt
(harvester/harvester:package/upgrade/upgrade_manifests.sh#upgrade_managedchart_harvester).
"""
LOCAL: Final = "fleet-local"
"""The namespace of the charts and bundles of the cluster in which Rancher itself runs."""


def chart_of(obj: Object) -> str:
    """Return the ManagedChart whose values decide what an object is; empty: none does."""
    mark = obj.annotations.get(MARK, "")
    if not mark and kinds.of(obj) is KUBEVIRT and obj.namespace == f"{HARVESTER}-system":
        return HARVESTER
    found = _OF_CHART.search(mark)
    return found[1] if found else ""


def edit(chart: str) -> str:
    """Return the command that edits a ManagedChart."""
    return kubectl("edit", MANAGED_CHART, chart, LOCAL)
