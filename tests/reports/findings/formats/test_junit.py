"""JUnit: one suite a file, one case an object and rule."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from tests.cli.test_check import BOTH, FINE
from tests.reports.findings.formats.reports import DEPRECATED, RULE, both_keys, scanned, unclear
from virt_admit.engine.admission_review import Response
from virt_admit.reports.findings.formats import FORMATS, junit
from virt_admit.reports.findings.report import Report


def junit_suites(text):
    """Cases by suite, after what the schema of Jenkins' xUnit plugin demands."""
    root = ET.fromstring(text.encode())
    assert root.tag == "testsuites"
    assert root.attrib.keys() == {"name", "tests", "failures", "errors"}
    totals = dict.fromkeys(("tests", "failures", "errors"), 0)
    for suite in root:
        assert suite.tag == "testsuite"
        assert suite.attrib.keys() == {"name", "tests", "failures", "errors", "skipped"}
        found = [child.tag for case in suite for child in case]
        assert int(suite.attrib["tests"]) == len(suite)
        for tag, name in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            assert int(suite.attrib[name]) == found.count(tag)
        for name in totals:
            totals[name] += int(suite.attrib[name])
        for case in suite:
            assert case.tag == "testcase"
            assert case.attrib.keys() == {"name", "classname"}
            assert [child.tag for child in case] in (
                *([], ["failure"], ["error"], ["skipped"], ["system-out"]),
                *(["failure", "system-out"], ["error", "system-out"]),
            )
            assert all(
                child.attrib.keys() == {"type", "message"}
                for child in case
                if child.tag != "system-out"
            )
    assert totals == {name: int(root.attrib[name]) for name in totals}
    return {suite.attrib["name"]: list(suite) for suite in root}


def test_junit_has_a_suite_for_each_file_and_a_case_for_each_object_and_rule(check):
    other = FINE.replace("name: db", "name: other")
    suites = junit_suites(
        check("junit", rules=(RULE, DEPRECATED), code=1, a=BOTH, b=f"{FINE}---\n{other}")
    )
    assert [*suites] == ["a.yaml", "b.yaml"]
    cases = [(case.attrib["name"], case.attrib["classname"]) for case in suites["b.yaml"]]
    machines = ("VirtualMachine/shop/db", "VirtualMachine/shop/other")
    assert cases == [(rule, machine) for machine in machines for rule in (RULE, DEPRECATED)]
    assert all(not len(case) for case in suites["b.yaml"])
    denied, warned = suites["a.yaml"]
    (failure,) = denied
    assert failure.attrib["type"] == "deny"
    assert failure.attrib["message"].startswith(
        "a.yaml:7:3: deny: spec.running: running (means Always)"
    )
    assert failure.text == failure.attrib["message"]
    assert warned.attrib["name"] == DEPRECATED


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("{}", "failure"),
        (f"rules: {{{RULE}: {{action: warn}}}}", "system-out"),
        (f"rules: {{{RULE}: {{action: audit}}}}", "system-out"),
        ("exempt: {namespaces: [{match: shop, rules: ['*'], reason: ours}]}", "skipped"),
    ],
)
def test_junit_outcomes(check, text, tag):
    ((case,),) = junit_suites(
        check("junit", "vm.yaml", "--policy", "p.yaml", vm=BOTH, p=text)
    ).values()
    (said,) = case
    assert said.tag == tag
    assert said.text.startswith("vm.yaml:7:3: ")


def test_junit_of_what_could_not_be_seen_read_or_judged(check):
    ((skipped,),) = junit_suites(FORMATS["junit"](unclear())).values()
    assert [(said.tag, said.text) for said in skipped] == [
        ("skipped", "unseen: not available: pods a/b")
    ]
    ((crashed,),) = junit_suites(FORMATS["junit"](unclear("KeyError()"))).values()
    assert [(said.tag, said.text) for said in crashed] == [
        ("error", "error: the rule crashed: KeyError()")
    ]
    suites = junit_suites(check("junit", code=2, bad="a: [\n", vm=BOTH))
    ((unread,), _) = suites.values()
    assert [*suites] == ["bad.yaml", "vm.yaml"]
    assert [said.tag for said in unread] == ["error"]
    assert unread[0].text.startswith("bad.yaml:")


def test_junit_says_the_strongest_and_notes_the_rest():
    (one,) = scanned(both_keys()).results
    (verdict,) = [each for each in one.response.verdicts if each.rule.id == RULE]
    said = Response(verdicts=(verdict,), unseen=((verdict.rule, "pods"),))
    ((case,),) = junit_suites(
        FORMATS["junit"](Report((one._replace(response=said._replace(evaluated_rules=())),)))
    ).values()
    assert [child.tag for child in case] == ["failure", "system-out"]
    assert case[1].text == "unseen: not available: pods"


def test_junit_replaces_exactly_what_xml_cannot_hold_and_what_is_not_printable():
    for code in (
        *range(0x300),
        0xD7FF,
        0xD800,
        0xDFFF,
        0xE000,
        0xFFFD,
        0xFFFE,
        0xFFFF,
        0x10000,
        0x10FFFF,
    ):
        written = junit.attribute(f"a{chr(code)}b")
        control = code < 0x20 or 0x7F <= code <= 0x9F
        allowed = 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or code >= 0x10000
        kept = " " if control else chr(code) if allowed else "\N{REPLACEMENT CHARACTER}"
        assert ET.fromstring(f"<a b={written}/>".encode()).attrib["b"] == f"a{kept}b", code
