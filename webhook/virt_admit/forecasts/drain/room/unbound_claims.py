"""Claims that are not bound and keep a VM from every other node: what their provisioner lacks."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from virt_admit.forecasts.drain import vm_outcomes
from virt_admit.forecasts.drain.starts.storage import provisioners
from virt_admit.forecasts.drain.states import vm_states_failures
from virt_admit.forecasts.drain.vm_outcomes import Forecast
from virt_admit.forecasts.placement import no_target
from virt_admit.forecasts.placement.refusals.refusal_remedies import KEPT
from virt_admit.model.commands import typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import PVC
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.lookups import find
from virt_admit.model.messages import without_command
from virt_admit.model.problems import Problem

READS: Final[Reads] = union(vm_outcomes.READS, provisioners.READS)
_UNBOUND: Final = re.compile(r"claim (\S+) is not bound$")


def never_completes(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return why no migration of a migratable VMI ends, however often tried; None: it may."""
    failing = vm_states_failures.failing(vmi, cluster)
    nowhere = None if failing is not None else no_target.nowhere_to_go(vmi, cluster)
    return failing if nowhere is None else _of(nowhere, vmi, cluster)


def forecast(vmi: Object, cluster: Cluster) -> Forecast:
    """Return what a drain does to a VMI, with what the provisioner says of a claim that keeps
    it.
    """
    return told(vm_outcomes.forecast(vmi, cluster), cluster)


def told(row: Forecast, cluster: Cluster) -> Forecast:
    """Return the outcome of a VM, with what the provisioner says of the claim that keeps it."""
    if not _UNBOUND.search(row.reason):
        return row
    first = row.problems[0] if row.problems else Problem(row.reason, row.remedy)
    found = _of(first, row.vmi, cluster)
    if found is first:
        return row
    reason = f"{row.reason}{found.reason.removeprefix(first.reason)}"
    problems = (found, *row.problems[1:]) if row.problems else ()
    return replace(row, reason=reason, remedy=found.remedy, problems=problems)


def _of(found: Problem, vmi: Object, cluster: Cluster) -> Problem:
    """Return why no other node takes a VMI, with what the provisioner says of its claim."""
    unbound = _UNBOUND.search(found.reason)
    claim = find(cluster, PVC, vms.namespace_of(vmi), unbound[1]) if unbound is not None else None
    failed = provisioners.of_filled(claim, cluster) if claim is not None else None
    if failed is None:
        return found
    kept = KEPT if without_command(found.remedy).endswith(KEPT) else ""
    remedy = typed(f"{without_command(failed.remedy)}{kept}", failed.command)
    return found._replace(
        reason=f"{found.reason}: {failed.reason}", remedy=remedy, command=failed.command
    )
