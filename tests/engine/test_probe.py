"""The probe of ``doctor --probe``: recognised by name, kind, operation and annotation,
and judged like any other VM.
"""

from __future__ import annotations

import json

import pytest

from virt_admit.engine import probe, review
from virt_admit.model.kubernetes.cluster import NOTHING
from virt_admit.policy.files import load_policy
from virt_admit.rules import load_rules

RULES = load_rules()


def review_of(obj, operation="CREATE", **more):
    group, _, version = obj["apiVersion"].partition("/")
    request = {
        "uid": "1",
        "kind": {"group": group, "version": version, "kind": obj["kind"]},
        "resource": {"group": group, "version": version, "resource": f"{obj['kind'].lower()}s"},
        "operation": operation,
        "name": obj["metadata"]["name"],
        "namespace": obj["metadata"]["namespace"],
        "userInfo": {"username": "admin"},
        "object": obj,
        "dryRun": True,
        **more,
    }
    return json.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    ).encode()


def answered(obj, decide=review.review, policy="default", **more):
    reply = review.answer(
        review_of(obj, **more), decide, RULES, NOTHING, load_policy(policy, RULES)
    )
    return json.loads(reply.body)["response"]


@pytest.mark.parametrize("policy", ["audit", "default", "strict"])
def test_the_webhook_answers_a_probe_with_its_nonce_and_nothing_else(policy):
    response = answered(probe.probe_object("shop", "n0nce"), policy=policy)
    assert response["allowed"]
    assert response["warnings"] == ["[virt-admit/probe] n0nce"]


def test_the_defaulting_endpoint_does_not_answer_for_the_reviewing_one():
    assert "warnings" not in answered(probe.probe_object("shop", "n0nce"), review.fix, "audit")


@pytest.mark.parametrize("name", ["virt-admit-probe-2", "db"])
def test_another_vm_with_the_annotation_is_no_probe(name):
    obj = probe.probe_object("shop", "n0nce")
    obj["metadata"]["name"] = name
    assert "warnings" not in answered(obj)


def test_an_update_or_another_kind_is_no_probe():
    obj = probe.probe_object("shop", "n0nce")
    assert "warnings" not in answered(obj, operation="UPDATE", oldObject=obj)
    pool = {**obj, "apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool"}
    assert not any("n0nce" in warning for warning in answered(pool).get("warnings", ()))


def test_a_nonce_of_a_stranger_stays_one_short_printable_warning():
    (warning,) = answered(probe.probe_object("shop", "a\nb\u202e" + "x" * 5000))["warnings"]
    assert warning.isprintable()
    assert len(warning) < 100
