"""Huge pages and devices that a VM needs and that no node with KubeVirt has, not even in use.

Freeing room on a node does not help then. The demand often comes from an instance type: those of
the classes ``m1`` and ``cx1`` ask for huge pages, which nodes have only if their kernel reserves
them. Sources: kubevirt/common-instancetypes#105; kubevirt/kubevirt:pkg/virt-controller/services/
template.go; kubernetes/website:content/en/docs/tasks/manage-hugepages/scheduling-hugepages.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from virt_admit.forecasts.drain.starts.devices import unreported_devices
from virt_admit.forecasts.placement import candidates, no_target
from virt_admit.forecasts.placement.candidates import SchedulingTarget
from virt_admit.forecasts.placement.refusals import refusal_remedies, unreached_settings
from virt_admit.model import node_bridges
from virt_admit.model.commands import kubectl, shell, typed
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import CLUSTER_INSTANCETYPE, INSTANCETYPE, VM
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import expand, vmis, vms
from virt_admit.model.kubevirt.instances.expand import ExpandedVmi
from virt_admit.model.problems import Problem, ProblemCause
from virt_admit.model.scheduler.resources import amount, show

READS: Final[Reads] = union(
    unreported_devices.READS, unreached_settings.READS, expand.READS, {VM: ("spec.instancetype",)}
)
_PAGES: Final = "hugepages-"


def problem(obj: Object, target: SchedulingTarget, cluster: Cluster) -> Problem | None:
    """Return which resource of a VM or VMI no node has; None: each is somewhere,
    or that is not known.
    """
    refusals = no_target.kubevirt_refusals(target, cluster)
    absent = refusal_remedies.absent_resource(refusals, cluster) if refusals else ""
    if not refusals or not absent or not _is_known_nowhere(absent, refusals, cluster):
        return None
    vm, needed = _vm(obj, cluster), show(absent, target.pod.requests[absent])
    expanded = expand.expand(vm or obj, cluster)
    own, given = _own(expanded, absent), _is_of_type(expanded, absent)
    called = vms.vm_spec(expanded.obj)["instancetype"]["name"].text or ""
    if given and called:
        asks = f"instance type {called} of the VM asks for {needed}"
    else:
        asks = f"the VM asks for {needed}{f' ({own.path})' if own is not None else ''}"
    reason = (
        f"no node with KubeVirt has any {absent} (allocatable is 0), and {asks}. Waiting does not "
        "help"
    )
    without = _other(expanded, absent, called if given else "", cluster)
    if (setting := unreached_settings.of(absent, refusals, cluster)) is not None:
        remedy = typed(f"{setting.remedy}; or {without}", setting.command)
        return Problem(f"{reason}{setting.reason}", remedy, ProblemCause.NO_TARGET)
    remedy = f"{without}, or {_added(absent, target)}"
    name, namespace = expanded.obj.name, vms.namespace_of(expanded.obj)
    command = (
        kubectl("edit", VM, name, namespace) if kinds.of(expanded.obj) is VM else shell(*_NODES)
    )
    return Problem(reason, typed(remedy, command), ProblemCause.NO_TARGET)


_NODES: Final = ("kubectl", "describe", "nodes")


def _is_known_nowhere(resource: str, refusals: dict[str, str], cluster: Cluster) -> bool:
    """Return whether nothing is known that may offer a resource: what offers a device may not work,
    or be about to.
    """
    if resource.startswith(_PAGES):
        return True
    nodes = candidates.scheduler(cluster).state.nodes
    return not (
        unreported_devices.is_offered_by_kubevirt(resource, cluster)
        or node_bridges.bridge(resource)
        or any(resource in (node.allocatable or {}) for node in nodes.values())
        or unreported_devices.passed_through(resource, cluster)
        or any(unreported_devices.may_start(name, resource, cluster) for name in refusals)
    )


def _vm(obj: Object, cluster: Cluster) -> Object | None:
    return obj if kinds.of(obj) is VM else vmis.known_vm(obj, cluster)


def _own(vmi: ExpandedVmi, resource: str) -> Field | None:
    """Return the field of the VM itself that asks for a resource; None: it has none."""
    if resource.startswith(_PAGES):
        pages = vmi.spec.at("domain", "memory", "hugepages")
        return pages if pages.present else None
    given = (each for each in (vmi.gpus, vmi.host_devices) if not each.source)
    return next((field for each in given for field in _named(each.field, resource)), None)


def _is_of_type(vmi: ExpandedVmi, resource: str) -> bool:
    """Return whether the instance type asks for a resource."""
    if vmi.instancetype is None:
        return False
    if resource.startswith(_PAGES):
        return vmi.instancetype.spec.at("memory", "hugepages", "pageSize").text is not None
    given = (each for each in (vmi.gpus, vmi.host_devices) if each.source)
    return any(True for each in given for _ in _named(each.field, resource))


def _named(devices: Field, resource: str) -> Iterator[Field]:
    yield from (each for each in devices.items() if each["deviceName"].text == resource)


def _other(vmi: ExpandedVmi, resource: str, instancetype: str, cluster: Cluster) -> str:
    """Return how the VM does without a resource.

    A VM that waits has its old VMI until it is restarted.
    """
    what = "huge pages" if resource.startswith(_PAGES) else resource
    if not instancetype:
        return f"remove {what} from the VM and restart it"
    same = _same_size(vmi, cluster) if resource.startswith(_PAGES) else ""
    revision = vms.vm_spec(vmi.obj)["instancetype"]["revisionName"]
    copy = f" (and remove {revision.path}, the copy of this one)" if revision.text else ""
    example = f", such as {same}" if same else ""
    return f"give the VM an instance type without {what}{example}{copy} and restart it"


def _same_size(vmi: ExpandedVmi, cluster: Cluster) -> str:
    """Return an instance type of the same kind with as many CPUs and as much memory,
    but no huge pages; empty: none.
    """
    if vmi.instancetype is None:
        return ""
    named = vms.vm_spec(vmi.obj)["instancetype"]["kind"].text or ""
    kind = INSTANCETYPE if named.lower() == INSTANCETYPE.kind.lower() else CLUSTER_INSTANCETYPE
    namespace = vms.namespace_of(vmi.obj) if kind is INSTANCETYPE else None
    wanted = _size(vmi.instancetype.spec)
    return min(
        (
            each.name
            for each in cluster.known(kind, namespace)
            if _size(each["spec"]) == wanted
            and not each.at("spec", "memory", "hugepages").present
            and not each.at("spec", "cpu", "dedicatedCPUPlacement").boolean
            and not any(True for _ in each.at("spec", "gpus").items())
        ),
        default="",
    )


def _size(spec: Field) -> tuple[int | None, int]:
    return spec.at("cpu", "guest").integer, amount("memory", spec.at("memory", "guest").value)


def _added(resource: str, target: SchedulingTarget) -> str:
    """Return how a node comes to have a resource."""
    if not resource.startswith(_PAGES):
        return f"add a node that has {resource}, with the device plugin that offers it"
    size = resource.removeprefix(_PAGES)
    page = amount("memory", size)
    number = f"at least {-(-target.pod.requests[resource] // page)} " if page else ""
    return f"reserve {number}huge pages of {size} on a node by its kernel arguments, and reboot it"
