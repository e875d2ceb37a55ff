"""A node is the only one if all nodes were read: of the VMs, or of all pods."""

from tests.builders import complete, node, partial
from virt_admit.model.kubernetes import nodes

VMS = node("a")
OTHER = node("b", runs_vms=False)


def test_the_only_node_of_the_cluster():
    assert (nodes.alone(complete(VMS)), nodes.single(complete(VMS))) == ("a", "a")


def test_the_only_node_of_the_vms_has_another_for_their_components():
    assert (nodes.alone(complete(VMS, OTHER)), nodes.single(complete(VMS, OTHER))) == ("a", "")


def test_a_node_that_is_read_alone_is_not_the_only_one():
    assert (nodes.alone(partial(VMS)), nodes.single(partial(VMS))) == ("", "")
    assert nodes.may_be_single(partial(VMS))
    assert not nodes.may_be_single(partial(VMS, OTHER))


def test_no_nodes_were_read():
    assert (nodes.alone(partial()), nodes.single(partial())) == ("", "")
