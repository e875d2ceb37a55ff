"""What a VM demands of a node, widened so that a second node can run it.

It costs nothing: KubeVirt copies these fields into the running VMI
(kubevirt/kubevirt:pkg/virt-controller/watch/vm/vm.go#handleAffinityChangeRequest).
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from virt_admit.forecasts.placement import candidates
from virt_admit.forecasts.placement.candidates import SchedulingTarget
from virt_admit.forecasts.repair.controllers import TEMPLATE
from virt_admit.forecasts.repair.repair_plan import REMOVED, FieldEdit
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.nodes import SCHEDULABLE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.scheduler import controller_taints
from virt_admit.model.scheduler.node_labels import is_transient
from virt_admit.model.scheduler.pod_terms import REQUIRED

PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_SELECTOR: Final = "node selector "
_TAINT: Final = "taint "
_AFFINITY: Final = "node affinity"


class Widening(NamedTuple):
    """Changed placement fields of a VM, and the node that can run it then."""

    title: str
    edits: tuple[FieldEdit, ...]
    node: str


def widenings(vm: Object, target: SchedulingTarget, cluster: Cluster) -> Iterator[Widening]:
    """Yield what has to be widened for each other node, the fewest changes first.

    A node that lacks more than what the VM demands by itself is left out.
    """
    state = candidates.scheduler(cluster).state
    found: dict[tuple[str, ...], Widening] = {}
    alike = cluster.cached(_likeness)(target.placement.without)
    for name, why in sorted(
        target.placement.refusals.items(), key=lambda item: (-alike.get(item[0], 0), item[0])
    ):
        node = state.nodes.get(name)
        if node is None or SCHEDULABLE not in node.labels or node.cordoned or not node.ready:
            continue
        causes = tuple(why.split("; "))
        if causes in found:
            continue
        taints = [taint for taint in node.taints if not is_transient(taint)]
        made = _widened(vm, causes, name, node.labels, taints)
        if made is not None:
            found[causes] = made
    yield from sorted(found.values(), key=lambda each: (len(each.edits), each.node))


def _likeness(cluster: Cluster) -> Callable[[str], Mapping[str, int]]:
    """Return how much each node is like a named one: labels both have, less those one alone has."""
    labels = {name: node.labels for name, node in candidates.scheduler(cluster).state.nodes.items()}

    @functools.cache
    def of(here: str) -> Mapping[str, int]:
        own = set(labels.get(here, {}).items())
        return {
            name: 2 * len(own & set(other.items())) - len(own ^ set(other.items()))
            for name, other in labels.items()
        }

    return of


def _widened(
    vm: Object,
    causes: tuple[str, ...],
    name: str,
    labels: Mapping[str, Any],
    taints: list[Mapping[str, Any]],
) -> Widening | None:
    edits: list[FieldEdit] = []
    words: list[str] = []
    for cause in causes:
        made = _for_cause(vm, cause, labels, taints)
        if made is None:
            return None
        title, more = made
        words.append(title)
        edits += more
    by_path = {edit.path: edit for edit in edits}
    return Widening(", ".join(dict.fromkeys(words)), tuple(by_path.values()), name)


def _for_cause(
    vm: Object, cause: str, labels: Mapping[str, Any], taints: list[Mapping[str, Any]]
) -> tuple[str, list[FieldEdit]] | None:
    if cause.startswith(_SELECTOR):
        return _selector(vm, cause.removeprefix(_SELECTOR))
    if cause == _AFFINITY:
        return _node_affinity(vm, labels)
    if cause.startswith(_TAINT):
        return _tolerations(vm, cause.removeprefix(_TAINT), taints)
    if "affinity" in cause and "anti-affinity" not in cause:
        return _pod_affinity(vm)
    return None


def _selector(vm: Object, demand: str) -> tuple[str, list[FieldEdit]] | None:
    key = demand.partition("=")[0]
    if key not in vms.vmi_spec(vm)["nodeSelector"].map:
        return None
    return f"remove node selector {key}", [FieldEdit((*TEMPLATE, "nodeSelector", key), REMOVED)]


def _node_affinity(vm: Object, labels: Mapping[str, Any]) -> tuple[str, list[FieldEdit]] | None:
    """Return the required node affinity with the node's values in the alternatives it misses."""
    path = (*TEMPLATE, "affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms")
    terms = vm.at(*path)
    if not terms.is_list or not terms.value:
        return None
    widened = [made for term in copy.deepcopy(terms.value) if (made := _with_values(term, labels))]
    if not widened:
        return None
    return "allow more nodes in the node affinity", [FieldEdit(path, widened)]


def _with_values(term: Any, labels: Mapping[str, Any]) -> Any:
    """Return a term that accepts a node with these labels; None: an operator lists no values."""
    if not isinstance(term, dict) or term.get("matchFields"):
        return None
    for item in term.get("matchExpressions") or ():
        if not isinstance(item, dict):
            return None
        value = labels.get(item.get("key") or "")
        values = item.get("values")
        if item.get("operator") == "In" and isinstance(values, list) and isinstance(value, str):
            if value not in values:
                item["values"] = [*values, value]
        elif item.get("operator") != "Exists" or value is None:
            return None
    return term


def _tolerations(
    vm: Object, key: str, taints: list[Mapping[str, Any]]
) -> tuple[str, list[FieldEdit]] | None:
    missing = [taint for taint in taints if taint.get("key") == key]
    if not missing or controller_taints.owner(key):
        return None
    present = vms.vmi_spec(vm)["tolerations"]
    added = [
        {
            "key": key,
            "operator": "Equal",
            "value": str(taint.get("value") or ""),
            "effect": taint.get("effect"),
        }
        if taint.get("value")
        else {"key": key, "operator": "Exists", "effect": taint.get("effect")}
        for taint in missing
    ]
    before = list(present.value) if present.is_list else []
    return f"tolerate taint {key}", [FieldEdit((*TEMPLATE, "tolerations"), [*before, *added])]


def _pod_affinity(vm: Object) -> tuple[str, list[FieldEdit]] | None:
    """Return required pod affinity as a preference: the term stays, the latency may grow."""
    path = (*TEMPLATE, "affinity", "podAffinity")
    own = vm.at(*path)
    required = own[REQUIRED]
    if not required.is_list or not required.value:
        return None
    preferred = own[PREFERRED].value if own[PREFERRED].is_list else []
    terms = [{"weight": 100, "podAffinityTerm": term} for term in required.value]
    return "prefer the affinity to other pods instead of requiring it", [
        FieldEdit((*path, REQUIRED), REMOVED),
        FieldEdit((*path, PREFERRED), [*preferred, *terms]),
    ]
