"""Recorded drains, replayed through ``--follow``: the lines at their times,
and a last screen with cause and command.
"""

from __future__ import annotations

import pytest

from tests.advice import risky
from tests.reports.drain import expected_screens, moving_nodes, moving_vms
from tests.reports.drain.recording import replay
from virt_admit.forecasts.drain import drain_plan
from virt_admit.reports.drain.follow import DrainFollower
from virt_admit.reports.drain.report import node_report

RECORDINGS = moving_vms.RECORDINGS | moving_nodes.RECORDINGS
EXPECTED = {**expected_screens.VMS, **expected_screens.NODES}


def test_every_recording_has_expected_lines():
    assert RECORDINGS.keys() == EXPECTED.keys()
    for name, recording in RECORDINGS.items():
        assert EXPECTED[name].keys() <= {step.at for step in recording.steps}, name


@pytest.mark.parametrize("name", RECORDINGS)
def test_the_lines_of_a_recording_come_at_their_times(name):
    for step, _, look in replay(RECORDINGS[name]):
        lines = [*(change.text for change in look.changes), look.done]
        for words in EXPECTED[name].get(step.at, ()):
            screen = words.startswith("screen: ")
            shown = look.screen if screen else lines
            assert any(words.removeprefix("screen: ") in line for line in shown), (
                step.at,
                words,
                shown,
            )


@pytest.mark.parametrize("name", RECORDINGS)
def test_following_ends_where_the_recording_ends_and_not_before(name):
    *before, (_, _, last) = replay(RECORDINGS[name])
    assert not [step.at for step, _, look in before if look.done]
    final = EXPECTED[name].get(RECORDINGS[name].steps[-1].at, ())
    assert bool(last.done) is any(words in last.done for words in final if last.done)


@pytest.mark.parametrize("name", RECORDINGS)
def test_the_state_is_the_one_of_drain_and_no_line_advises_what_may_lose_data(name):
    node = RECORDINGS[name].node
    for _, cluster, look in replay(RECORDINGS[name]):
        if look.state is not None:
            assert look.state == node_report(drain_plan.plan(cluster, node).nodes[0])
            again = DrainFollower(node).look(cluster)
            assert again.state == look.state
        for line in (*look.screen, *(change.text for change in look.changes)):
            assert not risky(line), line


def test_a_drain_that_does_not_end_names_a_command():
    for name, recording in RECORDINGS.items():
        for step, _, look in replay(recording):
            if look.stuck:
                commands = [
                    line for line in look.screen if "kubectl " in line or "virtctl " in line
                ]
                assert commands, (name, step.at)
