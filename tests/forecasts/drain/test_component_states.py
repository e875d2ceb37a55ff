"""What keeps components of KubeVirt from a node for good."""

import pytest

from tests.incidents_platform.operators import tainted
from virt_admit.forecasts.drain.control import component_states
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.kubernetes.objects import Object


@pytest.mark.parametrize(
    ("key", "stays"), [("dedicated", True), ("kubevirt.io/drain", False), ("karpenter.sh/x", False)]
)
def test_a_taint_that_goes_again_does_not_keep_virt_handler_away(key, stays):
    items = tainted()
    for item in items:
        for taint in item.get("spec", {}).get("taints", ()):
            taint["key"] = key
    snapshot = Snapshot(map(Object, items), ["*"])
    said = [component_states.unwanted(each, snapshot) for each in snapshot.known(NODE)]

    assert any(said) is stays
