"""What an action leads to: ratchet, ceilings, exemptions, unseen and broken rules."""

import datetime
import json
from typing import ClassVar

import pytest

from tests.for_each import for_each
from virt_admit.engine import review as engine
from virt_admit.engine.admission_review import Request, encode
from virt_admit.engine.decoding import ReviewError, decode
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import NOTHING, Unseen
from virt_admit.model.kubernetes.json_patch import Patch
from virt_admit.model.kubernetes.objects import Object, Path
from virt_admit.policy.policy import Exemption, Layer, Policy, RuleSettings
from virt_admit.rule import Action, Finding, Operation, rule
from virt_admit.rules import Rules

SIZE = Path("spec", "size")


def make_rule(check, *, name="too-big", **more):
    settings = {"kinds": (kinds.VM,), "action": Action.DENY} | more
    return rule(id=name, **settings)(check)


def too_big(obj, context):
    if (obj.at("spec", "size").integer or 0) > 3:
        yield Finding(SIZE, "too big; write 3")


def vm(size=None, kind="VirtualMachine", **metadata):
    spec = {} if size is None else {"size": size}
    return Object(
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": kind,
            "metadata": {"name": "a", **metadata},
            "spec": spec,
        }
    )


def ask(obj, old=None, *, rules=None, policy=None, operation=None, **more):
    request = Request(
        operation or (Operation.UPDATE if old else Operation.CREATE),
        kinds.of(obj or old),
        obj,
        old,
        uid="1",
        **more,
    )
    rules = Rules(rules or [make_rule(too_big)])
    return engine.review(request, rules, NOTHING, policy or Policy())


def actions(response):
    return [str(verdict.action) for verdict in response.verdicts]


def test_a_finding_denies():
    response = ask(vm(4))
    assert not response.allowed
    assert actions(response) == ["deny"]


@pytest.mark.parametrize(
    ("old", "new", "expected"), [(4, 4, ["warn"]), (4, 5, ["deny"]), (2, 4, ["deny"]), (4, 2, [])]
)
def test_an_old_denial_becomes_a_warning_unless_its_value_changed(old, new, expected):
    after = vm(new)
    after.data["spec"]["other"] = "changed"
    assert actions(ask(after, vm(old))) == expected


@pytest.mark.parametrize(("old", "new"), [(0, False), (1, True), (True, "True"), (False, 0)])
def test_a_bool_is_not_known_because_of_an_equal_number_or_text(old, new):
    def check(obj, _context):
        yield Finding(SIZE, "not a size")

    after = vm(new)
    after.data["spec"]["other"] = "changed"
    assert actions(ask(after, vm(old), rules=[make_rule(check)])) == ["deny"]


def test_a_bool_within_a_relation_is_not_known_because_of_an_equal_number():
    def check(obj, _context):
        yield Finding(SIZE, "not a size", value=(obj.at("spec", "size").value, "x"))

    after = vm(True)
    after.data["spec"]["other"] = "changed"
    assert actions(ask(after, vm(1), rules=[make_rule(check)])) == ["deny"]


def test_an_old_warning_is_left_out():
    rule = make_rule(too_big, action=Action.WARN)
    after = vm(4)
    after.data["spec"]["other"] = "changed"
    assert actions(ask(after, vm(4), rules=[rule])) == []


def test_an_inserted_item_does_not_make_an_old_finding_new():
    def check(obj, context):
        for item in obj.at("spec", "disks").items():
            if item.value == "bad":
                yield Finding(item.path, "bad")

    old, new = vm(), vm()
    old.data["spec"]["disks"] = ["bad"]
    new.data["spec"]["disks"] = ["good", "bad"]
    assert actions(ask(new, old, rules=[make_rule(check)])) == ["warn"]


def test_what_changes_nothing_a_rule_looks_at_is_not_judged():
    new = vm(4, finalizers=["x"], resourceVersion="2", labels={})
    new.data["status"] = {"ready": True}
    assert ask(new, vm(4)).verdicts == ()


@pytest.mark.parametrize(
    ("kind", "annotation", "label"),
    [(kinds.VM, ["warn"], ["warn"]), (kinds.KUBEVIRT, ["warn"], []), (kinds.MHC, [], [])],
)
def test_which_changes_of_the_metadata_are_looked_at(kind, annotation, label):
    """An old denial is told of when a user edits the object;
    of some kinds only what a rule names counts.
    """

    def told(**metadata):
        obj, old = (
            Object(
                {
                    "apiVersion": kind.api_version,
                    "kind": kind.kind,
                    "metadata": data,
                    "spec": {"size": 4},
                }
            )
            for data in (metadata, {})
        )
        return actions(ask(obj, old, rules=[make_rule(too_big, kinds=(kind,), metadata=("mark",))]))

    assert told(annotations={"mark": "x"}) == ["warn"]
    assert told(annotations={"other": "x"}) == annotation
    assert told(labels={"other": "x"}) == label
    assert told(finalizers=["x"], labels={}) == []


def test_what_is_being_deleted_passes():
    going = vm(4, deletionTimestamp="2026-01-01T00:00:00Z")
    assert ask(going, vm(2)).verdicts == ()
    rule = make_rule(too_big, operations=(Operation.DELETE,))
    assert ask(None, going, rules=[rule], operation=Operation.DELETE).verdicts == ()


def test_a_delete_is_never_denied():
    rule = make_rule(too_big, operations=(Operation.DELETE,))
    response = ask(None, vm(4), rules=[rule], operation=Operation.DELETE)
    assert response.allowed
    assert actions(response) == ["warn"]


def test_a_vmi_is_never_denied():
    rule = make_rule(too_big, kinds=(kinds.VMI,))
    assert actions(ask(vm(4, kind="VirtualMachineInstance"), rules=[rule])) == ["warn"]


@pytest.mark.parametrize("operation", ["CONNECT", "BIND", "create", "DELETE"])
def test_operations_that_no_rule_asks_for_pass(operation):
    assert ask(vm(4), operation=operation).verdicts == ()


def test_subresources_that_no_rule_asks_for_pass():
    assert ask(vm(4), subresource="status").verdicts == ()
    assert actions(
        ask(vm(4), subresource="scale", rules=[make_rule(too_big, subresources=("scale",))])
    ) == ["deny"]


def test_an_unseen_object_ends_only_the_check_that_met_it():
    def check(obj, context):
        yield Unseen("claims shop/a")
        yield Finding(SIZE, "found")
        raise Unseen("claims shop/b")

    response = ask(vm(1), rules=[make_rule(check)])
    assert actions(response) == ["deny"]
    assert [what for _, what in response.unseen] == ["claims shop/a", "claims shop/b"]


def test_a_finding_has_a_ceiling_of_its_own():
    def check(obj, context):
        yield Finding(SIZE, "found", max_action=Action.WARN)

    assert actions(ask(vm(1), rules=[make_rule(check)])) == ["warn"]


class TestPolicy:
    def test_the_last_layer_that_speaks_wins(self):
        policy = Policy(
            layers=(
                Layer({"too-big": RuleSettings(Action.WARN)}),
                Layer({"*": RuleSettings(Action.AUDIT)}, namespaces=("dev-*",)),
            )
        )
        assert actions(ask(vm(4), policy=policy, namespace="prod")) == ["warn"]
        assert actions(ask(vm(4), policy=policy, namespace="dev-1")) == ["audit"]

    def test_a_named_rule_wins_over_a_pattern_in_its_layer(self):
        policy = Policy(
            layers=(Layer({"too-big": RuleSettings(Action.WARN), "*": RuleSettings(Action.AUDIT)}),)
        )
        assert actions(ask(vm(4), policy=policy)) == ["warn"]

    def test_a_pattern_never_switches_on_a_rule_that_is_off(self):
        rule = make_rule(too_big, action=Action.OFF)
        everything = Policy(layers=(Layer({"*": RuleSettings(Action.DENY)}),))
        named = Policy(layers=(Layer({"too-big": RuleSettings(Action.DENY)}),))
        assert actions(ask(vm(4), rules=[rule], policy=everything)) == []
        assert actions(ask(vm(4), rules=[rule], policy=named)) == ["deny"]

    def test_an_exempt_user_is_left_alone(self):
        policy = Policy(users=(Exemption("system:serviceaccount:*:robot", ("*",), "its job"),))
        response = ask(vm(4), policy=policy, user="system:serviceaccount:any:robot")
        assert response.allowed
        assert response.outcome == "exempt"
        assert actions(ask(vm(4), policy=policy, user="alice")) == ["deny"]

    def test_an_exemption_may_leave_a_warning(self):
        policy = Policy(users=(Exemption("robot", ("*",), "copies", max_action=Action.WARN),))
        assert actions(ask(vm(4), policy=policy, user="robot")) == ["warn"]

    def test_an_annotation_steps_down_where_the_policy_lets_it_count(self):
        marked = vm(4, annotations={"virt-admit.io/exempt.too-big": "tested; by=me"})
        assert actions(ask(marked)) == ["deny"]
        annotations = Policy(annotations=frozenset(["too-big"]))
        assert actions(ask(marked, policy=annotations)) == ["warn"]
        no_reason = vm(4, annotations={"virt-admit.io/exempt.too-big": " "})
        assert actions(ask(no_reason, policy=annotations)) == ["deny"]
        assert actions(
            ask(marked, policy=annotations, rules=[make_rule(too_big, action=Action.WARN)])
        ) == ["audit"]

    @pytest.mark.parametrize(
        ("key", "value", "allowed", "why"),
        [
            ("exempt.too-big", "tested", False, "the policy allows none for this rule"),
            ("exempt-all", "tested", False, "the policy allows none for this rule"),
            ("exempt.too-big", " ; until=2999-01-01", True, "it has no reason"),
            ("exempt.too-big", "tested; until=2020-01-31", True, "it expired on 2020-01-31"),
            (
                "exempt.too-big",
                "tested; until=soon",
                True,
                "its end is not a date such as until=2027-01-31",
            ),
            (
                "exempt.to-big",
                "tested",
                True,
                "the name is unknown. Use virt-admit.io/exempt.too-big",
            ),
            (
                "exempt-too-big",
                "tested",
                True,
                "the name is unknown. Use virt-admit.io/exempt.too-big",
            ),
            ("exempt_all", "tested", True, "the name is unknown. Use virt-admit.io/exempt-all"),
            (
                "Exempt.too-big",
                "tested",
                True,
                "the name is unknown. Use virt-admit.io/exempt.too-big",
            ),
        ],
    )
    def test_a_denial_says_why_an_annotation_does_not_count(self, key, value, allowed, why):
        policy = Policy(annotations=frozenset(["too-big"] if allowed else [])).at(
            datetime.date(2026, 11, 22)
        )
        (verdict,) = ask(vm(4, annotations={f"virt-admit.io/{key}": value}), policy=policy).verdicts
        assert verdict.action is Action.DENY
        assert verdict.text.endswith(
            f". The annotation virt-admit.io/{key} does not count: {why}. [virt-admit/too-big]"
        )

    @pytest.mark.parametrize(
        "key", ["virt-admit.io/exempt.vm-running-deprecated", "example.com/exempt.too-big"]
    )
    def test_annotations_for_other_rules_are_not_mentioned(self, key):
        (verdict,) = ask(vm(4, annotations={key: "tested"})).verdicts
        assert verdict.note == ""

    def test_an_annotation_hides_no_warning_of_a_rule_that_may_deny(self):
        def check(obj, context):
            yield Finding(SIZE, "this much is not that bad", max_action=Action.WARN)

        marked = vm(4, annotations={"virt-admit.io/exempt.too-big": "tested"})
        policy = Policy(annotations=frozenset(["too-big"]))
        assert actions(ask(marked, policy=policy, rules=[make_rule(check)])) == ["warn"]


class TestFix:
    rule = make_rule(
        lambda obj, context: iter(
            [Finding(SIZE, "no size", fix=(Patch("add", SIZE, 1),))]
            if not obj.at("spec", "size").present
            else []
        ),
        action=Action.AUDIT,
        fixable=True,
        fix_by_default=True,
        operations=(Operation.CREATE,),
    )

    def fix(self, obj, policy=None):
        request = Request(Operation.CREATE, kinds.VM, obj, uid="1")
        return engine.fix(request, Rules([self.rule]), NOTHING, policy or Policy())

    def test_a_fix_is_applied(self):
        assert [step.as_json() for step in self.fix(vm()).patch] == [
            {"op": "add", "path": "/spec/size", "value": 1}
        ]

    def test_what_is_fine_is_left_alone(self):
        assert self.fix(vm(2)).patch == ()

    def test_the_policy_can_switch_it_off(self):
        assert self.fix(vm(), Policy(layers=(Layer({"*": RuleSettings(fix=False)}),))).patch == ()

    def test_judging_sees_the_fixed_object(self):
        request = Request(Operation.CREATE, kinds.VM, vm())
        response = engine.judge(request, Rules([self.rule]), NOTHING, Policy())
        assert response.verdicts == ()
        assert response.patch


class TestWire:
    review: ClassVar = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "42",
            "operation": "CREATE",
            "resource": {"group": "kubevirt.io", "version": "v1", "resource": "virtualmachines"},
            "object": vm(4).data,
            "namespace": "shop",
            "userInfo": {"username": "me", "groups": ["a"]},
        },
    }

    def test_reads_a_review(self):
        request = decode(json.dumps(self.review).encode())
        assert (request.uid, request.kind, request.namespace, request.user) == (
            "42",
            kinds.VM,
            "shop",
            "me",
        )
        assert request.obj.full_name == "shop/a"

    @pytest.mark.parametrize(("operation", "kept"), [("CREATE", False), ("UPDATE", True)])
    def test_the_status_of_another_life_is_not_believed(self, operation, kept):
        asked = self.review["request"] | {
            "operation": operation,
            "object": vm(4).data | {"status": {"ready": True}},
        }
        request = decode(json.dumps(self.review | {"request": asked}).encode())
        assert ("status" in request.obj.data) is kept
        assert request.obj.data["spec"] == {"size": 4}

    @for_each("body", [
            b"", b"null", b"[]", b"{", b"\xff", b'{"a": NaN}', b"[" * 100_000,
            b'{"kind": "AdmissionReview"}',
            (
                b'{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "request": '
                b'{"uid": "1"}}'
            ),
            b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}',
            (
                b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": '
                b'{"uid": 1}}'
            ),
            (
                b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": '
                b'{"uid": ""}}'
            ),
        ])  # fmt: skip
    def test_refuses_what_is_no_review(self, body):
        with pytest.raises(ReviewError):
            decode(body)

    def test_a_denial_stands_alone(self):
        request = decode(json.dumps(self.review).encode())
        response = engine.review(request, Rules([make_rule(too_big)]), NOTHING, Policy())
        answer = json.loads(encode(request, response))["response"]
        assert answer["uid"] == "42"
        assert answer["allowed"] is False
        assert answer["status"]["code"] == 422
        assert answer["status"]["details"]["causes"] == [
            {
                "reason": "FieldValueInvalid",
                "field": "spec.size",
                "message": "too big; write 3 [virt-admit/too-big]",
            }
        ]
        assert answer["status"]["message"] == (
            "VirtualMachine shop/a: spec.size: too big; write 3 [virt-admit/too-big]"
        )
        assert answer["auditAnnotations"] == {"denied-by": "too-big"}

    def test_many_causes_are_counted(self):
        def check(obj, context):
            for number in range(50):
                yield Finding(SIZE / number, f"finding {number} " + "x" * 100)

        request = decode(json.dumps(self.review).encode())
        response = engine.review(request, Rules([make_rule(check)]), NOTHING, Policy())
        status = json.loads(encode(request, response))["response"]["status"]
        assert len(status["details"]["causes"]) == 20
        assert status["details"]["causes"][-1]["message"].startswith(
            "and 31 more; run: virt-admit check"
        )
        assert len(status["message"]) <= 1500
        assert status["message"].endswith("more; run: virt-admit check")

    @pytest.mark.parametrize(("action", "room"), [(Action.DENY, 20), (Action.WARN, 10)])
    def test_many_of_one_fault_leave_room_for_another(self, action, room):
        def many(obj, context):
            for number in range(50):
                yield Finding(SIZE / number, f"finding {number}")

        rules = [make_rule(many, action=action), make_rule(too_big, action=action, name="very-big")]
        request = decode(json.dumps(self.review).encode())
        response = engine.review(request, Rules(rules), NOTHING, Policy())
        assert [verdict.rule.id for verdict in response.verdicts[:3]] == [
            "too-big",
            "very-big",
            "too-big",
        ]
        answer = json.loads(encode(request, response))["response"]
        texts = answer.get("warnings") or [
            cause["message"] for cause in answer["status"]["details"]["causes"]
        ]
        assert len(texts) == room
        assert sum("[virt-admit/very-big]" in text for text in texts) == 1

    def test_warnings_are_short_and_printable(self):
        def check(obj, context):
            for number in range(50):
                yield Finding(SIZE / number, "line\nbreak\ttab " + "x" * 300)

        request = decode(json.dumps(self.review).encode())
        response = engine.review(
            request, Rules([make_rule(check, action=Action.WARN)]), NOTHING, Policy()
        )
        warnings = json.loads(encode(request, response))["response"]["warnings"]
        assert len(warnings) == 10
        assert all(len(text) <= 256 and text.isprintable() for text in warnings)
        assert warnings[0].endswith("[virt-admit/too-big]")


def test_an_update_of_a_vmi_is_never_judged():
    rule = make_rule(too_big, kinds=(kinds.VMI,))
    old, new = vm(2, kind="VirtualMachineInstance"), vm(4, kind="VirtualMachineInstance")
    assert actions(ask(new, old, rules=[rule])) == []
