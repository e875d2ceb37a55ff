"""What a MachineConfigPool says of the nodes that it cannot update."""

import pytest

from tests.builders import manifest
from virt_admit.model.node_updates import config_pool_updates


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (
            'Node a is reporting: "expected image \\"q:1\\", have \\"q:2\\""',
            'Node a is reporting: expected image "q:1", have "q:2"',
        ),
        (
            'Node a is reporting: "failed: sh: no\\n: exit status 1"',
            "Node a is reporting: failed: sh: no: exit status 1",
        ),
        (
            'Node a is reporting: "one", Node b is reporting: "two"',
            'Node a is reporting: "one", Node b is reporting: "two"',
        ),
        (
            'Node a is reporting: "Node a upgrade failure. it fails", Node a is reporting: '
            '"it fails"',
            "Node a is reporting: it fails",
        ),
        ("Node a has no annotation", "Node a has no annotation"),
    ],
)
def test_the_words_of_one_node_stand_without_quotes(said, shown):
    condition = {"type": "NodeDegraded", "status": "True", "message": said}
    pool = manifest(
        "machineconfiguration.openshift.io/v1",
        "MachineConfigPool",
        "w",
        status={"conditions": [condition]},
    )
    assert config_pool_updates.degraded(pool) == shown
