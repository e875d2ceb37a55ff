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
from virt_admit.model.kubernetes.kinds import MANAGED_CHART
from virt_admit.model.kubernetes.objects import Object

MARK: Final = "objectset.rio.cattle.io/id"
"""The annotation of an object that Fleet applies, with its bundle."""
_OF_CHART: Final = re.compile(r"(?:^|-)mcc-([a-z0-9.-]{1,253})-cattle-fleet-[a-z0-9-]{1,63}$")
LOCAL: Final = "fleet-local"
"""The namespace of the charts and bundles of the cluster in which Rancher itself runs."""


def chart_of(obj: Object) -> str:
    """Return the ManagedChart whose values decide what an object is; empty: none does."""
    found = _OF_CHART.search(obj.annotations.get(MARK, ""))
    return found[1] if found else ""


def edit(chart: str) -> str:
    """Return the command that edits a ManagedChart."""
    return kubectl("edit", MANAGED_CHART, chart, LOCAL)
