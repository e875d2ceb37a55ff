"""The release of Cluster API that runs, by the images of its controllers."""

from __future__ import annotations

from typing import Final, NamedTuple

from virt_admit.model.kubernetes import workloads
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import DEPLOYMENT
from virt_admit.model.kubernetes.reads import NAME, Reads, union
from virt_admit.model.kubevirt.settings.versions import Version, parse_version

READS: Final[Reads] = union(
    workloads.READS, {DEPLOYMENT: (*NAME, "spec.template.spec.containers.image")}
)


class Provider(NamedTuple):
    """A controller of Cluster API."""

    deployment: str
    image: str


CORE: Final = Provider("capi-controller-manager", "cluster-api-controller")
KUBEADM: Final = Provider(
    "capi-kubeadm-control-plane-controller-manager", "kubeadm-control-plane-controller"
)


def release(cluster: Cluster, provider: Provider = CORE) -> Version | None:
    """Return the release of a controller; None: not known."""
    found = {
        parse_version(workloads.image_tag(image))
        for each in workloads.named((provider.deployment,), cluster)
        for box in each.at("spec", "template", "spec", "containers").items()
        if provider.image in (image := box["image"].text or "")
    }
    return found.pop() if len(found) == 1 else None
