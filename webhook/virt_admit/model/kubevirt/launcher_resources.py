"""What the launcher pod of a VMI requests of a node, as KubeVirt computes it."""

from __future__ import annotations

from virt_admit.model.cluster import Cluster
from virt_admit.model.kubevirt.effective import Effective
from virt_admit.model.scheduler.resources import Resources, amounts


def requests(vmi: Effective, _cluster: Cluster) -> Resources:
    """Return the requests of the launcher pod: all containers, with KubeVirt's overhead."""
    domain = vmi.spec["domain"]
    found = amounts(domain.at("resources", "requests").map)
    guest = amounts({"memory": domain.at("memory", "guest").value})
    return {**guest, **found}


def limits(vmi: Effective, _cluster: Cluster) -> Resources:
    """Return the limits of the launcher pod."""
    return amounts(vmi.spec.at("domain", "resources", "limits").map)
