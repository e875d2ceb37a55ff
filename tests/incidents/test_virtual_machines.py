"""Public incidents with virtual machines, written from the reports alone: the verdict,
and the cause in the text.
"""

import json
import re

import pytest
from click.testing import CliRunner

from tests.advice import risky
from tests.incidents import (
    component_faults,
    control_path,
    cordon_loops,
    cordons,
    failures,
    fifth_look,
    fourth_look,
    held_budgets,
    held_nodes,
    leftovers,
    node_plugins,
    paused,
    placement,
    rejections,
    second_look,
    starts,
    stuck_parts,
    target_pods,
    targets,
    third_look,
)
from tests.remedies import joined, wrong
from virt_admit.cli.main import virt_admit

INCIDENTS = [
    *placement.incidents(),
    *target_pods.incidents(),
    *failures.incidents(),
    *control_path.incidents(),
    *second_look.incidents(),
    *third_look.incidents(),
    *fifth_look.incidents(),
    *fourth_look.incidents(),
    *leftovers.incidents(),
    *targets.incidents(),
    *rejections.incidents(),
    *starts.incidents(),
    *stuck_parts.incidents(),
    *component_faults.incidents(),
    *paused.incidents(),
    *cordons.incidents(),
    *held_nodes.incidents(),
    *held_budgets.incidents(),
    *node_plugins.incidents(),
    *cordon_loops.incidents(),
]


@pytest.fixture(params=INCIDENTS, ids=lambda incident: incident.name)
def incident(request):
    return request.param


@pytest.fixture
def ask(incident, tmp_path):
    """Return a function that runs a command on the cluster of an incident and returns what it
    prints.
    """
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(incident.snapshot()))

    def run(*words):
        result = CliRunner().invoke(virt_admit, [*words, "--cluster", str(path)])
        assert result.exit_code in (0, 1, 2), result.output
        assert not risky(result.stdout), risky(result.stdout)
        assert not wrong(result.stdout), wrong(result.stdout)
        return joined(result.stdout)

    return run


def test_the_cause_is_said(incident, ask):
    said = ask(*incident.ask)
    assert not [fact for fact in incident.facts if not re.search(fact, said)], (incident.url, said)


def test_the_verdict_is_right(incident, ask):
    if incident.ask[0] != "drain":
        return
    nodes = json.loads(ask(*incident.ask, "-o", "json"))["nodes"]
    assert [node["drainable"] in incident.verdict for node in nodes] == [True], (
        incident.url,
        nodes,
    )


def test_an_upgrade_does_not_pass_a_node_that_cannot_be_drained(incident, ask):
    if True in incident.verdict:
        return
    found = json.loads(ask("upgrade", "-o", "json"))
    assert found["possible"] is not True, (incident.url, found["waves"])


def test_no_vm_of_a_namespace_that_is_being_deleted_restarts_after_a_loss(tmp_path):
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(leftovers.ending_namespace().snapshot()))
    found = CliRunner().invoke(virt_admit, ["outage", "w1", "-o", "json", "--cluster", str(path)])
    (lost,) = json.loads(found.stdout)["outages"]
    assert {vm["outcome"] for vm in lost["vms"]} == {"stays off"}
