"""What is read of a review: all of it, or with too many values only what comes before the
object.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.engine.test_limits import ALL, DEFAULT, crowded, reply_of
from tests.https.reviews import review, vm
from tests.work import measured, resident
from virt_admit.engine import review as engine
from virt_admit.engine.decoding import MAX_USER, ReviewError, decode
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import NOTHING
from virt_admit.policy.parser import parse
from virt_admit.serving.metrics import Metrics

GOING = crowded(0, 300_000)
GOING["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("decide", "new", "old", "rule"),
    [
        (engine.review, crowded(0, 300_000), None, "vm-running-and-run-strategy"),
        (engine.fix, crowded(0, 300_000), None, "vm-eviction-strategy-default"),
        (engine.review, vm(), crowded(0, 300_000), "vm-running-and-run-strategy"),
        (engine.review, GOING, GOING, "vm-running-and-run-strategy"),
        (engine.fix, GOING, GOING, ""),
        (engine.review, None, GOING, ""),
    ],
    ids=["create", "fix", "update", "update of an object being deleted", "fix of it", "delete"],
)
def test_an_object_with_too_many_values_is_allowed_and_the_answer_says_so(
    decide: Any, new: Any, old: Any, rule: str
) -> None:
    """The last column is a rule that did not judge it; empty: no rule is asked."""
    body = json.dumps(review(new, old, operation="" if new else "DELETE")).encode()
    reply = reply_of(body, decide)
    answer = json.loads(reply.body)["response"]
    metrics = Metrics()
    metrics.observe("validate", reply, 0.1)
    counted = f'virt_admit_rule_not_judged_total{{rule="{rule}"}} 1.0'
    assert answer["uid"] == "42"
    assert answer["allowed"]
    assert "patch" not in answer
    if rule:
        (warning,) = answer["warnings"]
        assert warning.startswith("not judged by ")
        assert rule in answer["auditAnnotations"]["not-judged"].split(",")
        assert counted in metrics.text().decode()
    else:
        assert answer.keys() == {"uid", "allowed"}


def test_a_rule_that_is_off_did_not_miss_an_object_with_too_many_values() -> None:
    body = json.dumps(review(crowded(0, 300_000))).encode()
    off = parse(b"rules: {vm-running-and-run-strategy: {action: 'off'}}", ALL)
    (of_all, of_some) = (
        {
            rule.id
            for rule in engine.answer(
                body, engine.review, ALL.at_admission, NOTHING, policy
            ).response.not_judged
        }
        for policy in (DEFAULT, off)
    )
    assert of_all - of_some == {"vm-running-and-run-strategy"}


def test_an_update_of_a_vmi_with_too_many_values_has_no_warning() -> None:
    """No rule is asked about it: KubeVirt writes these objects all the time."""
    vmi = vm() | {"kind": "VirtualMachineInstance", "spec": {"volumes": [0] * 300_000}}
    assert json.loads(reply_of(json.dumps(review(vmi, vmi)).encode()).body)["response"].keys() == {
        "uid",
        "allowed",
    }


def test_the_request_is_known_without_its_objects() -> None:
    user = {
        "username": 'a "object": {',
        "groups": [f"group{n}" for n in range(5_000)],
        "extra": {"object": ["x"]},
    }
    body = review(crowded(0, 300_000), vm(), userInfo=user)
    body["request"] = {"subResource": "status"} | body["request"]
    for separators in ((",", ":"), (", ", " : ")):
        found = decode(json.dumps(body, separators=separators).encode())
        assert found.too_large
        assert (found.uid, found.operation, found.name, found.namespace) == (
            "42",
            "UPDATE",
            "a",
            "shop",
        )
        assert (found.kind, found.subresource, found.user) == (kinds.VM, "status", 'a "object": {')
        assert len(found.groups) == 5_000
        assert found.obj is None
        assert found.old is None


@pytest.mark.parametrize(
    "text", ["," * 300_000, '{"' * 150_000, "\\" * 300_001 + "[" * 300_000, "é,[" * 150_000]
)
def test_what_stands_in_texts_does_not_count(text: str) -> None:
    """Or an annotation full of commas would hide an object from all rules."""
    bad = vm(runStrategy="Bogus")
    bad["metadata"]["annotations"] = {"x": text}
    for ascii_only in (True, False):
        reply = reply_of(json.dumps(review(bad), ensure_ascii=ascii_only).encode())
        assert not reply.request.too_large
        assert "vm-run-strategy-unknown" in [verdict.rule.id for verdict in reply.response.verdicts]


@pytest.mark.parametrize(
    "text", [b'"' * 7_000_000, b'"\\' * 3_000_000, b'{"' * 3_500_000, b'"a",' * 1_700_000]
)
def test_bytes_that_are_no_review_are_refused_in_time(text: bytes) -> None:
    with measured() as work, pytest.raises(ReviewError):
        decode(text)
    assert work.seconds < 2


@pytest.mark.parametrize(
    "first", [{"object": crowded(0, 300_000)}, {"x": [0] * 300_000}, {"object": [{}] * 300_000}]
)
def test_too_many_values_before_the_uid_are_an_error(first: dict[str, Any]) -> None:
    body = review(vm())
    body["request"] = first | {
        key: value for key, value in body["request"].items() if key != "object"
    }
    with pytest.raises(
        ReviewError, match="more than 170,000 values; its uid and user must come before the object"
    ):
        reply_of(json.dumps(body).encode())


@pytest.mark.parametrize("field", ["namespace", "operation", "subResource"])
def test_names_have_a_length(field: str) -> None:
    assert decode(json.dumps(review(vm(), **{field: "x" * 253})).encode())
    with pytest.raises(
        ReviewError, match=f"the {field} of the request has more than 253 characters"
    ):
        decode(json.dumps(review(vm(), **{field: "x" * 254})).encode())


def test_long_user_names_are_cut() -> None:
    body = review(vm(), userInfo={"username": "system:serviceaccount:a:" + "x" * 3_000_000})
    assert (
        decode(json.dumps(body).encode()).user
        == ("system:serviceaccount:a:" + "x" * MAX_USER)[:MAX_USER]
    )


def test_nothing_of_a_request_stays_in_memory() -> None:
    def send(number: int) -> None:
        user = f"system:serviceaccount:a{number}:" + "x" * 1_000_000
        reply_of(json.dumps(review(vm(runStrategy="Bogus"), userInfo={"username": user})).encode())

    for number in range(5):
        send(number)
    before = resident()
    for number in range(5, 45):
        send(number)
    assert resident() - before < 20


@pytest.mark.parametrize("body", [b'{"a": NaN}', b'{"a": 1e999}', b"[" * 100_000, b"\xff"])
def test_the_standard_library_refuses_the_same(body, monkeypatch):
    monkeypatch.setattr("virt_admit.model.kubernetes.json_codec.orjson", None)
    with pytest.raises(ReviewError):
        decode(body)


@pytest.mark.parametrize("depth", [300, 1_100, 9_900])
@pytest.mark.parametrize("place", ["object", "oldObject"])
def test_a_field_without_a_schema_that_is_nested_deeply_evades_no_rule(
    depth: int, place: str
) -> None:
    body = review(
        vm(running=True, runStrategy="Always"),
        vm(runStrategy="Always") if place == "oldObject" else None,
    )
    body["request"][place]["spec"]["template"]["metadata"] = {"a": "DEEP"}
    text = json.dumps(body).replace('"DEEP"', '{"a":' * depth + "1" + "}" * depth).encode()
    denied = [verdict.rule.id for verdict in reply_of(text).response.verdicts]
    assert "vm-running-and-run-strategy" in denied
