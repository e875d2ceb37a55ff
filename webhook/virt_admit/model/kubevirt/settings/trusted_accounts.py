"""The namespaces from which the service accounts of KubeVirt and of HyperConverged are trusted.

The name of an account proves nothing: every namespace can have a service account
``kubevirt-controller``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.settings.configuration import hyperconverged, kubevirt

TRUSTED_NAMESPACES: Final[tuple[str, ...]] = (
    "kubevirt",
    "kubevirt-hyperconverged",
    "openshift-cnv",
)
"""The namespaces that the operators document. They count while the cluster has no such resource,
or it is unseen.
"""

_RESOURCES: Final[Mapping[str, Callable[[Cluster], Object | None]]] = {
    "kubevirt": kubevirt,
    "hyperconverged": hyperconverged,
}
PLACEHOLDERS: Final = tuple(
    f"{{{name}{suffix}}}" for name in _RESOURCES for suffix in ("", "-unseen")
)
"""What may stand for the namespace in a policy: ``{kubevirt}`` is the namespace of the KubeVirt
resource, and ``{kubevirt-unseen}`` is any other one while that resource is unseen.
"""


def aliases(user: str, cluster: Cluster) -> tuple[str, ...]:
    """Return the names of a service account with placeholders for its namespace.

    Empty for other users.
    """
    if not user.startswith("system:serviceaccount:"):
        return ()
    namespace, _, account = user.removeprefix("system:serviceaccount:").partition(":")
    places = (_placeholder(name, namespace, cluster) for name in _RESOURCES)
    return tuple(f"system:serviceaccount:{place}:{account}" for place in places if place)


def _placeholder(name: str, namespace: str, cluster: Cluster) -> str:
    unseen, trusted = False, TRUSTED_NAMESPACES
    try:
        resource = _RESOURCES[name](cluster)
        if resource is not None:
            trusted = (resource.namespace,)
    except Unseen:
        unseen = True
    if namespace in trusted:
        return f"{{{name}}}"
    return f"{{{name}-unseen}}" if unseen else ""
