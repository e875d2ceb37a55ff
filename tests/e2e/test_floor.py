"""The floor: policies that the API server evaluates itself, with no webhook installed."""

import copy
import json
import time

import pytest
from click.testing import CliRunner

from tests.apiserver.control_plane import ControlPlane
from tests.paths import ROOT
from tests.rule_cases import rule_cases
from virt_admit.cli import main

FLOOR = ROOT / "manifests" / "floor"
RULE = "vm-running-and-run-strategy"


@pytest.fixture(scope="module")
def floor(crds: ControlPlane):
    """The API server with the floor, and a VM with a fault that is older.

    It takes seconds to compile the policies.
    """
    assert apply(crds, vm("old")).returncode == 0
    crds.kubectl("apply", "-k", str(FLOOR), check=True)
    yield crds
    crds.kubectl("delete", "-k", str(FLOOR), "--ignore-not-found", check=True)


def vm(name, **spec):
    found = copy.deepcopy(rule_cases()[RULE][0]["object"])
    found["metadata"] = {"name": name, "namespace": "default"}
    found["spec"] |= spec
    return {
        **found,
        "spec": {key: value for key, value in found["spec"].items() if value is not ...},
    }


def apply(plane, obj):
    return plane.kubectl("apply", "-f", "-", input=json.dumps(obj))


def refused(plane, obj):
    """What kubectl prints when the floor has arrived in the API server, which takes a moment."""
    end = time.monotonic() + 30
    while (
        done := plane.kubectl("apply", "--dry-run=server", "-f", "-", input=json.dumps(obj))
    ).returncode == 0:
        assert time.monotonic() < end, "the floor never refused it"
        time.sleep(0.2)
    return done.stderr


def test_the_floor_refuses_with_what_to_write(floor: ControlPlane) -> None:
    said = refused(floor, vm("both"))
    assert "spec.running: running (means Always) and runStrategy are both set" in said, said
    assert f"Keep runStrategy and remove running. [{RULE}]" in said
    assert apply(floor, vm("both", running=...)).returncode == 0
    floor.kubectl("delete", "virtualmachine", "both", "-n", "default", check=True)


def test_an_old_fault_stays_editable_and_deletable(floor: ControlPlane) -> None:
    refused(floor, vm("new"))
    edited = vm("old")
    edited["metadata"]["labels"] = {"edited": "true"}
    assert apply(floor, edited).returncode == 0
    assert apply(floor, vm("old", runStrategy="Halted")).returncode != 0, (
        "another fault is a new one"
    )
    assert floor.kubectl("delete", "virtualmachine", "old", "-n", "default").returncode == 0


def test_the_doctor_finds_what_was_exported_and_what_is_missing(floor: ControlPlane) -> None:
    """The API server adds nothing to what is exported, so the specs are compared as they are."""
    assert "the floor enforces what the built-in policy default exports" in floor_in_doctor(floor)
    floor.kubectl("delete", "validatingadmissionpolicybinding", f"virt-admit-{RULE}", check=True)
    assert (
        f"the floor does not enforce 1 rule of the built-in policy default: {RULE}"
        in floor_in_doctor(floor)
    )


def floor_in_doctor(plane: ControlPlane) -> str:
    done = CliRunner().invoke(
        main.virt_admit,
        ["doctor", "--kubeconfig", str(plane.kubeconfig), "-o", "json"],
        standalone_mode=False,
    )
    (found,) = (
        each for each in json.loads(done.stdout)["observations"] if each["topic"] == "floor"
    )
    return str(found["text"])
