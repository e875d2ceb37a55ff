"""What ``explain`` says of a VM whose migrations fail: no for a cause that stays, else not now."""

import pytest

from tests.healthy.clusters import plain

from .machines import draining, failed, find, guest

LACKS = (
    "operation failed: guest CPU doesn't match specification: missing features: vmx-vmfunc,"
    "vmx-ept-1gb"
)
NOT_NOW = "in principle, but not now: see below"
NOWHERE = "not now, as no other node takes it: see below"
NEVER = "no, as no other node can ever take it: see below"


def labelled(**fields):
    """Return a cluster with a VM whose node selector the node w1 alone has."""
    items = plain() + guest("web", "w1", spec={"nodeSelector": {"zone": "a"}}, **fields)
    find(items, "Node", "w1")["metadata"]["labels"]["zone"] = "a"
    return items


def tainted(key):
    items = plain() + guest("web", "w1")
    for name in ("w2", "w3"):
        taint = {"key": key, "effect": "NoSchedule"}
        find(items, "Node", name)["spec"]["taints"] = [taint]
    return items


def without_device():
    device = "bridge.network.kubevirt.io/br1"
    items = plain() + guest("web", "w1", requests={device: "1"})
    find(items, "Node", "w1")["status"]["allocatable"][device] = "1k"
    return items


def tried(*nodes):
    items = draining()
    failed(items, "web", LACKS, nodes)
    return items


def cordoned(*nodes):
    items = labelled()
    find(items, "Node", "w2")["metadata"]["labels"]["zone"] = "a"
    for name in nodes:
        find(items, "Node", name)["spec"]["unschedulable"] = True
    return items


def test_a_node_to_uncordon_is_where_it_could_go(ask):
    told = ask(cordoned("w2"), "explain", "vm/web", "-n", "vms")

    assert "could go to        w2, after the steps to do below" in told
    assert "no node that could take it is schedulable now: w2 (cordoned)" in told
    assert "w2 is cordoned" in told
    assert "for the loss of its node: uncordon w2, if its maintenance is over, or add a no" in told


def test_a_node_that_takes_it_is_not_uncordoned(ask):
    told = ask(cordoned("w3"), "explain", "vm/web", "-n", "vms")

    assert "could go to        w2\n" in told
    assert "uncordon" not in told


@pytest.mark.parametrize(
    ("items", "answer"),
    [
        (labelled(), NEVER),
        (tainted("dedicated"), NEVER),
        (tainted("ToBeDeletedByClusterAutoscaler"), NOWHERE),
        (without_device(), NOWHERE),
        (tried("w2", "w3"), "no, as its migrations fail on every node for a cause that stays: see"),
        (tried("w2", "w2", "w2"), NOT_NOW),
        (plain() + guest("web", "w1"), "yes\n"),
    ],
    ids=["selector", "taint", "passing taint", "device", "pairs", "untried", "healthy"],
)
def test_whether_it_can_migrate(ask, items, answer):
    told = ask(items, "explain", "vm/web", "-n", "vms")

    assert f"can migrate        {answer}" in told
    if answer.startswith("no"):
        assert "could go to        no other node" in told
