"""The fields of looked-up objects that the cache retains (client-go calls this a transform).

A cluster has a hundred thousand claims and ten thousand machines, so only the fields in
``Rule.reads`` stay in memory. No object keeps ``managedFields`` or the copy of itself that
``kubectl apply`` stores in an annotation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from virt_admit.model.kubernetes import reads
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Field
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.rules import Rules

Tree = Mapping[str, "Tree | None"]
"""Retained keys. None: with everything below."""

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
ALWAYS: Final = (
    "apiVersion",
    "kind",
    "metadata.name",
    "metadata.generateName",
    "metadata.namespace",
    "metadata.deletionTimestamp",
)


@dataclass(frozen=True)
class FieldSet:
    """The fields of a kind that are retained, besides those in ``ALWAYS``."""

    paths: tuple[str, ...] = ()
    """As in ``Rule.reads``. Empty: the whole object."""

    @cached_property
    def tree(self) -> Tree | None:
        """The paths as a tree. None: the whole object."""
        return _tree(map(reads.keys, (*ALWAYS, *self.paths))) if self.paths else None

    def filter(self, obj: dict[str, Any]) -> dict[str, Any]:
        """Return the object with the retained fields alone. It shares values with the original."""
        filtered: dict[str, Any] = _filter(without_managed_fields(obj), self.tree)
        return filtered


NO_READS: Final[Reads] = {}
WHOLE: Final = FieldSet()
IDENTITY: Final = FieldSet(reads.NAME)


def _tree(paths: Iterable[tuple[str, ...]]) -> Tree:
    branches: dict[str, list[tuple[str, ...]]] = {}
    for first, *rest in paths:
        branches.setdefault(first, []).append(tuple(rest))
    return {key: None if () in below else _tree(below) for key, below in branches.items()}


def retained_fields(rules: Rules, also: Reads = NO_READS) -> Mapping[Kind, FieldSet]:
    """Return the fields that these rules look up, and ``also`` these,
    for each kind that is looked up.
    """
    looked_up = reads.union(*(rule.reads for rule in rules), also)
    return {kind: FieldSet(looked_up[kind]) for kind in sorted(looked_up)}


def looked_up_kinds(rules: Rules) -> tuple[Kind, ...]:
    """Return the kinds that these rules look up: for RBAC and stores."""
    return tuple(retained_fields(rules))


def looked_up_at_admission(rules: Rules) -> tuple[Kind, ...]:
    """Return the kinds of these that the webhook looks up: for its RBAC and informers."""
    return tuple(kind for kind in looked_up_kinds(rules) if not kind.not_at_admission)


def lookup_namespace(kind: Kind, rules: Rules) -> str:
    """Return the only namespace in which these rules look up a kind; empty: every namespace.

    ``Kind.lookup_namespace`` holds at admission. Rules for ``scan`` alone look in every namespace.
    """
    everywhere = kind in rules.by_kind or any(
        kind in rule.reads for rule in rules if not rule.at_admission
    )
    return "" if everywhere else kind.lookup_namespace


def without_managed_fields(obj: dict[str, Any]) -> dict[str, Any]:
    """Return an object without ``managedFields`` and without the annotation of ``kubectl apply``.

    Some entries of ``managedFields`` stay, because nothing else tells when a VMI was marked for
    evacuation, who wrote the limits of a quota, the taints of a node (with the names of what else
    that entry owns, as its time is of all), its cordon or the replicas of a provider of Cluster
    API, and who owns the fields of an object that a ManagedChart of Rancher applies.
    """
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        return obj
    rest = {key: value for key, value in metadata.items() if key != "managedFields"}
    if marks := list(_kept_entries(metadata)):
        rest["managedFields"] = marks
    annotations = metadata.get("annotations")
    if isinstance(annotations, dict) and LAST_APPLIED in annotations:
        rest["annotations"] = {
            key: value for key, value in annotations.items() if key != LAST_APPLIED
        }
    return {**obj, "metadata": rest}


_EVACUATED: Final = ("fieldsV1", "f:status", "f:evacuationNodeName")
_LIMITED: Final = ("fieldsV1", "f:spec", "f:hard")
_TAINTED: Final = ("fieldsV1", "f:spec", "f:taints")
_SCALED: Final = ("fieldsV1", "f:spec", "f:replicas")
_CORDONED: Final = ("fieldsV1", "f:spec", "f:unschedulable")
_MARKS: Final = (
    (_EVACUATED, _tree([("time",), _EVACUATED])),
    (_LIMITED, _tree([("time",), ("manager",), _LIMITED])),
    (_CORDONED, _tree([("time",), ("manager",), _CORDONED])),
)
_PROVIDER: Final = "cluster.x-k8s.io/provider"
_OF_PROVIDER: Final = (_SCALED, _tree([("time",), ("manager",), _SCALED]))
"""Of a label that few objects have: all workloads have replicas."""
_FLEET: Final = "objectset.rio.cattle.io/id"
_CHART: Final = "mcc-"
"""In the mark of an object of a ManagedChart. A GitRepo may have thousands of VMs."""
_HELM: Final = "meta.helm.sh/release-name"
_OF_FLEET: Final = _tree(
    [
        *((name,) for name in ("manager", "operation", "subresource", "time")),
        ("fieldsV1", "f:metadata", "f:annotations", f"f:{_HELM}"),
        ("fieldsV1", "f:spec"),
    ]
)


def _kept_entries(metadata: dict[str, Any]) -> Iterator[dict[str, Any]]:
    entries = Field(metadata)["managedFields"].items()
    if _CHART in (Field(metadata).at("annotations", _FLEET).text or ""):
        for entry in entries:
            if entry.at("fieldsV1", "f:spec").present:
                kept = _filter(entry.value, _OF_FLEET)
                kept["fieldsV1"]["f:spec"] = _names(kept["fieldsV1"]["f:spec"])
                yield kept
        return
    is_provider = Field(metadata).at("labels", _PROVIDER).present
    marks = (*_MARKS, _OF_PROVIDER) if is_provider else _MARKS
    for entry in entries:
        if entry.at(*_TAINTED).present:
            yield _of_taints(entry)
            continue
        for mark, tree in marks:
            if entry.at(*mark).present:
                yield _filter(entry.value, tree)


def _of_taints(entry: Field) -> dict[str, Any]:
    """Return when and by whom taints were written, and which other fields the entry is about, such
    as the cordon.
    """
    owned = entry["fieldsV1"]
    fields: dict[str, dict[str, Any]] = {name: {} for name in owned.map}
    fields["f:spec"] = {name: {} for name in owned["f:spec"].map}
    kept = {name: entry[name].value for name in ("time", "manager") if entry[name].present}
    return {**kept, "fieldsV1": fields}


def _names(value: Any, depth: int = 0) -> dict[str, Any]:
    """Return the names of fields without keys and values of list items."""
    if not isinstance(value, dict) or depth >= _DEEPEST:
        return {}
    return {key: _names(below, depth + 1) for key, below in value.items() if key[:2] == "f:"}


_DEEPEST: Final = 16


def _filter(value: Any, tree: Tree | None) -> Any:
    if tree is None:
        return value
    if isinstance(value, dict):
        return {key: _filter(value[key], below) for key, below in tree.items() if key in value}
    if isinstance(value, list):
        return [_filter(item, tree) for item in value]
    return value
