"""The command for a finding about an object of a cluster: what an administrator types to repair it, or to see more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from virt_admit.model.commands import about, json_patch, kubectl
from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT, NODE, POD, VMI, VMIM, Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.problems import ProblemCause
from virt_admit.reports.findings.report import ReportRow


def command(row: ReportRow) -> str:
    """Return the command of a row; empty: it is about a file, the webhook repairs it, or the object has no name yet."""
    obj, kind = row.result.obj, row.result.request.kind
    if row.result.document is not None or kind is None or not obj.name or row.fixed or row.action is None:
        return ""
    if row.fix:
        return json_patch(kind, obj.name, obj.namespace, row.fix)
    if row.problem is not None and _blocks_drains(row, kind):
        from virt_admit.forecasts.drain.typed_remedies import shut_down_by_drains  # noqa: PLC0415 - files need no forecast

        return shut_down_by_drains(obj, "LiveMigrateIfPossible") or _default(obj, kind)
    cause = row.problem.cause if row.problem is not None else ""
    return _BY_CAUSE.get(cause, _default)(obj, kind)


def _blocks_drains(row: ReportRow, kind: Kind) -> bool:
    """Whether drains wait for a VM that cannot migrate: with LiveMigrateIfPossible they shut it down already."""
    if row.problem is None or kind.kind not in _MIGRATING or not row.problem.cause.endswith("Migratable"):
        return False
    return bool(vms.vmi_spec(row.result.obj)["evictionStrategy"].value != "LiveMigrateIfPossible")


_MIGRATING: Final = frozenset(("VirtualMachine", "VirtualMachineInstance", "VirtualMachineInstanceReplicaSet"))
_SEEN_ONLY: Final = frozenset((NODE, POD, VMI, VMIM))
"""Kinds whose objects KubeVirt and Kubernetes write: to edit them repairs nothing."""


_OF_HYPERCONVERGED: Final = "kubevirt-kubevirt-hyperconverged"
"""The KubeVirt object that HyperConverged writes, so that changes of it are lost (kubevirt/hyperconverged-cluster-operator:
controllers/handlers/kubevirt.go#NewKubeVirtWithNameOnly)."""


def _default(obj: Object, kind: Kind) -> str:
    if kind is KUBEVIRT and obj.name == _OF_HYPERCONVERGED:
        return kubectl("edit", HCO, obj.name.removeprefix("kubevirt-"), obj.namespace)
    return about("describe" if kind in _SEEN_ONLY else "edit", obj, kind)


def _describe(obj: Object, kind: Kind) -> str:
    return about("describe", obj, kind)


_BY_CAUSE: Final[Mapping[str, Callable[[Object, Kind], str]]] = {ProblemCause.COMPONENT: _describe}
