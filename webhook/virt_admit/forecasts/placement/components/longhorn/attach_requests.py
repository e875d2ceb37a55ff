"""What Longhorn asks the API server for when a volume is attached: the webhooks of Longhorn get it.

Its driver adds a ticket to the VolumeAttachment of the volume. Sources:
longhorn/longhorn-manager:csi/controller_server.go#ControllerPublishVolume,
:webhook/resources/volumeattachment/validator.go#Resource, :webhook/server/server.go (failurePolicy
Fail).
"""

from __future__ import annotations

from typing import Final

from virt_admit.forecasts.placement.components.longhorn.longhorn_nodes import DRIVER
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import PV, PVC
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubernetes.webhook_requests import InterceptedRequest
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.lookups import find, volume_of

READS: Final[Reads] = {PVC: ("spec.volumeName",), PV: ("spec.csi.driver",)}
TICKET: Final = InterceptedRequest("UPDATE", "longhorn.io", "volumeattachments", "longhorn-system")


def needs(vmi: Object, cluster: Cluster) -> bool:
    """Return whether a VMI certainly has a volume of Longhorn."""
    namespace = vms.namespace_of(vmi)
    bound = (
        volume_of(find(cluster, PVC, namespace, claim), cluster)
        for claim in launcher_pod.all_claims(vmi["spec"])
    )
    return any(
        each is not None and each.at("spec", "csi", "driver").text == DRIVER for each in bound
    )
