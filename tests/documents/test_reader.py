"""Manifests in files: the values that kubectl would send, where they stand, and what is refused."""

from __future__ import annotations

import io
import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path as File
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from tests.paths import DATA
from virt_admit.documents import yaml_reader
from virt_admit.documents.reader import Document, DocumentError, Duplicate, Location, find, parse, read
from virt_admit.model.objects import Path

RECORDED = json.loads((DATA / "documents" / "kubectl.json").read_text("utf-8"))


@pytest.fixture(params=["libyaml", "python"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both of PyYAML's parsers, one after the other."""
    if request.param == "python":
        monkeypatch.setattr(yaml_reader, "PARSER", yaml_reader._PythonParser)
    else:
        assert yaml.__with_libyaml__, "PyYAML was installed without libyaml"


def one(text: str | bytes) -> Document:
    found, errors = read(text.encode() if isinstance(text, str) else text, "vm.yaml")
    assert [str(error) for error in errors] == []
    assert len(found) == 1
    return found[0]


def values(text: str | bytes) -> list[Any]:
    found, errors = read(text.encode() if isinstance(text, str) else text, "vm.yaml")
    assert [str(error) for error in errors] == []
    return [document.data for document in found]


def failure(text: str | bytes) -> DocumentError:
    found, errors = read(text.encode() if isinstance(text, str) else text, "vm.yaml")
    assert [document.data for document in found] == []
    assert len(errors) == 1
    return errors[0]


def as_sent(value: Any) -> Any:
    """A value as the API server reads it: integers of 64 bits as such, all other numbers as floats."""
    match value:
        case dict():
            return {key: as_sent(item) for key, item in value.items()}
        case list():
            return [as_sent(item) for item in value]
        case bool():
            return value
        case int():
            return value if -(2**63) <= value < 2**63 else float(value)
        case float() if value.is_integer() and abs(value) < 2**63:
            return int(value)
    return value


def typed(value: Any) -> str:
    """Text that tells 1 from 1.0 and from true, which are equal in Python; the order of keys means nothing."""
    return json.dumps(value, sort_keys=True)


# --- values ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(
    "case", [case for case in RECORDED["cases"] if "json" in case], ids=lambda case: case["yaml"][:30]
)
def test_values_are_those_of_kubectl(case: dict[str, str]) -> None:
    trees = [tree.value for tree in yaml_reader.YamlReader().documents(case["yaml"])]
    assert typed(trees or [None]) == typed([as_sent(json.loads(case["json"]))])


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize("case", [case for case in RECORDED["cases"] if "error" in case], ids=lambda case: case["yaml"])
def test_what_kubectl_refuses_is_an_error(case: dict[str, str]) -> None:
    assert failure(case["yaml"]).line >= 1


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("true: a", "quote it", 1),
        ("y: a", "read as true: quote it", 1),
        ("1: a", "read as 1: quote it", 1),
        ("1.5: a", "quote it", 1),
        ("~: a", "quote it", 1),
        ("a: !foo b", "unknown tag '!foo'", 4),
        ("a: !!set {b, c}", "unknown tag", 4),
        ("a: !!python/object:os.system b", "unknown tag", 4),
        ("a: !local {b: 1}", "unknown tag", 4),
    ],
)
def test_stricter_than_kubectl(text: str, message: str, column: int) -> None:
    """Keys that are no text become text there, and unknown tags are ignored; both are mistakes of the author."""
    error = failure(text)
    assert message in error.message
    assert (error.line, error.column) == (1, column)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1}', [{"a": 1}]),
        (' \r\n\t{"a": 1}\n', [{"a": 1}]),
        ('{"a": 1}{"b": 2}\n\n{"c": 3}', [{"a": 1}, {"b": 2}, {"c": 3}]),
        ('{"a": 1}\n---\n{"b": 2}\n---\nc: 3\n', [{"a": 1}, {"b": 2}, {"c": 3}]),
        ('{"a": [], "b": {}, "c": [1, [2]], "d": null, "e": true, "f": false, "": ""}', None),
        (r'{"a": "\ud83d\ude00\/\"\\\b\f\n\r\t\u00e9\u0000"}', None),
        ('{"a": 1.0, "b": 1e3, "c": -0, "d": -0.0, "e": 0.5, "f": 1E-2, "g": 10E+1}', None),
        ('{"a": 9223372036854775807, "b": -9223372036854775808, "c": 9223372036854775808, "d": 1e30}', None),
        ('{"a": ' + "1" * 30 + "}", None),
        ('{"a": "10:30", "b": "yes", "c": "\x7f\u2028"}', None),
        ("{a: yes, b: [x]}", [{"a": True, "b": ["x"]}]),  # YAML in flow style
        ('{"a": 1,}', [{"a": 1}]),
        ('{"a": 1} # comment', [{"a": 1}]),
        ('{"a", "b": 1}', [{"a": None, "b": 1}]),
    ],
)
def test_json(text: str, expected: list[Any] | None) -> None:
    assert typed(values(text)) == typed(expected if expected is not None else [as_sent(json.loads(text))])


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b" \n\n", []),
        (b"# only\n# comments\n", []),
        (b"---\n# x\n---\n---\n", []),
        (b"null\n", []),
        (b"---\n~\n", []),
        (b"a: 1\n---\n# nothing\n---\nb: 2\n", [{"a": 1}, {"b": 2}]),
        (b"a: 1\n--- # comment\nb: 2\n", [{"a": 1}, {"b": 2}]),
        (b"--- {a: 1}\n---  {b: 2}\n", [{"a": 1}, {"b": 2}]),
        (b"a: 1\n...\n---\nb: 2\n...\n", [{"a": 1}, {"b": 2}]),
        (b"%YAML 1.1\n# x\n---\na: 1\n", [{"a": 1}]),
        (b"\xef\xbb\xbfa: 1\n", [{"a": 1}]),
        (b'\xef\xbb\xbf{"a": 1}\n', [{"a": 1}]),
        (b"a:\r\n  b: 1\r\n---\r\nc: 2\r\n", [{"a": {"b": 1}}, {"c": 2}]),
        (b"a: |\n  x\n  ---\n  y\n", [{"a": "x\n---\ny\n"}]),
        (b"a: x\n---b: z\n", [{"a": "x", "---b": "z"}]),
        (b"{}", [{}]),
    ],
)
def test_streams(content: bytes, expected: list[Any]) -> None:
    assert values(content) == expected


def test_aliases_are_copies() -> None:
    data = one("a: &x {b: [1]}\nc: *x\nd: {<<: *x}\n").data
    assert data["c"] == data["d"] == data["a"]
    assert data["c"] is not data["a"]
    assert data["d"]["b"] is not data["a"]["b"]


# --- lists and templates -----------------------------------------------------------------------------------------

LIST = """\
apiVersion: v1
kind: List
items:
- kind: A
  spec: {x: 1}
- kind: ListOfLists
- kind: BList
  apiVersion: g/v1
  items:
  - metadata: {name: b}
  - kind: C
"""


@pytest.mark.usefixtures("parser")
def test_lists_are_their_items() -> None:
    found, errors = read(LIST.encode(), "list.yaml")
    assert not errors
    assert [(document.data, document.line) for document in found] == [
        ({"kind": "A", "spec": {"x": 1}}, 4),
        ({"kind": "ListOfLists"}, 6),
        ({"kind": "B", "apiVersion": "g/v1", "metadata": {"name": "b"}}, 10),
        ({"kind": "C"}, 11),
    ]
    assert found[0].location(("spec", "x")) == Location("list.yaml", 5, 10, 5, 14)
    assert found[2].location(("metadata", "name")) == Location("list.yaml", 10, 16, 10, 23)
    assert found[2].location(("kind",)) == Location("list.yaml", 10, 5, 10, 5)  # it stands nowhere


@pytest.mark.parametrize("group", ["template.openshift.io/v1", "v1"])
def test_templates_are_their_objects(group: str) -> None:
    text = f"apiVersion: {group}\nkind: Template\nparameters: []\nobjects:\n- kind: A\n- {{kind: B}}\n"
    assert values(text) == [{"kind": "A"}, {"kind": "B"}]


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: example.com/v1\nkind: Template\nobjects: [{kind: A}]\n",
        "apiVersion: v1\nkind: Pod\nitems: [{kind: A}]\n",
        "apiVersion: v1\nkind: List\n",
        "kind: AllowList\nitems: {a: 1}\n",
        "kind: [List]\nitems: [{kind: A}]\n",
        "items: [{kind: A}]\n",
    ],
)
def test_what_only_looks_like_a_list_stays_whole(text: str) -> None:
    assert values(text) == [yaml.safe_load(text)]


def test_an_item_that_is_no_object_is_an_error_and_the_others_are_read() -> None:
    found, errors = read(b"kind: List\nitems:\n- kind: A\n- null\n- kind: B\n", "l.yaml")
    assert [document.data["kind"] for document in found] == ["A", "B"]
    assert [str(error) for error in errors] == ["l.yaml:4:3: null is not a Kubernetes object"]


# --- places ------------------------------------------------------------------------------------------------------

VM = """\
# a comment
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata:
  name: datenbank-ü  # ü is one column
  labels: {app: "x", größe: xl}
spec:
  running: true
  runStrategy: Always
  template:
    spec:
      volumes:
      - name: root
        dataVolume:
          name: db
      -   name: two
      - cloudInitNoCloud:
          userData: |
            #cloud-config
            a: b
      empty:
"""

PLACES = [
    ((), (2, 1), (21, 13)),
    (("apiVersion",), (2, 1), (2, 27)),
    (("metadata",), (4, 1), (6, 32)),
    (("metadata", "name"), (5, 3), (5, 20)),
    (("metadata", "labels", "app"), (6, 12), (6, 20)),
    (("metadata", "labels", "größe"), (6, 22), (6, 31)),
    (("spec",), (7, 1), (21, 13)),
    (("spec", "running"), (8, 3), (8, 16)),
    (("spec", "template", "spec", "volumes", 0), (13, 9), (15, 19)),
    (("spec", "template", "spec", "volumes", 0, "name"), (13, 9), (13, 19)),
    (("spec", "template", "spec", "volumes", 0, "dataVolume", "name"), (15, 11), (15, 19)),
    (("spec", "template", "spec", "volumes", 1), (16, 11), (16, 20)),
    (("spec", "template", "spec", "volumes", 2, "cloudInitNoCloud", "userData"), (18, 11), (21, 1)),
    (("spec", "template", "spec", "empty"), (21, 7), (21, 13)),
    # what is not there: the key of what is around it
    (("status",), (2, 1), (2, 1)),
    (("spec", "dataVolumeTemplates", 0, "spec"), (7, 1), (7, 5)),
    (("spec", "template", "spec", "evictionStrategy"), (11, 5), (11, 9)),
    (("spec", "template", "spec", "volumes", 7, "name"), (12, 7), (12, 14)),
    (("spec", "template", "spec", "volumes", "name"), (12, 7), (12, 14)),
    (("spec", "template", "spec", "volumes", -1), (12, 7), (12, 14)),
    (("spec", "template", "spec", "volumes", 0, "emptyDisk"), (13, 9), (13, 9)),
    (("spec", "running", "value"), (8, 3), (8, 10)),
    (("spec", "template", "spec", "empty", "x"), (21, 7), (21, 12)),
    ((0,), (2, 1), (2, 1)),
]


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("prefix", ["", "\ufeff", "---\n", "kind: Other\n---\n", "%YAML 1.1\n---\n"])
@pytest.mark.parametrize(("path", "start", "end"), PLACES, ids=lambda value: "/".join(map(str, value)))
def test_places(newline: str, prefix: str, path: Path, start: tuple[int, int], end: tuple[int, int]) -> None:
    content = (prefix + VM).replace("\n", newline).encode()
    document = read(content, "vm.yaml")[0][-1]
    shift = prefix.count("\n")
    expected = Location("vm.yaml", start[0] + shift, start[1], end[0] + shift, end[1])
    assert document.location(path) == expected
    assert document.line == 2 + shift


JSON_VM = '{\r\n  "kind": "A",\n  "spec": {"x\\ty": [1, {"é": "ü"}, []]}\n}\n{"kind": "B",\n "z": {}}'


@pytest.mark.parametrize(
    ("index", "path", "place"),
    [
        (0, (), (1, 1, 4, 2)),
        (0, ("kind",), (2, 3, 2, 14)),
        (0, ("spec", "x\ty"), (3, 12, 3, 39)),
        (0, ("spec", "x\ty", 0), (3, 21, 3, 22)),
        (0, ("spec", "x\ty", 1), (3, 24, 3, 34)),
        (0, ("spec", "x\ty", 1, "é"), (3, 25, 3, 33)),
        (0, ("spec", "x\ty", 2), (3, 36, 3, 38)),
        (0, ("spec", "missing"), (3, 3, 3, 9)),
        (1, (), (5, 1, 6, 10)),
        (1, ("z",), (6, 2, 6, 9)),
        (1, ("z", "y"), (6, 2, 6, 5)),
    ],
)
def test_places_in_json(index: int, path: Path, place: tuple[int, int, int, int]) -> None:
    found, _ = read(JSON_VM.encode(), "vm.json")
    assert found[index].location(path) == Location("vm.json", *place)


def test_the_content_of_an_alias_stands_at_its_anchor() -> None:
    document = one("a: &x\n  b: 1\nc: *x\nd:\n  <<: *x\n  e: 2\n")
    assert document.location(("c",)) == Location("vm.yaml", 3, 1, 3, 6)
    assert document.location(("c", "b")) == document.location(("d", "b")) == Location("vm.yaml", 2, 3, 2, 7)
    assert document.location(("d",)) == Location("vm.yaml", 4, 1, 6, 7)


def test_line_breaks_that_editors_do_not_count() -> None:
    document = one('a: "x\u2028y"\nb: 1\n')
    assert document.location(("b",)) == Location("vm.yaml", 2, 1, 2, 5)


# --- repeated keys -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("parser")
def test_repeated_keys() -> None:
    text = "kind: A\nspec:\n  running: true\n  l:\n  - {x: 1, x: 2}\n  running: false\nkind: B\nkind: C\n"
    document = one(text)
    assert document.data == {"kind": "C", "spec": {"running": False, "l": [{"x": 2}]}}
    assert sorted(document.duplicates, key=str) == [
        Duplicate(Path("kind"), 1, 7),
        Duplicate(Path("kind"), 7, 8),
        Duplicate(Path("spec", "l", 0, "x"), 5, 5),
        Duplicate(Path("spec", "running"), 3, 6),
    ]
    assert document.location(("spec", "running")) == Location("vm.yaml", 6, 3, 6, 17)


def test_repeated_keys_in_json() -> None:
    document = one('{"a": {"b": 1,\n"b": 2},\n"a": {"c": 1,\n"c": 2}}')
    assert document.data == {"a": {"c": 2}}
    assert document.duplicates == (Duplicate(Path("a"), 1, 3), Duplicate(Path("a", "c"), 3, 4))


def test_repeated_keys_of_items_belong_to_the_item() -> None:
    text = "kind: List\nitems:\n- a: 1\n  a: 2\n- b: 3\n- {c: {d: 1, d: 2}}\n"
    found, _ = read(text.encode(), "l.yaml")
    assert [document.duplicates for document in found] == [
        (Duplicate(Path("a"), 3, 4),),
        (),
        (Duplicate(Path("c", "d"), 6, 6),),
    ]


def test_repeated_keys_of_a_list_itself_are_not_lost() -> None:
    found, _ = read(b"kind: List\nitems:\n- a: 1\nitems:\n- b: 1\n  b: 2\n", "l.yaml")
    assert [(document.data, document.duplicates) for document in found] == [
        ({"kind": "List"}, (Duplicate(Path("items"), 2, 4),)),
        ({"b": 2}, (Duplicate(Path("b"), 5, 6),)),
    ]


@pytest.mark.parametrize("text", ["a: &x {b: 1}\nc: {<<: *x, b: 2}\n", "a: &x {b: 1}\nc: {b: 2, <<: *x}\n"])
def test_merged_keys_are_not_repeated(text: str) -> None:
    assert one(text).duplicates == ()


def test_a_key_repeated_after_a_merge_is_repeated() -> None:
    assert one("a: &x {b: 1}\nc: {<<: *x, b: 2, b: 3}\n").duplicates == (Duplicate(Path("c", "b"), 2, 2),)


# --- what is refused ---------------------------------------------------------------------------------------------

BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{key}: &{key} [{', '.join(['*' + before] * 10)}]\n" for before, key in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(
    ("content", "place", "message"),
    [
        (b"a: 1\n\tb: 2\n", (2, 1), "a tab stands where YAML takes only spaces"),
        (b"\ta: 1\n", (1, 1), "a tab"),
        (b"a: [1, 2\nb: 3\n", (2, 2), "expected ',' or ']'"),
        (b"a: b: c\n", (1, 5), "mapping values are not allowed"),
        (b'a: "x\n', (2, 1), "unexpected end of stream"),
        (b"a: \xff\n", (1, 4), "not UTF-8"),
        ("ä: ü".encode() + b"\n b\xc3\n", (2, 3), "not UTF-8"),
        (b"\xef\xbb\xbfab\xff", (1, 3), "not UTF-8"),
        ("a: é".encode("utf-16"), (1, 1), "not UTF-8 but UTF-16"),
        (b"\xed\xa0\x80: 1", (1, 1), "not UTF-8"),
        ("é: 1\nb: \x00".encode(), (2, 4), "does not allow the character '\\x00'"),
        (b"a: \x1b[0m", (1, 4), "does not allow the character '\\x1b'"),
        (b'{"a": "\x00"}', (1, 8), "does not allow the character"),
        (b"a:\n  b: .nan", (2, 6), ".nan is not a number that JSON has"),
        (b"a: -.INF", (1, 4), "not a number"),
        (b'{"a": NaN}', (1, 7), "NaN is not a number"),
        (b'{"a":\n -Infinity}', (2, 2), "-Infinity is not a number"),
        (b'{"a": 1e400}', (1, 7), "too large"),
        (b'{"a": "x\\ud800y"}', (1, 7), "half a character"),
        (b'{"\\udc00": 1}', (1, 2), "half a character"),
        (BOMB.encode(), (5, 36), "repeat more than 100000 values"),
        (b"a: *x\n", (1, 4), "no anchor 'x'"),
        (b"a: &x\n  b: *x\n", (2, 6), "'x' contains itself"),
        (b"a: &x {b: 1}\n<<: 5\n", (2, 5), "<< takes a map"),
        (b"? [a]\n: b\n", (1, 3), "a key must be text"),
        (b"? {a: b}\n: b\n", (1, 3), "a key must be text"),
        (b"a: !!binary '?'\n", (1, 4), "'?' is not base64"),
        ("a: !!binary é\n".encode(), (1, 4), "is not base64"),
        (b"a: !!int x\n", (1, 4), "'x' is not a value of !!int"),
        (b"x: &l [a]\n*l : b\n", (2, 1), "a key must be text"),
        (b"- a: 1\n", (1, 1), "a list is not a Kubernetes object"),
        (b"[1]", (1, 1), "a list is not a Kubernetes object"),
        (b"just text\n", (1, 1), "'just text' is not a Kubernetes object"),
        (b"5", (1, 1), "5 is not a Kubernetes object"),
        (b"a: 1\n}\n", (2, 1), "expected"),
        (b'{"a": 1', (1, 8), "expected ',' or '}'"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_bad_files(content: bytes, place: tuple[int, int], message: str) -> None:
    error = failure(content)
    assert message in error.message
    assert error.file == "vm.yaml"
    if "expected" not in message:  # here the two parsers point at different tokens
        assert (error.line, error.column) == place
    assert str(error) == f"vm.yaml:{error.line}:{error.column}: {error.message}"
    assert str(error).isprintable()


@pytest.mark.usefixtures("parser")
def test_half_a_character_in_yaml() -> None:
    assert failure('a: "\\ud800"').line == 1


def test_tabs_between_tokens() -> None:
    assert one("a:\t1\t# comment\n").data == {"a": 1}


@pytest.mark.parametrize("opening", ["a: ", '{"a": '], ids=["YAML", "JSON"])
@pytest.mark.parametrize(("inner", "outer"), [("[", "]"), ('{"a":', "}")])
def test_depth(opening: str, inner: str, outer: str) -> None:
    def nested(depth: int) -> str:
        return opening + inner * depth + "1" + outer * depth + "}" * (opening[0] == "{")

    assert one(nested(99)).data
    assert "more than 100 maps and lists" in failure(nested(100)).message
    assert failure(nested(100_000)).line == 1


def test_depth_by_aliases() -> None:
    text = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 150))
    error = failure(text)
    assert "more than 100 maps and lists" in error.message
    assert error.line == 100


def test_aliases_within_reason_and_long_files_are_read() -> None:
    text = "a: &a [x, x, x, x, x, x, x, x, x]\nb:\n" + "- *a\n" * 9_999
    assert len(one(text).data["b"]) == 9_999
    assert "aliases" in failure(text + "- *a\n" * 2).message
    assert len(one("a:\n" + "- x\n" * 150_000).data["a"]) == 150_000


@pytest.mark.parametrize(
    "text",
    [
        "{{ if .Values.enabled }}\nkind: A\n{{ end }}\n",
        "kind: A\nmetadata:\n  name: {{ .Values.name }}\n",
        "kind: A\n{{- with .x }}\nspec:\n  {{- toYaml . | nindent 2 }}\n{{- end }}\n",
        '{"kind": {{ .kind }}}',
    ],
)
def test_templates_that_nobody_rendered(text: str) -> None:
    found, errors = read(text.encode(), "t.yaml")
    assert not found
    assert all("render it first" in error.message for error in errors)
    assert errors[0].line >= 1


def test_braces_in_a_file_that_parses_are_text() -> None:
    assert one('a: "{{ .NodeName }}"\nb: x{{y}}\n').data == {"a": "{{ .NodeName }}", "b": "x{{y}}"}


@pytest.mark.usefixtures("parser")
def test_a_broken_document_does_not_hide_the_others() -> None:
    found, errors = read(b"a: 1\n---\nb: [\n---\nc: 3\n--- \nd: *x\n---\ne: 5\n", "many.yaml")
    assert [(document.data, document.line) for document in found] == [({"a": 1}, 1), ({"c": 3}, 5), ({"e": 5}, 9)]
    assert [(error.file, error.line) for error in errors] == [("many.yaml", 4), ("many.yaml", 7)]


def test_documents_before_broken_json_are_kept() -> None:
    found, errors = read(b'{"a": 1}\n{"b": 2}\n{"c": "\\ud800"}\n{"d": 4}', "many.json")
    assert [document.data for document in found] == [{"a": 1}, {"b": 2}]
    assert [(error.line, error.column) for error in errors] == [(3, 7)]


# --- many documents ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [VM + "---\n", '{"kind": "A", "spec": {"x": [1, 2, 3]}}\n'], ids=["YAML", "JSON"])
def test_memory_does_not_grow_with_the_number_of_documents(text: str) -> None:
    def peak(count: int) -> int:
        content = text.encode() * count
        tracemalloc.start()
        assert sum(isinstance(each, Document) for each in parse(content, "many")) == count
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak - 2 * len(content)  # the text, and what the JSON reader knows of its lines

    peak(1)
    assert peak(600) < peak(200) + 50_000


# --- finding files -----------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: File) -> File:
    for name in ("b.yaml", "a.yml", "c.json", "d.txt", ".hidden.yaml", "sub/z.yaml", "sub/.git/x.yaml", ".git/y.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "list.yaml.d").mkdir()
    return tmp_path


def names(found: Iterator[tuple[str, bytes | DocumentError]], folder: File) -> list[str]:
    return [File(name).relative_to(folder).as_posix() for name, _ in found]


def test_folders_are_walked_in_order(folder: File) -> None:
    assert names(find([str(folder)]), folder) == ["a.yml", "b.yaml", "c.json", "sub/z.yaml"]
    assert dict(find([str(folder / "sub")])) == {str(folder / "sub" / "z.yaml"): b"sub/z.yaml"}


def test_named_files_are_read_whatever_their_name_and_once(folder: File) -> None:
    paths = [str(folder / name) for name in ("d.txt", ".hidden.yaml", "b.yaml", "sub/../b.yaml")]
    assert names(find([*paths, str(folder)]), folder) == [
        *("d.txt", ".hidden.yaml", "b.yaml"),
        *("a.yml", "c.json", "sub/z.yaml"),
    ]


def test_what_cannot_be_read_is_an_error_value(folder: File) -> None:
    missing = str(folder / "missing.yaml")
    (folder / "broken.yaml").symlink_to(missing)
    results = dict(find([missing, str(folder), "a\x00b"]))
    errors = {name: content for name, content in results.items() if isinstance(content, DocumentError)}
    assert set(errors) == {missing, str(folder / "broken.yaml"), "a\x00b"}
    assert str(errors[missing]) == f"{missing}: No such file or directory"
    assert (errors[missing].file, errors[missing].line) == (missing, 0)
    assert len(results) == 7


def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a: 1")))
    assert list(find(["-"])) == [("<stdin>", b"a: 1")]


# --- any value, any bytes ----------------------------------------------------------------------------------------

TEXT = st.text(max_size=8) | st.sampled_from(["yes", "1e3", "0o10", "1:30", "~", "<<", "a: b", "- a", "#", "\t", "{{"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)
OBJECT = st.dictionaries(TEXT, JSON, max_size=4)


class Dumper(yaml.SafeDumper):
    """Quotes every string, for PyYAML leaves plain what only the Go library takes for a number; knows no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


Dumper.add_representer(str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"'))


@given(OBJECT, st.booleans(), st.integers(1, 6))
def test_any_value_in_yaml_reads_back(value: dict[str, Any], flow: bool, indent: int) -> None:
    text = yaml.dump(value, Dumper=Dumper, default_flow_style=flow, indent=indent, allow_unicode=True, sort_keys=False)
    assert typed(one(text).data) == typed(as_sent(value))


@given(OBJECT, st.booleans(), st.none() | st.integers(0, 4))
def test_any_value_in_json_reads_back(value: dict[str, Any], ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert typed(one(text).data) == typed(as_sent(value))


@given(st.binary(max_size=60) | st.text(alphabet='ab:-{}[]"\\u0d8&*!<> \n\t#|\x00é', max_size=40).map(str.encode))
@example(b"\xff\xfe")
@example(b"%")
@example(b"{")
def test_any_bytes_end_with_documents_or_errors(content: bytes) -> None:
    for each in parse(content, "fuzz"):
        if isinstance(each, Document):
            assert each.line >= 1
            assert each.location(("a", 0)).line >= 1
        else:
            assert isinstance(each, DocumentError)
            assert each.line >= 1


@given(st.data())
def test_damaged_manifests_end_with_documents_or_errors(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(VM)))
    junk = data.draw(
        st.sampled_from(["\t", "&x ", "*x", '"', "'", "{", "]", ": ", "\n", "\ufeff", "!!int ", "<<: ", "|"])
    )
    length = data.draw(st.integers(0, 3))
    for each in parse((VM[:at] + junk + VM[at + length :]).encode(), "fuzz"):
        assert isinstance(each, Document | DocumentError)
