"""``virt-admit drain NODE --follow`` over an API server whose objects change step by step."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import sys

import pytest

from tests.cli.following_process import Following
from tests.fake_api import FakeApi, path_of
from tests.forecasts.drain import vm_motion
from tests.forecasts.drain.vm_motion import NOW, ago, launcher, migration, vmi
from tests.waiting import eventually
from virt_admit.model.kubernetes import clock, kinds
from virt_admit.model.kubernetes.kinds import POD, VMI, Kind
from virt_admit.reports.drain.follow import READS

pytestmark = pytest.mark.slow


@pytest.fixture
def api():
    """An API server with a cordoned node a and the open nodes b and c, at the time ``NOW``."""
    with FakeApi() as fake:
        fake.time = clock.instant(NOW)
        for kind in READS:
            fake.install(kind)
        show(fake, *vm_motion.cluster())
        yield fake


def show(api, *objects):
    """Create or replace objects."""
    for obj in objects:
        kind = kinds.of(obj)
        if path_of(kind) in api.objects:
            api.put(kind, dict(obj.data))


@pytest.fixture
def follow(api, tmp_path):
    """Start the command. It is killed at the end of the test if it still runs."""
    started = []

    def start(*flags, node="a"):
        started.append(Following(api, tmp_path, "drain", node, "--follow", *flags))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.ended()


def test_a_drain_is_followed_until_the_node_is_empty(api, follow):
    show(api, vmi(evacuationNodeName="a"), launcher())
    run = follow()
    run.wait_for("shop/db", "marked")
    show(api, migration(age=5))
    show(
        api,
        migration(age=5, phase="Scheduling"),
        launcher(suffix="2", on="b", job="uid-evacuation-1", phase="Pending"),
    )
    run.wait_for("shop/db", "marked → target-pending to b")
    moving = {
        "migrationUid": "uid-evacuation-1",
        "sourceNode": "a",
        "targetNode": "b",
        "startTimestamp": ago(1),
    }
    show(api, migration(age=5, phase="Running"), vmi(evacuationNodeName="a", migrationState=moving))
    run.wait_for("shop/db", "target-pending → running to b")
    show(api, migration(age=5, phase="Succeeded"), vmi(on="b"))
    api.delete(POD, "virt-launcher-db-1", "shop")
    run.wait_for("shop/db has left to b; 0 VMs and 0 pods left")
    assert run.ended() == 0
    assert run.lines[-1].endswith("a is empty: nothing is left that a drain evicts")
    assert not [query for path, query in api.requests if path == path_of(VMI) and "watch" in query][
        1:
    ]


def test_json_lines_have_the_keys_of_drain(api, follow):
    show(api, vmi(evacuationNodeName="a"), launcher())
    run = follow("-o", "json", "--timeout", "3s")
    assert run.ended() == 1
    objects = [json.loads(line) for line in run.lines]
    assert [each["type"] for each in objects] == ["progress", "state", "verdict", "end"]
    assert all(
        each["version"] == 1 and each["time"].startswith("2027-03-01T11:00:0") for each in objects
    )
    assert (objects[0]["vms"], objects[0]["pods"], objects[0]["gone"]) == (1, 0, [])
    assert 0 <= objects[0]["ends_in"]["low"] <= objects[0]["ends_in"]["high"]
    assert (objects[1]["namespace"], objects[1]["name"], objects[1]["state"]) == (
        "shop",
        "db",
        "marked",
    )
    assert (objects[2]["drainable"], objects[2]["vms"][0]["state"]) == (True, "marked")
    assert (objects[3]["result"], objects[3]["exit"], objects[3]["drainable"]) == (
        "timeout",
        1,
        True,
    )


def test_rights_that_are_missing_end_it(api, follow):
    api.forbidden.add(path_of(VMI))
    run = follow()
    assert run.ended() == 2
    assert "not allowed to list virtualmachineinstances.kubevirt.io" in run.lines[-1]


def test_a_node_that_does_not_exist(follow):
    run = follow(node="z")
    assert run.ended() == 2
    assert "node z does not exist" in run.errors[-1]


EVENTS = Kind("", ("v1",), "events", "Event")


def event(name, message, *, of="db", age=60, type="Warning"):
    return {
        "metadata": {"name": name, "namespace": "shop"},
        "involvedObject": {"kind": "VirtualMachineInstance", "namespace": "shop", "name": of},
        "type": type,
        "reason": "FailedCreate",
        "message": message,
        "lastTimestamp": ago(age),
    }


WITHOUT_TARGET = (vmi(evacuationNodeName="a"), launcher(), migration(age=300))


def asked_for_events(api):
    return [query for path, query in api.requests if path.endswith("/events")]


def test_the_last_warning_about_a_stuck_vm_is_read_once(api, follow):
    api.install(
        EVENTS,
        event("old", "an older one", age=600),
        event("new", "admission webhook pods.example.com denied the request", age=30),
        event("normal", "nothing wrong", age=5, type="Normal"),
        event("other", "about another VM", of="web", age=1),
    )
    show(api, *WITHOUT_TARGET)
    run = follow("--timeout", "8s")
    run.wait_for(
        "shop/db last event: FailedCreate: admission webhook pods.example.com denied the request"
    )
    assert run.ended() == 1
    assert "  last event: FailedCreate: admission webhook" in run.text, "the last screen has it"
    (query,) = asked_for_events(api)
    assert "involvedObject.name=db" in query["fieldSelector"]


def test_events_that_may_not_be_read_are_asked_for_once(api, follow):
    api.install(EVENTS)
    api.forbidden.add("/api/v1/namespaces/shop/events")
    show(
        api,
        *WITHOUT_TARGET,
        vmi("web", evacuationNodeName="a"),
        launcher("web"),
        migration("m-web", of="web", age=300),
    )
    run = follow("--timeout", "8s")
    assert run.ended() == 1
    assert "last event" not in run.text
    assert len(asked_for_events(api)) == 1


def test_a_vm_that_moves_is_not_asked_about(api, follow):
    api.install(EVENTS, event("old", "an older one"))
    show(api, vmi(evacuationNodeName="a"), launcher(), migration(age=5))
    assert follow("--timeout", "3s").ended() == 1
    assert not asked_for_events(api)


def test_an_api_server_that_restarts(api, follow):
    show(api, vmi(evacuationNodeName="a"), launcher())
    run = follow()
    run.wait_for("shop/db", "marked")
    api.stop()
    eventually(lambda: [line for line in run.errors if "This is the last known state" in line])
    api.start()
    show(api, vmi(on="b"))
    api.delete(POD, "virt-launcher-db-1", "shop")
    assert run.ended() == 0
    assert len([line for line in run.lines if " marked: " in line]) == 1


def on_a_terminal(api, folder, *flags, columns=100):
    """Run the command on a terminal until it ends.

    Return its exit code and what it wrote, with the control sequences.
    """
    command = [
        sys.executable,
        "-m",
        "virt_admit",
        "drain",
        "a",
        "--follow",
        *flags,
        "--kubeconfig",
        api.kubeconfig(folder),
    ]
    inherited = {
        key: value for key, value in os.environ.items() if not key.startswith("KUBERNETES_")
    }
    child, terminal = pty.fork()
    if not child:
        os.execvpe(
            command[0],
            [str(word) for word in command],
            inherited | {"COLUMNS": str(columns), "LINES": "40"},
        )
    written = b""
    with contextlib.suppress(OSError):  # the terminal of a process that has ended
        while part := os.read(terminal, 65536):
            written += part
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), written.decode()


def test_a_terminal_is_redrawn_and_left_in_order(api, tmp_path):
    show(api, vmi(evacuationNodeName="a"), launcher(), migration(age=5))
    code, written = on_a_terminal(api, tmp_path, "--timeout", "4s")
    assert code == 1
    assert "shop/db" in written
    assert re.search(r"1 VM and 0 pods left\. Ends in \d+ to \d+ (s|min)\.", written)
    assert "\x1b[" in written, "a terminal is redrawn in place"
    assert written.count("\x1b[?25l") == written.count("\x1b[?25h"), (
        "a hidden cursor is shown again"
    )
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written)
    assert all(len(line) <= 100 for line in text.replace("\r", "").splitlines()), text


def test_lines_on_a_terminal(api, tmp_path):
    show(api, vmi(evacuationNodeName="a"), launcher(), migration(age=5))
    code, written = on_a_terminal(api, tmp_path, "--timeout", "4s", "--lines")
    assert code == 1
    assert "shop/db" in written
    assert "\x1b[2J" not in written
    assert "\x1b[H" not in written
