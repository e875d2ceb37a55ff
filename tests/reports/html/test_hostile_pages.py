"""Every kind of page with hostile names, reasons and errors: shown, cut, harmless."""

from __future__ import annotations

import pytest

from tests.reports.html import samples
from tests.reports.html.structure import Structure
from tests.reports.html.test_pages import RAW
from virt_admit.model import sanitize

HOSTILE = {
    "script": "</script><script>alert(1)</script><svg onload=alert(2)>",
    "attribute": "\" onmouseover='alert(1)' x=\"",
    "template": "{{ 7 * 7 }}{% raw %}",
    "direction": "\u202etxt.exe\u2066\u200falert",
    "terminal": "\x1b]0;owned\x07\x1b[2J\x9b31malert\r\n::error::x",
    "surrogate": "alert\ud800\ufffe",
    "long": "x" * 10_000,
}


@pytest.fixture(scope="module", params=HOSTILE)
def attack(request, tmp_path_factory):
    text = HOSTILE[request.param]
    in_file = text.replace("\ud800", "")  # a file with half a character is refused before
    explained = samples.explained(tmp_path_factory.mktemp("explained"), in_file)
    return request.param, samples.named(text) | {"explain": explained}


@pytest.mark.parametrize("kind", [*samples.NAMED, "explain"])
def test_the_text_is_shown_and_harmless(kind, attack):
    name, pages = attack
    text = pages[kind].encode(errors="backslashreplace").decode()
    found = Structure.of(text)
    assert found.is_complete, found.errors
    assert not RAW.search(text)
    expected = {"template": "{{ 7 * 7 }}", "direction": "txt.exe", "long": "x" * 30}
    assert expected.get(name, "alert") in found.text
    assert "x" * (sanitize.MAX_CELL + 1) not in text
