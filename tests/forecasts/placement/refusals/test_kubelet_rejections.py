"""Whether a kubelet that rejected a pod takes the next one."""

import pytest

from virt_admit.forecasts.placement.refusals import kubelet_rejections
from virt_admit.forecasts.placement.refusals.kubelet_rejections import Rejections


@pytest.mark.parametrize(
    ("reason", "times", "over"),
    [("NodeAffinity", 1, True), ("NodeAffinity", 3, False), ("TopologyAffinityError", 1, False)],
)
def test_labels_that_match_again_end_a_rejection(reason, times, over):
    found = Rejections(reason, "", times, "", frozenset(("a",)))
    assert kubelet_rejections.is_over(found) is over
