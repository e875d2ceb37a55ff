"""How many nodes of a MachineConfigPool are unavailable besides one of them."""

import pytest

from tests.builders import manifest, node
from virt_admit.model.node_updates import config_pool_updates


@pytest.mark.parametrize(
    ("one", "number", "others"),
    [
        (node("a"), 0, 0),
        (node("a"), 2, 2),
        (node("a", unschedulable=True), 1, 0),
        (node("a", ready="Unknown"), 2, 1),
        (manifest("v1", "Node", "a"), 1, 1),  # it does not say whether it is ready
    ],
)
def test_a_node_that_is_unavailable_itself_does_not_count(one, number, others):
    pool = manifest(
        "machineconfiguration.openshift.io/v1", "MachineConfigPool", "worker",
        status={"unavailableMachineCount": number},
    )  # fmt: skip
    assert config_pool_updates.others_unavailable(pool, one) == others
