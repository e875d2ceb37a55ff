"""Values, lists and places in manifests: what kubectl would send, and where it is written."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.documents.reading import VM, as_sent, failure, one, typed
from tests.for_each import for_each
from tests.paths import DATA
from virt_admit.documents import yaml_reader
from virt_admit.documents.reader import Duplicate, Location, read
from virt_admit.model.kubernetes.objects import Path

RECORDED = json.loads((DATA / "documents" / "kubectl.json").read_text("utf-8"))


def values(text: str | bytes) -> list[Any]:
    found, errors = read(text.encode() if isinstance(text, str) else text, "vm.yaml")
    assert [str(error) for error in errors] == []
    return [document.data for document in found]


@pytest.mark.usefixtures("parser")
@for_each("case", [case for case in RECORDED["cases"] if "json" in case])
def test_values_are_those_of_kubectl(case: dict[str, str]) -> None:
    trees = [tree.value for tree in yaml_reader.YamlReader().documents(case["yaml"])]
    assert typed(trees or [None]) == typed([as_sent(json.loads(case["json"]))])


@pytest.mark.usefixtures("parser")
@for_each("case", [case for case in RECORDED["cases"] if "error" in case])
def test_what_kubectl_refuses_is_an_error(case: dict[str, str]) -> None:
    assert failure(case["yaml"]).line >= 1


@pytest.mark.usefixtures("parser")
@for_each(
    "text, message, column",
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
    """Keys that are not text become text there, and unknown tags are ignored;
    both are mistakes of the author.
    """
    error = failure(text)
    assert message in error.message
    assert (error.line, error.column) == (1, column)


@for_each(
    "text, expected",
    [
        ('{"a": 1}', [{"a": 1}]),
        (' \r\n\t{"a": 1}\n', [{"a": 1}]),
        ('{"a": 1}{"b": 2}\n\n{"c": 3}', [{"a": 1}, {"b": 2}, {"c": 3}]),
        ('{"a": 1}\n---\n{"b": 2}\n---\nc: 3\n', [{"a": 1}, {"b": 2}, {"c": 3}]),
        ('{"a": [], "b": {}, "c": [1, [2]], "d": null, "e": true, "f": false, "": ""}', None),
        (r'{"a": "\ud83d\ude00\/\"\\\b\f\n\r\t\u00e9\u0000"}', None),
        ('{"a": 1.0, "b": 1e3, "c": -0, "d": -0.0, "e": 0.5, "f": 1E-2, "g": 10E+1}', None),
        (
            (
                '{"a": 9223372036854775807, "b": -9223372036854775808, "c": 9223372036854775808, '
                '"d": 1e30}'
            ),
            None,
        ),
        ('{"a": ' + "1" * 30 + "}", None),
        ('{"a": "10:30", "b": "yes", "c": "\x7f\u2028"}', None),
        ("{a: yes, b: [x]}", [{"a": True, "b": ["x"]}]),  # YAML in flow style
        ('{"a": 1,}', [{"a": 1}]),
        ('{"a": 1} # comment', [{"a": 1}]),
        ('{"a", "b": 1}', [{"a": None, "b": 1}]),
    ],
)
def test_json(text: str, expected: list[Any] | None) -> None:
    assert typed(values(text)) == typed(
        expected if expected is not None else [as_sent(json.loads(text))]
    )


@pytest.mark.usefixtures("parser")
@for_each(
    "content, expected",
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
    text = (
        f"apiVersion: {group}\nkind: Template\nparameters: []\nobjects:\n- kind: A\n- {{kind: B}}\n"
    )
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
@for_each("newline", ["\n", "\r\n"])
@for_each("prefix", ["", "\ufeff", "---\n", "kind: Other\n---\n", "%YAML 1.1\n---\n"])
@for_each("path, start, end", PLACES)
def test_places(
    newline: str, prefix: str, path: Path, start: tuple[int, int], end: tuple[int, int]
) -> None:
    content = (prefix + VM).replace("\n", newline).encode()
    document = read(content, "vm.yaml")[0][-1]
    shift = prefix.count("\n")
    expected = Location("vm.yaml", start[0] + shift, start[1], end[0] + shift, end[1])
    assert document.location(path) == expected
    assert document.line == 2 + shift


JSON_VM = (
    '{\r\n  "kind": "A",\n  "spec": {"x\\ty": [1, {"é": "ü"}, []]}\n}\n{"kind": "B",\n "z": {}}'
)


@for_each(
    "index, path, place",
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
    assert (
        document.location(("c", "b"))
        == document.location(("d", "b"))
        == Location("vm.yaml", 2, 3, 2, 7)
    )
    assert document.location(("d",)) == Location("vm.yaml", 4, 1, 6, 7)


def test_line_breaks_that_editors_do_not_count() -> None:
    document = one('a: "x\u2028y"\nb: 1\n')
    assert document.location(("b",)) == Location("vm.yaml", 2, 1, 2, 5)


@pytest.mark.usefixtures("parser")
def test_repeated_keys() -> None:
    text = (
        "kind: A\nspec:\n  running: true\n  l:\n  - {x: 1, x: 2}\n  running: false\nkind: B\n"
        "kind: C\n"
    )
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


@pytest.mark.parametrize(
    "text",
    [
        "a: &x {b: 1}\nc: {<<: *x, b: 2}\n",
        "a: &x {b: 1}\nc: {b: 2, <<: *x}\n",
        "a: &x {b: 1}\nc: {b: 2, !!merge <<: *x}\n",  # as yq writes it
    ],
)
def test_merged_keys_are_not_repeated(text: str) -> None:
    assert one(text).duplicates == ()
    assert one(text).data["c"].keys() == {"b"}


def test_a_key_repeated_after_a_merge_is_repeated() -> None:
    assert one("a: &x {b: 1}\nc: {<<: *x, b: 2, b: 3}\n").duplicates == (
        Duplicate(Path("c", "b"), 2, 2),
    )
