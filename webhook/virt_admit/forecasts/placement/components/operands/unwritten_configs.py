"""virt-controller that ends again and again, as CDI has not written what it reads: the overhead of
file systems in the status of CDIConfig.

KubeVirt before 1.4.1 takes that status for written at each claim with a file system. cdi-deployment
writes it when it starts, so a CDI that was just installed and does not start ends virt-controller,
while no VM has changed. Sources: kubevirt/kubevirt:pkg/storage/types/cdi.go#GetFilesystemOverhead
(v1.4.0 and v1.4.1), pull request 7855; kubevirt/containerized-data-importer:pkg/controller/
config-controller.go#reconcileFilesystemOverhead, issue #3459.
"""

from __future__ import annotations

from typing import Final

from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import KUBEVIRT, POD, Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.settings import versions

READS: Final[Reads] = {KUBEVIRT: (), POD: ("metadata.labels",)}
CONFIG: Final = Kind("cdi.kubevirt.io", ("v1beta1",), "cdiconfigs", "CDIConfig", namespaced=False)
"""Discovery finds it in a cluster."""
_CONTROLLER: Final = "virt-controller"
_WRITER: Final = "cdi-deployment-"
_PANIC: Final = "exit code 2"
"""How a program in Go ends that uses what is not there."""


def needed_by(pod: Object, why: str, cluster: Cluster) -> str:
    """Return what a pod of virt-controller needs that is not written, as a clause; empty: it is
    another pod, ends in another way, or that status is written or not known.

    ``why``: how the pod ends.
    """
    if pod.labels.get("kubevirt.io") != _CONTROLLER or _PANIC not in why:
        return ""
    fixed = versions.Feature.OVERHEAD_CHECKED.since
    release = versions.kubevirt_version(cluster)
    config = next(iter(cluster.known(CONFIG)), None)
    if release is None or release >= fixed or config is None:
        return ""
    if config.at("status", "filesystemOverhead").present:
        return ""
    return (
        f"probably as KubeVirt before {fixed} needs status.filesystemOverhead of CDIConfig "
        f"{config.name} for claims with a file system, and it is empty"
    )


def writers(cluster: Cluster) -> list[Object]:
    """Return the pods of CDI that write it."""
    return [pod for pod in cluster.known(POD) if pod.name.startswith(_WRITER)]
