"""Plain technical English: idioms that readers cannot search for are banned.

To cover more of the project, add its folders to ``COVERED``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.for_each import for_each
from tests.paths import ROOT

PACKAGE = "webhook/virt_admit"
COVERED = (
    *(
        "webhook/**/*.py",
        "webhook/**/*.yaml",
        "certs/**/*.py",
        "docs/**/*.md",
        "manifests/**/*.yaml",
        "examples/*.*",
    ),
    *("charts/**/*.yaml", "charts/**/*.md", "charts/**/*.tpl", "charts/**/*.txt"),
    *(
        "tests/**/*.py",
        "tools/**/*.py",
        "README.md",
        "SECURITY.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "Makefile",
        "Dockerfile",
    ),
)
BANNED = {
    # "there is no rule x" is good English; "x is no rule" is not
    "is no <noun>": r"(?<!\bthere )\bis no (?!longer\b|more\b|less\b|other\b)\w+",
    "somebody": r"\bsomebody\b",
    "nobody": r"\bnobody\b",
    "whoever": r"\bwhoever\b",
    "for ever": r"\bfor ever\b",
    "anew": r"\banew\b",
    "mend": r"\bmend(?:s|ed|ing)?\b",
    "shall": r"\bshall\b",
    "cannot be told": r"\bcannot be told\b",
    "take for": r"\btak(?:e|es|en|ing)(?: \w+){1,3} for (?:an?|the|it|them|absent|granted)\b",
}
WORDS = {"is no <noun>": "is no ", "take for": " for "}
"""What each text with an idiom has: its name, or this. To look for that first takes a quarter of
the time.
"""
ALLOWED = {
    # a key of the JSON output
    (f"{PACKAGE}/forecasts/drain/workload_updates.py", "for ever"): "retried for ever",
    # the value of a label
    (f"{PACKAGE}/forecasts/outage/failover_figures.py", "nobody"): '"nobody"',
    ("docs/metrics.md", "nobody"): "`nobody`",
    ("docs/runbooks/VirtAdmitNoFailover.md", "nobody"): "`nobody`",
}
FILES = sorted(
    {
        file
        for pattern in COVERED
        for file in ROOT.glob(pattern)
        if file.is_file() and file.suffix != ".pyc"
    }
    - {Path(__file__)}  # its examples are the idioms
)


LONGEST_SENTENCE = 25
"""Words of a sentence."""
LONG_SENTENCES = 36
"""Sentences of the pages that may be longer: lower this number after you shorten some,
never raise it.
"""
GENERATED = ("rules.md", "CHANGELOG.md")


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a page, without code blocks, tables and headings."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*|#]|\d+\.)\s?)", text):
        if not block.lstrip().startswith(("|", "#")):
            flat = re.sub(r"\]\([^)]*\)", "]", " ".join(block.split()).lstrip("-* "))
            yield from re.split(r"(?<=[.!?:])(?:\*\*)?\s+", flat)


def test_few_sentences_are_long_and_their_number_only_falls():
    pages = [
        file
        for file in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
        if file.name not in GENERATED
    ]
    long = [
        f"{file.relative_to(ROOT)}: {len(sentence.split())} words: {sentence}"
        for file in pages
        for sentence in sentences(file.read_text())
        if len(sentence.split()) > LONGEST_SENTENCE
    ]
    assert len(long) <= LONG_SENTENCES, "\n".join(sorted(long))


def test_sentences_are_found_in_lists_and_over_line_breaks():
    text = (
        "- One is\n  short. `Two` too.\n\n| a table |\n\n# Heading\n```\ncode. More\n```\n"
        "Three: Four."
    )
    assert list(sentences(text)) == ["One is short.", "`Two` too.", "Three:", "Four."]


def idioms(text: str) -> list[tuple[str, str]]:
    """Return the banned idioms in a text, each with the words around it.

    Line breaks do not hide them.
    """
    flat = re.sub(r"\s+(?:# )?", " ", text)
    lowered = flat.lower()
    return [
        (name, flat[max(found.start() - 20, 0) : found.end() + 20])
        for name, pattern in BANNED.items()
        if WORDS.get(name, name) in lowered
        for found in re.finditer(pattern, flat, re.IGNORECASE)
    ]


@for_each("pattern", COVERED)
def test_the_list_of_files_is_current(pattern):
    assert any(ROOT.glob(pattern)), pattern


def test_no_banned_idiom():
    found = []
    for file in FILES:
        path = str(file.relative_to(ROOT))
        for name, words in idioms(file.read_text()):
            if ALLOWED.get((path, name), "\0") not in words:
                found.append(f"{path}: {name}: … {words} …")
    assert not found, "\n".join(found)


@for_each(
    "text, name",
    [
        ("'Foo' is no eviction strategy", "is no <noun>"),
        ("Somebody owns it", "somebody"),
        ("it blocks\n    # nobody", "nobody"),
        ("whoever asks", "whoever"),
        ("a drain waits for\never", "for ever"),
        ("made anew", "anew"),
        ("it mends itself", "mend"),
        ("it shall not", "shall"),
        ("what cannot be told", "cannot be told"),
        ("take nothing unseen for absent", "take for"),
        ("takes it for a number", "take for"),
    ],
)
def test_each_idiom_is_recognized(text, name):
    assert [found for found, _ in idioms(text)] == [name]


@pytest.mark.parametrize(
    "text",
    [
        "It is no longer used.",
        "There is no rule x.",
        "for every node",
        "It takes two seconds for each node.",
        "amend",
    ],
)
def test_good_english_passes(text):
    assert not idioms(text)
