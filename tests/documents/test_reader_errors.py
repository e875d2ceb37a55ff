"""Files that are refused, with the place and a message; the other documents are still read."""

from __future__ import annotations

import pytest

from tests.documents.reading import failure, one
from tests.for_each import for_each
from virt_admit.documents.reader import read

BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{key}: &{key} [{', '.join(['*' + before] * 10)}]\n"
    for before, key in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.usefixtures("parser")
@for_each(
    "content, place, message",
    [
        (b"a: 1\n\tb: 2\n", (2, 1), "YAML does not allow a tab here"),
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
    assert [(document.data, document.line) for document in found] == [
        ({"a": 1}, 1),
        ({"c": 3}, 5),
        ({"e": 5}, 9),
    ]
    assert [(error.file, error.line) for error in errors] == [("many.yaml", 4), ("many.yaml", 7)]


def test_documents_before_broken_json_are_kept() -> None:
    found, errors = read(b'{"a": 1}\n{"b": 2}\n{"c": "\\ud800"}\n{"d": 4}', "many.json")
    assert [document.data for document in found] == [{"a": 1}, {"b": 2}]
    assert [(error.line, error.column) for error in errors] == [(3, 7)]
