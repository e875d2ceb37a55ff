"""What becomes of the VMs of lost nodes agrees with recorded runs of KubeVirt's own controllers."""

import json

import pytest

from tests.upstream.restarts import ENDS, RECORDED, restarts

RUNS = [json.loads(line) for line in RECORDED.read_text().splitlines()]
FOUND = [list(restarts(run["case"], run["result"])) for run in RUNS]


@pytest.mark.parametrize("found", FOUND, ids=map(str, range(len(FOUND))))
def test_restarts_agree(found):
    assert not [str(each) for each in found if not each.agrees]


def test_each_end_and_strategy_was_recorded():
    seen = [each for found in FOUND for each in found]
    assert {each.end for each in seen} == set(ENDS)
    for word in (
        "Always",
        "RerunOnFailure",
        "Manual",
        "Once",
        "halt",
        "restart",
        "pause",
        "Scheduled",
        "Pool",
        "ReplicaSet",
    ):
        assert any(word in each.kind for each in seen)
    assert {str(each.word) for each in seen} == {"restarts", "never restarts", "stays off", "lost"}
