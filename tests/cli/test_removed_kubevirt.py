"""A KubeVirt that is being deleted without its operator: drain and explain name that one cause,
and no other.
"""

from __future__ import annotations

import pytest

from tests.builders import manifest
from tests.cli.explain_vm_cases import WORLD, Explainer, event
from virt_admit.model.kubernetes.objects import Object

_CAUSE = (
    "virt-operator is gone, which alone removes its finalizer kubevirt.io/foregroundDeleteKubeVirt"
)
_KUBEVIRT = manifest(
    "kubevirt.io/v1",
    "KubeVirt",
    "kubevirt",
    "virt",
    metadata={
        "deletionTimestamp": "2027-03-01T10:00:00Z",
        "finalizers": ["kubevirt.io/foregroundDeleteKubeVirt"],
    },
)
_CLIENT = {"service": {"name": "virt-api", "namespace": "virt"}}
_RULE = {
    "apiGroups": ["kubevirt.io"],
    "apiVersions": ["*"],
    "operations": ["*"],
    "resources": ["virtualmachineinstancemigrations"],
}
_LEFT = (
    manifest("v1", "Service", "kubernetes", "default"),
    manifest(
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
        "virt-api-validator",
        webhooks=[
            {
                "name": "m.kubevirt.io",
                "failurePolicy": "Fail",
                "clientConfig": _CLIENT,
                "rules": [_RULE],
            }
        ],
    ),
)


def _part(name: str) -> Object:
    labels = {"labels": {"kubevirt.io": name}}
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return manifest("v1", "Pod", f"{name}-1", "virt", metadata=labels, status=status)


@pytest.fixture
def explain(tmp_path):
    return Explainer(tmp_path)


def _without_devices(obj: Object) -> Object:
    """Return a node without the devices that virt-handler would report."""
    if obj.kind != "Node":
        return obj
    kept = {
        key: value for key, value in obj.at("status", "allocatable").map.items() if "/" not in key
    }
    return Object(
        {**obj.data, "status": {**obj.data["status"], "allocatable": kept, "capacity": kept}}
    )


def test_drain_names_the_removal_alone(explain):
    world = map(_without_devices, WORLD)
    code, data = explain(*world, _KUBEVIRT, *_LEFT, target="a", verb="drain")
    assert code == 1
    (node,) = data["nodes"]
    (vm,) = node["vms"]
    assert vm["outcome"] == "blocks the drain"
    assert _CAUSE in vm["reason"]
    assert "kvm" not in vm["reason"]
    assert "validatingwebhookconfiguration/virt-api-validator" in vm["remedy"]
    assert node["blockers"] == []
    assert not [note for note in node["notes"] if "virt-handler" in note]


def test_explain_names_the_removal_alone(explain):
    _, data = explain(*map(_without_devices, WORLD), _KUBEVIRT, *_LEFT)
    for name in ("drain", "update", "migration"):
        assert _CAUSE in event(data, name)["reason"]
    assert data["short"] == []
    assert not [
        each for each in data["commands"] if "virt-handler" in each or "evictionStrategy" in each
    ]


@pytest.mark.parametrize("runs", ["virt-operator", "virt-controller"])
def test_while_a_part_of_kubevirt_runs_it_is_not_the_cause(explain, runs):
    _, data = explain(*WORLD, _KUBEVIRT, _part(runs))
    assert _CAUSE not in event(data, "drain")["reason"]


def test_a_kubevirt_that_is_not_being_deleted(explain):
    kept = Object({**_KUBEVIRT.data, "metadata": {"name": "kubevirt", "namespace": "virt"}})
    _, data = explain(*WORLD, kept)
    assert event(data, "migration")["outcome"] == "starts"


def test_a_stopped_vm_is_not_to_be_started(explain):
    vm = manifest(
        "kubevirt.io/v1",
        "VirtualMachine",
        "db",
        "shop",
        spec={"runStrategy": "Halted", "template": {}},
    )
    _, data = explain(vm, _KUBEVIRT)
    assert _CAUSE in data["drain"]["reason"]
    assert not [each for each in data["commands"] if "virtctl start" in each]
