"""A command says of a live cluster what it says of a file of that cluster."""

import json
import os

import pytest
from click.testing import CliRunner

from tests.cli.test_drain_events import DENIED, MOVING
from tests.fake_api import FakeApi
from tests.forecasts.drain.vm_motion import NOW, node, vm
from tests.healthy.parts import snapshot
from tests.incidents_platform.test_incidents import INCIDENTS, named
from tests.model.evidence import test_lasting_faults
from tests.served_snapshot import serve
from virt_admit.cli.main import virt_admit
from virt_admit.kube import snapshots


@pytest.fixture
def both(tmp_path, monkeypatch):
    """Return what a command says of a cluster in a file,
    and of the same cluster behind an API server.
    """
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    def run(words, snapshot):
        path = tmp_path / "cluster.json"
        path.write_text(json.dumps(snapshot))
        with FakeApi() as fake:
            serve(fake, snapshots.load(path))
            ways = (("--cluster", str(path)), ("--kubeconfig", fake.kubeconfig(tmp_path)))
            results = [
                CliRunner().invoke(virt_admit, [*words, *way], standalone_mode=False)
                for way in ways
            ]
        assert [result.exception for result in results] == [None, None]
        return [(result.return_value, result.stdout.splitlines()) for result in results]

    return run


SECRET = {"openshift-enhancements-828"}
"""What rests on a ConfigMap: they are never read from a cluster."""
READABLE = [incident for incident in INCIDENTS if named(incident) not in SECRET]
SCANNED = int(os.environ.get("LIVE_SCANS", "3"))
"""Of so many incidents one is scanned too; ``make verify-random`` scans each."""


@pytest.mark.parametrize("incident", READABLE, ids=named)
def test_a_live_cluster_and_its_file_say_the_same(incident, both):
    of_file, live = both(incident.command.split(), incident.snapshot)
    assert live == of_file


@pytest.mark.parametrize("incident", READABLE[::SCANNED], ids=named)
def test_so_does_a_scan(incident, both):
    of_file, live = both(["scan", "--policy", "default"], incident.snapshot)
    assert live == of_file


def test_so_does_a_scan_of_what_objects_report(both):
    items = [make(test_lasting_faults.OLD).data for make, _ in test_lasting_faults.FAULTS.values()]
    for number, item in enumerate(items):
        times = {"name": f"x-{number}", "creationTimestamp": test_lasting_faults.OLD}
        item["metadata"].update(times)
    cluster = snapshot(items, time=test_lasting_faults.NOW)
    of_file, live = both(["scan", "-o", "json"], cluster)
    reported = [json.loads("\n".join(lines))["reported"] for _, lines in (of_file, live)]
    assert reported[0] == reported[1]
    assert len(reported[1]) == len(items) - 1, "two pods that end alike are one line"


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_vm_that_arrives_is_told_once(name, both):
    """Each look-up of a live cluster makes a new view of an object."""
    items = [each.data for each in (node("a"), node("b"), vm(), *MOVING)]
    of_file, live = both(["drain", name], snapshot(items, time=NOW))
    assert live == of_file
    assert sum("shop/db" in line for line in live[1]) == 1


def test_a_saved_cluster_has_the_events(both, tmp_path):
    items = [each.data for each in (node("a"), node("b"), vm(), *MOVING[:2], DENIED)]
    both(
        ["scan", "--save", str(tmp_path / "saved.json"), "--policy", "default"],
        snapshot(items, time=NOW),
    )
    assert [
        each.kind for each in snapshots.load(tmp_path / "saved.json") if each.kind == "Event"
    ] == ["Event"]
