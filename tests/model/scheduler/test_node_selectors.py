"""Node selectors, taints and tolerations."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.for_each import for_each
from virt_admit.model.scheduler.node_selectors import (
    NAME_FIELD,
    NodeSelector,
    parse_node_selector,
    tolerates,
)

HOSTNAME = "kubernetes.io/hostname"


def required(*terms: object) -> object:
    return {"nodeSelectorTerms": list(terms)}


def label(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def name(operator: str, *values: str) -> dict[str, Any]:
    return {"matchFields": [{"key": NAME_FIELD, "operator": operator, "values": list(values)}]}


NODES = {
    "n1": {"zone": "a", "size": "10", HOSTNAME: "n1"},
    "n2": {"zone": "b", "size": "-3", HOSTNAME: "n2"},
    "n3": {"size": "many", HOSTNAME: "n3"},
}


@for_each(
    "selector, nodes",
    [
        (required(label("zone", "In", "a", "b")), "n1 n2"),
        (required(label("zone", "NotIn", "a")), "n2 n3"),
        (required(label("zone", "Exists")), "n1 n2"),
        (required(label("zone", "DoesNotExist")), "n3"),
        (required(label("size", "Gt", "9")), "n1"),
        (required(label("size", "Gt", "-4")), "n1 n2"),
        (required(label("size", "Gt", "10")), ""),
        (required(label("size", "Lt", "10")), "n2"),
        (required(label("absent", "Lt", "10")), ""),
        (required(name("In", "n2")), "n2"),
        (required(name("NotIn", "n2")), "n1 n3"),
        (required(name("In", "n1"), label("zone", "In", "b")), "n1 n2"),  # terms are alternatives
        (required(label("zone", "In", "a") | name("In", "n2")), ""),  # within a term all must hold
        (required(label("zone", "In", "a") | name("In", "n1")), "n1"),
        (required({}), ""),
        (required({}, label("zone", "In", "a")), "n1"),
        (required(), ""),
        (required({"matchExpressions": None, "matchFields": []}), ""),
    ],
)
def test_matching(selector: object, nodes: str) -> None:
    parsed = parse_node_selector(selector)
    assert not parsed.errors
    assert [node for node, labels in NODES.items() if parsed.matches(node, labels)] == nodes.split()


@for_each(
    "selector, errors",
    [
        (None, [""]),
        ({}, [""]),
        ({"nodeSelectorTerms": {}}, [""]),
        (required(None), ["nodeSelectorTerms.0"]),
        (required({}, {"matchExpressions": "x"}), ["nodeSelectorTerms.1.matchExpressions"]),
        (required(label("a b", "Exists")), ["nodeSelectorTerms.0.matchExpressions.0"]),
        (required(label("a", "In")), ["nodeSelectorTerms.0.matchExpressions.0"]),
        (required(label("a", "Gt")), ["nodeSelectorTerms.0.matchExpressions.0"]),
        (required(label("a", "Gt", "1", "2")), ["nodeSelectorTerms.0.matchExpressions.0"]),
        (required(label("a", "Lt", "1.5")), ["nodeSelectorTerms.0.matchExpressions.0"]),
        (required(label("a", "Lt", "9" * 30)), ["nodeSelectorTerms.0.matchExpressions.0"]),
        (required(label("a", "Like", "x")), ["nodeSelectorTerms.0.matchExpressions.0"]),
        (required(name("In", "a", "b")), ["nodeSelectorTerms.0.matchFields"]),
        (required(name("Exists")), ["nodeSelectorTerms.0.matchFields.0"]),
        (required(name("In", "No_Name")), ["nodeSelectorTerms.0.matchFields.0"]),
        (
            required({"matchFields": [{"key": "spec.x", "operator": "In", "values": ["a"]}]}),
            ["nodeSelectorTerms.0.matchFields"],
        ),
    ],
)
def test_errors(selector: object, errors: list[str]) -> None:
    parsed = parse_node_selector(selector)
    assert [".".join(map(str, path)) for path, _ in parsed.errors] == errors
    assert not any(parsed.matches(node, labels) for node, labels in NODES.items())


def test_a_node_name_may_be_longer_than_a_label_value() -> None:
    long = "n" * 70 + ".example.com"
    assert parse_node_selector(required(name("In", long))).matches(long, {})


def test_allowed_values_of_a_term() -> None:
    (term,) = parse_node_selector(
        required(label(HOSTNAME, "In", "n1", "n2") | name("In", "n1"))
    ).terms
    assert term.allowed_values(HOSTNAME) == {"n1", "n2"}
    assert term.allowed_values(NAME_FIELD) == {"n1"}
    assert term.allowed_values("zone") is None


TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


@for_each(
    "toleration, taint, tolerated",
    [
        ({"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}, TAINT, True),
        ({"key": "gpu", "value": "yes"}, TAINT, True),
        ({"key": "gpu", "operator": "", "value": "yes"}, TAINT, True),
        ({"key": "gpu", "value": "no"}, TAINT, False),
        ({"key": "gpu"}, TAINT, False),
        ({"key": "gpu"}, {"key": "gpu", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "value": None}, {"key": "gpu", "value": "", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "operator": "Exists"}, TAINT, True),
        ({"key": "gpu", "operator": "Exists", "value": "ignored"}, TAINT, True),
        ({"key": "cpu", "operator": "Exists"}, TAINT, False),
        ({"operator": "Exists"}, TAINT, True),
        ({"key": "", "operator": "Exists"}, TAINT, True),
        ({"operator": "Exists", "effect": "NoExecute"}, TAINT, False),
        ({"operator": "Exists", "effect": "NoSchedule"}, TAINT, True),
        ({"key": "gpu", "operator": "Exists", "effect": ""}, TAINT, True),
        ({"key": "gpu", "operator": "exists"}, TAINT, False),
        ({"key": "gpu", "operator": "Gt", "value": "yes"}, TAINT, False),
        ({"key": 0, "operator": "Exists"}, TAINT, False),
        ({"operator": "Exists", "effect": []}, TAINT, False),
        ({"key": "gpu", "operator": ["Exists"]}, TAINT, False),
        ("gpu", TAINT, False),
        (None, TAINT, False),
        (None, "no taint", True),
    ],
)
def test_tolerations(toleration: object, taint: object, tolerated: bool) -> None:
    assert tolerates([toleration], taint) is tolerated
    assert tolerates([{"key": "other", "operator": "Exists"}, toleration], taint) is tolerated


@pytest.mark.parametrize("tolerations", [None, [], {}, "Exists", 5])
def test_without_tolerations_every_taint_counts(tolerations: object) -> None:
    assert not tolerates(tolerations, TAINT)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "nodeSelectorTerms",
                    "matchExpressions",
                    "matchFields",
                    "key",
                    "operator",
                    "values",
                    "effect",
                ]
            ),
            inner | st.sampled_from(["In", "Gt", "Exists", NAME_FIELD]),
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(JSON, JSON, JSON)
def test_nothing_raises(one: object, two: object, three: object) -> None:
    for selector in (
        one,
        required(one),
        required({"matchExpressions": [one], "matchFields": [two]}),
    ):
        parsed = parse_node_selector(selector)
        assert isinstance(parsed, NodeSelector)
        assert isinstance(parsed.matches("n1", three), bool)
    assert isinstance(tolerates([one, two], three), bool)
