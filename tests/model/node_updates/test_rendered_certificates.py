"""Charts that make a certificate at each rendering, which Fleet then finds modified."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.builders import manifest
from tests.model.node_updates.test_managed_charts import BUNDLE, chart, order
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import command_of

CA, KEY = "LS0tCAQ==", "LS0tPRIVATE=="
TLS = {
    "apiVersion": "v1",
    "kind": "Secret",
    "namespace": "kube-system",
    "name": "hook-tls",
    "patch": json.dumps({"data": {"tls.key": KEY, "ca.crt": CA}}),
}
HOOK = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingWebhookConfiguration",
    "name": "hook",
}
LEFT_OUT = [
    {"kind": "Secret", "namespace": "kube-system", "name": "hook-tls", "jsonPointers": ["/data"]},
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "name": "hook",
        "operations": [{"op": "remove", "path": "/webhooks"}],
    },
]


def hook(bundle: str = CA) -> dict[str, str]:
    own = {"name": "a.example.com", "clientConfig": {"caBundle": bundle}}
    return HOOK | {"patch": json.dumps({"webhooks": [own]})}


def differing(*changed: dict[str, str], left_out: object = None) -> tuple[str, str]:
    """Return what is said of a chart that would change these objects."""
    found = chart("")
    found.data["status"]["summary"]["nonReadyResources"][0]["modifiedStatus"] = list(changed)
    if left_out is not None:
        found.data["spec"] = {"diff": {"comparePatches": left_out}}
    live: list[Object] = [manifest("v1", "Secret", "hook-tls", "kube-system"), BUNDLE]
    return order(found, *live)


def added(remedy: str) -> list[Any]:
    return list(json.loads(command_of(remedy).partition(" -p '")[2].rstrip("'")))


def test_the_certificate_of_a_webhook_is_left_out_of_the_comparison() -> None:
    reason, remedy = differing(TLS, hook(), left_out=[{"kind": "Other", "name": "x"}])

    assert (
        "Secret kube-system/hook-tls (data.ca.crt, data.tls.key) and "
        "ValidatingWebhookConfiguration hook (webhooks.clientConfig.caBundle) differ: Fleet would "
        "set another CA, the same in both"
    ) in reason
    assert reason.endswith("Its spec.diff.comparePatches does not leave them out")
    assert KEY not in reason + remedy
    assert "forceSyncGeneration" not in remedy
    assert "CustomResourceDefinition" not in remedy
    steps = added(remedy)
    assert {each["path"] for each in steps} == {"/spec/diff/comparePatches/-"}
    assert [each["value"]["jsonPointers"] for each in steps] == [["/data"], ["/webhooks"]]


def test_a_chart_without_comparisons_gets_the_list() -> None:
    _, remedy = differing(TLS, hook())
    assert "--type=merge" in command_of(remedy)
    assert '{"spec":{"diff":{"comparePatches":[{"apiVersion":"v1","kind":"Secret"' in remedy


def test_one_object_is_left_out_already() -> None:
    reason, remedy = differing(TLS, hook(), left_out=LEFT_OUT[:1])
    assert reason.endswith("does not leave ValidatingWebhookConfiguration hook out")
    (step,) = added(remedy)
    assert step["value"]["kind"] == "ValidatingWebhookConfiguration"


def test_what_else_differs_keeps_the_chart_from_being_ready() -> None:
    other = {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "x", "name": "y"}
    _, remedy = differing(TLS, hook(), other | {"patch": '{"spec":{"replicas":1}}'})
    assert remedy.endswith("see to Deployment x/y as well, which Fleet names beside them")
    assert "goes on by itself" not in remedy
    assert "goes on by itself" in differing(TLS, hook())[1]


@pytest.mark.parametrize(
    ("changed", "left_out"),
    [
        ((TLS,), None),
        ((hook(), TLS | {"patch": '{"data":{"password":"eA=="}}'}), None),
        ((TLS, hook("other")), None),
        ((TLS, hook("")), None),
        ((TLS, HOOK | {"patch": '{"webhooks":[1,{"clientConfig":[]}]}'}), None),
        ((TLS, HOOK | {"patch": '{"metadata":{"labels":{"a":"b"}}}'}), None),
        ((TLS, hook()), LEFT_OUT),
    ],
    ids=["alone", "a password", "another CA", "none", "hostile", "labels", "left out already"],
)
def test_another_difference_is_no_renewed_certificate(changed: Any, left_out: Any) -> None:
    reason, remedy = differing(*changed, left_out=left_out)
    assert "at each rendering" not in reason
    assert " differs in " in reason
    assert "CustomResourceDefinition" not in remedy
