"""``virt-admit upgrade --follow``: the changes of a live upgrade,
and how it compares with an earlier rehearsal.
"""

import json

import pytest
from click.testing import CliRunner

from tests.cli.following_process import Following
from tests.cli.test_upgrade import kubevirt, vm
from tests.cli.test_upgrade_progress import AN_HOUR_AGO, NOW, config_node, done, draining, workers
from tests.fake_api import FakeApi, path_of
from virt_admit.cli.commands import upgrade_follow
from virt_admit.cli.main import virt_admit
from virt_admit.forecasts.upgrade.planned_upgrade import Pace, PlannedUpgrade, pace
from virt_admit.forecasts.upgrade.rehearsal import READS
from virt_admit.model.kubernetes import clock, kinds
from virt_admit.model.kubernetes.kinds import NODE

# --- the plan -------------------------------------------------------------------------------------


def wave(node_name, low, high):
    return {"nodes": [node_name], "start": {"low": 0, "high": 0}, "end": {"low": low, "high": high}}


PLAN = {
    "version": 1,
    "by": "machineconfig",
    "possible": True,
    "waves": [wave("a", 600, 700), wave("b", 1200, 1400)],
}


@pytest.mark.parametrize(
    ("finished", "elapsed", "ahead", "behind"),
    [
        (0, 650, 0, 0),
        (0, 1000, 0, 300),
        (1, 650, 0, 0),
        (1, 500, 100, 0),
        (2, 1000, 200, 0),
        (2, 9999, 0, 0),
    ],
)
def test_ahead_and_behind(finished, elapsed, ahead, behind):
    assert pace(PlannedUpgrade.of_report(PLAN), finished, elapsed) == Pace(ahead, behind)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "not JSON"),
        ("[]", "not the JSON of virt-admit upgrade"),
        ('{"version": 1, "by": "plain", "possible": false, "waves": []}', "not possible"),
        (
            '{"version": 1, "by": "plain", "possible": true, "waves": [{"nodes": ["a"]}]}',
            "not valid",
        ),
        ("[" * 200_000, "nested too deeply"),
    ],
)
def test_a_plan_that_is_not_one(content, words, tmp_path):
    file = tmp_path / "plan.json"
    file.write_text(content)
    with pytest.raises(Exception, match=words):
        upgrade_follow.read(str(file))


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--against", "x"], "--against needs --follow"),
        (["--follow", "--cluster", "SNAPSHOT"], "--follow needs one live cluster"),
        (["--lines"], "--lines needs --follow"),
    ],
)
def test_flags_that_do_not_go_together(flags, words, tmp_path):
    (tmp_path / "s.yaml").write_text("apiVersion: v1\nkind: List\nitems: []\n")
    given = [str(tmp_path / "s.yaml") if flag == "SNAPSHOT" else flag for flag in flags]
    result = CliRunner().invoke(virt_admit, ["upgrade", *given])

    assert result.exit_code == 2
    assert words in result.output


# --- following ------------------------------------------------------------------------------------


@pytest.fixture
def api():
    with FakeApi() as fake:
        fake.time = clock.instant(NOW)
        for kind in READS:
            fake.install(kind)
        for obj in (
            done("a"),
            draining("b"),
            config_node("c"),
            workers(),
            kubevirt(),
            *vm("db", "b"),
        ):
            fake.put(kinds.of(obj), dict(obj.data))
        yield fake


@pytest.fixture
def follow(api, tmp_path):
    started = []

    def start(*flags):
        started.append(Following(api, tmp_path, "upgrade", "--follow", *flags))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.ended()


@pytest.mark.slow
def test_an_upgrade_is_followed_until_all_nodes_are_done(api, follow, tmp_path):
    (tmp_path / "plan.json").write_text(json.dumps(PLAN))
    run = follow("--against", str(tmp_path / "plan.json"))
    run.wait_for("b draining", "waits for shop/db")
    run.wait_for("1 of 3 nodes is done.", "behind the plan")
    api.put(NODE, dict(done("b").data))
    run.wait_for("b draining → done")
    run.wait_for("2 of 3 nodes are done.")
    api.put(NODE, dict(done("c").data))
    assert run.ended() == 0
    assert run.lines[-1].endswith("all 3 nodes are done")


@pytest.mark.slow
def test_following_as_json_lines(follow):
    run = follow("-o", "json", "--timeout", "3s")
    assert run.ended() == 1
    objects = [json.loads(line) for line in run.lines]
    idle, state, progress, verdict, end = objects
    assert [each["type"] for each in objects] == ["progress", "state", "progress", "verdict", "end"]
    assert (idle["last_progress"], idle["minutes"]) == (AN_HOUR_AGO, 60)
    assert (state["node"], state["phase"], state["waits_for"]) == ("b", "draining", "shop/db")
    assert (progress["progress"]["done"], progress["pace"]) == (["a"], None)
    assert verdict["possible"] is True
    assert (end["result"], end["possible"]) == ("timeout", True)


@pytest.mark.slow
def test_following_without_rights(api, follow):
    api.forbidden.add(path_of(NODE))
    run = follow()
    assert run.ended() == 2
    assert "not allowed to list nodes" in run.lines[-1]
