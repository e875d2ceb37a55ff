"""What reports look like in each format, and that no object breaks one."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import xml.etree.ElementTree as ET
from urllib.parse import unquote

import jsonschema
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cli.test_check import BOTH, FINE
from tests.https.reviews import vm
from tests.paths import DOCS
from virt_admit.cli import main
from virt_admit.cli.scan import judge
from virt_admit.documents import reader
from virt_admit.engine.admission_review import Response
from virt_admit.model.cluster import Snapshot
from virt_admit.model.kinds import VM
from virt_admit.model.objects import Object
from virt_admit.policy import parser
from virt_admit.reports.formats import FORMATS, junit, markdown, places, sarif
from virt_admit.reports.report import DUPLICATE_KEY, ObjectResult, Report
from virt_admit.rules import load_rules

RULES = load_rules()
RULE = "vm-running-and-run-strategy"
DEPRECATED = "vm-running-deprecated"
HOSTILE = "a\x00\x1b\n::error::b,c:d%0A\r|`<&\"']]>@all [x](y) \ufffe\ud800"


@pytest.fixture
def check(tmp_path, monkeypatch):
    """Write files and check them all in one format; by default with the one rule that denies ``BOTH``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)

    def run(form, *args, rules=(RULE,), code=None, **files):
        for name, text in files.items():
            path = tmp_path / (name.replace("__", "/") + ".yaml")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        select = [part for rule in rules for part in ("--select", rule)]
        command = ["check", *(args or (".",)), "-o", form, *select]
        result = CliRunner().invoke(main.virt_admit, command, standalone_mode=False)
        assert result.exception is None, result.exception
        assert code in (None, result.return_value)
        return result.stdout

    return run


def scanned(*objects, text=b"{}"):
    """A report about objects that are not from a file."""
    return judge(Snapshot(map(Object, objects), complete=["*"]), (VM,), RULES, parser.parse(text, RULES))


def both_keys(**metadata):
    obj = vm("db", "shop", running=True, runStrategy="Always")
    return {**obj, "metadata": {**obj["metadata"], **metadata}}


def unclear(error=""):
    """A report of a rule without data, or of a rule that crashed."""
    (one,) = scanned(both_keys()).results
    rule = RULES.by_id[RULE]
    said = Response(errors=((rule, error),)) if error else Response(unseen=((rule, "pods a/b"),))
    return Report((dataclasses.replace(one, response=said, rules_run=(rule,)),))


# --- SARIF


def sarif_run(text):
    """The run of a log, after all that SARIF 2.1.0 and GitHub demand of it."""
    log = json.loads(text)
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-schema-2.1.0.json")
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert run["tool"]["driver"]["name"] == "virt-admit"
    assert run["columnKind"] == "unicodeCodePoints"
    (invocation,) = run["invocations"]
    assert isinstance(invocation["executionSuccessful"], bool)
    for base in run["originalUriBaseIds"].values():
        assert "uri" not in base, "it would differ from machine to machine"
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")
        assert result["message"]["text"]
        assert re.fullmatch("[0-9a-f]{32}", result["partialFingerprints"]["virtAdmit/v1"])
        assert len(result["locations"]) == 1
    for notice in invocation["toolExecutionNotifications"]:
        assert notice["level"] in ("error", "note")
        assert notice["message"]["text"]
    for located in (*run["results"], *invocation["toolExecutionNotifications"]):
        for place in (each["physicalLocation"] for each in located["locations"] if "physicalLocation" in each):
            uri = place["artifactLocation"]["uri"]
            assert re.fullmatch(r"([\w.~/-]|%[0-9A-F]{2})+", uri.removeprefix("file://")), "RFC 3986"
            assert place["artifactLocation"].get("uriBaseId") == (None if uri.startswith("file:") else "%SRCROOT%")
            region = place.get("region", {"startLine": 1, "startColumn": 1})
            start = region["startLine"], region["startColumn"]
            assert min(start) >= 1
            assert start <= (region.get("endLine", start[0]), region.get("endColumn", start[1]))
    return run


def test_sarif(check):
    run = sarif_run(check("sarif", code=1, vm=BOTH))
    (result,) = run["results"]
    message = result.pop("message")["text"]
    assert message.startswith("spec.running: running (means Always) and runStrategy are both set")
    assert result.pop("partialFingerprints")
    assert result == {
        "ruleId": RULE,
        "ruleIndex": [*RULES.by_id].index(RULE),
        "level": "error",
        "locations": [
            {
                "logicalLocations": [
                    {"name": "db", "fullyQualifiedName": "VirtualMachine/shop/db", "kind": "resource"}
                ],
                "physicalLocation": {
                    "artifactLocation": {"uri": "vm.yaml", "uriBaseId": "%SRCROOT%"},
                    "region": {"startLine": 7, "startColumn": 3, "endLine": 7, "endColumn": 16},
                },
            }
        ],
    }
    assert run["invocations"][0]["executionSuccessful"]


def test_sarif_describes_every_rule(check):
    rules = {each["id"]: each for each in sarif_run(check("sarif", code=0, vm=FINE))["tool"]["driver"]["rules"]}
    assert rules.keys() == {*RULES.by_id, DUPLICATE_KEY}
    for name, rule in rules.items():
        assert rule["helpUri"] == f"https://virt-admit.io/rules#{name}"
        assert "**Why.**" in rule["help"]["markdown"]
        assert "**Fix.**" in rule["help"]["markdown"]
        assert not re.search(r"\*\*|``", rule["help"]["text"])
        assert rule["fullDescription"]["text"].startswith(rule["shortDescription"]["text"])
        assert len(rule["fullDescription"]["text"]) <= 1024, "GitHub cuts what is longer"
        assert "\n" not in rule["shortDescription"]["text"]
    levels = {name: rule["defaultConfiguration"] for name, rule in rules.items()}
    assert levels[RULE] == {"level": "error"}
    assert levels[DEPRECATED] == {"level": "warning"}
    off = [rule.id for rule in RULES if not rule.action]
    assert off
    assert all(levels[name] == {"level": "none", "enabled": False} for name in off)


def test_sarif_of_nothing_has_results(check):
    assert sarif_run(check("sarif", code=0, vm=FINE))["results"] == []


@pytest.mark.parametrize(("action", "level"), [("deny", "error"), ("warn", "warning"), ("audit", "note")])
def test_sarif_levels(check, action, level):
    run = sarif_run(check("sarif", ".", "--policy", "p.yaml", vm=BOTH, p=f"rules: {{{RULE}: {{action: {action}}}}}"))
    assert [each["level"] for each in run["results"]] == [level]


def test_sarif_fingerprints_outlive_moved_lines_and_tell_objects_apart(check):
    def prints(**files):
        results = sarif_run(check("sarif", *(f"{name}.yaml" for name in files), **files))["results"]
        return [each["partialFingerprints"]["virtAdmit/v1"] for each in results]

    (here,) = prints(a=BOTH)
    assert prints(a="# moved\n\n" + BOTH) == [here]
    assert prints(b=BOTH) == [here]
    assert prints(a=BOTH.replace("name: db", "name: other")) != [here]


def test_sarif_leaves_out_what_an_exemption_silences(check):
    exempt = 'exempt: {namespaces: [{match: shop, rules: ["*"], reason: moves}]}'
    assert sarif_run(check("sarif", "vm.yaml", "--policy", "p.yaml", vm=BOTH, p=exempt))["results"] == []


def test_sarif_notifies_of_what_could_not_be_seen_read_or_judged(check):
    (notice,) = sarif_run(sarif.render(unclear()))["invocations"][0]["toolExecutionNotifications"]
    assert (notice["level"], notice["message"]) == ("note", {"text": "not available: pods a/b"})
    assert notice["associatedRule"]["id"] == RULE
    crashed = sarif_run(sarif.render(unclear("KeyError()")))
    assert [each["level"] for each in crashed["invocations"][0]["toolExecutionNotifications"]] == ["error"]
    assert crashed["results"] == []
    assert not crashed["invocations"][0]["executionSuccessful"]
    unread = sarif_run(check("sarif", code=2, bad="a: [\n"))
    (notice,) = unread["invocations"][0]["toolExecutionNotifications"]
    assert notice["level"] == "error"
    assert notice["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "bad.yaml"
    assert not unread["invocations"][0]["executionSuccessful"]


def test_sarif_names_files_by_uri(check, tmp_path):
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "ü#%.yaml").write_text(BOTH)
    for given_as in (".", str(tmp_path), "./a b/../a b"):
        (result,) = sarif_run(check("sarif", given_as))["results"]
        artifact = result["locations"][0]["physicalLocation"]["artifactLocation"]
        assert artifact == {"uri": "a%20b/%C3%BC%23%25.yaml", "uriBaseId": "%SRCROOT%"}
    assert unquote(artifact["uri"]) == "a b/ü#%.yaml"


DEFAULT = "vm-eviction-strategy-default"
UNSET = FINE.replace("      evictionStrategy: None\n", "")


@pytest.mark.parametrize(
    "text",
    [
        f"# ü\n---\n{UNSET}",
        UNSET.replace("\n", "\r\n"),
        UNSET.replace("    spec:\n      domain", "    spec: # ü\n      # here\n      domain"),
        json.dumps({"apiVersion": "v1", "kind": "List", "items": [vm("a"), vm("b")]}, indent=1),
        FINE.replace("evictionStrategy: None", "evictionStrategy: # none"),
    ],
)
def test_sarif_fixes_are_what_mutate_would_do(check, tmp_path, text):
    results = sarif_run(check("sarif", rules=(DEFAULT,), vm=text))["results"]
    wanted = [document.data for document in reader.read(text.encode(), "vm.yaml")[0]]
    for manifest, one in zip(wanted, json.loads(check("json", rules=(DEFAULT,)))["objects"], strict=True):
        (step,) = one["patch"]
        manifest["spec"]["template"]["spec"]["evictionStrategy"] = step["value"]
    for result in reversed(results):
        ((change,),) = [fix["artifactChanges"] for fix in result["fixes"]]
        assert change["artifactLocation"] == result["locations"][0]["physicalLocation"]["artifactLocation"]
        (replacement,) = change["replacements"]
        region = replacement["deletedRegion"]
        start = offset(text, region["startLine"], region["startColumn"])
        end = offset(text, region["endLine"], region["endColumn"])
        text = text[:start] + replacement["insertedContent"]["text"] + text[end:]
    assert [document.data for document in reader.read(text.encode(), "vm.yaml")[0]] == wanted


def offset(text, line, column):
    return sum(map(len, text.splitlines(keepends=True)[: line - 1])) + column - 1


def test_sarif_has_no_fix_where_it_is_no_change_of_the_text(check):
    shared = UNSET.replace("    spec:\n", "    spec: &spec\n")
    assert [result.get("fixes") for result in sarif_run(check("sarif", rules=(DEFAULT,), vm=shared))["results"]] == [
        None
    ]


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


# --- JUnit


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
            assert all(child.attrib.keys() == {"type", "message"} for child in case if child.tag != "system-out")
    assert totals == {name: int(root.attrib[name]) for name in totals}
    return {suite.attrib["name"]: list(suite) for suite in root}


def test_junit_has_a_suite_for_each_file_and_a_case_for_each_object_and_rule(check):
    other = FINE.replace("name: db", "name: other")
    suites = junit_suites(check("junit", rules=(RULE, DEPRECATED), code=1, a=BOTH, b=f"{FINE}---\n{other}"))
    assert [*suites] == ["a.yaml", "b.yaml"]
    cases = [(case.attrib["name"], case.attrib["classname"]) for case in suites["b.yaml"]]
    machines = ("VirtualMachine/shop/db", "VirtualMachine/shop/other")
    assert cases == [(rule, machine) for machine in machines for rule in (RULE, DEPRECATED)]
    assert all(not len(case) for case in suites["b.yaml"])
    denied, warned = suites["a.yaml"]
    (failure,) = denied
    assert failure.attrib["type"] == "deny"
    assert failure.attrib["message"].startswith("a.yaml:7:3: deny: spec.running: running (means Always)")
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
    ((case,),) = junit_suites(check("junit", "vm.yaml", "--policy", "p.yaml", vm=BOTH, p=text)).values()
    (said,) = case
    assert said.tag == tag
    assert said.text.startswith("vm.yaml:7:3: ")


def test_junit_of_what_could_not_be_seen_read_or_judged(check):
    ((skipped,),) = junit_suites(FORMATS["junit"](unclear())).values()
    assert [(said.tag, said.text) for said in skipped] == [("skipped", "unseen: not available: pods a/b")]
    ((crashed,),) = junit_suites(FORMATS["junit"](unclear("KeyError()"))).values()
    assert [(said.tag, said.text) for said in crashed] == [("error", "error: the rule crashed: KeyError()")]
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
        FORMATS["junit"](Report((dataclasses.replace(one, response=said, rules_run=()),)))
    ).values()
    assert [child.tag for child in case] == ["failure", "system-out"]
    assert case[1].text == "unseen: not available: pods"


def test_junit_replaces_exactly_what_xml_cannot_hold():
    for code in (*range(0x300), 0xD7FF, 0xD800, 0xDFFF, 0xE000, 0xFFFD, 0xFFFE, 0xFFFF, 0x10000, 0x10FFFF):
        written = junit.attribute(chr(code))
        allowed = code in (9, 10, 13) or 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or code >= 0x10000
        assert ET.fromstring(f"<a b={written}/>".encode()).attrib["b"] == (chr(code) if allowed else "�")


# --- GitHub


def test_github(check):
    (line,) = check("github", code=1, vm=BOTH).splitlines()
    assert line.startswith(
        f"::error file=vm.yaml,line=7,col=3,endLine=7,title={RULE}::spec.running: running (means Always) and "
    )


@pytest.mark.parametrize(("action", "command"), [("deny", "error"), ("warn", "warning"), ("audit", "notice")])
def test_github_levels(check, action, command):
    text = f"rules: {{{RULE}: {{action: {action}}}}}"
    assert check("github", "vm.yaml", "--policy", "p.yaml", vm=BOTH, p=text).startswith(f"::{command} file=")


def test_github_escapes(check, tmp_path):
    name = "a,b:c%d\ne.yaml"
    (tmp_path / name).write_text(BOTH)
    (line,) = check("github").splitlines()
    assert line.startswith("::error file=a%2Cb%3Ac%25d%0Ae.yaml,line=7,")
    (line,) = check("github", code=2, **{"bad%": "a: [\n"}).splitlines()[:1]
    assert line.startswith("::error file=bad%25.yaml,line=")


def test_github_says_once_what_could_not_be_seen_and_nothing_of_what_is_exempt(check):
    notice = FORMATS["github"](unclear())
    assert notice == "::notice title=virt-admit::1 rule skipped: pods are not available\n"
    assert FORMATS["github"](unclear("KeyError()")).startswith(
        f"::error title={RULE}::VirtualMachine/shop/db: the rule"
    )
    exempt = 'exempt: {namespaces: [{match: shop, rules: ["*"], reason: moves}]}'
    assert check("github", "vm.yaml", "--policy", "p.yaml", vm=BOTH, p=exempt) == ""


def test_github_gets_a_summary_of_the_job(check, tmp_path, monkeypatch):
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    check("json", vm=BOTH)
    assert summary.read_text() == "before\n"
    check("github")
    assert summary.read_text().startswith("before\n## virt-admit\n\n**1 deny**")


# --- GitLab


def test_gitlab(check):
    twice = f"{BOTH}---\n{BOTH}"
    issues = json.loads(check("gitlab", code=1, a=BOTH, b=twice))
    first = issues[0]
    assert first.pop("description").startswith("spec.running: running (means Always) and runStrategy are both")
    assert re.fullmatch("[0-9a-f]{32}", first["fingerprint"])
    assert first == {
        "check_name": RULE,
        "fingerprint": first["fingerprint"],
        "severity": "major",
        "location": {"path": "a.yaml", "lines": {"begin": 7}},
    }
    assert [(each["location"]["path"], each["location"]["lines"]["begin"]) for each in issues] == [
        ("a.yaml", 7),
        ("b.yaml", 7),
        ("b.yaml", 20),
    ]
    assert len({each["fingerprint"] for each in issues}) == 3
    moved = json.loads(check("gitlab", a="# moved\n" + BOTH))
    assert [each["fingerprint"] for each in moved] == [each["fingerprint"] for each in issues]


@pytest.mark.parametrize(("action", "severity"), [("deny", "major"), ("warn", "minor"), ("audit", "info")])
def test_gitlab_severities(check, action, severity):
    text = f"rules: {{{RULE}: {{action: {action}}}}}"
    (issue,) = json.loads(check("gitlab", "vm.yaml", "--policy", "p.yaml", vm=BOTH, p=text))
    assert issue["severity"] == severity


def test_gitlab_of_what_could_not_be_seen_read_or_judged(check):
    assert json.loads(FORMATS["gitlab"](unclear())) == []
    (issue,) = json.loads(FORMATS["gitlab"](unclear("KeyError()")))
    assert (issue["severity"], issue["location"]["path"]) == ("critical", "VirtualMachine/shop/db")
    (issue,) = json.loads(check("gitlab", code=2, bad="a: [\n"))
    assert (issue["check_name"], issue["location"]["path"]) == ("unreadable", "bad.yaml")


# --- Markdown


def rows(text):
    return [line for line in text.splitlines() if line.startswith("| **")]


def test_markdown(check):
    text = check("markdown", code=2, rules=(RULE, DEPRECATED), vm=BOTH, bad="a: [\n")
    assert text.startswith(
        "## virt-admit\n\n**1 deny**; checked 1 object of 1 kind in 1 file; 1 document could not be read"
    )
    unread, denied = rows(text)
    assert unread.startswith("| **unreadable** | `bad.yaml:")
    assert denied.startswith("| **deny** | `vm.yaml:7`<br>VirtualMachine/shop/db | spec.running: running (means Always")
    assert denied.endswith(f"| [{RULE}](https://virt-admit.io/rules#{RULE}) |")


def test_markdown_has_the_worst_first(check):
    warned = BOTH.replace("  runStrategy: Always\n", "")
    words = [row.split("|")[1].strip() for row in rows(check("markdown", rules=(RULE, DEPRECATED), a=warned, b=BOTH))]
    assert words == ["**deny**", "**warn**"]


def test_markdown_of_nothing(check):
    assert check("markdown", code=0, vm=FINE) == (
        "## virt-admit\n\n**nothing found**; checked 1 object of 1 kind in 1 file.\n"
    )
    assert markdown.render(unclear()).endswith("\n\n1 rule skipped: pods are not available.\n")


def test_markdown_fits_into_a_comment():
    many = Report(scanned(both_keys(name="x" * 200)).results * 300)
    text = markdown.render(many)
    assert len(text) < 65_536
    shown = len(rows(text))
    assert shown > 50
    found = sum(not row.unseen for row in many.rows())
    assert f"\n\nAnd {found - shown} more.\n" in text


def test_markdown_escapes_markup():
    (row,) = [row for row in rows(markdown.render(scanned(both_keys(name="@all|<b>![x](y)`")))) if RULE in row]
    assert r"VirtualMachine/shop/@" + "\u200b" + r"all\|\<b\>!\[x\](y)\`" in row


# --- JSON


def test_json_is_what_its_schema_says(check):
    schema = json.loads((DOCS / "check.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    strict = closed(schema)
    exempt = 'exempt: {namespaces: [{match: shop, rules: ["*"], reason: moves}]}'
    for text in (
        check("json", rules=(), vm=BOTH, other=FINE.replace("name: db", "name: fine")),
        check("json", "vm.yaml", "--policy", "p.yaml", p=exempt),
        FORMATS["json"](scanned(both_keys())),
        FORMATS["json"](unclear("KeyError()")),
    ):
        jsonschema.validate(json.loads(text), strict, jsonschema.Draft202012Validator)


def closed(schema):
    """The schema of exactly this version: readers take additions, we make none unnoticed."""
    if isinstance(schema, dict):
        more = {"additionalProperties": False} if "properties" in schema else {}
        return {key: closed(value) for key, value in schema.items()} | more
    return [closed(each) for each in schema] if isinstance(schema, list) else schema


# --- every format


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
        assert all(re.match(r"::(error|warning|notice) [^:\n\r]*::", line) for line in text.split("\n")[:-1])
    elif form in ("text", "markdown"):
        assert not re.search(r"[\x00-\x09\x0b-\x1f]", text)
    else:
        json.loads(text)


def judged(manifest):
    (document,), _ = reader.read(json.dumps(manifest).encode(), "vm.json")
    said = scanned(manifest).results
    return Report(tuple(ObjectResult(one.request, one.response, document, one.rules_run) for one in said), 0, 1)


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
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=30)
@given(
    st.fixed_dictionaries({"name": ANY, "namespace": ANY, "labels": ANY}),
    st.fixed_dictionaries({"running": ANY, "runStrategy": ANY, "template": ANY}),
)
def test_no_object_breaks_a_format(metadata, spec):
    report = judged({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": metadata, "spec": spec})
    for form in FORMATS:
        readable(form, render(form, report))
