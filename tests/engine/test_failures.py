"""A rule that fails: it never denies, and what it found is kept."""

from tests.engine.test_engine import SIZE, actions, ask, make_rule, too_big, vm
from virt_admit.engine import review as engine
from virt_admit.engine.admission_review import Request
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import NOTHING
from virt_admit.policy.policy import Policy
from virt_admit.rule import Action, Finding, Operation
from virt_admit.rules import Rules


def test_a_broken_rule_never_denies_and_keeps_what_it_found():
    def check(obj, context):
        yield Finding(SIZE, "found", max_action=Action.WARN)
        raise ZeroDivisionError

    response = ask(vm(1), rules=[make_rule(check)])
    assert response.allowed
    assert actions(response) == ["warn"]
    assert "ZeroDivisionError" in response.errors[0][1]


def test_a_rule_that_breaks_after_a_denial_does_not_deny():
    def check(obj, context):
        yield Finding(SIZE, "found")
        raise ZeroDivisionError

    broken, other = make_rule(check, name="broken"), make_rule(too_big)
    assert actions(ask(vm(4), rules=[broken])) == ["warn"]
    assert {
        verdict.rule.id: str(verdict.action)
        for verdict in ask(vm(4), rules=[broken, other]).verdicts
    } == {"broken": "warn", "too-big": "deny"}


def test_a_rule_that_breaks_on_the_old_object_does_not_deny():
    """Whether its findings are new cannot be determined."""

    def check(obj, context):
        if obj.at("spec", "size").value == 1:
            raise ZeroDivisionError
        yield Finding(SIZE, "found")

    response = ask(vm(4), vm(1), rules=[make_rule(check)])
    assert actions(response) == ["warn"]
    assert "ZeroDivisionError" in response.errors[0][1]


def test_the_further_findings_of_a_rule_that_breaks_are_counted_as_warnings():
    def check(obj, context):
        for number in range(50):
            yield Finding(SIZE / number, "found")
        raise ZeroDivisionError

    request = Request(Operation.CREATE, kinds.VM, vm(4), uid="1")
    response = engine.review(
        request, Rules([make_rule(check)]), NOTHING, Policy(), engine.Limits(verdicts=20)
    )
    assert len(response.verdicts) == 20
    assert response.omitted == {Action.WARN: 30}
