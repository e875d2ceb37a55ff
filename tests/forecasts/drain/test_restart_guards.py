"""No remedy restarts a VM that its node would refuse."""

import pytest

from tests.forecasts.drain.vm_motion import node, vmi
from virt_admit.forecasts.drain import typed_remedies
from virt_admit.forecasts.drain.guests import restart_guard
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.problems import Problem, ProblemCause


@pytest.mark.parametrize("stops", [True, False], ids=["no node", "another node"])
def test_a_vm_of_a_cordoned_node_is_not_restarted(stops):
    """Its pod would wait for that node, whatever its eviction strategy is."""
    pinned = Problem("x", "add one, or let drains shut the guest down", ProblemCause.NO_TARGET)
    running, closed = vmi(), node("a", unschedulable=True)
    other = node("b", unschedulable=stops)
    found = typed_remedies.with_command(pinned, running, Snapshot([running, closed, other], ["*"]))
    stop = (
        "add one; or stop it until a is uncordoned and start it then (virtctl start db -n shop), "
        "as a restart now would leave it Pending: virtctl stop db -n shop"
    )
    assert (found.remedy == stop) == stops


@pytest.mark.parametrize("own", [True, False], ids=["its node too", "another node alone"])
def test_a_vm_that_its_own_node_would_refuse_is_not_restarted(own):
    """A taint that came after the start of the VM keeps its next pod off."""
    known = Problem(
        "x", "remove the taint, or let drains shut the guest down", ProblemCause.NO_TARGET
    )
    hold = [{"key": "example.com/hold", "effect": "NoSchedule"}]
    here, other = node("a"), node("b")
    here.data["spec"]["taints"] = hold if own else []
    other.data["spec"]["taints"] = hold
    found = typed_remedies.with_command(known, vmi(), Snapshot([vmi(), here, other], ["*"]))

    keeps = "; do not restart the VM before, as a would refuse it too (taint "
    assert (keeps in found.remedy) == own
    assert ("virtctl restart" in found.remedy) != own


@pytest.mark.parametrize("shared", [True, False], ids=["on each node", "on no node"])
def test_a_remedy_with_a_restart_waits_for_the_taint_that_each_node_has(shared):
    known = Problem("x", "add one, or let drains shut the guest down", ProblemCause.NOT_MIGRATABLE)
    here = node("a", labels={"kubevirt.io/schedulable": "true"})
    here.data["spec"]["taints"] = [{"key": "example.com/hold", "effect": "NoSchedule"}] * shared
    running = vmi()
    found = typed_remedies.with_command(known, running, Snapshot([running, here], ["*"]))

    assert "virtctl restart" in found.remedy
    later = "but not before taint example.com/hold is off the nodes, as it would stay Pending: "
    assert (later in found.remedy) == shared


HOLD = [{"key": "example.com/hold", "effect": "NoSchedule"}]
OTHER = [{"key": "example.com/else", "effect": "NoSchedule"}]


@pytest.mark.parametrize(
    ("own", "others", "says"),
    [
        ({}, {}, ""),
        ({"taints": HOLD}, {}, ""),  # another node takes it
        ({}, {"taints": HOLD}, ""),  # its own node takes it again
        ({"unschedulable": True}, {}, ""),
        ({"unschedulable": True}, {"taints": HOLD}, "a is uncordoned"),
        ({"taints": HOLD}, {"taints": OTHER}, "a takes it again (taint example.com/hold)"),
        ({"taints": HOLD}, {"taints": HOLD}, "taint example.com/hold is off the nodes"),
    ],
)
def test_a_restart_waits_for_what_keeps_the_next_pod_off(own, others, says):
    here, other = (node(name, labels={"kubevirt.io/schedulable": "true"}) for name in "ab")
    here.data["spec"] |= own
    other.data["spec"] |= others
    running = vmi()
    cluster = Snapshot([running, here, other], ["*"])
    clause = f", but not before {says}, as it would stay Pending" if says else ""

    assert restart_guard.later(running, cluster) == clause
    unknown = Snapshot([running, here, other], ["pods"])  # there may be more nodes
    assert restart_guard.later(running, unknown) == ""


def test_a_remedy_is_guarded_once():
    here = node("a", labels={"kubevirt.io/schedulable": "true"})
    here.data["spec"]["taints"] = HOLD
    cluster = Snapshot([vmi(), here], ["*"])
    once = restart_guard.guarded("restart the VM: virtctl restart db -n shop", vmi(), cluster)

    assert "restart the VM, but not before taint example.com/hold is off the nodes" in once
    assert once.endswith(": virtctl restart db -n shop")
    assert restart_guard.guarded(once, vmi(), cluster) == once
    assert restart_guard.guarded("wait", vmi(), cluster) == "wait"
