"""Migrations that fail on one node, as virt-handler there keeps the network state of an earlier
target pod of the VM.

The state is kept by the uid of the VMI, in memory and in a folder of the node. A new target pod
that meets a finished one is not prepared, and virt-launcher lacks the file of its interface.
Nothing clears the state while the VM runs elsewhere. Sources:
kubevirt/kubevirt:pkg/network/setup/netconf.go#Setup; issue kubevirt/kubevirt#18087 (fix: #18103).
"""

from __future__ import annotations

import re
from typing import Final

from virt_admit.forecasts.placement import candidates, virt_handlers
from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem, ProblemCause

READS: Final[Reads] = union(
    candidates.READS, virt_handlers.READS, {VMI: ("metadata.uid", "status.nodeName")}
)
_LACKS: Final = re.compile(r"plugging phase2\b.*\bvif-cache-[\w-]+\.json: no such file", re.DOTALL)
_FIXED: Final = (1, 9)
_LAST_WITHOUT: Final = {(1, 6): 6, (1, 7): 4, (1, 8): 4}
"""The last releases of older branches before the fix came there in July 2026."""


def problem(vmi: Object, failure: str, node: str, cluster: Cluster) -> Problem | None:
    """Return that no migration of a VMI to a node succeeds, and what ends that; None: it failed for
    another reason.

    ``failure``: the words of a migration that failed. ``node``: where it went.
    """
    uid = vmi.metadata["uid"].text
    if not node or not uid or not _LACKS.search(failure):
        return None
    if node == vmi.at("status", "nodeName").text:
        return None  # the folder is of the guest that runs there
    handler = virt_handlers.pod(cluster, node)
    agent = f"pod {handler.full_name}" if handler is not None else "virt-handler there"
    folder = f"/var/run/kubevirt-private/{uid}"
    reason = (
        f"virt-handler on {node} keeps the network state of an earlier target pod ({folder}), so "
        f"it prepares no new one there: {failure}"
    )
    others = candidates.target(vmi, cluster, moves=True).placement.candidates
    open_nodes = sorted({*others} - {node})
    clear = f"on {node} remove the folder {folder} and restart {agent}"
    command = shell("kubectl", "cordon", argument(node)) if open_nodes else ""
    if open_nodes:
        there = f"{names(open_nodes, 60)} could take it"
        clear = f"cordon {node} until the VM has left its node ({there}); or {clear}"
    remedy = typed(f"{clear}{_update(cluster)}", command)
    return Problem(reason, remedy, ProblemCause.MIGRATION_FAILS, command=command)


def _update(cluster: Cluster) -> str:
    """Return which releases clear that state themselves; empty: the running one does, or it is not
    known."""
    release = versions.kubevirt_version(cluster)
    if release is None or release[:2] >= _FIXED:
        return ""
    last = _LAST_WITHOUT.get(release[:2])
    if last is not None and release[2] > last:
        return ""
    minor = f"{release[0]}.{release[1]}"
    branch = f", or to a release of {minor} after {minor}.{last}" if last else ""
    return f"; later update KubeVirt to 1.9 or later{branch}, which clears it"
