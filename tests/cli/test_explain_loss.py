"""What ``explain`` says to do about the loss of a node: as such while the node reports, and at once when it is lost."""

import json

import pytest
from click.testing import CliRunner

from tests.healthy.clusters import plain
from tests.healthy.parts import ago, snapshot
from tests.incidents.machines import find, guest
from virt_admit.cli.main import virt_admit

TAINT = "confirm that w1 is powered off, then: kubectl taint nodes w1 node.kubernetes.io/out-of-service=nodeshutdown:"


@pytest.fixture
def explained(tmp_path):
    """Return a function that returns the part "To do" about a VM on a node without a health check."""

    def run(**lost):
        items = plain((1, 6)) + guest("db")
        if lost:
            for condition in find(items, "Node", "w1")["status"]["conditions"]:
                condition |= {"status": "Unknown", "lastTransitionTime": ago(**lost), "lastHeartbeatTime": ago(**lost)}
        path = tmp_path / "cluster.json"
        path.write_text(json.dumps(snapshot(items)))
        out = CliRunner().invoke(virt_admit, ["explain", "vm/db", "-n", "vms", "--cluster", str(path)]).stdout
        return out.partition("To do\n")[2].partition("\n\n")[0]

    return run


def test_the_loss_of_a_healthy_node_is_named_as_what_may_come(explained):
    (line,) = explained().splitlines()
    assert line.startswith(
        "  for the loss of its node: create a health check that acts for w1; or, after such a loss, "
    )
    assert TAINT in line


def test_a_lost_node_is_fenced_now(explained):
    said = explained(minutes=70)
    assert f"create a health check that acts for w1; or, as a decision, {TAINT}" in said
    assert "for the loss of its node" not in said
