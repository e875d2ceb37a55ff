"""``virt-admit check`` as people and pipelines use it."""

import json
import re

import pytest
from click.testing import CliRunner

from virt_admit.cli import main

BOTH = """\
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata:
  name: db
  namespace: shop
spec:
  running: true
  runStrategy: Always
  template:
    spec:
      evictionStrategy: None
      domain: {devices: {}}
"""
FINE = BOTH.replace("  running: true\n", "")
UNSET = FINE.replace("      evictionStrategy: None\n", "")
OTHER = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n"


@pytest.fixture
def check(tmp_path, monkeypatch):
    """Write files and run the verb over them: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*args, stdin=None, **files):
        for name, text in files.items():
            path = tmp_path / (name.replace("__", "/") + ".yaml")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        command = ["check", *(args or (".",))]
        result = CliRunner().invoke(main.virt_admit, command, input=stdin, standalone_mode=False)
        if isinstance(result.exception, main.click.ClickException):
            return 2, result.stdout, result.exception.message
        assert result.exception is None, result.exception
        return result.return_value, result.stdout, result.stderr

    return run


def test_a_finding_with_its_place(check):
    code, out, err = check(vm=BOTH)
    first, *_, last = out.splitlines()
    assert code == 1
    assert first.startswith(
        "vm.yaml:7:3: deny: spec.running: running (means Always) and runStrategy are both"
    )
    assert first.endswith("[vm-running-and-run-strategy]")
    assert last.startswith("vm.yaml:1:1: unseen: not available: ")
    assert err.startswith("checked 1 object of 1 kind in 1 file; ")


@pytest.mark.parametrize("output", ["markdown", "sarif"])
def test_an_address_of_the_pages_that_is_not_valid(check, monkeypatch, output):
    monkeypatch.setenv("VIRT_ADMIT_DOCS_URL", "docs")
    code, out, err = check("-o", output, ".", vm=BOTH)
    assert (code, out) == (2, "")
    assert err == (
        "VIRT_ADMIT_DOCS_URL docs is not the URL of a folder: write it like "
        "https://virt-admit.io/docs"
    )


def test_what_the_webhook_mends_fails_nothing(check):
    policy = "rules: {vm-eviction-strategy-default: {action: deny, fix: true}}\n"
    code, out, _ = check(
        "vm.yaml", "--policy", "policy.yaml", "-o", "json", vm=UNSET, policy=policy
    )
    report = json.loads(out)
    (fixed,) = [result for result in report["results"] if result["fix"]]
    assert (code, report["summary"]["denied"], fixed["action"]) == (0, 0, "audit")
    assert report["objects"][0]["allowed"]


def test_clean(check):
    code, out, _ = check(
        "vm.yaml", "--select", "vm-run*", "--select", "vm-live-migrate-not-migratable", vm=FINE
    )
    assert (code, out) == (0, "")


def test_json(check):
    code, out, _ = check("vm.yaml", "-o", "json", "--select", "vm-running*", vm=BOTH)
    report = json.loads(out)
    assert code == 1
    assert report["version"] == 1
    assert report["tool"]["name"] == "virt-admit"
    assert report["summary"] == {
        "objects": 1,
        "denied": 1,
        "warned": 0,
        "unseen": 0,
        "errors": 0,
        "other_kinds": 0,
    }
    assert report["objects"] == [
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachine",
            "namespace": "shop",
            "name": "db",
            "file": "vm.yaml",
            "line": 1,
            "allowed": False,
            "patch": [],
        }
    ]
    denial = next(result for result in report["results"] if result["action"] == "deny")
    assert denial | {"message": "…"} == {
        "rule": "vm-running-and-run-strategy",
        "action": "deny",
        "message": "…",
        "path": "spec.running",
        "pointer": "/spec/running",
        "object": {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachine",
            "namespace": "shop",
            "name": "db",
        },
        "location": {"file": "vm.yaml", "line": 7, "column": 3, "endLine": 7, "endColumn": 16},
        "fix": None,
        "unseen": None,
        "error": None,
        "exempted": None,
        "problem": None,
        "command": None,
    }


def test_the_default_is_shown_as_the_patch_that_mutate_would_make(check):
    code, out, _ = check("vm.yaml", "-o", "json", vm=UNSET)
    report = json.loads(out)
    value = report["objects"][0]["patch"][0].pop("value")
    assert code == 0
    assert report["objects"][0]["patch"] == [
        {"op": "add", "path": "/spec/template/spec/evictionStrategy"}
    ]
    assert value in ("LiveMigrate", "LiveMigrateIfPossible")


def test_reports_are_the_same_bytes_each_time(check):
    first = check("a.yaml", "b.yaml", "-o", "json", a=BOTH, b=UNSET)
    assert check("b.yaml", "a.yaml", "-o", "json")[1] == first[1]


def test_files_get_reports_and_stdout_one(check, tmp_path):
    code, out, _ = check("vm.yaml", "-o", "json=report.json", "-o", "text", vm=BOTH)
    assert code == 1
    assert json.loads((tmp_path / "report.json").read_text())["summary"]["denied"] == 1
    assert "deny" in out
    assert check("vm.yaml", "-o", "json", "-o", "text")[0] == 2
    assert check("vm.yaml", "-o", "xml")[0] == 2


def test_an_update_is_judged_with_the_ratchet(check):
    changed = BOTH.replace("devices: {}", "devices: {}, cpu: {cores: 2}")
    code, out, _ = check("new.yaml", "--old", "old.yaml", "-o", "json", new=changed, old=BOTH)
    assert code == 0
    actions = {result["rule"]: result["action"] for result in json.loads(out)["results"]}
    assert actions["vm-running-and-run-strategy"] == "warn"


def test_stdin(check):
    code, out, _ = check("-", stdin=BOTH)
    assert code == 1
    assert out.startswith("<stdin>:7:3: deny: ")
    assert check("-", "--stdin-filename", "chart/vm.yaml", stdin=BOTH)[1].startswith(
        "chart/vm.yaml:7:3: deny: "
    )


def test_verbose_prints_the_number_of_rules_for_each_object(check):
    _, quiet, _ = check(".", vm=BOTH, other=OTHER)
    code, out, err = check(".", "-v")
    assert (code, out) == (1, quiet)
    assert "other.yaml:1: ConfigMap/x: no rule supports this kind\n" in err
    assert re.search(r"^vm\.yaml:1: VirtualMachine/shop/db: \d+ rules ran$", err, re.MULTILINE)


def test_folders_are_walked(check):
    code, out, err = check(".", a__vm=BOTH, a__b__vm=FINE, c=OTHER)
    assert code == 1
    assert "a/vm.yaml:7:3: deny" in out
    assert "checked 2 objects of 1 kind in 3 files; 1 object of other kinds" in err


@pytest.mark.parametrize(("level", "code"), [("deny", 0), ("warn", 1), ("audit", 1), ("never", 0)])
def test_fail_on(check, level, code):
    running = FINE.replace("runStrategy: Always", "running: true")
    assert check("vm.yaml", "--fail-on", level, vm=running)[0] == code


def test_a_duplicate_key_is_a_finding_with_both_lines(check):
    twice = FINE.replace(
        "  runStrategy: Always\n", "  runStrategy: Always\n  runStrategy: Halted\n"
    )
    code, out, _ = check("vm.yaml", "--ignore", "vm-*", vm=twice)
    assert code == 0
    assert "duplicate key on lines 7 and 8; kubectl uses the last one [yaml-duplicate-key]" in out
    assert check("vm.yaml", "--ignore", "vm-*", "--strict")[0] == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [1\n", "bad.yaml:"),
        ("spec:\n\trunning: true\n", "bad.yaml:2"),
        ("a: {{ .Values.x }}\nb: [\n", "render it first"),
        (b"\xff\xfe\xfa", "bad.yaml"),
        ("a: &a [x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}, *{a}, *{a}, *{a}, *{a}, *{a}, *{a}]\n"
                                 for a, b in zip("abcdefghi", "bcdefghij", strict=True)),
                                 "bad.yaml"),
        ("a: " + "[" * 5000 + "]" * 5000, "bad.yaml"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_exit_2_with_file_and_line(check, text, says):
    code, _, err = check("bad.yaml", bad=text)
    assert code == 2
    assert says in err
    assert "Traceback" not in err


def test_2_wins_over_1_and_the_rest_is_still_judged(check):
    code, out, err = check(".", bad="a: [1\n", vm=BOTH)
    assert code == 2
    assert "bad.yaml:" in err
    assert "; 1 document could not be read" in err
    assert "vm.yaml:7:3: deny" in out


def test_wrong_usage_is_exit_2(check):
    assert check("missing.yaml")[0] == 2
    assert check("vm.yaml", "--policy", "none.yaml", vm=FINE)[0] == 2
    assert check("vm.yaml", "--select", "no-such-rule")[0] == 2
    assert check("vm.yaml", "--cluster", "none.yaml")[0] == 2


def test_a_policy_with_mistakes_names_each_with_its_line(check):
    policy = (
        "extends: strikt\nrules:\n  vm-running: {action: deny}\n  vm-running-deprecated: {action: "
        "denied, parms: 1}\n"
    )
    code, _, err = check("vm.yaml", "--policy", "policy.yaml", vm=FINE, policy=policy)
    assert code == 2
    assert (
        "policy.yaml:1: extends: must be one of audit, default, strict; did you mean strict?" in err
    )
    assert (
        "policy.yaml:3: rules.vm-running: there is no rule vm-running; did you mean vm-running-"
        in err
    )
    assert (
        "policy.yaml:4: rules.vm-running-deprecated.parms: unknown key; did you mean params?" in err
    )
    assert (
        "policy.yaml:4: rules.vm-running-deprecated.action: must be one of off, audit, warn, deny"
        in err
    )


def test_policies_change_actions(check):
    assert check("vm.yaml", "--policy", "audit", vm=BOTH)[0] == 0
    off = "rules: {vm-running-and-run-strategy: {action: off}}"
    assert "vm-running-and-run-strategy" not in check("vm.yaml", "--policy", "off.yaml", off=off)[1]


def test_an_exemption_that_has_ended_is_reported(check):
    policy = (
        'exempt: {namespaces: [{match: shop, rules: ["*"], reason: moves, until: "2020-01-31"}]}'
    )
    code, _, err = check("vm.yaml", "--policy", "p.yaml", vm=BOTH, p=policy)
    assert code == 1
    assert "exemption for shop expired on 2020-01-31: moves" in err
    code, out, _ = check("vm.yaml", "--policy", "p.yaml", p=policy.replace("2020", "2999"))
    assert code == 0
    assert "(exempt: moves)" in out


def test_an_annotation_that_does_not_count_is_mentioned(check):
    marked = BOTH.replace(
        "  namespace: shop", "  namespace: shop\n  annotations: {virt-admit.io/exempt-all: we know}"
    )
    code, out, _ = check("vm.yaml", "--select", "vm-running-and*", vm=marked)
    assert code == 1
    assert (
        "The annotation virt-admit.io/exempt-all does not count: the policy allows none for "
        "this rule. [vm-"
    ) in out


def test_all_objects_see_each_other(check):
    claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: c, namespace: shop}\n"
    claim += "spec: {accessModes: [ReadWriteOnce]}\n"
    disk = (
        FINE.replace("None", "LiveMigrate")
        + "      volumes: [{name: d, persistentVolumeClaim: {claimName: c}}]\n"
    )
    _, out, _ = check("vm.yaml", "claim.yaml", vm=disk, claim=claim)
    assert "DisksNotLiveMigratable" in out


UNNAMED = """\
apiVersion: migrations.kubevirt.io/v1alpha1
kind: MigrationPolicy
spec: {bandwidthPerMigration: -1, selectors: {namespaceSelector: {a: b}}}
"""


def test_an_object_without_a_name_is_called_by_its_kind_and_place(check):
    named = UNNAMED.replace("spec:", "metadata: {name: slow}\nspec:")
    _, text, _ = check(policies=f"{named}---\n{UNNAMED}")
    _, table, _ = check("policies.yaml", "-o", "markdown")

    assert "this policy and a MigrationPolicy without a name have the same selectors" in text
    assert "only the first by name applies" in text
    assert "MigrationPolicy at policies.yaml:6" in table
    assert "MigrationPolicy/ " not in table
