"""Nodes that do not take a VM: how an explanation calls them,
and which cause does not concern one node.
"""

from types import SimpleNamespace

import pytest

from virt_admit.forecasts.drain.vm_events import EventEffect
from virt_admit.reports.explain.judged_rules import JudgedRule
from virt_admit.reports.explain.vm import repetitions, text

LOST = "NetworkAttachmentDefinition shop/vlan1 does not exist"


@pytest.mark.parametrize(
    ("node", "state", "title"),
    [
        ("a", "still", "Why not to other nodes"),
        ("a", "stopped", "Nodes that do not take it"),
        (None, "starting", "Nodes that do not take it"),
    ],
)
def test_a_vm_that_does_not_run_has_no_other_nodes(node, state, title):
    assert text.nodes_title(SimpleNamespace(vm=SimpleNamespace(node=node), state=state)) == title


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (f"no pod of it can be made: its network, {LOST.replace(' does', ', does')}", True),
        ("no pod of it can be made: a quota refuses it", False),
    ],
)
def test_a_network_that_does_not_exist_is_not_the_fault_of_a_node(reason, told):
    report = SimpleNamespace(
        events=[SimpleNamespace(outcome=EventEffect.NOT_RUNNING, reason=reason)]
    )
    assert repetitions.refusal_is_told(LOST, "a", report) is told


@pytest.mark.parametrize(
    ("other", "left"), [("one node can run it, or set None.", 1), ("two nodes can run it.", 2)]
)
def test_a_rule_speaks_once_of_a_vm_and_its_vmi(other, left):
    words = {
        "VirtualMachine/shop/db": "one node can run it.",
        "VirtualMachineInstance/shop/db": other,
    }
    judged = [
        JudgedRule("vm-single-candidate-node", "warn", "", obj, "spec", message)
        for obj, message in words.items()
    ]
    event = SimpleNamespace(event="drain", outcome="blocks", reason="it runs", remedy="")
    report = SimpleNamespace(rules=judged, events=[event], volumes=(), notes=(), control=())
    assert len(repetitions.rules(report, ())) == left
