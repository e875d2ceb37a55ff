"""LINSTOR finds too few nodes for the replicas of a new volume, as its provisioner says.

Source: LINBIT/linstor-server:controller/src/main/java/com/linbit/linstor/core/apicallhandler/
controller/CtrlRscAutoPlaceApiCallHandler.java#failNotEnoughCandidates (sizes are in KiB).
"""

from __future__ import annotations

import re
from typing import Final

from virt_admit.model.commands import about
from virt_admit.model.kubernetes.kinds import STORAGE_CLASS
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.problems import Problem, ProblemCause
from virt_admit.model.scheduler.resources import MEMORY, show

_FEW: Final = re.compile(r"failed to autoplace resource: Message: 'Not enough available nodes'")
_POOL: Final = re.compile(r"storage pool named \[([^\]]{1,80})\]")
_SIZE: Final = re.compile(r"at least '(\d{1,15})' free space")
_COPIES: Final = re.compile(r"Replica count: (\d{1,3})\b")


def of(storage_class: Object, said: str) -> Problem | None:
    """Return which places LINSTOR does not find for a volume of this class; None: it does not say
    so.
    """
    if not _FEW.search(said):
        return None
    pool, size, copies = (each.search(said) for each in (_POOL, _SIZE, _COPIES))
    named = f"storage pool {pool[1]}" if pool else "a storage pool"
    free = f" with {show(MEMORY, int(size[1]) * 1024)} free" if size else ""
    many = f"{copies[1]} nodes" if copies else "as many nodes as it has replicas"
    reason = (
        f'LINSTOR says "Not enough available nodes": StorageClass {storage_class.name} needs '
        f"{many} that are online and have {named}{free}"
    )
    remedy = (
        f"free or add space in {named} on the nodes that are short (linstor storage-pool list), "
        "bring back nodes that are offline, or use a smaller volume or a class with fewer replicas"
    )
    return Problem(
        reason,
        remedy,
        ProblemCause.NOT_REPORTED,
        command=about("describe", storage_class, STORAGE_CLASS),
    )
