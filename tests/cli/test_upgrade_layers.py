"""``upgrade --all-stops`` and ``--assume-fixed``: stops behind stops,
and the answer if problems were fixed.
"""

import json

import jsonschema
import pytest
from click.testing import CliRunner

from tests.cli.test_upgrade import SCHEMA, kubevirt, node, pool, vm
from virt_admit.cli.main import virt_admit

WORKER = {"node-role.kubernetes.io/worker": ""}


@pytest.fixture
def rehearse(tmp_path):
    """Run ``upgrade -o json`` over a snapshot. Return the data and the exit code."""

    def run(objects, *flags):
        flat = [item for each in objects for item in (each if isinstance(each, list) else [each])]
        file = tmp_path / "snapshot.json"
        items = [dict(obj.data) for obj in flat]
        file.write_text(
            json.dumps(
                {
                    "apiVersion": "virt-admit.io/v1alpha1",
                    "kind": "Snapshot",
                    "complete": ["*"],
                    "items": items,
                }
            )
        )
        words = ["upgrade", "--cluster", str(file), "-o", "json", *flags]
        result = CliRunner().invoke(virt_admit, words, standalone_mode=False)
        return json.loads(result.stdout), result.return_value

    return run


def blocked(name, on):
    return vm(name, on, migratable="False")


TWO_CAUSES = {"DisksNotLiveMigratable:shop/db", "InterfaceNotLiveMigratable:shop/db"}


def test_without_the_flags_nothing_is_assumed(rehearse):
    data, code = rehearse([node("a"), node("b"), blocked("db", "a"), kubevirt()])

    assert code == 1
    assert (data["assumed"], data["possible_if_fixed"], data["duration_if_fixed"]) == (
        [],
        None,
        None,
    )
    assert all(stop["behind"] == [] for stop in data["stops"])


def test_a_pool_hides_what_is_behind_it(rehearse):
    objects = [
        node("a", WORKER),
        node("b", WORKER),
        blocked("db", "a"),
        pool(paused=True),
        kubevirt(),
    ]
    today, _ = rehearse(objects)
    data, code = rehearse(objects, "--all-stops")

    assert [stop["problem"] for stop in today["stops"]] == ["PoolPaused:worker"]
    assert code == 1
    assert {stop["problem"] for stop in data["stops"]} >= {"PoolPaused:worker"} | TWO_CAUSES
    behind = {stop["problem"]: stop["behind"] for stop in data["stops"]}
    assert behind["PoolPaused:worker"] == []
    assert all(behind[cause] == ["PoolPaused:worker"] for cause in TWO_CAUSES)
    assert data["possible"] is False
    assert data["possible_if_fixed"] is True
    assert data["duration_if_fixed"]["low"] > 0


def test_a_vm_that_could_migrate_then_may_lack_room(rehearse):
    """The big VM cannot migrate; if it could, no node would have room for it."""
    objects = [
        node("a"),
        node("b", memory="8Gi"),
        vm("big", "a", memory="40Gi", migratable="False"),
        kubevirt(),
    ]
    data, _ = rehearse(objects, "--all-stops")

    behind = {stop["problem"]: stop["behind"] for stop in data["stops"]}
    assert set(behind["NoRoom:shop/big"]) == {
        problem.replace("db", "big") for problem in TWO_CAUSES
    }
    assert data["possible_if_fixed"] is True


@pytest.mark.parametrize(
    ("word", "assumed"),
    [
        ("shop/db", TWO_CAUSES),
        ("DisksNotLiveMigratable:shop/db", {"DisksNotLiveMigratable:shop/db"}),
        ("vmi-not-migratable", {"DisksNotLiveMigratable:shop/db"}),
        ("vm-live-migrate-not-migratable", {"InterfaceNotLiveMigratable:shop/db"}),
    ],
)
def test_what_is_assumed_is_named_by_object_id_or_rule(word, assumed, rehearse):
    data, code = rehearse(
        [node("a"), node("b"), blocked("db", "a"), kubevirt()], "--assume-fixed", word
    )

    assert code == 1  # as it is today
    assert data["possible"] is False
    assert set(data["assumed"]) == assumed
    assert {stop["problem"] for stop in data["stops"]} == TWO_CAUSES - assumed


def test_both_flags_together(rehearse):
    objects = [
        node("a", WORKER),
        node("b", WORKER),
        blocked("db", "a"),
        pool(paused=True),
        kubevirt(),
    ]
    data, _ = rehearse(objects, "--assume-fixed", "PoolPaused:worker", "--all-stops")

    assert {stop["problem"] for stop in data["stops"]} == TWO_CAUSES
    assert set(data["assumed"]) == TWO_CAUSES | {"PoolPaused:worker"}


@pytest.mark.parametrize("word", ["shop/dp", "Nothing:shop/db", "no-such-rule"])
def test_an_unknown_name_names_those_that_are_near(word, rehearse, tmp_path):
    rehearse([node("a"), node("b"), blocked("db", "a"), kubevirt()])
    words = ["upgrade", "--cluster", str(tmp_path / "snapshot.json"), "--assume-fixed", word]
    result = CliRunner().invoke(virt_admit, words)

    assert result.exit_code == 2
    assert word in result.output
    assert "shop/db" in result.output


def test_a_name_where_no_problem_exists(rehearse, tmp_path):
    rehearse([node("a"), node("b"), kubevirt()])
    words = ["upgrade", "--cluster", str(tmp_path / "snapshot.json"), "--assume-fixed", "shop/db"]
    result = CliRunner().invoke(virt_admit, words)

    assert result.exit_code == 2
    assert (
        "shop/db is neither a problem that stops the upgrade, nor a rule, nor an object that "
        "has one"
    ) in result.output
    assert "--assume-fixed" in result.output


@pytest.mark.parametrize("number", [1, 3, 6])
def test_all_stops_are_those_that_show_one_by_one(number, rehearse):
    objects = [
        *map(node, "abcdefgh"[: number + 1]),
        *(blocked(f"v{at}", "abcdefgh"[at]) for at in range(number)),
    ]
    data, _ = rehearse([*objects, kubevirt()], "--all-stops")
    shown, fixed = set(), []
    while True:
        step, _ = rehearse(
            [*objects, kubevirt()], *(word for each in fixed for word in ("--assume-fixed", each))
        )
        found = [stop["problem"] for stop in step["stops"]]
        shown |= set(found)
        if not found:
            break
        fixed.append(found[0])

    assert {stop["problem"] for stop in data["stops"]} == shown
    assert len({problem.partition("/")[2] for problem in shown}) == number


def test_the_schema_and_the_text(rehearse, tmp_path):
    objects = [
        node("a", WORKER),
        node("b", WORKER),
        blocked("db", "a"),
        pool(paused=True),
        kubevirt(),
    ]
    data, _ = rehearse(objects, "--all-stops")
    jsonschema.validate(data, SCHEMA)
    text = CliRunner().invoke(
        virt_admit, ["upgrade", "--cluster", str(tmp_path / "snapshot.json"), "--all-stops"]
    )

    assert "behind: PoolPaused:worker" in text.output
    assert "If 3 problems were fixed, it completes in " in text.output


def test_vms_that_no_other_node_can_ever_run_are_all_stops(rehearse):
    """The simulation ends at the first of them; the others would stop the upgrade as certainly."""
    pinned = [vm(f"v{name}", name) for name in "ab"]
    for (_, vmi), name in zip(pinned, "ab", strict=True):
        vmi.data["spec"]["nodeSelector"] = {"kubernetes.io/hostname": name}
    nodes = [node(name, {"kubernetes.io/hostname": name}) for name in "abc"]
    data, _ = rehearse([*nodes, *pinned, kubevirt()])

    assert [stop["node"] for stop in data["stops"]] == ["a", "b"]
