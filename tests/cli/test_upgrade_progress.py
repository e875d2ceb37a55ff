"""``virt-admit upgrade`` where nodes are being updated already: phases, what is left,
and following it.
"""

import pytest

from tests.builders import manifest
from tests.cli.test_upgrade import kubevirt, node, pool, vm
from virt_admit.forecasts.drain.drain_plan import plan
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.reports.drain.report import node_report
from virt_admit.reports.upgrade import text
from virt_admit.reports.upgrade.follow import UpgradeFollower
from virt_admit.reports.upgrade.report import report
from virt_admit.reports.values import as_data

NOW = "2027-03-01T12:00:00Z"
AN_HOUR_AGO = "2027-03-01T11:00:00Z"
GROUP = "machineconfiguration.openshift.io"
OLD, NEW = "rendered-worker-1", "rendered-worker-2"


def config_node(
    name, current=OLD, desired=OLD, state="Done", drain="", since="", ready="True", cordoned=False
):
    """Return a worker of OpenShift.

    ``drain``: the drain or uncordon that was asked for and not done yet.
    """
    found = node(
        name, {"node-role.kubernetes.io/worker": ""}, unschedulable=cordoned or bool(since)
    )
    annotations = {"currentConfig": current, "desiredConfig": desired, "state": state}
    if drain:
        annotations |= {"desiredDrain": drain, "lastAppliedDrain": f"uncordon-{OLD}"}
    found.data["metadata"]["annotations"] = {
        f"{GROUP}/{key}": value for key, value in annotations.items()
    }
    found.data["status"]["conditions"] = [
        {
            "type": "Ready",
            "status": ready,
            "lastTransitionTime": since or AN_HOUR_AGO,
            "lastHeartbeatTime": NOW,
        }
    ]
    if since:
        taint = {
            "key": "node.kubernetes.io/unschedulable",
            "effect": "NoSchedule",
            "timeAdded": since,
        }
        found.data["spec"]["taints"] = [taint]
    return found


def done(name, **options):
    return config_node(name, NEW, NEW, **options)


def draining(name, since=AN_HOUR_AGO):
    return config_node(name, OLD, NEW, "Working", f"drain-{NEW}", since)


def workers(**spec):
    return pool(configuration={"name": NEW}, **spec)


def cluster(*objects, time=NOW):
    found = Snapshot(
        [item for each in objects for item in (each if isinstance(each, list) else [each])], ("*",)
    )
    found.time = time
    return found


def progress(found, **options):
    data = as_data(report(rehearse(found, Options(**options))))
    return data["progress"]


def updaters(found):
    return {each.name: as_data(node_report(each))["updater"] for each in plan(found).nodes}


def test_a_pool_that_is_half_done():
    found = cluster(
        done("a"),
        draining("b"),
        config_node("c"),
        config_node("d"),
        vm("db", "b"),
        workers(),
        kubevirt(),
    )
    result = rehearse(found, Options())

    assert result.possible is True
    assert progress(found) == {
        "done": ["a"],
        "in_flight": [
            {"node": "b", "phase": "draining", "since": AN_HOUR_AGO, "waits_for": "shop/db"}
        ],
        "next": [],
        "waiting": ["c", "d"],
        "notes": [],
    }
    assert [wave.nodes for wave in result.waves] == [("b",), ("c",), ("d",)]
    assert (
        "1 of 4 nodes is done.\nb has been draining for 60 min and waits for shop/db.\n"
        in text.text(result)
    )
    begins = [
        line.split(",")[0].split()[0]
        for line in text.text(result).splitlines()
        if ", ends " in line
    ]
    assert begins == ["has", "begins", "begins"]
    assert updaters(found)["b"] == {
        "kind": "MachineConfigPool",
        "name": "worker",
        "phase": "draining",
        "since": AN_HOUR_AGO,
    }


def test_from_the_start_all_nodes_are_rehearsed():
    found = cluster(
        done("a"), draining("b"), config_node("c"), vm("db", "b"), workers(), kubevirt()
    )
    whole, rest = rehearse(found, Options(from_start=True)), rehearse(found, Options())

    assert whole.progress is None
    assert sorted(name for wave in whole.waves for name in wave.nodes) == ["a", "b", "c"]
    assert rest.duration.high < whole.duration.low


def test_from_the_start_a_node_that_is_uncordoned_in_a_moment_stops_nothing():
    returning = done("b", drain=f"uncordon-{NEW}", since=AN_HOUR_AGO, cordoned=True)
    found = cluster(done("a"), returning, vm("db", "a"), workers(), kubevirt())

    assert rehearse(found, Options(from_start=True)).possible is True


def test_a_node_whose_files_differ_from_its_configuration_is_not_done():
    found = cluster(done("a"), done("b", state="Degraded"), config_node("c"), workers(), kubevirt())
    result = rehearse(found, Options())

    assert [each["node"] for each in progress(found)["in_flight"]] == ["b"]
    assert [(stop.node, result.possible) for stop in result.stops] == [("b", False)]


@pytest.mark.parametrize(
    ("given", "phase"),
    [
        (config_node("b", OLD, NEW), "draining"),  # chosen, and its daemon has not begun
        (draining("b"), "draining"),
        (config_node("b", OLD, NEW, "Working", since=AN_HOUR_AGO), "updating"),
        (config_node("b", OLD, NEW, "Rebooting", since=AN_HOUR_AGO), "rebooting"),
        (done("b", drain=f"uncordon-{NEW}", since=AN_HOUR_AGO), "returning"),
        (config_node("b", OLD, NEW, "Degraded", since=AN_HOUR_AGO), "failing"),
    ],
)
def test_the_phases_of_a_node(given, phase):
    found = progress(cluster(done("a"), given, config_node("c"), workers(), kubevirt()))

    assert [each["phase"] for each in found["in_flight"]] == [phase]
    assert (found["done"], found["waiting"]) == (["a"], ["c"])


def test_a_pool_at_rest_is_rehearsed_from_the_start():
    found = cluster(done("a"), done("b"), workers(), kubevirt())

    assert progress(found) is None
    assert updaters(found) == {"a": None, "b": None}
    assert len(rehearse(found, Options()).waves) == 2


def test_a_free_place_names_the_next_nodes():
    found = progress(
        cluster(
            done("a"),
            draining("b"),
            *map(config_node, "cdef"),
            workers(maxUnavailable=3),
            kubevirt(),
        )
    )

    assert (found["next"], found["waiting"]) == (["c", "d"], ["e", "f"])


def test_a_node_that_was_cordoned_by_hand_takes_a_place_and_stops_nothing_while_one_is_left():
    nodes = done("a"), draining("b"), config_node("c", cordoned=True), config_node("d")
    two = rehearse(cluster(*nodes, workers(maxUnavailable=2), kubevirt()), Options())
    one = rehearse(cluster(*nodes, workers(), kubevirt()), Options())

    assert two.possible is True
    assert [name for wave in two.waves for name in wave.nodes] == ["b", "d"]
    assert any("not updated before that ends: c" in words for words in two.rests_on)
    assert one.possible is False
    assert "worker updates no other node: c, " in one.stops[0].reason


@pytest.mark.parametrize(
    ("away", "to_do"),
    [
        (
            config_node("c", cordoned=True),
            "Uncordon c: kubectl uncordon c; or raise maxUnavailable so that others go on",
        ),
        (
            config_node("c", ready="Unknown"),
            (
                f"give it that of the pool: kubectl annotate node c {GROUP}/desiredConfig={NEW} "
                "--overwrite"
            ),
        ),
    ],
    ids=["cordoned", "not ready on another configuration"],
)
def test_what_makes_a_node_a_candidate_again(away, to_do):
    found = rehearse(
        cluster(done("a"), draining("b"), away, config_node("d"), workers(), kubevirt()), Options()
    )

    assert found.stops[0].remedy.endswith(to_do)


def test_a_node_that_fails_is_a_stop():
    failing = config_node("b", OLD, NEW, "Degraded", since=AN_HOUR_AGO)
    failing.data["metadata"]["annotations"][f"{GROUP}/reason"] = "unexpected on-disk state"
    result = rehearse(
        cluster(done("a"), failing, config_node("c"), workers(), kubevirt()), Options()
    )

    assert result.possible is False
    assert [(stop.node, str(stop.problem)) for stop in result.stops] == [
        ("b", "NodeUpdateFailed:b")
    ]
    assert "unexpected on-disk state" in result.stops[0].reason


def rebooting(minutes, name="b"):
    since = f"2027-03-01T11:{60 - minutes:02}:00Z"
    return config_node(name, OLD, NEW, "Rebooting", since=since, ready="Unknown")


@pytest.mark.parametrize(("minutes", "low", "high"), [(4, 360, 360), (15, 0, 300)])
def test_a_node_that_reboots_needs_what_is_left(minutes, low, high):
    result = rehearse(
        cluster(done("a"), rebooting(minutes), workers(), kubevirt()), Options(node_minutes=10)
    )

    assert result.possible is True
    assert (result.duration.low, result.duration.high) == (low, high)


def test_a_node_that_reboots_for_more_than_twice_the_time_is_a_stop():
    def stop(minutes):
        nodes = done("a"), rebooting(minutes)
        result = rehearse(cluster(*nodes, workers(), kubevirt()), Options(node_minutes=10))
        assert result.possible is False
        return result.stops[0].reason

    assert stop(25) == "it has been rebooting for 25 min, and 10 min were expected"
    assert stop(45) == (
        "it has not reported for 45 min, and 10 min were expected for its update: "
        "MachineConfigPool worker, whose update rebooted it, waits for it"
    )


def test_the_times_of_a_machine_config_node_win():
    report_of_b = manifest(
        f"{GROUP}/v1",
        "MachineConfigNode",
        "b",
        status={
            "conditions": [
                {"type": "Drained", "status": "True", "lastTransitionTime": "2027-03-01T11:55:00Z"}
            ]
        },
    )
    updating = config_node("b", OLD, NEW, "Working", since=AN_HOUR_AGO)
    found = cluster(done("a"), updating, report_of_b, workers(), kubevirt())

    assert progress(found)["in_flight"][0]["since"] == "2027-03-01T11:55:00Z"
    assert rehearse(found, Options()).duration.low == 300


def test_a_paused_pool_has_no_next_node_and_stops_only_what_is_left():
    nodes = done("a"), config_node("b")
    infra = pool("infra", "infra", paused=True, configuration={"name": NEW})
    left = cluster(*nodes, workers(paused=True), kubevirt())
    finished = done("i")
    finished.data["metadata"]["labels"] = {
        "kubevirt.io/schedulable": "true",
        "node-role.kubernetes.io/infra": "",
    }
    over = cluster(*nodes, finished, workers(), infra, kubevirt())

    assert (progress(left)["next"], progress(left)["waiting"]) == ([], ["b"])
    assert [str(stop.problem) for stop in rehearse(left, Options()).stops] == ["PoolPaused:worker"]
    assert rehearse(cluster(*nodes, workers(), infra, kubevirt()), Options()).possible is True
    assert rehearse(over, Options()).possible is True
    assert rehearse(over, Options(from_start=True)).possible is False


def test_a_node_that_the_operator_does_not_manage_is_not_waited_for():
    """It has no annotation of the operator: a Windows node
    (pkg/controller/node/status.go#isNodeManaged).
    """
    windows = node("w", {"node-role.kubernetes.io/worker": ""})
    result = rehearse(cluster(done("a"), draining("b"), windows, workers(), kubevirt()), Options())
    ended = UpgradeFollower(Options()).look(
        cluster(done("a"), done("b"), windows, workers(), kubevirt())
    )

    assert [wave.nodes for wave in result.waves] == [("b",)]
    assert ended.done == "all 2 nodes are done"


@pytest.mark.parametrize(("blocked", "possible"), [("a", None), ("b", False)])
def test_a_vm_that_blocks_a_node_that_is_done_is_no_stop_where_something_was_not_read(
    blocked, possible
):
    objects = [
        done("a"),
        draining("b"),
        *vm("pin", blocked, migratable="False"),
        workers(),
        kubevirt(),
    ]
    found = Snapshot(
        objects, ("*",), ("machineconfigpools.machineconfiguration.openshift.io",), time=NOW
    )
    result = rehearse(found, Options())

    assert result.possible is possible
    assert {stop.node for stop in result.stops} == ({"b"} if blocked == "b" else set())


def test_nodes_without_annotations_are_no_roll_out():
    plain = node("a", {"node-role.kubernetes.io/worker": ""})
    assert progress(cluster(plain, workers(), kubevirt())) is None
