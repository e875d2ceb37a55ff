"""Findings about VMs that ran when the room for the loss of one node ran out,
for Events of the watch.
"""

from __future__ import annotations

from collections.abc import Iterator

from virt_admit.engine.admission_review import Request, Response, Verdict
from virt_admit.forecasts.outage.outages import amount
from virt_admit.forecasts.outage.reserve_crossing import ReserveCrossing
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import VM
from virt_admit.model.lookups import find
from virt_admit.reports.findings.report import ObjectResult
from virt_admit.rule import Action, Finding
from virt_admit.rules import load_rules

RULE = "vm-takes-failover-capacity"
"""The rule that says this at admission."""


def results(crossed: ReserveCrossing, cluster: Cluster) -> Iterator[ObjectResult]:
    """Yield a result with one warning for each VM that began to run since the room was enough."""
    rule = load_rules().by_id[RULE]
    message = (
        f"since this VM runs, the loss of {crossed.node} leaves VMs without room: "
        f"{amount(crossed.resource, crossed.missing)} short. Make it smaller, stop VMs or add a "
        "node; see virt-admit outage --worst 1."
    )
    for namespace, name in sorted(crossed.vms):
        vm = find(cluster, VM, namespace, name)
        if vm is not None and not vm.deleted:
            verdict = Verdict(
                rule, Finding(vm.at("spec", "runStrategy").path, message), Action.WARN
            )
            yield ObjectResult(Request("CREATE", VM, vm), Response(verdicts=(verdict,)))
