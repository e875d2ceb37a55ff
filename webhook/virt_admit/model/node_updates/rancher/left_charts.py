"""Charts that an upgrade of Harvester made for its log, and that are left after it is deleted.

Harvester makes a ManagedChart with the operator of the log, without an owner, and removes it with
the UpgradeLog. Where that fails, the chart stays, and its webhook refuses each upgrade while it is
not Ready. Sources: harvester/harvester:pkg/controller/master/upgradelog/common.go#prepareOperator
(label, name), :pkg/controller/master/upgradelog/controller.go#cleanup,
:pkg/controller/master/upgrade/common.go#prepareUpgradeLog (the name), issues 7560 and 7654.
"""

from __future__ import annotations

from typing import Final

from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import HARVESTER_UPGRADE, MANAGED_CHART
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import NAME, Reads
from virt_admit.model.node_updates.update_orders import StandingOrder

_LOG: Final = "harvesterhci.io/upgradeLog"
_SUFFIX: Final = "-upgradelog"
READS: Final[Reads] = {MANAGED_CHART: (f"metadata.labels.{_LOG}",), HARVESTER_UPGRADE: NAME}


def upgrade_of(chart: Object, cluster: Cluster) -> str:
    """Return the name of the Upgrade that made a chart and certainly does not exist any more;
    empty: another made it, or it may exist.
    """
    log = chart.labels.get(_LOG, "")
    if not log.endswith(_SUFFIX) or unlisted(cluster, HARVESTER_UPGRADE):
        return ""
    name = log.removesuffix(_SUFFIX)
    return "" if any(name == each.name for each in cluster.known(HARVESTER_UPGRADE)) else name


def refusal(chart: Object, gone: str, *, certain: bool) -> StandingOrder:
    """Return that a chart which is left of an Upgrade refuses the next one.

    ``certain``: it is so for longer than Harvester needs to remove what it made.
    """
    left = (
        f"ManagedChart {chart.full_name} is left of Upgrade {gone}, which does not exist any more "
        f"(label {_LOG}: {chart.labels[_LOG]})"
    )
    remedy = typed(
        "Delete the chart, after which an upgrade can be started, best with logEnabled: false, "
        "which makes no such chart",
        about("delete", chart, MANAGED_CHART),
    )
    return StandingOrder(
        chart,
        f"Harvester refuses to start an upgrade while a chart is not ready: {left}",
        remedy,
        certain,
        f"it is left of Upgrade {gone}, which does not exist, and Harvester refuses to start an "
        "upgrade while it is not ready",
    )
