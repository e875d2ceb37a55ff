"""Many documents in a file, and the files of a folder."""

from __future__ import annotations

import io
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path as File

import pytest

from tests.documents.reading import VM
from virt_admit.documents import reader
from virt_admit.documents.files import Exclude, FoundFile, find
from virt_admit.documents.reader import Document, DocumentError, parse


@pytest.mark.parametrize(
    "text", [VM + "---\n", '{"kind": "A", "spec": {"x": [1, 2, 3]}}\n'], ids=["YAML", "JSON"]
)
def test_memory_does_not_grow_with_the_number_of_documents(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the documents of one portion are in memory at once
    monkeypatch.setattr(reader, "PORTION", 20_000)

    def peak(count: int) -> int:
        content = text.encode() * count
        tracemalloc.start()
        assert sum(isinstance(each, Document) for each in parse(content, "many")) == count
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak - 2 * len(content)  # the text, and what the JSON reader knows of its lines

    peak(1)
    assert peak(600) < peak(200) + 50_000


@pytest.fixture
def folder(tmp_path: File) -> File:
    for name in (
        "b.yaml",
        "a.yml",
        "c.json",
        "d.txt",
        ".hidden.yaml",
        "sub/z.yaml",
        "sub/.git/x.yaml",
        ".git/y.yaml",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "list.yaml.d").mkdir()
    return tmp_path


def names(found: Iterator[FoundFile], folder: File) -> list[str]:
    return [File(file.name).relative_to(folder).as_posix() for file in found]


def contents(found: Iterator[FoundFile]) -> dict[str, bytes | DocumentError]:
    return {file.name: file.content for file in found}


def test_folders_are_walked_in_order(folder: File) -> None:
    assert names(find([str(folder)]), folder) == ["a.yml", "b.yaml", "c.json", "sub/z.yaml"]
    assert contents(find([str(folder / "sub")])) == {str(folder / "sub" / "z.yaml"): b"sub/z.yaml"}


def test_named_files_are_read_whatever_their_name_and_once(folder: File) -> None:
    paths = [str(folder / name) for name in ("d.txt", ".hidden.yaml", "b.yaml", "sub/../b.yaml")]
    assert names(find([*paths, str(folder)]), folder) == [
        *("d.txt", ".hidden.yaml", "b.yaml"),
        *("a.yml", "c.json", "sub/z.yaml"),
    ]


def test_what_cannot_be_read_is_an_error_value(folder: File) -> None:
    missing = str(folder / "missing.yaml")
    (folder / "broken.yaml").symlink_to(missing)
    results = contents(find([missing, str(folder), "a\x00b"]))
    errors = {
        name: content for name, content in results.items() if isinstance(content, DocumentError)
    }
    assert set(errors) == {missing, str(folder / "broken.yaml"), "a\x00b"}
    assert str(errors[missing]) == f"{missing}: No such file or directory"
    assert (errors[missing].file, errors[missing].line) == (missing, 0)
    assert len(results) == 7


def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a: 1")))
    assert list(find(["-"])) == [("<stdin>", b"a: 1", False)]


@pytest.mark.parametrize(
    ("pattern", "left"),
    [
        ("sub", ["a.yml", "b.yaml", "c.json"]),
        ("sub/", ["a.yml", "b.yaml", "c.json"]),
        ("sub/*", ["a.yml", "b.yaml", "c.json"]),
        ("**/sub/**", ["a.yml", "b.yaml", "c.json"]),
        ("**/*.yaml", ["a.yml", "c.json"]),
        ("*.json", ["a.yml", "b.yaml", "sub/z.yaml"]),
        ("./sub/z.yaml", ["a.yml", "b.yaml", "c.json"]),
        ("[abc].*", ["sub/z.yaml"]),
        ("ub", ["a.yml", "b.yaml", "c.json", "sub/z.yaml"]),
    ],
)
def test_excluded_files_and_folders_are_skipped(
    folder: File, pattern: str, left: list[str]
) -> None:
    assert names(find([str(folder)], excludes=[Exclude(pattern, str(folder))]), folder) == left
    named = [str(folder / "b.yaml"), str(folder / "c.json")]
    assert [file.name for file in find(named, excludes=[Exclude(pattern, str(folder))])] == named


def test_suffixes_are_read_in_any_case(folder: File) -> None:
    for name in ("D.YAML", "E.YML", "F.Json", "G.YAMLX"):
        (folder / name).write_text(name)
    assert names(find([str(folder)]), folder) == [
        "D.YAML",
        "E.YML",
        "F.Json",
        "a.yml",
        "b.yaml",
        "c.json",
        "sub/z.yaml",
    ]


@pytest.mark.timeout(10)
def test_pipes_and_devices_in_folders_are_skipped(folder: File) -> None:
    os.mkfifo(folder / "pipe.yaml")
    (folder / "zero.json").symlink_to("/dev/zero")
    assert names(find([str(folder)]), folder) == ["a.yml", "b.yaml", "c.json", "sub/z.yaml"]
