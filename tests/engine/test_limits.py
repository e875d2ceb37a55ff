"""One review has an upper bound of work, and what the bound leaves out is never a denial."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.test_engine import make_rule
from tests.https.reviews import review, vm
from virt_admit.engine import review as engine
from virt_admit.engine.admission_review import Request, Response, ReviewError, encode
from virt_admit.install.manifests import ENTRIES, MUTATING
from virt_admit.model import kinds
from virt_admit.model.cluster import NOTHING, Snapshot, Unseen
from virt_admit.model.objects import Object
from virt_admit.policy.files import load_policy
from virt_admit.policy.parser import parse
from virt_admit.policy.policy import Policy
from virt_admit.rule import Action, Finding, Operation
from virt_admit.rules import Rules, load_rules
from virt_admit.serving.metrics import Metrics
from virt_admit.serving.worker import REVIEW_SECONDS, review_limits

ALL = load_rules()
DEFAULT = load_policy("default", ALL)


def health_check(count: int, minutes: int = 10) -> dict[str, Any]:
    """A health check in which every condition has several faults."""
    conditions = [{"type": f"Redy{number}", "status": "Flase", "timeout": "3x"} for number in range(count)]
    return {
        "apiVersion": "machine.openshift.io/v1beta1",
        "kind": "MachineHealthCheck",
        "metadata": {"name": "workers", "namespace": "openshift-machine-api"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "maxUnhealthy": "40%",
            "nodeStartupTimeout": f"{minutes}m",
            "unhealthyConditions": conditions,
        },
    }


def virtual_machine(filesystems: int) -> dict[str, Any]:
    """A VM whose every filesystem makes it impossible to migrate."""
    devices = {
        "interfaces": [{"name": "default", "masquerade": {}}],
        "filesystems": [{"name": f"f{number}", "virtiofs": {}} for number in range(filesystems)],
    }
    template = {"domain": {"devices": devices}, "evictionStrategy": "LiveMigrate"}
    return vm(template=template)


def terminating(count: int) -> dict[str, Any]:
    """A health check that looks like a termination handler, but for its many conditions."""
    check = health_check(count)
    check["spec"]["unhealthyConditions"] = [{"type": "Terminating", "status": "True", "timeout": "0s"}] * count
    return check


def selected(labels: int) -> dict[str, Any]:
    """A MachineSet whose selector has many labels."""
    return {
        "apiVersion": "machine.openshift.io/v1beta1",
        "kind": "MachineSet",
        "metadata": {"name": "workers", "namespace": "openshift-machine-api"},
        "spec": {"selector": {"matchLabels": {f"example.com/{number}": "a" for number in range(labels)}}},
    }


def crowded(item: Any, count: int) -> dict[str, Any]:
    """A VM that has the same item many times in the place of its volumes."""
    return vm(template={"volumes": [item] * count})


OLD_KUBEVIRT = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "KubeVirt",
    "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
    "status": {"phase": "Deployed", "observedKubeVirtVersion": "v1.4.0"},
}


def resident(field: str) -> int:
    """MiB of this process, now (``VmRSS``) or at its peak (``VmHWM``)."""
    (line,) = [each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith(field)]
    return int(line.split()[1]) >> 10


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (health_check(4_000, 11), health_check(4_000)),
        (health_check(20_000, 11), health_check(20_000)),
        (health_check(30_000, 11), health_check(30_000)),
        (health_check(60_000, 11), health_check(60_000)),
        (terminating(60_000), None),
        (selected(100_000), None),
        (crowded(0, 240_000), None),
        (crowded({"": 0}, 120_000), None),
        (crowded([], 2_000_000), None),
        (crowded(0, 3_000_000), None),
        (virtual_machine(10_001), virtual_machine(10_000)),
        (virtual_machine(10_000), None),
    ],
    ids=[
        "4,000 conditions",
        "20,000 conditions",
        "30,000 conditions",
        "60,000 conditions of 7 MB",
        "60,000 equal conditions",
        "100,000 labels",
        "240,000 numbers",
        "120,000 small maps",
        "2,000,000 empty lists",
        "3,000,000 numbers",
        "10,001 filesystems",
        "10,000 new filesystems",
    ],
)
def test_the_largest_reviews_take_two_seconds_and_100_mib_at_most(
    new: dict[str, Any], old: dict[str, Any] | None
) -> None:
    cluster = Snapshot([Object(OLD_KUBEVIRT)], complete=["*"])
    body = json.dumps(review(new, old), separators=(",", ":")).encode()
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from now on
    start = time.process_time()
    reply = engine.answer(body, engine.review, ALL.at_admission, cluster, DEFAULT, review_limits())
    assert time.process_time() - start < 2
    assert resident("VmHWM") - before < 100
    assert reply.response.verdicts or reply.response.not_judged
    assert len(reply.body) < 20_000


class Clock:
    """A time that passes only while ``each_slow_item`` works, so that the load of the machine does not matter."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def limits(self, seconds: float) -> engine.Limits:
        """Return limits that end the review after so many seconds."""
        return engine.Limits(lambda: self.seconds >= seconds)

    def each_slow_item(self, obj: Object, context: Any) -> Iterator[Finding]:
        for finding in each_item(obj, context):
            self.seconds += 0.01
            yield finding


def items(*values: Any) -> Object:
    return Object({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "spec": {"items": list(values)}})


def each_item(obj: Object, _context: Any) -> Iterator[Finding]:
    for item in obj["spec"]["items"].items():
        yield Finding(item.path, f"{item.value} is wrong")


def judged(
    obj: Object, old: Object | None, limits: engine.Limits, *checks: Any, action: Action = Action.DENY
) -> Response:
    rules = Rules(make_rule(check, name=f"rule-{number}", action=action) for number, check in enumerate(checks))
    return engine.review(_request(obj, old), rules, NOTHING, Policy(), limits)


def _request(obj: Object, old: Object | None) -> Request:
    return Request(Operation.UPDATE if old else Operation.CREATE, kinds.VM, obj, old, uid="1")


def answered(obj: Object, response: Response) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(encode(_request(obj, None), response))["response"]
    return answer


@pytest.mark.parametrize("action", [Action.DENY, Action.WARN])
def test_further_findings_of_a_rule_are_counted(action: Action) -> None:
    obj = items(*range(1_000))
    response = judged(obj, None, engine.Limits(verdicts=20), each_item, action=action)
    assert len(response.verdicts) == 20
    answer = answered(obj, response)
    if action is Action.DENY:
        assert answer["status"]["details"]["causes"][-1]["message"].startswith("and 981 more; run: virt-admit check")
        assert len(answer["status"]["details"]["causes"]) == 20
        assert "more; run: virt-admit check" in answer["status"]["message"]
    else:
        assert answer["warnings"][-1] == "and 991 more; run: virt-admit check"
        assert len(answer["warnings"]) == 10


def test_a_new_denial_after_many_old_ones_still_denies() -> None:
    old, new = items(*range(1_000)), items(*range(1_001))
    response = judged(new, old, engine.Limits(verdicts=20), each_item)
    assert [str(verdict.finding.path) for verdict in response.verdicts if verdict.action is Action.DENY] == [
        "spec.items[1000]"
    ]


def test_values_that_are_maps_are_compared_by_content() -> None:
    old, new = items({"a": [1], "b": 2}), items({"new": 1}, {"b": 2, "a": [1]})
    actions = [str(verdict.action) for verdict in judged(new, old, engine.NO_LIMITS, each_item).verdicts]
    assert actions == ["deny", "warn"]


def test_findings_before_the_deadline_still_deny() -> None:
    obj = items(*range(1_000))
    clock = Clock()
    response = judged(obj, None, clock.limits(0.1), each_item, clock.each_slow_item, each_item)
    assert not response.allowed
    assert [rule.id for rule in response.not_judged] == ["rule-1", "rule-2"]
    assert {rule.id for rule, _ in response.unseen} == {"rule-1", "rule-2"}
    assert {verdict.rule.id for verdict in response.verdicts if verdict.action is Action.DENY} == {"rule-0", "rule-1"}


def test_without_time_nothing_is_denied_and_the_answer_says_so() -> None:
    obj = items(1)
    response = judged(obj, None, Clock().limits(0), each_item, each_item)
    answer = answered(obj, response)
    assert answer["allowed"]
    assert answer["warnings"] == [
        "not judged by 2 rules: the object is too large to review in time; run: virt-admit check"
    ]
    assert answer["auditAnnotations"]["not-judged"] == "rule-0,rule-1"
    metrics = Metrics()
    metrics.observe("validate", engine.Reply(b"", _request(obj, None), response), 1.0)
    assert 'virt_admit_rule_not_judged_total{rule="rule-0"} 1.0' in metrics.text().decode()


def reply_of(body: bytes, decide: Any = engine.review) -> engine.Reply:
    return engine.answer(body, decide, ALL.at_admission, NOTHING, DEFAULT)


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
    ids=["create", "fix", "update", "update of what is going", "fix of what is going", "delete"],
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
        {rule.id for rule in engine.answer(body, engine.review, ALL.at_admission, NOTHING, policy).response.not_judged}
        for policy in (DEFAULT, off)
    )
    assert of_all - of_some == {"vm-running-and-run-strategy"}


@pytest.mark.parametrize("change", [{"sort_keys": True}, {"separators": (", ", " : ")}])
def test_too_many_values_before_the_uid_are_an_error(change: dict[str, Any]) -> None:
    with pytest.raises(ReviewError, match="more than 250,000 values; its uid must come before them"):
        reply_of(json.dumps(review(crowded(0, 300_000)), **change).encode())


def test_a_long_name_makes_no_long_answer() -> None:
    body = json.dumps(review(vm(preference={"name": "x" * 100_000}))).encode()
    reply = reply_of(body, engine.fix)
    assert len(reply.body) < 4_000
    assert json.loads(reply.body)["response"]["auditAnnotations"]["fix"].endswith(
        "[virt-admit/vm-eviction-strategy-default]"
    )


def test_text_with_few_values_may_be_large() -> None:
    obj = vm(template={"volumes": [{"name": "a", "cloudInitNoCloud": {"userData": "x" * 3_000_000}}]})
    assert not reply_of(json.dumps(review(obj)).encode()).request.too_large


def test_an_old_object_that_takes_too_long_never_turns_a_finding_into_a_denial() -> None:
    """It cannot be determined whether the finding is new."""
    new, old = items("x"), items(*range(1_000))
    clock = Clock()
    response = judged(new, old, clock.limits(0.2), clock.each_slow_item)
    assert [str(verdict.action) for verdict in response.verdicts] in (["warn"], [])
    assert [rule.id for rule in response.not_judged] == ["rule-0"]


def test_a_review_ends_before_the_api_server_stops_waiting() -> None:
    shortest = min(entry.timeout for entry in (*ENTRIES, MUTATING))
    assert shortest / 2 >= REVIEW_SECONDS


NODES = [Object({"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{number}"}}) for number in range(3)]


def test_between_findings_the_look_ups_end_a_rule_that_is_out_of_time() -> None:
    """A rule that compares each item with each node has no finding for hours."""
    clock = Clock()
    compared = 0

    def each_item_with_each_node(obj: Object, context: Any) -> Iterator[Finding]:
        nonlocal compared
        for _ in obj["spec"]["items"].items():
            for _node in context.cluster.list(kinds.NODE):
                compared += 1
                clock.seconds += 1
        yield Finding(obj["spec"].path, "never comes here")

    rules = Rules([make_rule(each_item_with_each_node, reads={kinds.NODE: ()})])
    obj = items(*range(1_000_000))
    response = engine.review(_request(obj, None), rules, Snapshot(NODES, ["*"]), Policy(), clock.limits(10))
    assert compared == 10
    assert response.allowed
    assert [rule.id for rule in response.not_judged] == ["too-big"]
    assert [what for _, what in response.unseen] == [engine.OUT_OF_TIME]


def test_a_rule_whose_look_ups_ended_never_denies_because_of_it() -> None:
    """It may take what it cannot see for unknown and go on; what it finds then is left out."""
    clock = Clock()

    def looking(obj: Object, context: Any) -> Iterator[Finding | Unseen]:
        clock.seconds += 1
        try:
            found = context.cluster.get(kinds.NODE, "", "n0")
        except Unseen:
            found = None
        if found is None:
            yield Finding(obj["spec"].path, "there is no node")

    rules = Rules([make_rule(looking, reads={kinds.NODE: ()})])
    response = engine.review(_request(items(1), None), rules, Snapshot(NODES, ["*"]), Policy(), clock.limits(1))
    assert response.verdicts == ()
    assert [rule.id for rule in response.not_judged] == ["too-big"]
