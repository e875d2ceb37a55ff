"""Edits of any object in any style, and of damaged files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.documents.editing import MANY, adding
from virt_admit.documents import reader
from virt_admit.documents.edit import edit_text
from virt_admit.model.kubernetes import json_patch
from virt_admit.model.kubernetes.json_patch import Patch
from virt_admit.model.kubernetes.objects import Object, Path

KEYS = st.sampled_from(["a", "b", "on", "1", "b/c", "m n", "é", "#", "x" * 40])

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(2, 9)
    | st.sampled_from(["", "None", "no", "two\nlines\n", "é", " s"])
)

MAPS = st.recursive(
    st.dictionaries(KEYS, LEAVES, max_size=3),
    lambda inner: st.dictionaries(
        KEYS, LEAVES | inner | st.lists(LEAVES | inner, max_size=3), max_size=3
    ),
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
        """The end of a line, perhaps with a comment,
        and perhaps with further lines that say nothing.
        """
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
            return "".join(
                f"{indent}{self.key(key)}:{self.block(item, indent)}" for key, item in value.items()
            )
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
        text = json.dumps(
            value, indent=draw(st.none() | st.integers(0, 4)), ensure_ascii=draw(st.booleans())
        )
    elif style == "yaml":
        text = yaml.safe_dump(
            value,
            indent=draw(st.integers(2, 6)),
            allow_unicode=draw(st.booleans()),
            sort_keys=False,
        )
    else:
        writer = Writer(draw)
        text = writer.flow(value) if style == "flow" or not value else writer.lines(value, "")
    if draw(st.booleans()):
        text = text.removesuffix("\n")
    text = (
        draw(
            st.sampled_from(
                ["", "", "# head\n", "---\n", "\ufeff"] if style != "json" else ["", "\ufeff"]
            )
        )
        + text
    )
    return text.replace("\n", "\r\n") if draw(st.booleans()) else text


# a Path is immutable
def maps(value: Any, path: Path = Path()) -> list[tuple[Path, dict[str, Any]]]:  # noqa: B008
    """Every map in a value, and where it is."""
    if isinstance(value, dict):
        return [
            (path, value),
            *(found for key, item in value.items() for found in maps(item, path / key)),
        ]
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
def test_what_is_written_reads_as_the_patch_says_and_nothing_is_lost(
    case: tuple[str, list[Patch], bool],
) -> None:
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
@settings(deadline=None, derandomize=True)  # no run needs every odd text to be fixed
def test_damaged_files_are_fixed_faithfully_or_left_alone(data: st.DataObject) -> None:
    text = MANY.replace("# broken\na: [", "a: |\n  text\n\nb:")
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        text = (
            text[:at]
            + data.draw(st.sampled_from(DAMAGES + ODD))
            + text[at + data.draw(st.integers(0, 3)) :]
        )
    found = [document.data for document in reader.read(text.encode(), "vm.yaml")[0]]
    patches: list[list[Patch]] = [
        []
        if each.get("kind") == "List"
        else [adding(*data.draw(st.sampled_from(maps(each)))[0], "new")]
        for each in found
    ]
    result = edit_text(text.encode(), "vm.yaml", patches)
    assert result.roundtrips or any(odd in text for odd in ODD)
    assert result.fixed + len(result.refused) == sum(map(len, patches))
    assert (result.content == text.encode()) is (result.fixed == 0)
