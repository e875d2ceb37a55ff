"""On random clusters each step is needed, none makes a node worse,
and equal clusters give equal plans.
"""

from __future__ import annotations

import json
import os

import pytest

from tests import blindness, random_vms
from tests.for_each import for_each
from tests.forecasts.repair.carried_out import carried_out
from virt_admit.forecasts.drain.drain_plan import plan as drain
from virt_admit.forecasts.repair.applying import applied
from virt_admit.forecasts.repair.planning import repair
from virt_admit.forecasts.repair.repair_plan import Goal, Proof
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.reports.plan.report import report
from virt_admit.reports.plan.text import text
from virt_admit.reports.values import as_data

pytestmark = pytest.mark.slow

SEEDS = int(os.environ.get("PLAN_SEEDS", "100"))


def random_cluster(seed: int) -> Snapshot:
    """Return a random cluster whose VMs have templates, as those of real clusters have."""
    objects = random_vms.random_cluster(seed)
    vmis = {
        each["metadata"]["name"]: each
        for each in objects
        if each["kind"] == "VirtualMachineInstance"
    }
    for each in objects:
        if each["kind"] == "VirtualMachine" and seed % 5:
            vmi = vmis[each["metadata"]["name"]]
            labels = {"labels": vmi["metadata"].get("labels", {})}
            each["spec"]["template"] = {"metadata": labels, "spec": vmi["spec"]}
    return blindness.everything(objects)


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_a_plan_keeps_its_promises(first):
    for seed in range(first, first + 50):
        cluster = random_cluster(seed)
        plan = repair(cluster, Goal.DRAIN)
        again = repair(random_cluster(seed), Goal.DRAIN)
        assert json.dumps(as_data(report(plan))) == json.dumps(as_data(report(again))), seed
        assert text(plan) == text(again), seed
        before, after = drain(cluster), drain(applied(plan.steps, cluster))
        assert plan.holds is before.drainable, seed
        assert plan.reaches is after.drainable, seed
        assert drain(carried_out(plan, cluster)).drainable is plan.reaches, seed
        verdicts = {node.name: node.drainable for node in after.nodes}
        for node in before.nodes:
            assert verdicts[node.name] is True or not node.drainable, (seed, node.name)
            assert verdicts[node.name] is not False or node.drainable is False, (seed, node.name)
        left = {each.problem.id for each in plan.remaining}
        for step in plan.steps:
            assert (step.proof is Proof.DOES_NOT_FLIP) is bool(left & set(step.solves)), (
                seed,
                step.id,
            )


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_a_step_left_out_is_missed(first):
    for seed in range(first, first + 50):
        cluster = random_cluster(seed)
        plan = repair(cluster, Goal.DRAIN)
        if plan.reaches is not True:
            continue
        for step in plan.steps:
            if step.id.startswith("before-copies:"):
                continue
            rest = [other for other in plan.steps if other is not step]
            assert drain(applied(rest, cluster)).drainable is not True, (seed, step.id)


@for_each("seed", range(0, SEEDS, 10))
def test_an_upgrade_is_possible_after_a_plan_that_says_so(seed):
    plan = repair(random_cluster(seed), Goal.UPGRADE)
    assert plan.reaches or plan.remaining or plan.unseen
