"""Edits of manifests: a fix changes what it has to and leaves the rest of the file as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.documents.editing import MANY, adding
from tests.for_each import for_each
from virt_admit.documents import yaml_reader
from virt_admit.documents.edit import edit_text
from virt_admit.model.kubernetes import json_patch
from virt_admit.model.kubernetes.json_patch import Patch
from virt_admit.model.kubernetes.objects import Path


def spliced(text: str, *operations: Patch) -> str:
    """The text of one document after the operations."""
    result = edit_text(text.encode(), "vm.yaml", [operations])
    assert (result.fixed, dict(result.refused), result.roundtrips) == (1, {}, True)
    return result.content.decode()


STYLES = [
    ("block", "spec:\n  a: 1\n", "spec:\n  x: New\n  a: 1\n"),
    ("indented by four", "spec:\n    a: 1\n", "spec:\n    x: New\n    a: 1\n"),
    ("no newline at the end", "spec:\n  a: 1", "spec:\n  x: New\n  a: 1"),
    ("CRLF", "spec:\r\n  a: 1\r\n", "spec:\r\n  x: New\r\n  a: 1\r\n"),
    ("byte order mark", "\ufeffspec:\n  a: 1\n", "\ufeffspec:\n  x: New\n  a: 1\n"),
    (
        "comment behind the parent",
        "spec:  # all\n  a: 1 # one\n",
        "spec:  # all\n  x: New\n  a: 1 # one\n",
    ),
    (
        "comment of the first",
        "spec:\n  # about a\n\n  a: 1\n",
        "spec:\n  x: New\n  # about a\n\n  a: 1\n",
    ),
    ("block scalar", "spec:\n  a: |+\n    foo\n\n\n", "spec:\n  x: New\n  a: |+\n    foo\n\n\n"),
    ("quoted", '"spec":\n  "a": 1\n', '"spec":\n  "x": "New"\n  "a": 1\n'),
    ("question mark", "? spec\n: a: 1\n  b: 2\n", "? spec\n: x: New\n  a: 1\n  b: 2\n"),
    ("empty", "spec: {} # all\n", "spec: {x: New} # all\n"),
    ("comment within", "spec: { # none\n}\n", "spec: {x: New # none\n}\n"),
    ("flow", "spec: {a: 1} # all\n", "spec: {x: New, a: 1} # all\n"),
    ("flow with space", "spec: { a: 1 }\n", "spec: { x: New, a: 1 }\n"),
    ("flow in lines", "spec: {\n  a: 1, # one\n}\n", "spec: {\n  x: New,\n  a: 1, # one\n}\n"),
    (
        "flow under a comment",
        "spec:\n  { # all\n  a: 1}\n",
        "spec:\n  { # all\n  x: New,\n  a: 1}\n",
    ),
    ("JSON", '{"spec":{"a":1}}', '{"spec":{"x": "New", "a":1}}'),
    ("JSON, empty", '{"spec": {}}\n', '{"spec": {"x": "New"}}\n'),
    (
        "JSON with tabs",
        '{\n\t"spec": {\n\t\t"a": 1\n\t}\n}\n',
        '{\n\t"spec": {\n\t\t"x": "New",\n\t\t"a": 1\n\t}\n}\n',
    ),
    (
        "JSON with CRLF",
        '{\r\n "spec": {\r\n  "a": 1}}',
        '{\r\n "spec": {\r\n  "x": "New",\r\n  "a": 1}}',
    ),
    ("null, unwritten", "spec:\n  x:\n  a: 1\n", "spec:\n  x: New\n  a: 1\n"),
    ("null with a comment", "spec:\n  x: # which?\n", "spec:\n  x: New # which?\n"),
    ("null, written", "spec:\n  x: ~ # which?\n", "spec:\n  x: New # which?\n"),
    ("null in flow", "spec: {x: , a: 1}\n", "spec: {x: New , a: 1}\n"),
    ("null in JSON", '{"spec": {"x":null}}', '{"spec": {"x": "New"}}'),
    ("another value", "spec:\n  'x': \"Old\"\n", "spec:\n  'x': New\n"),
    ("an alias", "a: &a Old\nspec:\n  x: *a\n", "a: &a Old\nspec:\n  x: New\n"),
    ("an empty list", "spec:\n  x: [] # none\n", "spec:\n  x: New # none\n"),
    (
        "merged maps beside it",
        "a: &a {b: 1}\nspec:\n  <<: *a\n",
        "a: &a {b: 1}\nspec:\n  x: New\n  <<: *a\n",
    ),
    (
        "anchors beside it",
        "spec:\n  a: &a {b: 1}\n  c: *a\n",
        "spec:\n  x: New\n  a: &a {b: 1}\n  c: *a\n",
    ),
    (
        "directive",
        "%YAML 1.1\n---\n# all\nspec:\n  a: 1\n...\n",
        "%YAML 1.1\n---\n# all\nspec:\n  x: New\n  a: 1\n...\n",
    ),
]


@pytest.mark.parametrize(
    "parser", [yaml_reader.PARSER, yaml_reader._PythonParser], ids=["libyaml", "python"]
)
@pytest.mark.parametrize(
    ("before", "after"), [style[1:] for style in STYLES], ids=[style[0] for style in STYLES]
)
def test_styles(
    before: str, after: str, parser: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yaml_reader, "PARSER", parser)
    assert spliced(before, adding("spec", "x")) == after


def test_tabs_between_tokens() -> None:
    """Only libyaml takes them."""
    assert (
        spliced("spec:\t# all\n  a: 1\n", adding("spec", "x")) == "spec:\t# all\n  x: New\n  a: 1\n"
    )


@pytest.mark.parametrize(
    ("text", "path", "after"),
    [
        ("a:\n- b: 1\n", ("a", 0, "x"), "a:\n- x: New\n  b: 1\n"),
        ("a:\n  -  b: 1\n     c: 2\n", ("a", 0, "x"), "a:\n  -  x: New\n     b: 1\n     c: 2\n"),
        ("a:\n- {}\n", ("a", 0, "x"), "a:\n- {x: New}\n"),
        ('{"a": [{}]}', ("a", 0, "x"), '{"a": [{"x": "New"}]}'),
        ("a: 1\n", ("x",), "x: New\na: 1\n"),
        ("a: 1", ("x",), "x: New\na: 1"),
        ("{a: 1}", ("x",), "{x: New, a: 1}"),
    ],
)
def test_maps_that_no_key_holds(text: str, path: tuple[str | int, ...], after: str) -> None:
    assert spliced(text, adding(*path)) == after


@for_each(
    "value, written",
    [
        ("None", "None"),
        ("shop/db-1.2", "shop/db-1.2"),
        ("null", '"null"'),
        ("yes", '"yes"'),
        ("1e3", '"1e3"'),
        ("2024-01-01", "2024-01-01"),  # text, as kubectl reads it
        ("a: b", '"a: b"'),
        ("#", '"#"'),
        ("", '""'),
        ("é\n", '"é\\n"'),
        (True, "true"),
        (None, "null"),
        (1.5, "1.5"),
        ({"a": [1]}, '{"a": [1]}'),
    ],
)
def test_values_are_read_as_they_are_meant(value: Any, written: str) -> None:
    assert (
        spliced("spec:\n  a: 1\n", adding("spec", "x", value=value))
        == f"spec:\n  x: {written}\n  a: 1\n"
    )


def test_keys_are_quoted_where_they_would_be_something_else() -> None:
    assert spliced("a: 1\n", adding("on")) == '"on": New\na: 1\n'
    assert spliced("a: 1\n", adding("virt-admit.io/x")) == "virt-admit.io/x: New\na: 1\n"


def test_parents_are_made_by_operations_of_their_own() -> None:
    text = "spec: # all\nkind: A\n"
    after = spliced(
        text, adding("spec", value={}), adding("spec", "b", value={}), adding("spec", "b", "c")
    )
    assert after == "spec: {b: {c: New}} # all\nkind: A\n"


def test_a_test_changes_nothing() -> None:
    text = "spec:\n  a: 1\n"
    check = Patch("test", Path("spec", "a"), 1)
    assert spliced(text, check, adding("spec", "x")) == "spec:\n  x: New\n  a: 1\n"
    with pytest.raises(json_patch.PatchError):
        edit_text(text.encode(), "vm.yaml", [[Patch("test", Path("spec", "a"), 2)]])


@for_each(
    "text, why",
    [
        ("spec: &s\n  a: 1\n", "spec is named by an anchor (&)"),
        ("spec: &s {}\nother: *s\n", "spec is named by an anchor (&)"),
        ("spec:\n  &a a: 1\n", "spec is named by an anchor (&)"),
        ("a: &s {b: 1}\nspec: *s\n", "spec is an alias (*)"),
        ("a: &s {x: }\nspec: {<<: *s}\n", "spec.x comes from a map that is merged in (<<)"),
        ("a: &s {spec: {b: 1}}\n<<: *s\n", "spec comes from a map that is merged in (<<)"),
        ("spec: !!map {a: 1}\n", "spec has a tag (!)"),
        ("--- &s\nspec: {}\n", "the object is named by an anchor (&)"),
        ("spec: {x: &a , b: *a}\n", "spec.x has a value that has to be replaced by hand"),
        ("spec: {x}\n", "spec.x has a value that has to be replaced by hand"),
        ("spec: {x: {a: 1}}\n", "spec.x has a value that has to be replaced by hand"),
        ("spec:\n  x: [ # none\n  ]\n", "spec.x has a value that has to be replaced by hand"),
        ("spec:\n  x:\n  - 1\n", "spec.x has a value that has to be replaced by hand"),
        ("spec:\n  x: |\n    a\n", "spec.x has a value that has to be replaced by hand"),
        ("spec:\n  x: !!str a\n", "spec.x has a value that has to be replaced by hand"),
    ],
)
def test_what_others_share_and_what_would_be_lost_is_left_alone(text: str, why: str) -> None:
    result = edit_text(text.encode(), "vm.yaml", [[adding("spec", "x")]])
    assert (result.content.decode(), result.fixed, dict(result.refused), result.roundtrips) == (
        text,
        0,
        {0: why},
        True,
    )


@pytest.mark.parametrize(
    "operation",
    [Patch("remove", Path("a", 0)), Patch("move", Path("b")), adding("a", "-"), adding("a", 0)],
    ids=str,
)
def test_other_operations_are_refused(operation: Patch) -> None:
    result = edit_text(b"a: [1]\nb: 1\n", "vm.yaml", [[operation]])
    assert (result.content, result.fixed) == (b"a: [1]\nb: 1\n", 0)
    assert dict(result.refused) == {0: f"{operation.op} {operation.path} has to be done by hand"}


def test_each_document_of_a_file_is_fixed_or_left_alone() -> None:
    """Also if only its second operation cannot be done."""
    both = [adding("spec", "x"), adding("spec", "z", value=1)]
    last = [adding("spec", "x"), Patch("move", Path("kind"))]
    result = edit_text(MANY.encode(), "vm.yaml", [both, both, both, both, last])
    fixed = MANY.replace("kind: A\nspec: {}", "kind: A\nspec: {z: 1, x: New}")
    fixed = fixed.replace("    # about a\n", "    z: 1\n    x: New\n    # about a\n")
    assert (result.content.decode(), result.fixed, result.roundtrips) == (fixed, 2, True)
    assert dict(result.refused) == {
        1: "spec is named by an anchor (&)",
        2: "spec is an alias (*)",
        4: "move kind has to be done by hand",
    }


def test_members_of_a_list_that_is_a_document_too_are_fixed() -> None:
    """For one of its own keys stands twice."""
    text = "kind: List\nmetadata: {}\nmetadata: {}\nitems:\n- kind: A\n  spec: {}\n"
    result = edit_text(text.encode(), "vm.yaml", [[], [adding("spec", "x")]])
    assert (result.content.decode(), result.roundtrips) == (
        text.replace("spec: {}", "spec: {x: New}"),
        True,
    )


def test_nothing_to_do() -> None:
    assert edit_text(MANY.encode(), "vm.yaml", [()] * 5).content == MANY.encode()
    assert edit_text(b"\xff", "vm.yaml", []).content == b"\xff"


def test_what_does_not_read_as_it_should_is_said_to_be_wrong() -> None:
    """A line break that only YAML 1.1 knows,
    so that the columns of the parser are not those of the text.
    """
    result = edit_text("spec: # all\x85  a: 1\n".encode(), "vm.yaml", [[adding("spec", "x")]])
    assert not result.roundtrips
