"""Rules, ``drain``, ``upgrade`` and ``explain`` give the same answer about each VM, because they
ask the same forecast.
"""

from __future__ import annotations

import os

import pytest

from tests import blindness, builders, random_vms
from tests.model.kubevirt import drain_cases
from virt_admit.engine import review as engine
from virt_admit.engine.admission_review import Request
from virt_admit.forecasts.drain import vmi_evictions
from virt_admit.forecasts.drain.drain_plan import plan
from virt_admit.forecasts.drain.vm_outcomes import VmOutcome
from virt_admit.forecasts.drain.vmi_evictions import BLOCKING, Effect
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubevirt.instances import vm_lookup
from virt_admit.policy.files import load_policy
from virt_admit.reports.explain.judged_rules import Opinion
from virt_admit.reports.explain.node import collect as explain_node
from virt_admit.reports.explain.vm import collect as explain_vm
from virt_admit.reports.upgrade.report import report
from virt_admit.reports.values import as_data
from virt_admit.rule import Operation
from virt_admit.rules import load_rules

pytestmark = pytest.mark.slow

ALL = load_rules()
POLICY = load_policy("default", ALL)
SEEDS = int(os.environ.get("DOORS_SEEDS", "300"))

OUTCOMES = {
    Effect.MIGRATES: {VmOutcome.MIGRATES, VmOutcome.BLOCKS, VmOutcome.UNKNOWN},
    Effect.SHUTS_DOWN: {
        VmOutcome.RESTARTS,
        VmOutcome.STOPS,
        VmOutcome.AWAITS_NODE,
        VmOutcome.UNKNOWN,
    },
    **{effect: {VmOutcome.BLOCKS, VmOutcome.UNKNOWN} for effect in BLOCKING},
}
"""What ``drain`` may say of a VM, by what rules rest on. It blocks also for a lack of room, and
cannot tell without data.
"""


def warnings(cluster, node):
    """Return the findings of the rules about a NodeMaintenance for a node, by rule."""
    new = builders.manifest(
        "nodemaintenance.medik8s.io/v1beta1", "NodeMaintenance", "work", "", spec={"nodeName": node}
    )
    response = engine.review(
        Request(Operation.CREATE, kinds.NM, new, None, uid="1"), ALL, cluster, POLICY
    )
    assert not response.errors
    return {verdict.rule.id: verdict.finding.message for verdict in response.verdicts}


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_all_doors_say_the_same_of_every_vm(first):
    for seed in range(first, first + 50):
        cluster = blindness.everything(random_vms.random_cluster(seed))
        drained = plan(cluster)
        outcomes = {
            (row.vmi.namespace, row.vmi.name): row.outcome
            for node in drained.nodes
            for row in node.forecasts
        }
        for node in drained.nodes:
            if "not Ready" in node.state:  # there no eviction ends, which node-not-reporting says
                continue
            evictions = vmi_evictions.evictions(cluster, node.name)
            for vmi, found in evictions.reactions:
                assert outcomes[vmi.namespace, vmi.name] in OUTCOMES[found.effect], (
                    seed,
                    vmi.full_name,
                )
            said = warnings(cluster, node.name)
            assert bool(evictions.blocking) is ("nm-vm-blocks-drain" in said), (seed, node.name)
            stops = [row for row in node.having(VmOutcome.STOPS) if not row.vmi.deleted]
            assert bool(stops) is ("nm-vm-will-stop" in said), (seed, node.name)
        opinion = Opinion(ALL, None)
        for node in drained.nodes:  # ``watch`` shows the same plan
            explained_node = explain_node.report(node.name, cluster, opinion).report
            assert explained_node.drain.drainable is node.drainable, (seed, node.name)
        for row in (row for node in drained.nodes for row in node.forecasts):
            found = vm_lookup.find(row.vmi.name, row.vmi.namespace, cluster)
            explained = explain_vm.report(found, cluster, opinion)
            assert explained.drain.outcome == row.outcome, (seed, row.vmi.full_name)
            assert explained.events[0].outcome == row.outcome, (seed, row.vmi.full_name)
            assert explained.upgrade.outcome == row.outcome, (seed, row.vmi.full_name)
            assert explained.candidates == row.placement.certain, (seed, row.vmi.full_name)
        rehearsed = as_data(report(rehearse(cluster, Options(None, None, 10))))
        for moved in rehearsed["vms"]:
            assert moved["outcome"] == outcomes[moved["namespace"], moved["name"]], (seed, moved)


def test_a_vm_with_none_under_a_budget_that_allows_nothing():
    """Rules once said that a drain shuts it down, where ``drain`` says that it blocks."""
    cluster = builders.complete(
        drain_cases.HERE,
        drain_cases.THERE,
        drain_cases.vm("Manual"),
        drain_cases.vmi("None", migratable=False),
        drain_cases.budget(drain_cases.LAUNCHERS, allowed=0, minAvailable=1),
    )
    assert [row.outcome for node in plan(cluster).nodes for row in node.forecasts] == [
        VmOutcome.BLOCKS
    ]
    said = warnings(cluster, "a")
    assert "forbids the eviction" in said["nm-vm-blocks-drain"]
    assert "nm-vm-will-stop" not in said
    rehearsed = as_data(report(rehearse(cluster, Options(None, None, 10))))
    assert [moved["outcome"] for moved in rehearsed["vms"]] == [VmOutcome.BLOCKS]
