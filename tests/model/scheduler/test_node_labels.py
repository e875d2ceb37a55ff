"""Why the labels of a node keep a pod off: each cause once."""

import pytest

from tests.model.scheduler.test_filters import node
from virt_admit.model.scheduler.node_labels import label_causes
from virt_admit.model.scheduler.node_selectors import parse_node_selector
from virt_admit.model.scheduler.pods import Pod
from virt_admit.model.scheduler.snapshot import read_node

PINS = {"cpumanager": "true"}


@pytest.mark.parametrize(
    ("key", "operator", "selector", "causes"),
    [
        ("cpumanager", "In", PINS, ["node selector cpumanager=true"]),
        ("cpumanager", "In", {}, ["node affinity"]),
        ("disk", "In", PINS, ["node selector cpumanager=true", "node affinity"]),
        ("cpumanager", "NotIn", PINS, ["node selector cpumanager=true"]),
    ],
    ids=["the same label", "no selector", "another label", "the opposite"],
)
def test_an_affinity_that_demands_the_label_of_the_selector(key, operator, selector, causes):
    term = {"matchExpressions": [{"key": key, "operator": operator, "values": ["true"]}]}
    affinity = parse_node_selector({"nodeSelectorTerms": [term]})
    pod = Pod(namespace="shop", node_selector=selector, node_affinity=affinity)

    found = label_causes(pod, read_node(node("a", {"cpumanager": "false"})), moment=True)
    assert list(found) == causes
