"""Answers that once differed from KubeVirt's own code: cases_kubevirt.yaml,
one case for each disagreement.
"""

from pathlib import Path

import pytest
import yaml

from tests.rules.test_rules import as_expected, ask
from virt_admit.rules import load_rules

CASES = yaml.load((Path(__file__).parent / "cases_kubevirt.yaml").read_text(), yaml.CSafeLoader)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["line"])
def test_the_answer_is_that_of_kubevirt(case):
    result, _ = ask(load_rules().by_id[case["rule"]], case)

    assert not result.error
    as_expected(result, case)


def test_every_line_names_what_kubevirt_does_and_what_was_said_before():
    assert {case["line"].split()[0] for case in CASES} == {f"A{number}" for number in range(1, 12)}
    assert all(case["source"] and case["was"] for case in CASES)
