"""Where all events may not be listed, ``virt-admit drain NODE`` asks for those of VMs that wait,
and for no others.
"""

import json
import re

import pytest
from click.testing import CliRunner

from tests.fake_api import FakeApi
from tests.forecasts.drain.test_target_pods import pending, warning
from tests.forecasts.drain.vm_motion import NOW, launcher, migration, node, vm, vmi
from virt_admit.cli import main
from virt_admit.cli.commands import drain
from virt_admit.model.kubernetes import clock, kinds
from virt_admit.model.kubernetes.events import EVENT

MOVING = (vmi(evacuationNodeName="a"), launcher(), migration(phase="Scheduling"), pending(age=500))
DENIED = warning(
    vmi(), "FailedCreate", 'admission webhook "pods.example.com" denied the request', 20
)

_SUBJECT = re.compile(r"involvedObject.kind=([^,]+),involvedObject.name=([^,]+)")


@pytest.fixture
def ask(tmp_path, monkeypatch):
    """Return the row of the VM, and the objects whose events were asked for."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    def run(*objects, words=("a",), may=True, every=False):
        with FakeApi() as fake:
            fake.time = clock.instant(NOW)
            for kind in (*drain.LOOKS_UP, EVENT):
                fake.install(kind)
            for obj in (node("a"), node("b"), vm(), *objects):
                fake.put(kinds.of(obj) or EVENT, obj.data)
            if not every:
                fake.forbidden.add("/api/v1/events")
            if not may:
                fake.forbidden.add("/api/v1/namespaces/shop/events")
            command = ("drain", *words, "--kubeconfig", fake.kubeconfig(tmp_path), "-o", "json")
            found = CliRunner().invoke(main.virt_admit, command, standalone_mode=False)
            assert found.exception is None, found.exception
            nodes = {each["name"]: each for each in json.loads(found.stdout)["nodes"]}
            asked = [
                query["fieldSelector"]
                for path, query in fake.requests
                if path.endswith("shop/events")
            ]
            return nodes["a"]["vms"][0], [_SUBJECT.search(each).groups() for each in asked]

    return run


def assert_few(asked):
    """Only objects around the VM are asked for, each once."""
    assert len(asked) <= 8
    assert len(asked) == len(set(asked))


def test_a_warning_about_a_pod_that_is_awaited(ask):
    row, asked = ask(*MOVING, warning(MOVING[-1], "FailedMount", "rbd image is still being used"))
    assert row["outcome"] == "unknown"
    assert asked[0] == ("Pod", MOVING[-1].name), "what is awaited comes first"
    assert_few(asked)
    assert "rbd image is still being used" in row["reason"]


def test_a_warning_about_a_vm_without_a_target_pod(ask):
    row, asked = ask(vmi(evacuationNodeName="a"), launcher(), migration(age=300), DENIED)
    assert row["outcome"] == "blocks the drain"
    assert asked[0] == ("VirtualMachineInstance", vmi().name)
    assert_few(asked)
    assert 'admission webhook "pods.example.com" denied the request' in row["reason"]


@pytest.mark.parametrize(
    ("objects", "options", "most"),
    [((vmi(), launcher()), {}, 0), (MOVING, {"may": False}, 1), (MOVING, {"words": ("--all",)}, 0)],
    ids=["at rest", "no right", "every node"],
)
def test_without_events_the_answer_is_that_of_the_objects(ask, objects, options, most):
    row, asked = ask(
        *objects, warning(MOVING[-1], "FailedMount", "rbd image is still being used"), **options
    )
    assert (row["outcome"], len(asked)) == ("migrates", most)
    assert "rbd" not in row["reason"]


@pytest.mark.parametrize("words", [("a",), ("--all",)])
def test_where_all_warnings_may_be_listed_no_single_ones_are(ask, words):
    seen = warning(MOVING[-1], "FailedMount", "rbd image is still being used")
    row, asked = ask(*MOVING, seen, words=words, every=True)
    assert (row["outcome"], asked) == ("unknown", [])
    assert "rbd image is still being used" in row["reason"]
