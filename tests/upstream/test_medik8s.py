"""Which health check acts, and when, agrees with recorded runs of the operators of Medik8s."""

import json
from collections import Counter

import pytest

from tests.upstream.medik8s import RECORDED, case, differences, reboot_case, reboot_time

RUNS = [json.loads(line) for line in RECORDED.read_text().splitlines()]
CHECKS = [run for run in RUNS if "check" in run]
REBOOTS = [run for run in RUNS if "reboot" in run]


@pytest.mark.parametrize("run", CHECKS, ids=map(str, range(len(CHECKS))))
def test_the_same_nodes_are_remediated_at_the_same_time(run):
    assert not [why for _, why in differences(case(run["check"]), run["answer"]) if why]


def test_nodes_get_the_same_time_to_reboot():
    assert [reboot_time(reboot_case(run["reboot"])) for run in REBOOTS] == [
        run["took"] for run in REBOOTS
    ]


def test_each_decision_was_recorded():
    compared = Counter(
        what for run in CHECKS for what, _ in differences(case(run["check"]), run["answer"])
    )
    assert min(compared["refused"], compared["remediated"], compared["not selected"]) >= 10
    assert len(REBOOTS) == len(CHECKS)
