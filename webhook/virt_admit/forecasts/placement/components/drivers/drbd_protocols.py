"""Volumes of LINSTOR that replicate by protocol A or B: DRBD lets two nodes have a volume at once,
as a migration needs, by protocol C alone.

Its CSI driver sets ``allow-two-primaries`` at the second attachment, which DRBD then refuses with
error 139, on each node and at each retry. Sources:
piraeusdatastore/linstor-csi:pkg/client/linstor.go#Attach, pull request #435 (not in 1.12.0);
LINBIT/linstor-proxmox#37; cozystack/cozystack#2496.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from virt_admit.forecasts.placement.components.drivers import class_parameters
from virt_admit.forecasts.placement.components.drivers.class_parameters import ClassParameter
from virt_admit.forecasts.placement.components.linstor import lost_quorums
from virt_admit.model.commands import argument, typed
from virt_admit.model.kubernetes.cluster import Cluster, cached
from virt_admit.model.kubernetes.kinds import PV, PVC, VOLUME_ATTACHMENT
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find, volume_of
from virt_admit.model.problems import Problem, ProblemCause

READS: Final[Reads] = union(
    class_parameters.READS,
    lost_quorums.READS,
    {
        PV: ("spec.csi.driver", "spec.csi.volumeHandle", "spec.storageClassName"),
        PVC: ("spec.volumeName",),
        VOLUME_ATTACHMENT: ("spec.source.persistentVolumeName", "status.attachError.message"),
    },
)
_REFUSED: Final = re.compile(r"\bProtocol C required\b")
_OTHERS: Final = ("A", "B")


class SecondNodeRefusal(NamedTuple):
    """Why DRBD does not let a second node have a volume, after ``cannot be attached``."""

    words: str
    remedy: str


def of(volume: str, error: str, cluster: Cluster) -> SecondNodeRefusal | None:
    """Return that DRBD refuses a second node by the protocol of a volume; None: the error is
    another one, or its class sets no such protocol.
    """
    found = find(cluster, PV, "", volume)
    parameter = _protocol(volume, cluster) if _REFUSED.search(error) else None
    if found is None or parameter is None:
        return None
    words = f"to a second node: {parameter.words}, and DRBD needs protocol C for that"
    return SecondNodeRefusal(words, _remedy(found, cluster))


def doubt(namespace: str, claims: Iterable[str], cluster: Cluster) -> Problem | None:
    """Return that the volume of a claim will not be attached to a second node, as another one of
    its class is not; None: none is refused.
    """
    refused = _refused(cluster)
    for claim in claims if refused else ():
        volume = volume_of(find(cluster, PVC, namespace, claim), cluster)
        name = volume.at("spec", "storageClassName").text or "" if volume is not None else ""
        parameter = _protocol(volume.name, cluster) if volume and name in refused else None
        if volume is not None and parameter is not None:
            reason = (
                f"a second node will not get claim {claim}, for which DRBD needs protocol C "
                f"({parameter.words}), as it refuses volume {refused[name]}"
            )
            return Problem(reason, _remedy(volume, cluster), ProblemCause.MIGRATION_FAILS)
    return None


@cached
def _refused(cluster: Cluster) -> Mapping[str, str]:
    """Return a volume of each class that DRBD refuses to a second node."""
    found: dict[str, str] = {}
    for attachment in cluster.known(VOLUME_ATTACHMENT):
        name = attachment.at("spec", "source", "persistentVolumeName").text
        error = attachment.at("status", "attachError", "message").text or ""
        volume = find(cluster, PV, "", name) if _REFUSED.search(error) else None
        if volume is not None:
            found.setdefault(volume.at("spec", "storageClassName").text or "", volume.name)
    return found


def _protocol(volume: str, cluster: Cluster) -> ClassParameter | None:
    """Return the parameter by which the class of a volume of LINSTOR sets protocol A or B."""
    found = find(cluster, PV, "", volume)
    if found is None or found.at("spec", "csi", "driver").text != lost_quorums.DRIVER:
        return None
    parameter = class_parameters.named_by(volume, "protocol", cluster)
    return parameter if parameter is not None and parameter.value in _OTHERS else None


def _remedy(volume: Object, cluster: Cluster) -> str:
    handle = volume.at("spec", "csi", "volumeHandle").text or volume.name
    options = ("drbd-options", "--protocol", "C", argument(handle))
    command = lost_quorums.linstor(cluster, "resource-definition", *options)
    words = (
        "give its volume protocol C (each write then waits for its copies); or stop the VM for the "
        "drain; or use a linstor-csi that overrides it (cozystack#2496)"
    )
    return typed(words, command) if command else words
