"""Nodes with VMs that no health check can remediate."""

from dataclasses import replace

import pytest

from tests.builders import complete
from tests.model.kubevirt.drain_cases import HERE, THERE, vm, vmi
from virt_admit.forecasts.drain.drain_plan import plan
from virt_admit.reports.drain.text import text


@pytest.mark.parametrize(("run", "nodes"), [("Always", ("a",)), ("Manual", ())])
def test_a_health_check_helps_only_vms_that_start_again(run, nodes):
    found = plan(complete(vmi("None", True), HERE, THERE, vm(run)))
    assert found.uncovered == nodes


@pytest.mark.parametrize(
    ("restored", "left"),
    [
        ({}, ", which would not restart after a loss"),
        ({"b": ["shop/x"]}, ", which would not restart after a loss"),
        ({"a": ["shop/x"]}, ", some of which would not restart after a loss"),
        ({"a": [None]}, ""),
    ],
    ids=["nothing", "on another node", "another VM", "all of them"],
)
def test_vms_that_something_else_brings_back_are_not_counted_twice(restored, left):
    subject = vmi("None", True)
    found = plan(complete(subject, HERE, THERE, vm("Always")))
    on = {node: [each or subject.full_name for each in some] for node, some in restored.items()}
    other = {"MachineHealthCheck edge/md of its tenant cluster": on} if on else {}
    (line,) = [
        each
        for each in text(replace(found, otherwise=other)).splitlines()
        if "can remediate" in each
    ]
    assert f"1 node with VMs{left}: a" in line


def test_only_the_vms_that_something_else_brings_back_are_named():
    found = plan(complete(vmi("None", True), HERE, THERE, vm("Always")))
    by = "MachineHealthCheck edge/md of its tenant cluster"
    other = {by: {"a": ["edge/w-1"], "b": ["edge/w-2"]}}
    said = text(replace(found, otherwise=other))
    assert (
        "Without a health check of their nodes (a, b), edge/w-1, edge/w-2 restart after a loss by "
        f"{by}"
    ) in said.splitlines()
