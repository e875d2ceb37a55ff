"""What an upgrade of KubeVirt or HyperConverged starts from."""

from __future__ import annotations

from virt_admit.model import releases
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.settings import configuration
from virt_admit.model.kubevirt.settings.versions import Version, hco_release, parse_version

MANAGED_BY = "app.kubernetes.io/managed-by"


def is_managed(obj: Object) -> bool:
    """Whether HyperConverged writes this KubeVirt, so that its next release writes it again."""
    owners = (owner["kind"].text for owner in obj.metadata["ownerReferences"].items())
    return kinds.of(obj) is KUBEVIRT and (
        obj.labels.get(MANAGED_BY) == "hco-operator" or HCO.kind in owners
    )


def may_be_managed(obj: Object, cluster: Cluster) -> bool:
    """Whether HyperConverged may write this KubeVirt or CDI, and so undo a change of it.

    Unread is not absent.
    """
    try:
        return is_managed(obj) or configuration.hyperconverged(cluster) is not None
    except Unseen:
        return True


def running_release(obj: Object, target: str) -> str:
    """Return the release of KubeVirt that runs, as the status says, else the one before ``target``.

    Also the release before ``target`` for HyperConverged, which does not name its KubeVirt.
    """
    running = None
    if kinds.of(obj) is KUBEVIRT:
        running = parse_version(obj.at("status", "observedKubeVirtVersion").text)
    return _release(releases.KUBEVIRT, running, target)


def running_hyperconverged(hco: Object, target: str) -> str:
    """Return the release of HyperConverged that runs, as its status says,
    else the one before ``target``.
    """
    running = hco_release(hco) if kinds.of(hco) is HCO else None
    return _release(releases.HYPERCONVERGED, running, target)


def _release(component: str, running: Version | None, target: str) -> str:
    """Return the release of the table that is nearest to the running one."""
    known = releases.releases(component)
    if running is None:
        return releases.before(component, target) or known[0]
    return releases.reached(component, running[:2]) or known[0]
