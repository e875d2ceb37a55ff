"""Our time line of lost nodes agrees with recorded runs of kube-controller-manager's own
controllers.
"""

import json
from collections import Counter

import pytest

from tests.upstream.clocks import RECORDED, clocks

RUNS = [json.loads(line) for line in RECORDED.read_text().splitlines()]


@pytest.mark.parametrize("run", RUNS, ids=map(str, range(len(RUNS))))
def test_clocks_agree(run):
    assert not [str(clock) for clock in clocks(run["case"], run["result"]) if not clock.agrees]


def test_each_part_was_recorded():
    compared = Counter(clock.what for run in RUNS for clock in clocks(run["case"], run["result"]))
    assert len(compared) == 10
    assert all(compared.values())
