"""VMs that Portworx's Stork frees from a lost node, without a health check.

Its health monitor asks Portworx for offline nodes. Once such a node is not back after two and a
half minutes, it deletes the attachments there, and by force each pod that has a volume of Portworx;
also each such pod that is evicted from an unreachable node. KubeVirt then fails the VMI. Sources:
libopenstorage/stork:pkg/monitor/monitor.go, :cmd/stork/stork.go (health-monitor);
libopenstorage/operator:pkg/controller/storagecluster/stork.go#createStorkDeployment; Portworx
keeps ``repl`` copies of a volume, by default one (docs.portworx.com, StorageClass parameters).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from virt_admit.forecasts.placement.components.linstor.failovers import Failover
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, cached, unlisted
from virt_admit.model.kubernetes.kinds import DEPLOYMENT, PV, PVC, STORAGE_CLASS
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.instances.storage import SHARED
from virt_admit.model.kubevirt.launcher import launcher_pod

DRIVER: Final = "pxd.portworx.com"
_CONTAINER: Final = "spec.template.spec.containers"
READS: Final[Reads] = {
    DEPLOYMENT: (
        *(f"{_CONTAINER}.{each}" for each in ("args", "command", "image")),
        *("spec.replicas", "status.readyReplicas"),
    ),
    PVC: ("spec.volumeName",),
    PV: ("spec.accessModes", "spec.csi.driver", "spec.storageClassName"),
    STORAGE_CLASS: ("parameters",),
}
_IMAGE: Final = re.compile(r"(?:\A|/)stork(?:[:@]|\Z)")
_OFF: Final = re.compile(r"--?health-monitor(?:=| )(?:false|0|f)\b", re.IGNORECASE)
_MONITORS: Final = "pxd"
FREED_WITHIN: Final = (150, 330)
"""Seconds after Kubernetes notices the loss: it waits so long for the node; and at the latest the
pod is evicted after five minutes.
"""


def of_vmi(vmi: Object, cluster: Cluster) -> Failover | None:
    """Return that Stork frees a VM once its node is lost; None: it does not."""
    if not _may_have_volumes(cluster):
        return None
    monitor = _monitor(cluster)
    if monitor is None:
        return None
    try:
        unsure = list(_unsure(vmi, cluster))
    except Unseen as unseen:
        return monitor._replace(unsure=unseen.what)
    if _OWN not in unsure:
        return None
    further = next(filter(None, (each for each in unsure if each != _OWN)), "")
    return monitor._replace(unsure=monitor.unsure or further)


@cached
def _may_have_volumes(cluster: Cluster) -> bool:
    drivers = {each.at("spec", "csi", "driver").text for each in cluster.known(PV)}
    return DRIVER in drivers or (bool(unlisted(cluster, PV)) and _monitor(cluster) is not None)


@cached
def _monitor(cluster: Cluster) -> Failover | None:
    """Return the health monitor; None: no Stork runs, or its monitor is off."""
    for deployment in sorted(cluster.known(DEPLOYMENT), key=lambda each: each.full_name):
        boxes = deployment.at("spec", "template", "spec", "containers").items()
        own = next((each for each in boxes if _IMAGE.search(each["image"].text or "")), None)
        if own is None:
            continue
        ready = deployment.at("status", "readyReplicas").integer or 0
        wanted = deployment.at("spec", "replicas").integer or 0
        asked = _words(own)
        if not ready or not wanted or _OFF.search(asked):
            continue
        title = f"Portworx's Stork (Deployment {deployment.full_name})"
        if _MONITORS not in asked:
            return Failover(title, f"whether the health monitor of {title} is on")
        alone = f"whether {title} acts with {ready} of {wanted} pods ready"
        # one may be on the lost node
        return Failover(title, "" if ready > 1 else alone, FREED_WITHIN)
    unread = unlisted(cluster, DEPLOYMENT)
    return Failover("Portworx's Stork", unread) if unread else None


def _words(container: Field) -> str:
    """Return the command line of a container."""
    parts = (each.text for key in ("command", "args") for each in container[key].items())
    return " ".join(filter(None, parts))


_OWN: Final = ""
"""Of a volume of Portworx with a copy elsewhere."""


def _unsure(vmi: Object, cluster: Cluster) -> Iterator[str]:
    """Yield for each volume of a VMI why a node that is left may not get it; empty: it does, and
    it is of Portworx.

    Raises:
        Unseen: a claim, a volume or its class cannot be read.
    """
    for name in launcher_pod.all_claims(vmi["spec"]):
        claim = cluster.get(PVC, vms.namespace_of(vmi), name)
        volume = claim.at("spec", "volumeName").text if claim is not None else None
        bound = cluster.get(PV, "", volume) if volume else None
        if bound is None:
            continue
        if bound.at("spec", "csi", "driver").text != DRIVER:
            modes = {each.text for each in bound.at("spec", "accessModes").items()}
            if SHARED not in modes:
                yield f"whether claim {name} leaves the lost node"
            continue
        yield _OWN
        used = bound.at("spec", "storageClassName").text
        parameters = cluster.get(STORAGE_CLASS, "", used) if used else None
        given = parameters.at("parameters", "repl").text if parameters is not None else None
        if not given or not given.isdigit() or int(given) < _COPIES:
            yield f"whether a copy of claim {name} is left: StorageClass {used or '?'} asks for one"


_COPIES: Final = 2
