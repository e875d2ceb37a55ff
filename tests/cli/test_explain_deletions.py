"""What ``virt-admit explain vm/NAME`` says about a VM that is being deleted."""

from __future__ import annotations

import pytest

from tests.builders import manifest
from tests.cli.explain_vm_cases import WORLD, Explainer, without
from virt_admit.model.kubernetes.objects import Object

_FINALIZER = "kubevirt.io/virtualMachineControllerFinalize"


@pytest.fixture
def explain(tmp_path):
    return Explainer(tmp_path)


def _deleted(vm: Object, since: str = "2020-01-01T00:00:00Z") -> Object:
    mark = {"deletionTimestamp": since, "finalizers": [_FINALIZER]}
    return Object({**vm.data, "metadata": {**vm.data["metadata"], **mark}})


def _lost_type() -> Object:
    """Return a stopped VM that is being deleted, and whose instance type is gone."""
    spec = {
        "runStrategy": "Halted",
        "instancetype": {"kind": "virtualmachineinstancetype", "name": "small"},
        "template": {"spec": {"domain": {"devices": {}}}},
    }
    return _deleted(manifest("kubevirt.io/v1", "VirtualMachine", "db", "shop", spec=spec))


_OLD = manifest(
    "kubevirt.io/v1",
    "KubeVirt",
    "kubevirt",
    "kubevirt",
    status={"observedKubeVirtVersion": "v0.59.0"},
)


def test_a_stopped_vm_that_its_instance_type_keeps(explain):
    _, data = explain(_lost_type(), _OLD)
    assert "instance type small no longer exists" in data["drain"]["reason"]
    assert '[{"op":"remove","path":"/spec/instancetype"}]' in data["drain"]["remedy"]
    assert not [each for each in data["commands"] if "virtctl start" in each]


def test_a_stopped_vm_whose_deletion_has_just_begun(explain):
    vm = _deleted(
        manifest("kubevirt.io/v1", "VirtualMachine", "db", "shop"), "2099-01-01T00:00:00Z"
    )
    _, data = explain(vm)
    assert data["drain"]["reason"] == "it is not running, and is being deleted"
    assert not [each for each in data["commands"] if "virtctl start" in each]


def test_a_running_vm_that_is_being_deleted_for_long(explain):
    vm = next(each for each in WORLD if each.kind == "VirtualMachine")
    _, data = explain(*without("VirtualMachine", *WORLD), _deleted(vm))
    assert any(
        f"kept by finalizer {_FINALIZER}: its VMI still exists" in note for note in data["notes"]
    )
