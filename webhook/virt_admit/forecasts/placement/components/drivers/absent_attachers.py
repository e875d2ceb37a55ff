"""CSI drivers whose controller is down or has no pod: their volumes get to no further node.

kube-controller-manager makes a VolumeAttachment for a pod that gets a node, and external-attacher,
a container of the driver's controller, asks the driver to attach. A driver with ``attachRequired:
false`` needs neither. The driver of LINSTOR asks LINSTOR's controller for each volume, that of
Longhorn one of its managers. Sources:
kubernetes/kubernetes:pkg/controller/volume/attachdetach/attach_detach_controller.go;
kubernetes-csi/external-attacher:cmd/csi-attacher/main.go; kubernetes/api:storage/v1/types.go
#CSIDriverSpec; piraeusdatastore/linstor-csi:pkg/driver/driver.go#ControllerPublishVolume;
longhorn/longhorn-manager:csi/manager.go#Run (the Service longhorn-backend).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from virt_admit.forecasts.placement.components import broken_pods, cluster_controllers, node_pods
from virt_admit.forecasts.placement.components.controllers import stopped_workloads
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import CSI_DRIVER, POD
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.problems import Problem

READS: Final[Reads] = union(
    *(cluster_controllers.READS, node_pods.READS, stopped_workloads.READS),
    node_pods.PODLESS_READS,
    {CSI_DRIVER: ("spec.attachRequired",)},
)
_STORES: Final[Mapping[str, str]] = {
    "driver.longhorn.io": "longhorn-manager",
    "linstor.csi.linbit.com": "linstor-controller",
}
"""The workload that a driver asks before it attaches a volume."""


def problem(driver: str, cluster: Cluster) -> Problem | None:
    """Return why nothing attaches the volumes of a driver; None: something does, or that is not
    known.

    The reason is a clause: ``no pod of its controller is ready (pod P is not ready for 90 min)``.
    """
    known = find(cluster, CSI_DRIVER, "", driver)
    if known is None or known.at("spec", "attachRequired").boolean is False:
        return None
    manager = cluster_controllers.down(cluster_controllers.MANAGER, cluster)
    if manager is not None:
        return manager
    if unlisted(cluster, POD):
        return None
    if (podless := node_pods.podless_attacher(driver, cluster)) is not None:
        stopped = stopped_workloads.of_podless(podless, cluster)
        return stopped and Problem(stopped.named("its controller"), stopped.remedy)
    broken = broken_pods.none_works(node_pods.attachers_of(driver, cluster), cluster)
    if broken is None:
        return _of_store(_STORES.get(driver, ""), cluster)
    return Problem(f"no pod of its controller is ready ({broken.words})", broken.remedy)


def _of_store(name: str, cluster: Cluster) -> Problem | None:
    stopped = stopped_workloads.of((name,), cluster) if name else None
    return Problem(stopped.named(name), stopped.remedy) if stopped is not None else None
