"""Signs that a tool writes an object from a repository or a chart, or an operator from its owner,
and would revert a change.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from virt_admit.model.commands import kubectl
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.objects import Object

_TRACKED: Final = "argocd.argoproj.io/tracking-id"
"""Its value begins with the name of the application."""


class Writer(NamedTuple):
    """What writes an object."""

    tool: str
    """``Argo CD``"""
    source: str
    """What of that tool, as ``Argo CD application web``."""


_WRITERS: Final = (
    ("argocd.argoproj.io/instance", "Argo CD", "application"),
    ("kustomize.toolkit.fluxcd.io/name", "Flux", "Kustomization"),
    ("helm.toolkit.fluxcd.io/name", "Flux", "HelmRelease"),
    ("meta.helm.sh/release-name", "Helm", "release"),
)
"""Labels and annotations with the name of what writes an object."""
READ: Final = (
    "metadata.labels",
    *(f"metadata.annotations.{key}" for key in (_TRACKED, *(key for key, _, _ in _WRITERS))),
)
"""What ``of`` reads of an object."""


def of(obj: Object) -> Writer | None:
    """Return what writes an object; None: nothing says so."""
    if application := (obj.annotations.get(_TRACKED) or "").partition(":")[0]:
        return Writer("Argo CD", f"Argo CD application {application.replace('_', '/')}")
    for key, tool, what in _WRITERS:
        if name := obj.labels.get(key) or obj.annotations.get(key):
            return Writer(tool, f"{tool} {what} {name}")
    return None


class OwnerAbove(NamedTuple):
    """The controller of an object, whose operator writes the object at each reconcile."""

    kind: kinds.Kind
    name: str
    namespace: str

    @property
    def title(self) -> str:
        """``StorageCluster ocs-storagecluster``."""
        return f"{self.kind.kind} {self.name}"

    def command(self, verb: str) -> str:
        """Return a command about it."""
        return kubectl(verb, self.kind, self.name, self.namespace)


def owner_above(obj: Object) -> OwnerAbove | None:
    """Return the controller of an object; None: it has none."""
    owner = obj.controller
    if owner is None:
        return None
    version, kind = owner["apiVersion"].text or "/", owner["kind"].text or "?"
    return OwnerAbove(kinds.guess(version, kind), owner["name"].text or "?", obj.namespace)


_OF_OCS: Final = {
    ("storage", "fullRatio"): "spec.managedResources.cephCluster.fullRatio",
    ("mon", "count"): "spec.managedResources.cephCluster.monCount",
    ("placement",): "spec.placement",
}
"""The fields of a StorageCluster by those of the CephCluster into which ocs-operator writes them
(red-hat-storage/ocs-operator:internal/controller/storagecluster/cephcluster.go#newCephCluster)."""


def field_above(obj: Object, *path: str) -> str:
    """Return where a field below ``spec`` is set as an owner writes the object, as ``FIELD of KIND
    NAME, which writes this one``; empty: nothing owns it.
    """
    owner = owner_above(obj)
    if owner is None:
        return ""
    field = _OF_OCS.get(path) if owner.kind.group == "ocs.openshift.io" else None
    return f"{field or 'its field'} of {owner.title}, which writes this {obj.kind}"
