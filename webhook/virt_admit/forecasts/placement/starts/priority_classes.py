"""Pods whose PriorityClass does not exist: the API server refuses each new one.

Those that run keep their priority, so nothing shows it before they have to be made again. The API
server makes the classes with the prefix ``system-`` itself: a snapshot without these holds no
classes, whatever it says of its kinds. Sources:
kubernetes/kubernetes:plugin/pkg/admission/priority/admission.go#admitPod,
:pkg/registry/scheduling/rest/storage_scheduling.go#AddSystemPriorityClasses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from virt_admit.model.kubernetes.cluster import Cluster, entry
from virt_admit.model.kubernetes.kinds import (
    POD,
    PRIORITY_CLASS,
    REPLICA_SET,
    STATEFUL_SET,
    VM,
    VMI,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import NAME, Reads
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.launcher import pod_refusals
from virt_admit.model.lookups import find, is_absent
from virt_admit.model.messages import ended, names
from virt_admit.model.problems import Problem, ProblemCause

_MAKERS: Final = {each.kind: each for each in (REPLICA_SET, STATEFUL_SET)}
READS: Final[Reads] = {
    **dict.fromkeys(_MAKERS.values(), ("spec.template.spec.priorityClassName",)),
    POD: ("metadata.ownerReferences", "spec.nodeName", "spec.priorityClassName", "status.phase"),
    PRIORITY_CLASS: NAME,
    VM: ("spec.template.spec.priorityClassName",),
    VMI: ("spec.priorityClassName",),
}
_BUILT_IN: Final = "system-"


def problem(obj: Object, cluster: Cluster) -> Problem | None:
    """Return that the API server refuses each new pod of a VM or VMI; None: its class exists, or
    it names none.

    Raises:
        Unseen: the class cannot be read.
    """
    name = vms.vmi_spec(obj)["priorityClassName"].text or ""
    if not name or name.startswith(_BUILT_IN):
        return None
    if cluster.get(PRIORITY_CLASS, "", name) is not None or not _holds_classes(cluster):
        return None
    reason = f"PriorityClass {name} does not exist, so the API server refuses each new pod of it"
    return Problem(reason, pod_refusals.without_class(obj, name, cluster), ProblemCause.NOT_CREATED)


def _holds_classes(cluster: Cluster) -> bool:
    return any(each.name.startswith(_BUILT_IN) for each in cluster.known(PRIORITY_CLASS))


def absent(obj: Object, cluster: Cluster) -> Problem | None:
    """Return the same where the class certainly does not exist."""
    name = vms.vmi_spec(obj)["priorityClassName"].text or ""
    return problem(obj, cluster) if is_absent(cluster, PRIORITY_CLASS, "", name) else None


def notes(node: str, cluster: Cluster) -> Iterator[str]:
    """Yield the pods of a node, besides those of VMs, that a drain evicts for good."""
    for name, pods in sorted((entry(cluster, _unmade, node) or {}).items()):
        yield ended(
            f"{names(pods)} would not be made again once evicted: PriorityClass {name} does not "
            "exist. Create it before the drain"
        )


def _unmade(cluster: Cluster) -> Mapping[str, Mapping[str, Sequence[str]]]:
    """Return the pods that would not be made again, by node and by absent class."""
    found: dict[str, dict[str, list[str]]] = {}
    for pod in cluster.known(POD) if _holds_classes(cluster) else ():
        name = pod.at("spec", "priorityClassName").text or ""
        if not name or name.startswith(_BUILT_IN) or pod.ended:
            continue
        if not is_absent(cluster, PRIORITY_CLASS, "", name) or not _asks(pod, name, cluster):
            continue
        own = found.setdefault(pod.at("spec", "nodeName").text or "", {})
        own.setdefault(name, []).append(pod.full_name)
    return {node: {name: sorted(own) for name, own in by.items()} for node, by in found.items()}


def _asks(pod: Object, name: str, cluster: Cluster) -> bool:
    """Return whether what makes a pod again is known to name this class: the API server writes the
    default class into each pod that names none (admission.go#admitPod), and a new pod gets the
    default of then.
    """
    owner = pod.controller
    kind = _MAKERS.get(owner["kind"].text or "") if owner is not None else None
    if owner is None or kind is None:
        return False
    maker = find(cluster, kind, pod.namespace, owner["name"].text)
    template = maker.at("spec", "template", "spec") if maker is not None else None
    return template is not None and template["priorityClassName"].text == name
