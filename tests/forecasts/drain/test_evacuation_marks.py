"""A mark of an eviction that no drain needs any more: what is said first, and how it ends."""

import pytest

from tests.builders import kubevirt
from tests.forecasts.drain.test_vm_states import BLOCKS, MARKED, row
from tests.forecasts.drain.vm_motion import cluster, launcher, node, vmi
from virt_admit.model.messages import command_of

PINNED = {"nodeSelector": {"zone": "one"}}
OPEN = node("a")


def marked(*objects, **spec):
    return cluster(vmi(spec=spec, **MARKED), launcher(), *objects)


@pytest.mark.parametrize(
    ("release", "command"),
    [("v1.7.0", "virtctl evacuate-cancel vmi db -n shop"), ("v1.6.0", "remove")],
)
def test_a_vm_that_no_node_takes_has_its_own_remedy_beside_that_of_the_mark(release, command):
    found = row(marked(OPEN, kubevirt({}, status={"observedKubeVirtVersion": release}), **PINNED))

    assert found.outcome == BLOCKS
    assert found.reason.startswith(
        "it is still marked for eviction (status.evacuationNodeName a), although that node is not"
    )
    assert "no other node can take it: node selector zone=one" in found.reason
    stays, cause = found.remedy.split("; for a drain, ")
    assert stays.startswith("if no drain is to come now, remove the mark (")
    assert command in stays
    assert "remove the node selector" in cause
    assert found.problems[0].command == command_of(cause)


def test_a_drain_that_goes_on_needs_another_node():
    found = row(marked(**PINNED))

    assert "still marked" not in found.reason
    assert "remove the node selector" in found.remedy
