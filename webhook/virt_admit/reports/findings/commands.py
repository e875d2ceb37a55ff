"""The command for a finding about an object of a cluster: what an administrator types to repair it,
or to see more.
"""

from __future__ import annotations

import re
from typing import Final

from virt_admit.model.commands import about, argument, json_patch, kubectl, shell, virtctl
from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT, NODE, POD, VM, VMI, VMIM, Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.problems import ProblemCause
from virt_admit.reports.findings.report import ReportRow
from virt_admit.rule import Action


def command(row: ReportRow) -> str:
    """Return the command of a row; empty: it is about a file, the webhook repairs it,
    or the object has no name yet.
    """
    obj, kind = row.result.obj, row.result.request.kind
    if (
        row.result.document is not None
        or kind is None
        or not obj.name
        or row.fixed
        or row.action is None
    ):
        return ""
    if row.command:
        return _without_fence(row.command)
    if row.fix:
        return json_patch(kind, obj.name, obj.namespace, row.fix)
    if row.rule in _HANG_DRAINS:
        # files need no forecast
        from virt_admit.forecasts.drain.typed_remedies import shut_down_by_drains  # noqa: PLC0415

        if any(
            other.endswith(_SHUT_DOWN) for other in row.others
        ):  # its VM has the other strategy, from its next start on
            return virtctl("restart", obj.name, obj.namespace)
        strategy = "None" if _ONLY_NONE.search(row.message) else versions.IF_POSSIBLE
        return shut_down_by_drains(obj, strategy) or _default(obj, kind)
    if row.rule == _OUTDATED and row.action is Action.AUDIT:  # the update goes on by itself
        return shell("kubectl", "get", "vmi", "--all-namespaces", "-l", vmis.OUTDATED)
    cause = row.problem.cause if row.problem is not None else ""
    vm = vmis.owner(obj, "VirtualMachine") if kind is VMI and row.rule.startswith("vm-") else None
    if vm:
        return kubectl("edit", VM, vm, obj.namespace)
    return _see(obj, kind) if cause in _NOT_BY_EDIT else _default(obj, kind)


_HANG_DRAINS: Final = frozenset(("vm-live-migrate-not-migratable", "vmi-not-migratable"))
"""Rules on VMs whose eviction LiveMigrate refuses forever. All others may have
LiveMigrateIfPossible already.
"""
_ONLY_NONE: Final = re.compile(r"\b[Ss]et None\b")
"""What a rule says where KubeVirt does not know LiveMigrateIfPossible."""
_OUTDATED: Final = "workload-outdated"
_SHUT_DOWN: Final = " [vm-shutdown-on-drain]"
_SEEN_ONLY: Final = frozenset((NODE, POD, VMI, VMIM))
"""Kinds whose objects KubeVirt and Kubernetes write: to edit them repairs nothing."""


_OF_HYPERCONVERGED: Final = "kubevirt-kubevirt-hyperconverged"
"""The KubeVirt object that HyperConverged writes, so that changes of it are lost
(kubevirt/hyperconverged-cluster-operator:
controllers/handlers/kubevirt.go#NewKubeVirtWithNameOnly).
"""


def _without_fence(command: str) -> str:
    """Return the command, but never a fence without its condition, which the text has."""
    # files alone have no lost node
    from virt_admit.model.remediation import fence_taints  # noqa: PLC0415

    fenced = fence_taints.fenced_by(command)
    return shell("virt-admit", "explain", argument(f"node/{fenced}")) if fenced else command


def _default(obj: Object, kind: Kind) -> str:
    if kind is KUBEVIRT and obj.name == _OF_HYPERCONVERGED:
        return kubectl("edit", HCO, obj.name.removeprefix("kubevirt-"), obj.namespace)
    if obj.annotations or kind is KUBEVIRT:  # the mark of Fleet, and the chart of Harvester
        # few objects have it
        from virt_admit.model.evidence.writes import fleet_objects  # noqa: PLC0415

        if chart := fleet_objects.chart_of(obj):
            return fleet_objects.edit(chart)
    return _see(obj, kind) if kind in _SEEN_ONLY else about("edit", obj, kind)


def _see(obj: Object, kind: Kind) -> str:
    """Return the command that shows an object with its causes:
    ``explain`` where it knows the kind.
    """
    if kind is NODE:
        return shell("virt-admit", "explain", argument(f"node/{obj.name}"))
    if kind is VMI:
        vm, namespace = argument(f"vm/{obj.name}"), argument(obj.namespace or "default")
        return shell("virt-admit", "explain", vm, "-n", namespace)
    return about("describe", obj, kind)


_NOT_BY_EDIT: Final = frozenset(
    (
        *(ProblemCause.COMPONENT, ProblemCause.NOT_REPORTED),
        *(ProblemCause.NO_ROOM, ProblemCause.NO_NODE_READY, ProblemCause.NO_TARGET),
        ProblemCause.NODE_COMING,
    )
)
"""Causes that an edit of the object itself does not end."""
