"""``--fail-on-downtime[=DURATION]``, and the downtime that it judges."""

import json

import pytest

from tests.cli.test_forecast_verbs import run
from tests.cli.test_upgrade import kubevirt, node, vm
from virt_admit.model.kubernetes.objects import Object

STARTED = [
    {"phase": "Pending", "phaseTransitionTimestamp": "2026-01-01T00:00:00Z"},
    {"phase": "Scheduling", "phaseTransitionTimestamp": "2026-01-01T00:00:01Z"},
    {"phase": "Running", "phaseTransitionTimestamp": "2026-01-01T00:00:21Z"},
]
NODES = [node("a"), node("b"), kubevirt()]


def started(pair):
    """The VM, with the times of its last start: 20 seconds."""
    owner, instance = (obj.data for obj in pair)
    return [
        Object(owner),
        Object(
            {**instance, "status": {**instance["status"], "phaseTransitionTimestamps": STARTED}}
        ),
    ]


@pytest.fixture
def ask(tmp_path):
    def ask(*args, objects, **more):
        items = [obj.data for obj in [*NODES, *objects]]
        content = {
            "apiVersion": "virt-admit.io/v1alpha1",
            "kind": "Snapshot",
            "complete": ["*"],
            "items": items,
        }
        (tmp_path / "cluster.json").write_text(json.dumps(content | more))
        return run(*args, "--cluster", str(tmp_path / "cluster.json"))

    return ask


MIGRATES = vm("web", "a")
RESTARTS = vm("db", "a", strategy="None")
STOPS = vm("batch", "a", strategy="None", run="Manual")
BLOCKS = vm("oracle", "a", strategy="External")


@pytest.mark.parametrize("verb", [("drain", "a"), ("upgrade",)])
@pytest.mark.parametrize(
    ("objects", "flag", "code"),
    [
        (MIGRATES, [], 0),
        (MIGRATES, ["--fail-on-downtime"], 0),
        (RESTARTS, [], 0),
        (RESTARTS, ["--fail-on-downtime"], 1),
        (RESTARTS, ["--fail-on-downtime=10m"], 0),
        (RESTARTS, ["--fail-on-downtime=90s"], 0),
        (RESTARTS, ["--fail-on-downtime=89s"], 1),
        (STOPS, [], 0),
        (STOPS, ["--fail-on-downtime=1000h"], 1),
        (BLOCKS, ["--fail-on-downtime"], 1),
        (BLOCKS, [], 1),
        ([*MIGRATES, *RESTARTS], ["--fail-on-downtime=1m"], 1),
    ],
)
def test_the_exit_code(ask, verb, objects, flag, code):
    assert ask(*verb, *flag, objects=objects)[0] == code


def test_what_cannot_be_determined_stays_2(ask, monkeypatch):
    # the strategy of the cluster is not known
    monkeypatch.setitem(globals(), "NODES", [node("a"), node("b")])
    objects = [*vm("mail", "a", strategy=None), *RESTARTS]
    hidden = ["kubevirts.kubevirt.io", "hyperconvergeds.hco.kubevirt.io"]
    for flag in ([], ["--fail-on-downtime"]):
        assert ask("drain", "a", *flag, objects=objects, unreadable=hidden)[0] == 2


def test_the_word_after_the_flag_is_a_node(ask):
    assert ask("drain", "--fail-on-downtime", "a", objects=RESTARTS)[0] == 1
    assert ask("drain", "--fail-on-downtime", "b", objects=RESTARTS)[0] == 0


@pytest.mark.parametrize("value", ["soon", "-1m", "10", ""])
def test_a_duration_that_is_none(ask, value):
    code, message = ask("drain", "a", f"--fail-on-downtime={value}", objects=MIGRATES)
    assert code == 2
    assert "is not a duration" in message or "is negative" in message


def downtimes(ask, *verb, objects):
    data = json.loads(ask(*verb, "-o", "json", objects=objects)[1])
    vms = data["vms"] if "vms" in data else [one for found in data["nodes"] for one in found["vms"]]
    return {one["name"]: one for one in vms}


def test_the_downtime_of_a_drain(ask):
    found = downtimes(ask, "drain", "a", objects=[*MIGRATES, *started(RESTARTS), *STOPS, *BLOCKS])
    assert found["web"]["downtime"] == {"low": 0, "high": 0}
    assert found["db"]["downtime"] == {"low": 20, "high": 80}, (
        "its last start, and the grace period"
    )
    assert found["batch"]["downtime"] == {"low": 0, "high": None}
    assert found["oracle"]["downtime"] is None


def test_a_restart_without_room_has_no_end(ask):
    found = downtimes(ask, "drain", "a", objects=vm("db", "a", strategy="None", memory="4000Gi"))
    assert found["db"]["downtime"]["high"] is None


def test_the_interruptions_of_an_upgrade(ask):
    found = downtimes(ask, "upgrade", objects=[*MIGRATES, *started(RESTARTS), *STOPS])
    keys = ("shutdowns", "downtime", "paused")
    none = {"low": 0, "high": 0}
    assert [found["web"][key] for key in keys] == [0, none, none]
    times = found["db"]["moves"]
    assert times >= 1
    assert [found["db"][key] for key in keys] == [
        times,
        {"low": 20 * times, "high": 80 * times},
        none,
    ]
    assert [found["batch"][key] for key in keys] == [1, {"low": 0, "high": None}, none]


def test_a_migration_that_may_pause_the_guest(ask, monkeypatch):
    pausing = kubevirt(
        allowWorkloadDisruption=True, allowPostCopy=False, completionTimeoutPerGiB=100
    )
    monkeypatch.setitem(globals(), "NODES", [node("a"), node("b"), pausing])
    found = downtimes(ask, "upgrade", objects=MIGRATES)["web"]
    assert found["paused"] == {"low": 0, "high": 100 * 5 * found["moves"]}, "4 GiB are 5 GB"
