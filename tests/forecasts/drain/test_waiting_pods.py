"""What a pod without a node demands of nodes."""

import pytest

from virt_admit.forecasts.drain.budgets import waiting_pods
from virt_admit.model.kubernetes.objects import Object

MASTER = "node-role.kubernetes.io/control-plane"


@pytest.mark.parametrize(
    ("key", "operator", "said"),
    [
        (MASTER, "Exists", "it demands a control-plane node"),
        (MASTER, "DoesNotExist", ""),
        ("zone", "In", "its node affinity demands zone"),
        ("zone", "NotIn", ""),
        (7, {}, ""),
    ],
)
def test_only_what_a_node_must_have_is_a_demand(key, operator, said):
    terms = [{"matchExpressions": [{"key": key, "operator": operator, "values": ["a"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    pod = Object({"spec": {"affinity": {"nodeAffinity": required}}})
    assert waiting_pods._demands(pod) == said
