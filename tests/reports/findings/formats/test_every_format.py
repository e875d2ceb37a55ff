"""What holds for every format: no object breaks one."""

from __future__ import annotations

import json
import os
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cli.test_check import BOTH
from tests.reports.findings.formats.reports import RULE, both_keys, scanned, unclear
from tests.reports.findings.formats.test_junit import junit_suites
from tests.reports.findings.formats.test_sarif import sarif_run
from tests.reports.html.structure import Structure
from virt_admit.documents import reader
from virt_admit.reports.findings import places
from virt_admit.reports.findings.formats import FORMATS
from virt_admit.reports.findings.report import ObjectResult, Report

HOSTILE = "a\x00\x1b\n::error::b,c:d%0A\r|`<&\"']]>@all [x](y) \ufffe\ud800"


@pytest.mark.parametrize(
    ("given_as", "called"),
    [
        ("./a/../vm.yaml", "vm.yaml"),
        ("<stdin>", "<stdin>"),
        ("", ""),
        ("../vm.yaml", "../vm.yaml"),
        ("/elsewhere/vm.yaml", "/elsewhere/vm.yaml"),
        ("..vm.yaml", "..vm.yaml"),
    ],
)
def test_files_are_named_from_the_working_directory(given_as, called, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert places.relative(given_as) == called
    assert places.relative(str(tmp_path / "a" / "vm.yaml")) == "a/vm.yaml"


@pytest.mark.parametrize("form", FORMATS)
def test_of_a_scan(form):
    text = FORMATS[form](scanned(both_keys()))
    assert RULE in text
    assert "db" in text
    assert (FORMATS[form](Report(())) == "") == (form in ("text", "github"))


@pytest.mark.parametrize("form", FORMATS)
def test_the_order_of_files_changes_nothing(form, check):
    one, other = BOTH, BOTH.replace("name: db", "name: other")
    first = check(form, "a.yaml", "b.yaml", rules=(), a=one, b=other)
    assert check(form, "b.yaml", "a.yaml", rules=()) == first


def render(form, report):
    """As it leaves the process."""
    return FORMATS[form](report).encode(errors="backslashreplace").decode()


def readable(form, text):
    """Whether a reader of the format gets through."""
    if form == "sarif":
        sarif_run(text)
    elif form == "junit":
        junit_suites(text)
    elif form == "github":
        assert all(
            re.match(r"::(error|warning|notice) [^:\n\r]*::", line)
            for line in text.split("\n")[:-1]
        )
    elif form == "html":
        assert Structure.of(text).is_complete
    elif form in ("text", "markdown"):
        assert not re.search(r"[\x00-\x09\x0b-\x1f]", text)
    else:
        json.loads(text)


def judged(manifest):
    (document,), _ = reader.read(json.dumps(manifest).encode(), "vm.json")
    said = scanned(manifest).results
    return Report(tuple(ObjectResult(one.request, one.response, document) for one in said), 0, 1)


@pytest.mark.parametrize("form", FORMATS)
def test_names_that_no_api_server_would_take_break_nothing(form):
    for report in (
        scanned(both_keys(name=HOSTILE, namespace=HOSTILE, annotations={HOSTILE: HOSTILE})),
        judged(both_keys(name=HOSTILE[:-1])),  # half a character is not read from files
        Report((), unreadable=(reader.DocumentError(HOSTILE, os.fsdecode(b"\n|,\xff"), 1, 1),)),
        unclear(HOSTILE),
    ):
        readable(form, render(form, report))


ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=30)
@given(
    st.fixed_dictionaries({"name": ANY, "namespace": ANY, "labels": ANY}),
    st.fixed_dictionaries({"running": ANY, "runStrategy": ANY, "template": ANY}),
)
def test_no_object_breaks_a_format(metadata, spec):
    report = judged(
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachine",
            "metadata": metadata,
            "spec": spec,
        }
    )
    for form in FORMATS:
        readable(form, render(form, report))
