"""The budgets of Longhorn's instance managers, by the labels that they select by."""

import pytest

from tests.builders import complete, manifest, node
from tests.forecasts.drain.operator_clusters import LONGHORN, budget, pod
from virt_admit.forecasts.drain.budgets import longhorn_budgets


@pytest.mark.parametrize(
    ("selected", "is_its"),
    [
        ({"longhorn.io/component": "instance-manager", "longhorn.io/node": "n1"}, True),
        ({"longhorn.io/instance-manager-name": "instance-manager-e-1"}, True),
        ({"longhorn.io/instance-manager-type": "aio", "longhorn.io/node": "n1"}, True),
        ({"longhorn.io/component": "share-manager"}, False),
        ({"longhorn.io/node": "n1"}, False),
        ({"app": "instance-manager"}, False),
        ({}, False),
    ],
)
def test_a_budget_of_an_instance_manager(selected, is_its):
    spec = {"minAvailable": 1, "selector": {"matchLabels": selected}}
    budget = manifest("policy/v1", "PodDisruptionBudget", "b", "longhorn-system", spec=spec)
    assert longhorn_budgets.is_instance_manager(budget) is is_its


def test_budgets_that_select_by_the_name_of_the_instance_manager_protect_its_node():
    """Longhorn finds the budget of a manager by its name, whatever labels that selects by."""
    objects = [node("a"), node("b")]
    for on in ("a", "b"):
        name = f"instance-manager-{on}"
        labels = {"longhorn.io/instance-manager-name": name}
        manager = manifest(
            "longhorn.io/v1beta2", "InstanceManager", name, LONGHORN, spec={"nodeID": on}
        )
        own = budget(name, LONGHORN, labels, allowed=0, minAvailable=1)
        objects += [pod(name, LONGHORN, labels, on, owner="InstanceManager"), own, manager]
    found = longhorn_budgets._protected_nodes(LONGHORN, complete(*objects))
    assert found == {"a", "b"}
