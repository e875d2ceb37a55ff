"""The VM that serves the files of a release to the Jobs of an upgrade of Harvester before 1.7.

Harvester makes it with the CPU model ``host-passthrough``. Jobs that prepare a node, and those
after its drain, start the VM if it does not run, and read from it. The Job before the drain only
waits until no VM is left on its node. Sources: harvester/harvester:package/upgrade/
upgrade_node.sh #wait_vms_out_or_shutdown #command_prepare #command_post_drain, :package/upgrade/
lib.sh#wait_repo (v1.4.2 to v1.6.1), :pkg/controller/master/upgrade/upgrade_repo.go#createVM.
"""

from __future__ import annotations

from typing import Final

from virt_admit.model.commands import kubectl, typed, virtctl
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import HARVESTER_UPGRADE, JOB
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.node_updates import harvester_upgrades
from virt_admit.model.node_updates.node_phases import Phase, PoolUpdate

READS: Final[Reads] = harvester_upgrades.READS
_BEGIN: Final = "upgrade-repo-"


def stopped(vmi: Object, cluster: Cluster) -> str:
    """Return how the VM with the files of an upgrade leaves its node, as a remedy; empty: it is
    another VM, or no upgrade is known to be under way.
    """
    if not vmi.name.startswith(_BEGIN):
        return ""
    space = vms.namespace_of(vmi)
    for upgrade, update in harvester_upgrades.going(cluster):
        own = (upgrade.namespace, f"{_BEGIN}{upgrade.name}") == (space, vmi.name)
        if own and upgrade.kind == HARVESTER_UPGRADE.kind:
            return _remedy(vmi, upgrade, update)
    return ""


def _remedy(vmi: Object, upgrade: Object, update: PoolUpdate) -> str:
    space, node = vms.namespace_of(vmi), vmi.at("status", "nodeName").text or ""
    whose = f"it holds the files of {upgrade.kind} {upgrade.name}"
    again = "the next Job that needs it starts it again"
    phases = {name: each.phase for name, each in update.nodes.items()}
    reading = Phase.UPDATING in phases.values() or harvester_upgrades.stage(upgrade)[0]
    if phases.get(node) is Phase.DRAINING and not reading:
        words = f"stop it: {whose}, no Job reads them while a node is drained, and {again}"
        return typed(words, virtctl("stop", vmi.name, space))
    jobs = f"{kubectl('get', JOB, '', space)} -l harvesterhci.io/upgrade={upgrade.name}"
    return typed(f"stop it once no Job of the upgrade runs: {whose}, and {again}", jobs)
