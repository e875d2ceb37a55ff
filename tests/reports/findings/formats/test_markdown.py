"""Markdown that fits into a comment and escapes markup."""

from __future__ import annotations

import pytest

from tests.cli.test_check import BOTH, FINE
from tests.reports.findings.formats.reports import DEPRECATED, RULE, both_keys, scanned, unclear
from virt_admit.reports.findings.formats import markdown
from virt_admit.reports.findings.places import rule_page
from virt_admit.reports.findings.report import Report
from virt_admit.settings import SettingError


def rows(text):
    return [line for line in text.splitlines() if line.startswith("| **")]


def test_markdown(check):
    text = check("markdown", code=2, rules=(RULE, DEPRECATED), vm=BOTH, bad="a: [\n")
    assert text.startswith(
        "## virt-admit\n\n**1 deny**; checked 1 object of 1 kind in 1 file; 1 document could not "
        "be read"
    )
    unread, denied = rows(text)
    assert unread.startswith("| **unreadable** | `bad.yaml:")
    assert denied.startswith(
        "| **deny** | `vm.yaml:7`<br>VirtualMachine/shop/db | spec.running: running (means Always"
    )
    assert denied.endswith(f"| `virt-admit rules {RULE}` |"), "a link needs a copy of the pages"


def test_markdown_has_the_worst_first(check):
    warned = BOTH.replace("  runStrategy: Always\n", "")
    words = [
        row.split("|")[1].strip()
        for row in rows(check("markdown", rules=(RULE, DEPRECATED), a=warned, b=BOTH))
    ]
    assert words == ["**deny**", "**warn**"]


def test_markdown_of_nothing(check):
    assert check("markdown", code=0, vm=FINE) == (
        "## virt-admit\n\n**nothing found**; checked 1 object of 1 kind in 1 file.\n"
    )
    assert markdown.render(unclear()).endswith("\n\n1 rule skipped: pods are not available.\n")


def test_markdown_fits_into_a_comment():
    (result,) = scanned(both_keys(name="x" * 200)).results
    many = Report(tuple(result._replace() for _ in range(300)))
    text = markdown.render(many, grouped=False)
    assert len(text) < 65_536
    shown = len(rows(text))
    assert shown > 50
    found = sum(not row.unseen for row in many.rows())
    assert f"\n\nAnd {found - shown} more.\n" in text


def test_markdown_escapes_markup():
    (row,) = [
        row
        for row in rows(markdown.render(scanned(both_keys(name="@all|<b>![x](y)`"))))
        if RULE in row
    ]
    assert r"VirtualMachine/shop/@" + "\u200b" + r"all\|\<b\>!\[x\](y)\`" in row


def test_links_lead_to_the_copy_of_the_pages_that_the_installer_names(monkeypatch):
    monkeypatch.setenv("VIRT_ADMIT_DOCS_URL", "https://git.example.com/virt-admit/docs/")
    link = rule_page("vm-running-deprecated")
    assert link == "https://git.example.com/virt-admit/docs/rules.md#vm-running-deprecated"


@pytest.mark.parametrize(
    "url",
    [
        *(
            "docs",
            "javascript:alert(1)",
            "https://",
            "https:///docs",
            "ftp://git.example.com/docs",
            "https://[::1/docs",
        ),
        *(
            "https://git.example.com/docs?page=",
            "https://git.example.com/docs#",
            "https://me@git.example.com/docs",
        ),
        *("https://git.example.com/a docs", "https://git.example.com/docs\n"),
    ],
)
def test_an_address_of_the_pages_that_no_page_can_follow_is_a_setting_error(monkeypatch, url):
    monkeypatch.setenv("VIRT_ADMIT_DOCS_URL", url)
    with pytest.raises(SettingError, match="VIRT_ADMIT_DOCS_URL"):
        rule_page("vm-running-deprecated")
