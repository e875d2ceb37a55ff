"""The budgets of Longhorn's instance managers, by the labels that they select by."""

import pytest

from tests.builders import manifest
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
