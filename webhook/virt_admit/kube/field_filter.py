"""What look-ups need: which kinds, where, and how much of their objects is kept.

A cluster has a hundred thousand claims and ten thousand machines. Of kinds that come in numbers only the fields that
rules read are kept; a test holds this table to the rules. Of the others everything is kept but what nobody reads:
``managedFields`` and the copy of the object that ``kubectl apply`` leaves in an annotation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from virt_admit.model import kinds
from virt_admit.model.kinds import Kind
from virt_admit.model.objects import Field
from virt_admit.rules import Rules

Tree = Mapping[str, "Tree | None"]
"""Keys that are kept; None: with everything below."""

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(frozen=True)
class Keep:
    """What is kept of the objects of a kind, besides name and namespace."""

    fields: tuple[str, ...] = ()
    """Paths; lists are walked through. Empty: everything."""
    annotations: tuple[str, ...] = ()
    """Further to ``fields``: single annotations."""
    many: bool = False
    """Whether a cluster has so many of them that each is kept as JSON text and decoded when it is looked up."""
    namespace: str = ""
    """The one namespace in which admission rules look; empty: everywhere."""

    @cached_property
    def tree(self) -> Tree | None:
        """The paths, as a tree; None: everything."""
        if not self.fields:
            return None
        paths = [tuple(path.split(".")) for path in (*ALWAYS, *self.fields)]
        paths += [("metadata", "annotations", key) for key in self.annotations]
        return _grow(paths)


def _grow(paths: Iterable[tuple[str, ...]]) -> Tree | None:
    branches: dict[str, list[tuple[str, ...]]] = {}
    for first, *rest in paths:
        branches.setdefault(first, []).append(tuple(rest))
    return {key: None if () in below else _grow(below) for key, below in branches.items()}


ALWAYS: Final = ("apiVersion", "kind", "metadata.name", "metadata.namespace", "metadata.deletionTimestamp")

_CONDITIONS: Final = ("status.conditions.type", "status.conditions.status", "status.conditions.reason")
_OWNED: Final = ("metadata.labels", "metadata.ownerReferences")
_MACHINE_SPEC: Final = (  # of a VMI; where it may run, and with what
    "evictionStrategy",
    "architecture",
    "nodeSelector",
    "affinity.nodeAffinity",
    "tolerations",
    "domain.cpu",
    "domain.features",
    "domain.launchSecurity",
    "domain.machine",
    "domain.memory.hugepages",
)

KEPT: Final[Mapping[Kind, Keep]] = {
    kinds.PVC: Keep(("spec.accessModes",), many=True),
    kinds.DATA_VOLUME: Keep(
        (
            "spec.contentType",
            *(
                f"spec.{block}.{key}"
                for block in ("pvc", "storage")
                for key in ("accessModes", "volumeMode", "storageClassName")
            ),
        ),
        many=True,
    ),
    # The copy of an instance type or preference; those of other owners hold whole pod templates
    kinds.CONTROLLER_REVISION: Keep(
        (
            "metadata.labels",
            *(
                f"data.spec.{key}"
                for key in (
                    *("annotations", "cpu", "gpus", "hostDevices", "launchSecurity", "memory", "nodeSelector"),
                    *("devices", "features", "preferredArchitecture", "preferredLaunchSecurity", "volumes"),
                )
            ),
        ),
        many=True,
    ),
    kinds.VM: Keep(
        (
            *_OWNED,
            "spec.running",
            "spec.runStrategy",
            "spec.instancetype",
            "spec.preference",
            "spec.template.metadata",
            *(f"spec.template.spec.{path}" for path in _MACHINE_SPEC),
            *_CONDITIONS,
        ),
        many=True,
    ),
    kinds.VMI: Keep(
        (
            *_OWNED,
            "metadata.creationTimestamp",
            *(f"spec.{path}" for path in _MACHINE_SPEC),
            "status.nodeName",
            "status.phase",
            "status.evacuationNodeName",
            *_CONDITIONS,
        ),
        many=True,
    ),
    kinds.VMIM: Keep(
        (*_OWNED, "metadata.creationTimestamp", "metadata.annotations", "spec.vmiName", "status.phase"),
    ),
    kinds.NODE: Keep(
        (
            "metadata.labels",
            "spec.unschedulable",
            "spec.taints",
            "status.allocatable",
            "status.conditions.type",
            "status.conditions.status",
        ),
        annotations=(
            "is-reboot-capable.self-node-remediation.medik8s.io",
            "machine.openshift.io/machine",
            "node-labeller.kubevirt.io/skip-node",
            "self-node-remediation.medik8s.io/watchdog-timeout",
        ),
    ),
    kinds.MACHINE: Keep(
        (
            *_OWNED,
            "metadata.annotations",
            "spec.lifecycleHooks",
            "spec.providerSpec.value.kind",
            "status.nodeRef",
            "status.phase",
            "status.errorReason",
            "status.errorMessage",
        ),
    ),
    kinds.CAPI_MACHINE: Keep((*_OWNED, "metadata.annotations", "spec.clusterName", "status.nodeRef", "status.phase")),
    kinds.POD: Keep(
        ("metadata.labels", "spec.nodeName", "status.phase", "status.conditions.type", "status.conditions.status"),
        namespace="openshift-etcd",
    ),
    kinds.PDB: Keep((*_OWNED, "spec", "status.disruptionsAllowed"), namespace="openshift-etcd"),
    kinds.LEASE: Keep(("spec",), namespace="medik8s-leases"),
}

EVERYTHING: Final = Keep()


def keep(kind: Kind) -> Keep:
    """What is kept of a kind."""
    return KEPT.get(kind, EVERYTHING)


def reads(rules: Rules) -> tuple[Kind, ...]:
    """The kinds that look-ups need: for RBAC and informers."""
    return tuple(sorted({kind for rule in rules for kind in rule.reads}))


def lookup_namespace(kind: Kind, rules: Rules) -> str:
    """The one namespace in which these rules look up a kind; empty: everywhere.

    The table speaks of admission. The rules that ``scan`` alone asks look everywhere.
    """
    everywhere = kind in rules.by_kind or any(kind in rule.reads for rule in rules if not rule.at_admission)
    return "" if everywhere else keep(kind).namespace


def trim(kind: Kind, obj: dict[str, Any]) -> dict[str, Any]:
    """An object with only what is kept of its kind. What it shares with the original must not be changed."""
    trimmed: dict[str, Any] = _cut(strip(obj), keep(kind).tree)
    return trimmed


def strip(obj: dict[str, Any]) -> dict[str, Any]:
    """An object without what ``kubectl apply`` remembers and without ``managedFields``.

    One thing of these stays, for nothing else tells it: when a VMI was marked for evacuation.
    """
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        return obj
    rest = {key: value for key, value in metadata.items() if key != "managedFields"}
    marks = [entry for entry in Field(metadata)["managedFields"].items() if entry.at(*_MARK).present]
    if marks:
        rest["managedFields"] = [_cut(entry.value, _MARKED) for entry in marks]
    annotations = metadata.get("annotations")
    if isinstance(annotations, dict) and LAST_APPLIED in annotations:
        rest["annotations"] = {key: value for key, value in annotations.items() if key != LAST_APPLIED}
    return {**obj, "metadata": rest}


_MARK: Final = ("fieldsV1", "f:status", "f:evacuationNodeName")
_MARKED: Final = _grow([("time",), _MARK])


def _cut(value: Any, tree: Tree | None) -> Any:
    if tree is None:
        return value
    if isinstance(value, dict):
        return {key: _cut(value[key], below) for key, below in tree.items() if key in value}
    if isinstance(value, list):
        return [_cut(item, tree) for item in value]
    return value
