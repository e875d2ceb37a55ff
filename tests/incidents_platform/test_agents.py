"""The roll-outs of agents that VMs need on nodes: told by each verb with their cause where they
stand, and by none while they go on or concern no VM."""

import json

import pytest
from click.testing import CliRunner

from tests.advice import risky
from tests.healthy.parts import snapshot
from tests.incidents_platform.agent_cases import IN_MOTION, STANDING
from tests.incidents_platform.agents import CNI, Agent, crash, of, told
from tests.incidents_platform.case import only, unready
from tests.remedies import joined, wrong
from virt_admit.cli.main import virt_admit

VERBS = {
    "scan": ("scan",),
    "upgrade": ("upgrade",),
    "drain": ("drain", "n2"),
    "all": ("drain", "--all"),
    "vm": ("explain", "vm/web", "-n", "vms"),
    "node": ("explain", "node/n1"),
}
START = ("explain", "vm/db", "-n", "vms")
ACCUSES = ("does not finish its roll-out", "is down on", "cannot create its pod on")


@pytest.fixture
def ask(tmp_path):
    """Return a function that runs a verb on objects and returns its report on one line."""

    def run(items, verb):
        path = tmp_path / "cluster.json"
        path.write_text(json.dumps(snapshot(items)))
        words = [*VERBS.get(verb, START), "--cluster", str(path)]
        result = CliRunner().invoke(virt_admit, words, standalone_mode=False)
        assert not risky(result.stdout), risky(result.stdout)
        assert not wrong(result.stdout), wrong(result.stdout)
        return result.return_value, " ".join(joined(result.stdout).split())

    return run


@pytest.mark.parametrize("case", STANDING, ids=lambda case: case.name)
def test_each_verb_tells_an_agent_that_stands(case, ask):
    items = case.items()
    code, upgrade = ask(items, "upgrade")
    assert [part for part in (*case.says, case.effect) if part not in upgrade] == [], upgrade
    assert (code, upgrade.count("Unknown:")) == ((2, 1) if case.unknown else (0, 0)), upgrade
    scanned = ask(items, "scan")[1]
    assert f"[{case.rule}]" in scanned
    assert case.says[-1] in scanned or case.says[-2] in scanned, scanned
    for verb in ("drain", "vm"):
        report = ask(items, verb)[1]
        assert all(part in report for part in (*case.says, case.effect)) == case.drains, report
    assert case.rule in ask(items, "node")[1]
    whole = ask(items, "all")[1]
    assert ("upgraded today? Unknown:" in whole) == case.unknown, whole


@pytest.mark.parametrize("name", IN_MOTION)
def test_no_verb_accuses_an_agent_in_motion_or_one_that_no_vm_needs(name, ask):
    items = IN_MOTION[name]()
    for verb in VERBS:
        report = ask(items, verb)[1]
        assert "node-agent-down" not in report, report
        assert not any(each in report for each in ACCUSES), report


def starting():
    """Return a VM whose pod gets no network on n1 from a plugin that is not known by its name."""
    items = of(
        Agent(name="spiderpool-agent", namespace="spiderpool", paths=CNI, state=crash("no lease"))
    )
    pod = only(items, "Pod", "virt-launcher-db-k2x7q")
    items[items.index(pod)] = pod = unready(pod)
    pod["status"] |= {"phase": "Pending", "containerStatuses": []}
    live = only(items, "VirtualMachineInstance", "db")
    live["status"] |= {"phase": "Scheduling", "conditions": []}
    said = (
        'Failed to create pod sandbox: plugin type="spiderpool" failed (add): dial unix '
        "/var/run/spidernet/spiderpool.sock: connect: connection refused"
    )
    return [*items, told(pod, "FailedCreatePodSandBox", said)]


def test_the_start_of_a_vm_names_the_agent_of_a_plugin_that_is_not_known(ask):
    report = ask(starting(), "start")[1]
    assert "because pod spiderpool/spiderpool-agent-x0 (DaemonSet spiderpool-agent) is" in report
    assert "no lease" in report


def test_there_are_as_many_that_look_alike():
    assert len(IN_MOTION) >= len(STANDING) >= 12
