"""What Longhorn itself reports of a node on which it cannot attach or mount a volume.

Its manager checks each node and writes conditions into its own Node. Sources:
longhorn/longhorn-manager: k8s/pkg/apis/longhorn/v1beta2/node.go,
:controller/monitor/environment_check_monitor.go; issues longhorn/longhorn#1210.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import LONGHORN_NODE, LONGHORN_VOLUME
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads
from virt_admit.model.lookups import find_named
from virt_admit.model.messages import cut_middle
from virt_admit.model.problems import Problem

DRIVER: Final = "driver.longhorn.io"
READS: Final[Reads] = {
    LONGHORN_NODE: (*CONDITIONS, "status.conditions.message", "status.conditions.reason"),
    LONGHORN_VOLUME: ("status.currentNodeID", "status.robustness", "status.state"),
}
_LONGEST: Final = 100


class _Check(NamedTuple):
    words: tuple[str, ...]
    """What an error says if this is its cause; empty: any error may come from it."""
    remedy: str
    says: bool = True
    """Whether its message says more than its reason."""


_CHECKS: Final[dict[str, _Check]] = {
    "Ready": _Check((), "repair Longhorn's manager on {}"),
    "MountPropagation": _Check((), "switch on mount propagation for the container runtime of {}"),
    "Multipathd": _Check(
        ("busy", "mounted", "multipath", "in use", "exclusive"),
        "exclude Longhorn's devices in /etc/multipath.conf of {}, or stop multipathd there; the "
        "kubelet then tries again",
        says=False,
    ),
    "NFSClientInstalled": _Check(("nfs", "mount.nfs"), "install an NFS client for version 4 on {}"),
    "RequiredPackages": _Check(
        ("iscsi", "nfs", "cryptsetup", "dmsetup", "not found", "no such file", "executable"),
        "install the packages that are missing on {}",
    ),
    "KernelModulesLoaded": _Check(
        ("module", "crypt", "luks", "dm_", "iscsi"),
        "load the kernel modules that are missing on {}",
    ),
    "HugePagesAvailable": _Check(
        ("huge", "spdk", "instance-manager"), "give {} the huge pages that Longhorn's engine needs"
    ),
}
"""The conditions that are True on a healthy node, those first that any error may come from."""


def report(node: str, error: str, cluster: Cluster) -> Problem | None:
    """Return which condition of a node explains an error, as ``Longhorn reports of w2: Multipathd
    False (MultipathdIsRunning)``; None: it reports none that does.

    Longhorn reports multipathd also where its devices are excluded, and packages that few volumes
    need.
    """
    own = find_named(cluster, LONGHORN_NODE, node)
    for kind, check in _CHECKS.items() if own is not None else ():
        found = own.condition(kind)  # type: ignore[union-attr]
        fits = not check.words or any(word in error.lower() for word in check.words)
        if found["status"].text != "False" or not fits:
            continue
        said = (
            cut_middle(found["message"].text or "", _LONGEST)
            if check.says or not found["reason"].text
            else ""
        )
        why = ": ".join(filter(None, (found["reason"].text, said)))
        remedy = typed(check.remedy.format(node), about("describe", own, LONGHORN_NODE))  # type: ignore[arg-type]
        return Problem(
            f"Longhorn reports of {node}: {kind} False{f' ({why})' if why else ''}", remedy
        )
    return None


def is_whole(volume: str, node: str, cluster: Cluster) -> bool:
    """Return whether a volume of Longhorn is attached to a node and has its data: it is not what
    keeps a mount from working.
    """
    found = find_named(cluster, LONGHORN_VOLUME, volume)
    if found is None:
        return False
    status = found["status"]
    whole = status["robustness"].text in ("healthy", "degraded")
    return (
        whole
        and status["state"].text == "attached"
        and status["currentNodeID"].text in (None, "", node)
    )
