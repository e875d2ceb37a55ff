"""What was not read never adds a warning or a denial,
and no denial vanishes without a word about what was not read.
"""

from typing import Final

import pytest

from tests.rule_results import result_of
from tests.rules.test_rules import CASES_BY_RULE, PAIRS, context_of, each_case
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.rule import Action


def answer(rule, case, hidden=None, namespace=""):
    """Return the findings and what is unseen, with one kind hidden: everywhere,
    or in one namespace.
    """
    items = [Object(each) for each in case.get("cluster", [])]
    complete = ["*"]
    if hidden is not None:
        items = [
            each
            for each in items
            if kinds.of(each) is not hidden or (namespace and each.namespace != namespace)
        ]
        complete = [kind.resource for kind in kinds.ALL if kind is not hidden]
        complete += [
            f"{each.namespace}/{hidden.resource}"
            for each in items
            if namespace and each.namespace not in ("", namespace)
        ]
    cluster = Snapshot(items, complete, server_version=case.get("serverVersion"))
    old = Object(case["old"]) if "old" in case else None
    obj = Object(case["object"])
    result = result_of(rule, obj, context_of(rule, case, obj, old, cluster))
    assert not result.error
    return {
        str(one.path): min(rule.action, one.max_action) for one in result.findings
    }, result.unseen


ASSUMES: Final = frozenset(
    (
        "cluster-eviction-strategy-single-node",
        "mhc-max-unhealthy-unlimited",
        "namespace-deletion-stuck",
        "nhc-escalation-timeout-below-remediator",
        "nm-vm-will-stop",
        "node-failover-capacity",
        "snrc-safe-time-ignored",
        "vm-cpu-model-obsolete",
        "vm-deletion-stuck",
        "vm-live-migrate-not-migratable",
        "vm-reboot-stays-off",
        "vm-running-deprecated",
        "workload-update-disabled",
        "workload-update-evict-only",
    )
)
"""Rules that assume what is usual where they could not read what makes an exception,
such as a feature gate.
"""


def contradicts(rule, case, *, may_add=False):
    """Return the kinds and namespaces without which a case gets another answer that nothing
    explains.

    ``may_add``: a warning that is added needs no explanation.
    """
    if "complete" in case:  # it is about data that could not be read, already
        return []
    whole, _ = answer(rule, case)
    found = []
    for kind in rule.reads:
        namespaces = {
            Object(each).namespace
            for each in case.get("cluster", [])
            if kinds.of(Object(each)) is kind
        } - {""}
        for namespace in ("", *sorted(namespaces)):
            less, unseen = answer(rule, case, kind, namespace)
            added = [
                path for path, action in less.items() if action >= Action.WARN and path not in whole
            ]
            lost = [
                path for path, action in whole.items() if action is Action.DENY and path not in less
            ]
            if (added and not may_add) or (lost and not unseen):
                found.append(f"{kind} {namespace}".strip())
    return found


@pytest.mark.parametrize(("rule", "own"), CASES_BY_RULE)
def test_a_hidden_kind_adds_no_warning_and_hides_no_denial_in_silence(rule, own):
    """A rule that assumes may add a warning; it hides no denial in silence either."""

    def explained(case):
        assert contradicts(rule, case, may_add=rule.id in ASSUMES) == []

    each_case(rule, own, explained)


@pytest.mark.parametrize("rule_id", sorted(ASSUMES))
def test_the_list_of_rules_that_assume_has_no_others(rule_id):
    assert any(contradicts(rule, case) for rule, case in PAIRS if rule.id == rule_id)
