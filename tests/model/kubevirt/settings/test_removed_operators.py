"""KubeVirt, CDI or HyperConverged without its operator: no command may lose VMs or disks."""

from __future__ import annotations

import json
import shlex

import pytest

from tests.builders import manifest
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import CDI, HCO, KUBEVIRT
from virt_admit.model.kubevirt.settings import removed_operators

_OWN = "kubevirt.io/foregroundDeleteKubeVirt"
_GONE = {"service": {"name": "virt-api", "namespace": "virt"}}
_SERVES = {"service": {"name": "other", "namespace": "shop"}}
_DELETED = "2027-03-01T10:00:00Z"


def _product(kind, *finalizers):
    metadata = {"deletionTimestamp": _DELETED, "finalizers": list(finalizers)}
    namespace = "virt" if kind.namespaced else ""
    return manifest(f"{kind.group}/v1", kind.kind, "x", namespace, metadata=metadata)


def _removed(kind, *finalizers, calls=()):
    webhooks = [{"name": f"w{n}.example.com", "clientConfig": each} for n, each in enumerate(calls)]
    group = "admissionregistration.k8s.io/v1"
    left = manifest(group, "ValidatingWebhookConfiguration", "left", webhooks=webhooks)
    served = manifest("v1", "Service", "other", "shop")
    product = _product(kind, *finalizers)
    return removed_operators.of(product, kind, Snapshot([product, left, served], complete=["*"]))


@pytest.mark.parametrize(
    ("kind", "finalizer", "lost"),
    [
        (CDI, "operator.cdi.kubevirt.io", "disks of VMs"),
        (HCO, "kubevirt.io/hyperconverged", "all VMs"),
    ],
)
def test_what_owns_vms_or_disks_keeps_its_finalizer(kind, finalizer, lost):
    removed = _removed(kind, finalizer)
    _, verb, *rest = shlex.split(removed.command)
    assert verb == "get"
    assert rest[-2:] == ["-o", "yaml"]
    assert removed.steps().startswith("do not remove the finalizer")
    assert lost in removed.steps()


def test_only_the_finalizer_of_the_operator_is_removed_after_a_test():
    removed = _removed(KUBEVIRT, "example.com/backup", _OWN)
    assert removed.finalizers == _OWN
    path = "/metadata/finalizers/1"
    steps = json.loads(shlex.split(removed.command)[-1])
    assert steps == [{"op": "test", "path": path, "value": _OWN}, {"op": "remove", "path": path}]


@pytest.mark.parametrize("kind", [KUBEVIRT, CDI, HCO])
def test_the_finalizer_of_another_product_is_not_held_by_the_operator(kind):
    assert _removed(kind, "example.com/backup") is None


def test_a_webhook_configuration_whose_services_are_gone_is_left_over():
    removed = _removed(KUBEVIRT, _OWN, calls=(_GONE, _GONE))
    assert "delete validatingwebhookconfiguration/left" in removed.command


@pytest.mark.parametrize("other", [_SERVES, {"url": "https://example.com"}])
def test_a_webhook_configuration_that_still_serves_is_not_deleted(other):
    removed = _removed(KUBEVIRT, _OWN, calls=(_GONE, other))
    assert not removed.leftovers
    assert "delete" not in shlex.split(removed.command)
