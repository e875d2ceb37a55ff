"""The one place that makes text from the outside safe to print."""

import json
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.for_each import for_each
from virt_admit.model import sanitize
from virt_admit.reports.findings.formats.junit import attribute

HOSTILE = (
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "\x1b]8;;https://example.com\x1b\\link",
    "\x1bP1;1|x\x1b\\",
    "\x9b31m",
    "a\n::error title=x::y",
    "a\r\n##vso[task.complete]",
    "a\u2028b\u2029c",
    "\u202egnp.exe",
    "\u2066isolate\u2069",
    "\u200f\u061c",
    "nul\x00 bell\x07 tab\t delete\x7f",
    "half \ud800 pair",
    "\ufffe\uffff\ufeff",
)
UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028-\u202e\u200e\u200f\u061c\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]"
)


@for_each("text", HOSTILE)
def test_a_line_is_one_printable_line(text):
    assert not UNSAFE.search(sanitize.line(text))
    assert not UNSAFE.search(sanitize.name(text))
    assert not UNSAFE.search(sanitize.lines(text).replace("\n", ""))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]8;;https://a.example\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("a\r\n::error::b", "a ::error::b"),
        ("übergröße 日本語 👍", "übergröße 日本語 👍"),
        ("spec.x[0]: 100%", "spec.x[0]: 100%"),
    ],
)
def test_what_remains_is_readable(text, expected):
    assert sanitize.line(text) == expected


def test_a_long_name_is_cut():
    assert len(sanitize.name("x" * 10_000)) == sanitize.MAX_NAME
    assert sanitize.name("x" * 316) == "x" * 316  # the longest namespace/name


@given(st.text(st.characters(), max_size=40))
def test_any_text(text):
    cleaned = sanitize.line(text)
    assert not UNSAFE.search(cleaned)
    assert sanitize.line(cleaned) == cleaned
    assert ET.fromstring(f"<a b={attribute(text)}/>").get("b") == cleaned


@given(st.text(st.characters(), max_size=40))
def test_json_keeps_its_value(text):
    encoded = sanitize.escape_json(json.dumps([text], ensure_ascii=False))
    assert json.loads(encoded) == [text]
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202a-\u202e]", encoded)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("https://user:p@ss@host/a", "https://host/a"),
        ("see //me@host?x=1 and https://host/a@b", "see //host?x=1 and https://host/a@b"),
        ("mail me@host", "mail me@host"),
    ],
)
def test_urls_are_told_without_their_logins(text, said):
    assert sanitize.without_login(text) == said
