"""Fixes in files: only what the JSON Patch says becomes different, in any style, or the object is left alone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from virt_admit.documents import reader, yaml_reader
from virt_admit.documents.edit import edit_text
from virt_admit.model import json_patch
from virt_admit.model.json_patch import Patch
from virt_admit.model.objects import Object, Path


def adding(*steps: str | int, value: Any = "New") -> Patch:
    return Patch("add", Path(*steps), value)


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
    ("comment behind the parent", "spec:  # all\n  a: 1 # one\n", "spec:  # all\n  x: New\n  a: 1 # one\n"),
    ("comment of the first", "spec:\n  # about a\n\n  a: 1\n", "spec:\n  x: New\n  # about a\n\n  a: 1\n"),
    ("block scalar", "spec:\n  a: |+\n    foo\n\n\n", "spec:\n  x: New\n  a: |+\n    foo\n\n\n"),
    ("quoted", '"spec":\n  "a": 1\n', '"spec":\n  "x": "New"\n  "a": 1\n'),
    ("question mark", "? spec\n: a: 1\n  b: 2\n", "? spec\n: x: New\n  a: 1\n  b: 2\n"),
    ("empty", "spec: {} # all\n", "spec: {x: New} # all\n"),
    ("comment within", "spec: { # none\n}\n", "spec: {x: New # none\n}\n"),
    ("flow", "spec: {a: 1} # all\n", "spec: {x: New, a: 1} # all\n"),
    ("flow with space", "spec: { a: 1 }\n", "spec: { x: New, a: 1 }\n"),
    ("flow in lines", "spec: {\n  a: 1, # one\n}\n", "spec: {\n  x: New,\n  a: 1, # one\n}\n"),
    ("flow under a comment", "spec:\n  { # all\n  a: 1}\n", "spec:\n  { # all\n  x: New,\n  a: 1}\n"),
    ("JSON", '{"spec":{"a":1}}', '{"spec":{"x": "New", "a":1}}'),
    ("JSON, empty", '{"spec": {}}\n', '{"spec": {"x": "New"}}\n'),
    (
        "JSON with tabs",
        '{\n\t"spec": {\n\t\t"a": 1\n\t}\n}\n',
        '{\n\t"spec": {\n\t\t"x": "New",\n\t\t"a": 1\n\t}\n}\n',
    ),
    ("JSON with CRLF", '{\r\n "spec": {\r\n  "a": 1}}', '{\r\n "spec": {\r\n  "x": "New",\r\n  "a": 1}}'),
    ("null, unwritten", "spec:\n  x:\n  a: 1\n", "spec:\n  x: New\n  a: 1\n"),
    ("null with a comment", "spec:\n  x: # which?\n", "spec:\n  x: New # which?\n"),
    ("null, written", "spec:\n  x: ~ # which?\n", "spec:\n  x: New # which?\n"),
    ("null in flow", "spec: {x: , a: 1}\n", "spec: {x: New , a: 1}\n"),
    ("null in JSON", '{"spec": {"x":null}}', '{"spec": {"x": "New"}}'),
    ("another value", "spec:\n  'x': \"Old\"\n", "spec:\n  'x': New\n"),
    ("an alias", "a: &a Old\nspec:\n  x: *a\n", "a: &a Old\nspec:\n  x: New\n"),
    ("an empty list", "spec:\n  x: [] # none\n", "spec:\n  x: New # none\n"),
    ("merged maps beside it", "a: &a {b: 1}\nspec:\n  <<: *a\n", "a: &a {b: 1}\nspec:\n  x: New\n  <<: *a\n"),
    ("anchors beside it", "spec:\n  a: &a {b: 1}\n  c: *a\n", "spec:\n  x: New\n  a: &a {b: 1}\n  c: *a\n"),
    (
        "directive",
        "%YAML 1.1\n---\n# all\nspec:\n  a: 1\n...\n",
        "%YAML 1.1\n---\n# all\nspec:\n  x: New\n  a: 1\n...\n",
    ),
]


@pytest.mark.parametrize("parser", [yaml_reader.PARSER, yaml_reader._PythonParser], ids=["libyaml", "python"])
@pytest.mark.parametrize(("before", "after"), [style[1:] for style in STYLES], ids=[style[0] for style in STYLES])
def test_styles(before: str, after: str, parser: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_reader, "PARSER", parser)
    assert spliced(before, adding("spec", "x")) == after


def test_tabs_between_tokens() -> None:
    """Only libyaml takes them."""
    assert spliced("spec:\t# all\n  a: 1\n", adding("spec", "x")) == "spec:\t# all\n  x: New\n  a: 1\n"


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


@pytest.mark.parametrize(
    ("value", "written"),
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
    assert spliced("spec:\n  a: 1\n", adding("spec", "x", value=value)) == f"spec:\n  x: {written}\n  a: 1\n"


def test_keys_are_quoted_where_they_would_be_something_else() -> None:
    assert spliced("a: 1\n", adding("on")) == '"on": New\na: 1\n'
    assert spliced("a: 1\n", adding("virt-admit.io/x")) == "virt-admit.io/x: New\na: 1\n"


def test_parents_are_made_by_operations_of_their_own() -> None:
    text = "spec: # all\nkind: A\n"
    after = spliced(text, adding("spec", value={}), adding("spec", "b", value={}), adding("spec", "b", "c"))
    assert after == "spec: {b: {c: New}} # all\nkind: A\n"


def test_a_test_changes_nothing() -> None:
    text = "spec:\n  a: 1\n"
    check = Patch("test", Path("spec", "a"), 1)
    assert spliced(text, check, adding("spec", "x")) == "spec:\n  x: New\n  a: 1\n"
    with pytest.raises(json_patch.PatchError):
        edit_text(text.encode(), "vm.yaml", [[Patch("test", Path("spec", "a"), 2)]])


@pytest.mark.parametrize(
    ("text", "why"),
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
    assert (result.content.decode(), result.fixed, dict(result.refused), result.roundtrips) == (text, 0, {0: why}, True)


@pytest.mark.parametrize(
    "operation", [Patch("remove", Path("a", 0)), Patch("remove", Path("b")), adding("a", "-"), adding("a", 0)], ids=str
)
def test_other_operations_are_refused(operation: Patch) -> None:
    result = edit_text(b"a: [1]\nb: 1\n", "vm.yaml", [[operation]])
    assert (result.content, result.fixed) == (b"a: [1]\nb: 1\n", 0)
    assert dict(result.refused) == {0: f"{operation.op} {operation.path} has to be done by hand"}


MANY = """\
# one
kind: A
spec: {}
---
kind: List
items:
- kind: B
  spec: &s
    a: 1
- kind: C
  spec: *s
- kind: D
  spec:
    # about a
    a: 1
--- # broken
a: [
---
# none
---
kind: E
spec: {}
"""


def test_each_document_of_a_file_is_fixed_or_left_alone() -> None:
    """Also if only its second operation cannot be done."""
    both = [adding("spec", "x"), adding("spec", "z", value=1)]
    last = [adding("spec", "x"), Patch("remove", Path("kind"))]
    result = edit_text(MANY.encode(), "vm.yaml", [both, both, both, both, last])
    fixed = MANY.replace("kind: A\nspec: {}", "kind: A\nspec: {z: 1, x: New}")
    fixed = fixed.replace("    # about a\n", "    z: 1\n    x: New\n    # about a\n")
    assert (result.content.decode(), result.fixed, result.roundtrips) == (fixed, 2, True)
    assert dict(result.refused) == {
        1: "spec is named by an anchor (&)",
        2: "spec is an alias (*)",
        4: "remove kind has to be done by hand",
    }


def test_members_of_a_list_that_is_a_document_too_are_fixed() -> None:
    """For one of its own keys stands twice."""
    text = "kind: List\nmetadata: {}\nmetadata: {}\nitems:\n- kind: A\n  spec: {}\n"
    result = edit_text(text.encode(), "vm.yaml", [[], [adding("spec", "x")]])
    assert (result.content.decode(), result.roundtrips) == (text.replace("spec: {}", "spec: {x: New}"), True)


def test_nothing_to_do() -> None:
    assert edit_text(MANY.encode(), "vm.yaml", [()] * 5).content == MANY.encode()
    assert edit_text(b"\xff", "vm.yaml", []).content == b"\xff"


def test_what_does_not_read_as_it_should_is_said_to_be_wrong() -> None:
    """A line break that only YAML 1.1 knows, so that the columns of the parser are not those of the text."""
    result = edit_text("spec: # all\x85  a: 1\n".encode(), "vm.yaml", [[adding("spec", "x")]])
    assert not result.roundtrips


# --- any object in any style -------------------------------------------------------------------------------------

KEYS = st.sampled_from(["a", "b", "on", "1", "b/c", "m n", "é", "#", "x" * 40])
LEAVES = st.none() | st.booleans() | st.integers(2, 9) | st.sampled_from(["", "None", "no", "two\nlines\n", "é", " s"])
MAPS = st.recursive(
    st.dictionaries(KEYS, LEAVES, max_size=3),
    lambda inner: st.dictionaries(KEYS, LEAVES | inner | st.lists(LEAVES | inner, max_size=3), max_size=3),
    max_leaves=12,
)


class Writer:
    """Writes a value as YAML; each choice that an author has is drawn."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw
        self.comments = 0

    def maybe(self) -> bool:
        return bool(self.draw(st.booleans()))

    def end(self) -> str:
        """The end of a line, perhaps with a comment, and perhaps with further lines that say nothing."""
        end = "\n"
        if self.maybe():
            self.comments += 1
            end = f"  # comment {self.comments}\n"
            if self.maybe():
                end += f"\n    # more on {self.comments}\n"
        return end

    def scalar(self, value: Any, indent: str | None = None) -> str:
        if isinstance(value, str) and value.endswith("\n") and indent is not None and self.maybe():
            return "|\n" + "".join(f"{indent}{line}\n" for line in value.splitlines())
        if value is None and indent is not None:
            return self.draw(st.sampled_from(["", " ~", " null"])).removeprefix(" ") + self.end()
        return json.dumps(value, ensure_ascii=False) + ("" if indent is None else self.end())

    def key(self, key: str) -> str:
        plain = key in ("a", "b", "b/c", "m n", "é") and self.maybe()
        return key if plain else json.dumps(key, ensure_ascii=False)

    def flow(self, value: Any) -> str:
        if not isinstance(value, dict | list):
            return self.scalar(value)
        gap = self.draw(st.sampled_from(["", " ", "\n    ", " # flow\n    "]))
        if isinstance(value, dict):
            inner = [f"{self.key(key)}: {self.flow(item)}" for key, item in value.items()]
            return "{" + gap + f", {gap.lstrip(' #flow')}".join(inner) + gap + "}"
        return "[" + ", ".join(map(self.flow, value)) + "]"

    def block(self, value: Any, indent: str) -> str:
        """What stands behind a colon or a dash, with the line's end."""
        if not isinstance(value, dict | list):
            return " " + self.scalar(value, indent + "  ")
        if not value or not self.draw(st.integers(0, 3)):
            return f" {self.flow(value)}{self.end()}"
        deeper = indent + " " * self.draw(st.integers(1, 4))
        return self.end() + self.lines(value, deeper)

    def lines(self, value: Any, indent: str) -> str:
        if isinstance(value, dict):
            return "".join(f"{indent}{self.key(key)}:{self.block(item, indent)}" for key, item in value.items())
        return "".join(f"{indent}-{self.item(item, indent)}" for item in value)

    def item(self, value: Any, indent: str) -> str:
        if isinstance(value, dict) and value and self.maybe():
            gap = " " * self.draw(st.integers(1, 3))
            return gap + self.lines(value, indent + " " + gap).lstrip(" ")
        return self.block(value, indent)


@st.composite
def styled(draw: Callable[[st.SearchStrategy[Any]], Any], value: dict[str, Any]) -> str:
    """A text that stands for the value."""
    style = draw(st.sampled_from(["own", "own", "own", "json", "yaml", "flow"]))
    if style == "json":
        text = json.dumps(value, indent=draw(st.none() | st.integers(0, 4)), ensure_ascii=draw(st.booleans()))
    elif style == "yaml":
        text = yaml.safe_dump(value, indent=draw(st.integers(2, 6)), allow_unicode=draw(st.booleans()), sort_keys=False)
    else:
        writer = Writer(draw)
        text = writer.flow(value) if style == "flow" or not value else writer.lines(value, "")
    if draw(st.booleans()):
        text = text.removesuffix("\n")
    text = draw(st.sampled_from(["", "", "# head\n", "---\n", "\ufeff"] if style != "json" else ["", "\ufeff"])) + text
    return text.replace("\n", "\r\n") if draw(st.booleans()) else text


def maps(value: Any, path: Path = Path()) -> list[tuple[Path, dict[str, Any]]]:  # noqa: B008 - a Path is immutable
    """Every map in a value, and where it is."""
    if isinstance(value, dict):
        return [(path, value), *(found for key, item in value.items() for found in maps(item, path / key))]
    if isinstance(value, list):
        return [found for index, item in enumerate(value) for found in maps(item, path / index)]
    return []


@st.composite
def cases(draw: Callable[[st.SearchStrategy[Any]], Any]) -> tuple[str, list[Patch], bool]:
    """A text, operations on its object, and whether they only add."""
    value = {"kind": "A", **draw(MAPS)}
    text = draw(styled(value))
    path, inner = draw(st.sampled_from(maps(value)))
    empty = [key for key, item in inner.items() if item is None]
    key = draw(st.sampled_from([*empty, "new", "off"]))
    operation = Patch("add", path / key, draw(LEAVES | st.just({})))
    more = [Patch("add", path / key / "z", "Z")] if operation.value == {} else []
    return text, [operation, *more], key not in empty


@given(cases())
@settings(deadline=None)
@example(("kind: A\na:  # comment 1\n\n    # more on 1\n  b: 2\n", [adding("a", "new")], True))
def test_what_is_written_reads_as_the_patch_says_and_nothing_is_lost(case: tuple[str, list[Patch], bool]) -> None:
    text, operations, only_adds = case
    (before,) = reader.read(text.encode(), "vm.yaml")[0]

    result = edit_text(text.encode(), "vm.yaml", [operations])

    assert (dict(result.refused), result.roundtrips) == ({}, True)
    after = result.content.decode()
    (document,) = reader.read(result.content, "vm.yaml")[0]
    expected = json_patch.apply(Object(before.data), operations).data
    assert json.dumps(document.data, sort_keys=True) == json.dumps(expected, sort_keys=True)
    assert not document.duplicates
    if only_adds:
        assert is_one_insertion(text, after)
    assert comments(after) == comments(text)
    assert after.count("\r\n") == (after.count("\n") if "\r\n" in text else 0)
    assert after.endswith("\n") == text.endswith("\n")


def is_one_insertion(before: str, after: str) -> bool:
    """Whether every character of before is in after, which has further ones in one place."""
    length = len(after) - len(before)
    return any(after[:at] + after[at + length :] == before for at in range(len(before) + 1))


def comments(text: str) -> list[str]:
    return re.findall(r"# (?:head|flow|comment|more on).*", text)


@given(cases())
@settings(deadline=None)
def test_the_file_around_an_object_stays(case: tuple[str, list[Patch], bool]) -> None:
    text, operations, _ = case
    other = "# other\nkind: B # stays\n"
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    file = f"{other}---\n" + text.removeprefix("---\n").removesuffix("\n") + f"\n---\n{other}"
    alone = edit_text(text.encode(), "vm.yaml", [operations]).content.decode()

    result = edit_text(file.encode(), "vm.yaml", [[], operations, []])

    wanted = f"{other}---\n" + alone.removeprefix("---\n").removesuffix("\n") + f"\n---\n{other}"
    assert (result.content.decode(), result.fixed, result.roundtrips) == (wanted, 1, True)


DAMAGES = [
    "\t",
    "&x ",
    "*x",
    '"',
    "{",
    "]",
    ": ",
    "\n",
    "\ufeff",
    "!!int ",
    "<<: ",
    "|",
    "- ",
    "? ",
    " #",
    ",",
    "  ",
    "---\n",
]
ODD = ["\r", "\x85", "\u2028", "\ufeff"]
"""What puts marks off: ends of lines that only YAML 1.1 knows, a second byte order mark."""


@given(st.data())
@settings(deadline=None, derandomize=True)  # nobody needs every odd text to be fixed
def test_damaged_files_are_fixed_faithfully_or_left_alone(data: st.DataObject) -> None:
    text = MANY.replace("# broken\na: [", "a: |\n  text\n\nb:")
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        text = text[:at] + data.draw(st.sampled_from(DAMAGES + ODD)) + text[at + data.draw(st.integers(0, 3)) :]
    found = [document.data for document in reader.read(text.encode(), "vm.yaml")[0]]
    patches: list[list[Patch]] = [
        [] if each.get("kind") == "List" else [adding(*data.draw(st.sampled_from(maps(each)))[0], "new")]
        for each in found
    ]
    result = edit_text(text.encode(), "vm.yaml", patches)
    assert result.roundtrips or any(odd in text for odd in ODD)
    assert result.fixed + len(result.refused) == sum(map(len, patches))
    assert (result.content == text.encode()) is (result.fixed == 0)
