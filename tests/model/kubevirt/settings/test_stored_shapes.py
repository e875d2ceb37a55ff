"""Objects that their operator cannot decode, so that it ends again and again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import manifest
from virt_admit.forecasts.placement.components import broken_pods
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.settings import stored_shapes
from virt_admit.model.kubevirt.settings.stored_shapes import Undecodable
from virt_admit.model.messages import command_of

NOW = "2027-03-01T12:00:00Z"
APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
OLD, NEW = "hco.kubevirt.io/v1beta1", "hco.kubevirt.io/v1"
GATES = {"featureGates": {"downwardMetrics": True}}
STRICT = 'strict decoding error: unknown field "spec.{}"'
CONFIGURATION: dict[str, Any] = {"configuration": {}}
UNMARSHAL = "json: cannot unmarshal {} into Go struct field {} of type {}"


def hco(spec: dict[str, Any], version: str = NEW, **metadata: Any) -> Object:
    return manifest(version, "HyperConverged", "hco", "kubevirt", metadata=metadata, spec=spec)


def kubevirt(spec: dict[str, Any]) -> Object:
    return manifest("kubevirt.io/v1", "KubeVirt", "kubevirt", "kubevirt", spec=spec)


def operator(said: str = "", name: str = "hco-operator-1-a", *, up: bool = False) -> Object:
    ended = {"terminated": {"exitCode": 1, "message": said}}
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    state = {"running": {"startedAt": NOW}} if up else waiting
    own = {"name": "manager", "ready": up, "state": state, "lastState": ended}
    status = {"containerStatuses": [own], "conditions": [{"type": "Ready", "status": "False"}]}
    return manifest("v1", "Pod", name, "kubevirt", status=status)


def of(pod: Object, *objects: Object) -> Undecodable | None:
    return stored_shapes.of_pod(pod, Snapshot([pod, *objects], complete=["*"], time=NOW))


def test_an_object_that_was_stored_as_another_version() -> None:
    last = '{"apiVersion":"hco.kubevirt.io/v1beta1","spec":{"evictionStrategy":"None"}}'
    fields = [
        {"manager": "hco", "apiVersion": NEW, "time": "2027-03-01T11:00:00Z"},
        {"manager": "kubectl", "apiVersion": OLD, "time": "2027-03-01T10:00:00Z"},
    ]
    own = hco(GATES, annotations={APPLIED: last}, managedFields=fields)
    found = of(operator(), own)
    assert found is not None
    assert found.words == (
        "HyperConverged kubevirt/hco has an object in spec.featureGates, where hco.kubevirt.io/v1 "
        "has a list (written as hco.kubevirt.io/v1beta1 by kubectl 2 h ago), which its operator "
        "cannot decode"
    )
    assert "Write spec.featureGates of HyperConverged hco as a list, or remove it" in found.remedy
    assert "then set again what it lost (evictionStrategy)" in found.remedy
    assert command_of(found.remedy) == "kubectl edit hyperconverged hco -n kubevirt"

    cluster = Snapshot([operator(), own], complete=["*"], time=NOW)
    broken = broken_pods.of_pod(operator(), cluster)
    assert broken is not None
    assert found.words in broken.why


@pytest.mark.parametrize(
    ("said", "spec", "words"),
    [
        (
            UNMARSHAL.format("string", "KubeVirtList.items.spec.replicas", "uint8"),
            {"replicas": "2"},
            "kubevirt has a text in spec.replicas, where kubevirt.io/v1 has a number",
        ),
        (
            UNMARSHAL.format("array", "KubeVirt.spec.infra", "v1.ComponentConfig"),
            {"infra": []},
            "has a list in spec.infra, where kubevirt.io/v1 has a v1.ComponentConfig",
        ),
        (
            f'I0831 start\nerror: {STRICT.format("shape")}, unknown field "spec.size"\nexit',
            {"shape": "round"},
            "has a text in spec.shape, unknown to kubevirt.io/v1",
        ),
        (
            STRICT.format("colour"),
            {"colour": "red"},
            "has a text in spec.colour, unknown to kubevirt.io/v1",
        ),
    ],
)
def test_a_pod_says_what_it_cannot_decode(said: str, spec: dict[str, Any], words: str) -> None:
    found = of(operator(said, "virt-operator-1-a"), kubevirt(spec))
    assert found is not None
    assert words in found.words


@pytest.mark.parametrize(
    ("pod", "obj"),
    [
        (operator(up=True), hco(GATES)),
        (operator(name="virt-operator-1-a"), hco(GATES)),
        (operator(), hco(GATES, OLD)),
        (operator(), hco({"featureGates": [{"name": "downwardMetrics"}]})),
        (operator(), hco({"featureGates": None, "other": {}})),
        (operator(UNMARSHAL.format("object", "Config.gates", "[]string")), hco({"gates": {}})),
        (
            operator(UNMARSHAL.format("string", "KubeVirt.spec.infra", "v1.X"), "virt-operator-1"),
            kubevirt({"infra": {}}),
        ),
        (
            operator(
                'W0831 14:34 1 warnings.go:70] unknown field "spec.colour"', "virt-operator-1"
            ),
            kubevirt({"colour": "red"}),
        ),
        (
            operator(f"W0831 1 warnings.go:70] {STRICT.format('colour')}", "virt-operator-1"),
            kubevirt({"colour": "red"}),
        ),
        (operator(STRICT.format("colour")), kubevirt({"colour": "red"})),
        (operator(STRICT.format("colour"), "other-1-a"), kubevirt({"colour": "red"})),
        (operator(STRICT.format("configuration"), "virt-operator-1"), kubevirt(CONFIGURATION)),
        (
            operator(UNMARSHAL.format("string", "X.spec.replicas", "uint8"), "other-1-a"),
            kubevirt({"replicas": "2"}),
        ),
    ],
    ids=[
        "the operator runs",
        "another operator",
        "the form of its version",
        "a list",
        "no value",
        "a field of its own configuration",
        "repaired since",
        "a warning of the API server",
        "a warning that has the words of an error",
        "the object of another operator",
        "another pod",
        "a field that a release of its version has",
        "the type of another pod",
    ],
)
def test_objects_that_are_decoded(pod: Object, obj: Object) -> None:
    assert of(pod, obj) is None
