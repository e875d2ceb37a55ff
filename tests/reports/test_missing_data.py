"""What a report says of an object that does not exist, and of one that could not be read."""

import json
import pickle

import pytest
from click.testing import CliRunner

from tests.builders import vm
from virt_admit.cli.main import virt_admit
from virt_admit.model.kubernetes.cluster import AbsentObject
from virt_admit.reports.findings.report import lacks

GONE = AbsentObject("controllerrevisions.apps shop/old, which does not exist")
READ_AS_WORDS = "the words of a driver, which does not exist"


@pytest.mark.parametrize(
    ("every", "says"),
    [
        ((GONE,), f"cannot judge without {GONE}"),
        ((pickle.loads(pickle.dumps(GONE)),), f"cannot judge without {GONE}"),  # of a process
        ((READ_AS_WORDS,), f"not available: {READ_AS_WORDS}"),
        (("nodes", GONE), f"not available: {GONE}, nodes"),
    ],
)
def test_only_what_was_read_is_called_absent(every, says):
    assert lacks(every) == says


@pytest.mark.parametrize(
    ("complete", "says"), [(["*"], "cannot judge without"), ([], "not available:")]
)
def test_an_instance_type_that_is_read_and_does_not_exist(tmp_path, complete, says):
    snapshot = {"apiVersion": "virt-admit.io/v1alpha1", "kind": "Snapshot", "items": []}
    (tmp_path / "cluster.json").write_text(json.dumps(snapshot | {"complete": complete}))
    named = {"instancetype": {"name": "large", "kind": "VirtualMachineInstancetype"}}
    (tmp_path / "vm.json").write_text(json.dumps(vm(**named).data))
    files = [str(tmp_path / each) for each in ("vm.json", "cluster.json")]
    result = CliRunner().invoke(virt_admit, ["check", files[0], "--cluster", files[1]])

    lines = [each for each in result.stdout.splitlines() if "shop/large" in each]
    assert [f": {says} " in each for each in lines].count(True) == 1, result.stdout
