"""Limits of memory that ``spec.customizeComponents`` of KubeVirt or CDI gives a component.

The operator applies the patch to the Deployment or DaemonSet again whenever that was changed by
hand. Sources: kubevirt/kubevirt:pkg/virt-operator/resource/apply/../generate/components/
customizer.go#Apply; kubevirt/containerized-data-importer:pkg/operator/controller/
cr-manager.go (customizeComponents through controller-lifecycle-operator-sdk).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from virt_admit.model.commands import about, typed
from virt_admit.model.evidence.writes import fleet_objects
from virt_admit.model.kubernetes import json_codec, kinds
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import CDI, HCO, KUBEVIRT
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads

READS: Final[Reads] = {KUBEVIRT: (), CDI: ()}
FIELD: Final = "spec.customizeComponents"
_DEEPEST: Final = 12
_ANY: Final = "*"


class PatchedLimit(NamedTuple):
    """A limit that the object of an operator gives one of its components."""

    words: str
    """``which spec.customizeComponents of CDI cdi sets``."""
    remedy: str


def of_limit(pod: Object, container: str, limit: str, cluster: Cluster) -> PatchedLimit | None:
    """Return which patch gives a container its limit of memory; None: none is known to."""
    if not limit:
        return None
    for kind in (CDI, KUBEVIRT):
        for obj in cluster.known(kind):
            if is_of(pod, obj) and any(
                _sets(each["patch"].text or "", limit)
                for each in obj.at("spec", "customizeComponents", "patches").items()
                if _selects(each["resourceName"].text or "", pod)
            ):
                words = f"which {FIELD} of {kind.kind} {obj.name} sets"
                return PatchedLimit(words, _remedy(obj, kind, container, limit, cluster))
    return None


def is_of(pod: Object, obj: Object) -> bool:
    """Return whether an operator of this object makes a pod. CDI has no namespace."""
    if kinds.of(obj) is KUBEVIRT:
        return pod.namespace == obj.namespace and pod.labels.get("kubevirt.io") is not None
    return any(key in pod.labels for key in ("cdi.kubevirt.io", "operator.cdi.kubevirt.io"))


def _selects(resource: str, pod: Object) -> bool:
    """Return whether a patch is about the workload of a pod, whose name begins that of the pod."""
    return resource == _ANY or (bool(resource) and pod.name.startswith(f"{resource}-"))


def _sets(patch: str, limit: str) -> bool:
    """Return whether a patch of any type sets this limit of memory."""
    return limit in _limits(json_codec.embedded(patch))


def _limits(value: Any, depth: int = 0) -> Iterator[Any]:
    if depth > _DEEPEST:
        return
    if isinstance(value, list):
        for each in value:
            yield from _limits(each, depth + 1)
    elif isinstance(value, dict):
        path = value.get("path")
        if isinstance(path, str) and path.endswith("/limits/memory"):
            yield value.get("value")
        limits = value.get("limits")
        if isinstance(limits, dict):
            yield limits.get("memory")
        for each in value.values():
            yield from _limits(each, depth + 1)


def _remedy(obj: Object, kind: kinds.Kind, container: str, limit: str, cluster: Cluster) -> str:
    """Return how the limit is raised where it is written: not in the workload."""
    where = f"{FIELD} of {kind.kind} {obj.name}"
    back = "as its operator sets a change of the workload back"
    command = about("edit", obj, kind)
    hco = next(iter(cluster.known(HCO)), None) if obj.owned_by(HCO.kind) else None
    if chart := fleet_objects.chart_of(obj):
        back = f"which ManagedChart {chart} writes (spec.values)"
        command = fleet_objects.edit(chart)
    elif hco is not None:
        back = f"which HyperConverged {hco.name} writes"
        command = about("edit", hco, HCO)
    words = (
        f"raise the limit of container {container} above {limit}, or drop it, in {where}, {back}"
    )
    return typed(words, command)
