"""Label selectors: grammar, matching, and what they say about one label."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.for_each import for_each
from virt_admit.model.kubernetes.selectors import (
    Requirement,
    Selector,
    key_error,
    parse,
    parse_text,
    value_error,
)

ROLE = "machine.openshift.io/cluster-api-machine-role"


@for_each(
    "key",
    [
        "a",
        "A",
        "0",
        "app",
        "a.b_c-d",
        "a" * 63,
        "example.com/app",
        "x/y",
        "a-b.c-d/E_f",
        "a" * 253 + "/b",
        ROLE,
    ],
)
def test_keys(key: str) -> None:
    assert key_error(key) is None


@for_each(
    "key",
    [
        *(
            "",
            "/",
            "/a",
            "a/",
            "a/b/c",
            "-a",
            "a-",
            ".a",
            "_a",
            "a b",
            "a\n",
            "a" * 64,
            "é",
            "\u0663",
            "<role>",
        ),
        *("Example.com/a", "a_b/c", "-a/b", "a..b/c", "a./b", "a" * 254 + "/b", "a\n/b"),
        *(None, True, 5, 1.5, [], {}),
    ],
)
def test_no_keys(key: object) -> None:
    problem = key_error(key)
    assert problem is not None
    assert "is not a label key" in problem
    assert problem.isprintable()


@pytest.mark.parametrize("value", ["", "a", "A", "0", "worker", "a.b_c-d", "a" * 63])
def test_values(value: str) -> None:
    assert value_error(value) is None


@for_each(
    "value",
    [
        "<role>",
        "a b",
        "''",
        " ",
        "-a",
        "a-",
        ".",
        "a/b",
        "a\n",
        "a" * 64,
        "é",
        "\uff11",
        None,
        True,
        5,
        1.5,
        [],
        {},
    ],
)
def test_no_values(value: object) -> None:
    assert "is not a label value" in (value_error(value) or "")


@for_each(
    "selector, errors",
    [
        (None, []),
        ({}, []),
        ({"matchLabels": None, "matchExpressions": None}, []),
        ({"matchLabels": {}, "matchExpressions": []}, []),
        ({"matchLabels": {"a": "b"}}, []),
        ({"matchExpressions": [{"key": "a", "operator": "Exists", "values": None}]}, []),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["x", ""]}]}, []),
        ({"unknown": 1}, []),
        ("a=b", [""]),
        ([], [""]),
        (5, [""]),
        ({"matchLabels": []}, ["matchLabels"]),
        ({"matchLabels": "a"}, ["matchLabels"]),
        ({"matchLabels": {"a": True}}, ["matchLabels.a"]),
        ({"matchLabels": {"a": None}}, ["matchLabels.a"]),
        ({"matchLabels": {"role": "<role>", "b": "c"}}, ["matchLabels.role"]),
        ({"matchLabels": {"a b": "c d"}}, ["matchLabels.a b", "matchLabels.a b"]),
        ({"matchExpressions": {}}, ["matchExpressions"]),
        ({"matchExpressions": "a"}, ["matchExpressions"]),
        (
            {"matchExpressions": [None, "a", 5]},
            ["matchExpressions.0", "matchExpressions.1", "matchExpressions.2"],
        ),
        ({"matchExpressions": [{}]}, ["matchExpressions.0", "matchExpressions.0"]),
        ({"matchExpressions": [{"key": "a", "operator": "exists"}]}, ["matchExpressions.0"]),
        ({"matchExpressions": [{"key": "a", "operator": ["In"]}]}, ["matchExpressions.0"]),
        (
            {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]},
            ["matchExpressions.0"],
        ),
        ({"matchExpressions": [{"key": "a", "operator": "In"}]}, ["matchExpressions.0"]),
        (
            {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": []}]},
            ["matchExpressions.0"],
        ),
        (
            {"matchExpressions": [{"key": "a", "operator": "Exists", "values": [""]}]},
            ["matchExpressions.0"],
        ),
        (
            {"matchExpressions": [{"key": "a", "operator": "DoesNotExist", "values": ["x"]}]},
            ["matchExpressions.0"],
        ),
        (
            {"matchExpressions": [{"key": "a", "operator": "In", "values": "x"}]},
            ["matchExpressions.0"],
        ),
        (
            {"matchExpressions": [{"key": "a", "operator": "In", "values": ["x", True]}]},
            ["matchExpressions.0"],
        ),
        (
            {
                "matchLabels": {"-": "x"},
                "matchExpressions": [{"key": "a", "operator": "Exists"}, {"operator": "In"}],
            },
            ["matchLabels.-", "matchExpressions.1", "matchExpressions.1"],
        ),
    ],
)
def test_every_error_is_found_with_its_place(selector: object, errors: list[str]) -> None:
    parsed = parse(selector)
    assert [".".join(map(str, path)) for path, _ in parsed.errors] == errors
    assert all(message for _, message in parsed.errors)


@pytest.mark.parametrize(
    ("selector", "selected", "left"),
    [
        ({}, [{}, {"a": "b"}, None], []),
        (
            {"matchLabels": {"a": "b"}},
            [{"a": "b"}, {"a": "b", "c": "d"}],
            [{}, {"a": "c"}, {"a": None}, {"a": ["b"]}],
        ),
        ({"matchLabels": {"a": ""}}, [{"a": ""}], [{}, {"a": "b"}]),
        ({"matchLabels": {"a": "b", "c": "d"}}, [{"a": "b", "c": "d"}], [{"a": "b"}, {"c": "d"}]),
        (
            {"matchExpressions": [{"key": "a", "operator": "In", "values": ["x", "y"]}]},
            [{"a": "x"}, {"a": "y"}],
            [{}, {"a": "z"}],
        ),
        (
            {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["x"]}]},
            [{}, {"a": "y"}, "no map"],
            [{"a": "x"}],
        ),
        (
            {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
            [{"a": ""}, {"a": "x"}],
            [{}, {"b": "x"}, None],
        ),
        (
            {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]},
            [{}, {"b": "x"}],
            [{"a": ""}],
        ),
        (
            {
                "matchLabels": {"a": "x"},
                "matchExpressions": [{"key": "b", "operator": "DoesNotExist"}],
            },
            [{"a": "x"}],
            [{"a": "x", "b": "y"}, {}],
        ),
    ],
)
def test_matching(selector: object, selected: list[object], left: list[object]) -> None:
    parsed = parse(selector)
    assert not parsed.errors
    assert [labels for labels in selected + left if parsed.matches(labels)] == selected


def test_a_broken_selector_selects_nothing_and_is_not_empty() -> None:
    broken = parse({"matchLabels": {"a": "b", "-": "c"}})
    assert not broken.matches({"a": "b", "-": "c"})
    assert not broken.empty
    assert not parse("everything").empty
    assert not parse({"matchLabels": []}).empty
    assert parse(None).empty
    assert parse({"matchLabels": {}}).empty


def test_equality_ignores_order_repetition_and_spelling() -> None:
    one = {
        "matchLabels": {"a": "b", "c": "d"},
        "matchExpressions": [{"key": "e", "operator": "NotIn", "values": ["x", "y"]}],
    }
    other = {
        "matchExpressions": [
            {"key": "e", "operator": "NotIn", "values": ["y", "x", "y"]},
            {"key": "a", "operator": "In", "values": ["b"]},
            {"key": "c", "operator": "In", "values": ["d"]},
            {"key": "c", "operator": "In", "values": ["d"]},
        ]
    }
    assert parse(one) == parse(other)
    assert hash(parse(one)) == hash(parse(other))
    assert parse(one) != parse({"matchLabels": {"a": "b"}})
    assert str(parse(one)) == str(parse(other)) == "a=b, c=d, e NotIn (x, y)"


@pytest.mark.parametrize(
    ("selector", "values"),
    [
        ({"matchLabels": {ROLE: "master"}}, {"master"}),
        ({"matchExpressions": [{"key": ROLE, "operator": "In", "values": ["master"]}]}, {"master"}),
        (
            {"matchExpressions": [{"key": ROLE, "operator": "In", "values": ["master", "worker"]}]},
            {"master", "worker"},
        ),
        (
            {
                "matchLabels": {ROLE: "master"},
                "matchExpressions": [{"key": ROLE, "operator": "In", "values": ["worker"]}],
            },
            set(),
        ),
        ({"matchExpressions": [{"key": ROLE, "operator": "NotIn", "values": ["worker"]}]}, None),
        ({"matchExpressions": [{"key": ROLE, "operator": "Exists"}]}, None),
        ({"matchLabels": {"other": "master"}}, None),
        ({}, None),
    ],
)
def test_allowed_values(selector: object, values: set[str] | None) -> None:
    assert parse(selector).allowed_values(ROLE) == values


@pytest.mark.parametrize(
    ("requirement", "text"),
    [
        (Requirement("a", "In", frozenset("x")), "a=x"),
        (Requirement("a", "In", frozenset("yx")), "a In (x, y)"),
        (Requirement("a", "NotIn", frozenset("x")), "a NotIn (x)"),
        (Requirement("a", "Exists"), "a Exists"),
        (Requirement("a", "Gt", frozenset("5")), "a Gt 5"),
    ],
)
def test_requirements_in_words(requirement: Requirement, text: str) -> None:
    assert str(requirement) == text


def test_an_unknown_operator_matches_nothing() -> None:
    assert not Requirement("a", "Like", frozenset({"x"})).matches({"a": "x"})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
EXPRESSION = st.fixed_dictionaries(
    {},
    optional={
        "key": st.sampled_from(["a", "b", "-"]) | JSON,
        "operator": st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt"]) | JSON,
        "values": st.lists(st.sampled_from(["x", "y", "", "-"]), max_size=2) | JSON,
    },
)
SELECTOR = JSON | st.fixed_dictionaries(
    {},
    optional={
        "matchLabels": st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["x", "y"]))
        | JSON,
        "matchExpressions": st.lists(EXPRESSION, max_size=2) | JSON,
    },
)
LABELS = st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["x", "y", ""])) | JSON


@given(SELECTOR, LABELS)
def test_nothing_raises_and_errors_have_a_place(selector: object, labels: object) -> None:
    parsed = parse(selector)
    assert isinstance(parsed.matches(labels), bool)
    assert parsed.empty == (parsed == Selector())
    for path, message in parsed.errors:
        assert len(path) <= 2
        assert message.isprintable()


@given(st.text(alphabet="abZ09-_./\n é", max_size=8))
def test_keys_and_values_follow_the_published_grammar(text: str) -> None:
    name = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
    label = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
    assert (key_error(text) is None) == bool(re.fullmatch(rf"({label}(\.{label})*/)?{name}", text))
    assert (value_error(text) is None) == bool(re.fullmatch(rf"({name})?", text))


# --- as kubectl takes it --------------------------------------------------------------------------

LABELS = {"app": "db", "tier": "a", "size": "3", "empty": "", "example.com/role": "x"}


@for_each(
    "text, matches",
    [
        ("", True),
        ("  ", True),
        ("app=db", True),
        ("app==db", True),
        (" app = db , tier = a ", True),
        ("app=web", False),
        ("app!=web", True),
        ("app!=db", False),
        ("gone!=db", True),
        ("app in (web, db)", True),
        ("app in (web,cache)", False),
        ("app notin (web),tier in (a,b)", True),
        ("gone notin (x)", True),
        ("app", True),
        ("gone", False),
        ("!gone", True),
        ("! app", False),
        ("empty=", True),
        ("app=", False),
        ("size>2,size<4", True),
        ("size>3", False),
        ("example.com/role=x", True),
    ],
)
def test_a_selector_as_kubectl_takes_it(text: str, matches: bool) -> None:
    assert parse_text(text).matches(LABELS) is matches


@for_each(
    "text",
    [
        "=db",
        "app=db tier=a",
        "app in web",
        "app in (",
        "a,,b",
        "app=db,",
        "app=ä",
        "!",
        "-x=1",
        "size>x",
    ],
)
def test_what_is_no_selector(text: str) -> None:
    with pytest.raises(ValueError, match="is not a selector"):
        parse_text(text)
