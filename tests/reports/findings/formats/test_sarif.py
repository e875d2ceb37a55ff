"""SARIF: valid for GitHub, stable fingerprints, and fixes that equal those of /mutate."""

from __future__ import annotations

import json
import re
from urllib.parse import unquote

import pytest

from tests.cli.test_check import BOTH, FINE
from tests.https.reviews import vm
from tests.paths import ROOT
from tests.reports.findings.formats.reports import DEPRECATED, RULE, RULES, unclear
from virt_admit.documents import reader
from virt_admit.reports.findings.formats import sarif
from virt_admit.reports.findings.report import DUPLICATE_KEY
from virt_admit.settings import DOCS_URL


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
        for place in (
            each["physicalLocation"] for each in located["locations"] if "physicalLocation" in each
        ):
            uri = place["artifactLocation"]["uri"]
            assert re.fullmatch(r"([\w.~/-]|%[0-9A-F]{2})+", uri.removeprefix("file://")), (
                "RFC 3986"
            )
            assert place["artifactLocation"].get("uriBaseId") == (
                None if uri.startswith("file:") else "%SRCROOT%"
            )
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
                    {
                        "name": "db",
                        "fullyQualifiedName": "VirtualMachine/shop/db",
                        "kind": "resource",
                    }
                ],
                "physicalLocation": {
                    "artifactLocation": {"uri": "vm.yaml", "uriBaseId": "%SRCROOT%"},
                    "region": {"startLine": 7, "startColumn": 3, "endLine": 7, "endColumn": 16},
                },
            }
        ],
    }
    assert run["invocations"][0]["executionSuccessful"]


def test_sarif_has_no_link_without_a_copy_of_the_pages(check):
    driver = sarif_run(check("sarif", code=0, vm=FINE))["tool"]["driver"]
    assert "informationUri" not in driver
    assert not any("helpUri" in rule for rule in driver["rules"])


def test_sarif_describes_every_rule(check, monkeypatch):
    monkeypatch.setenv("VIRT_ADMIT_DOCS_URL", DOCS_URL)
    rules = {
        each["id"]: each
        for each in sarif_run(check("sarif", code=0, vm=FINE))["tool"]["driver"]["rules"]
    }
    assert rules.keys() == {*RULES.by_id, DUPLICATE_KEY}
    for name, rule in rules.items():
        page, _, anchor = rule["helpUri"].removeprefix(f"{DOCS_URL}/").partition("#")
        text = (ROOT / "docs" / page).read_text()
        assert f"\n## {anchor}\n" in text if anchor else name in text, "a link that leads nowhere"
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


@pytest.mark.parametrize(
    ("action", "level"), [("deny", "error"), ("warn", "warning"), ("audit", "note")]
)
def test_sarif_levels(check, action, level):
    run = sarif_run(
        check(
            "sarif",
            ".",
            "--policy",
            "p.yaml",
            vm=BOTH,
            p=f"rules: {{{RULE}: {{action: {action}}}}}",
        )
    )
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
    assert (
        sarif_run(check("sarif", "vm.yaml", "--policy", "p.yaml", vm=BOTH, p=exempt))["results"]
        == []
    )


def test_sarif_notifies_of_what_could_not_be_seen_read_or_judged(check):
    (notice,) = sarif_run(sarif.render(unclear()))["invocations"][0]["toolExecutionNotifications"]
    assert (notice["level"], notice["message"]) == ("note", {"text": "not available: pods a/b"})
    assert notice["associatedRule"]["id"] == RULE
    crashed = sarif_run(sarif.render(unclear("KeyError()")))
    assert [each["level"] for each in crashed["invocations"][0]["toolExecutionNotifications"]] == [
        "error"
    ]
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
    for manifest, one in zip(
        wanted, json.loads(check("json", rules=(DEFAULT,)))["objects"], strict=True
    ):
        (step,) = one["patch"]
        manifest["spec"]["template"]["spec"]["evictionStrategy"] = step["value"]
    for result in reversed(results):
        ((change,),) = [fix["artifactChanges"] for fix in result["fixes"]]
        assert (
            change["artifactLocation"]
            == result["locations"][0]["physicalLocation"]["artifactLocation"]
        )
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
    assert [
        result.get("fixes")
        for result in sarif_run(check("sarif", rules=(DEFAULT,), vm=shared))["results"]
    ] == [None]
