"""What objects around a VM that does not run, does not move or lacks a volume report as wrong:
notes of its report.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Final

from virt_admit.forecasts.drain.vm_events import EventEffect, VmEvent
from virt_admit.forecasts.drain.vm_outcomes import VmOutcome
from virt_admit.model.evidence import reported
from virt_admit.model.evidence.reported import Read, WholeCluster, no_events
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.kubevirt.instances import down_vms
from virt_admit.model.kubevirt.instances.vm_lookup import FoundVm
from virt_admit.model.lookups import find
from virt_admit.reports.explain.vm.report import VmReport

_HELD: Final = (VmOutcome.BLOCKS, VmOutcome.UNKNOWN, EventEffect.FAILS, EventEffect.REFUSED)


def with_reported(
    report: VmReport, found: FoundVm, cluster: WholeCluster, read: Read = no_events
) -> VmReport:
    """Return a report with what the objects around its VM report as wrong.

    If nothing is wrong with the VM, only what lasts counts, that of its node included.

    ``read`` adds events about some objects to the cluster, as in ``reported.around``.
    """
    start = [obj for obj in (found.vm, found.vmi) if obj is not None]
    fine = not _troubled(report, found)
    on = found.vmi.at("status", "nodeName").text if fine and found.vmi is not None else None
    if (node := find(cluster, NODE, "", on)) is not None:
        start.append(node)
    problems = reported.around(start, cluster, tuple(_said(report)), read, lasting=fine)
    return dataclasses.replace(report, notes=(*report.notes, *map(str, problems)))


def _troubled(report: VmReport, found: FoundVm) -> bool:
    if report.vm.running is False:
        return found.vmi is not None or found.vm is None or down_vms.should_run(found.vm)
    moves = (each for each in report.events if each.event in (VmEvent.DRAIN, VmEvent.MIGRATION))
    volumes = any(volume.problem for volume in report.volumes or ())
    return any(each.outcome in _HELD for each in moves) or volumes


def _said(report: VmReport) -> Iterator[str]:
    """Yield the texts of a report that say why."""
    for event in report.events:
        yield from (event.reason, event.remedy)
    for migration in report.migrations or ():
        yield migration.failure.text if migration.failure is not None else ""
    for volume in report.volumes or ():
        yield from (volume.problem, volume.remedy)
    for part in report.control or ():
        yield from (part.reason, part.remedy)
    yield from (refusal.what for refusal in report.short or ())
    yield from report.notes
