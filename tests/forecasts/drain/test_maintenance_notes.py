"""What a note says of a NodeMaintenance that has not completed."""

import pytest

from tests.builders import manifest
from virt_admit.forecasts.drain import node_notes
from virt_admit.model.kubernetes.cluster import Snapshot

ONE = 'error when evicting pods/"{}" -n "prod": global timeout reached: 30s'
ROUNDS = ". It tries again in rounds of 30 seconds"


def note(error):
    spec = {"nodeName": "a"}
    status = {"phase": "Running", "lastError": error, "pendingPods": ["web"]}
    group = "nodemaintenance.medik8s.io/v1beta1"
    node = manifest("v1", "Node", "a")
    order = manifest(group, "NodeMaintenance", "nm", spec=spec, status=status)
    told = list(node_notes.notes(node, Snapshot([node, order], ["*"])))
    return next(each for each in told if each.startswith("NodeMaintenance nm waits"))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (f"[{', '.join(map(ONE.format, 'abcde'))}]", f"{ONE.format('a')} and 4 more such errors"),
        (f"[{ONE.format('a')}, {ONE.format('b')}]", f"{ONE.format('a')} and 1 more such error"),
        (ONE.format("a"), ONE.format("a")),
    ],
)
def test_one_whole_entry_of_its_errors_is_quoted(error, said):
    assert note(error) == f"NodeMaintenance nm waits for 1 pod (web): {said}{ROUNDS}"


def test_another_error_is_quoted_as_it_is():
    assert note("node a not found") == "NodeMaintenance nm waits for 1 pod (web): node a not found"
