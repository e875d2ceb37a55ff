"""What FenceAgentsRemediation does with a lost node agrees with recorded runs of the operator's own
code.
"""

import json

import pytest

from tests.upstream.fencing import RECORDED, case, differences

RUNS = [json.loads(line) for line in RECORDED.read_text().splitlines()]


def compared(run):
    return list(differences(case(run["seed"]), run["answer"]))


@pytest.mark.parametrize("run", RUNS, ids=[str(run["seed"]) for run in RUNS])
def test_a_fence_agent_acts_as_the_forecast_says(run):
    assert not [why for _, why in compared(run) if why]


def test_each_end_was_recorded():
    assert {what for run in RUNS for what, _ in compared(run)} >= {
        *("refused", "not certain", "ends", "fenced", "takes the longest time"),
        *("AT_ONCE", "FORCED", "succeeded", "failed", "stuck", "gone"),
    }
