"""``virt-admit check`` in a repository: what it reads in folders, and ``.virt-admit.yaml``."""

import json
import os

import pytest
from click.testing import CliRunner

from tests.cli.test_check import BOTH, FINE
from virt_admit.cli import main
from virt_admit.cli.commands.check import BATCH

CHART = """\
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata:
  name: {{ .Release.Name }}
{{- if .Values.labels }}
  labels: {}
{{- end }}
"""
MKDOCS = """\
site_name: Docs
markdown_extensions:
- pymdownx.emoji:
    emoji_index: !!python/name:material.extensions.emoji.twemoji
"""
OPENAPI = "openapi: 3.0.0\npaths: {/vms: {get: {responses: {200: {description: ok}}}}}\n"
MIXED = {
    "manifests/vm.yaml": FINE,
    "charts/shop/Chart.yaml": "apiVersion: v2\nname: shop\n",
    "charts/shop/values.yaml": "replicas: 1\n",
    "charts/shop/templates/vm.yaml": CHART,
    "charts/shop/templates/list.yaml": '- name: "{{ .Values.name }}"\n',
    "mkdocs.yml": MKDOCS,
    "openapi.yaml": OPENAPI,
    "package.json": '{"name": "docs"}',
    "matrix.json": "[1, 2]",
    "words.yaml": "just a text\n",
    "stack.yaml": "Resources: {Bucket: !Ref Name}\n",
    "list.yaml": "kind: ShoppingList\nitems: [milk]\n",
    "empty.yaml": "# nothing\n",
}


@pytest.fixture
def check(tmp_path, monkeypatch):
    """Write files and run the verb: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VIRT_ADMIT_POLICY", raising=False)

    def run(*args, files=None):
        for name, text in (files or {}).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        result = CliRunner().invoke(main.virt_admit, ["check", *args], standalone_mode=False)
        if isinstance(result.exception, main.click.ClickException):
            return 2, result.stdout, result.exception.message
        assert result.exception is None, result.exception
        return result.return_value, result.stdout, result.stderr

    return run


def test_files_of_other_programs_in_folders_are_skipped_and_counted(check):
    code, out, err = check(".", files=MIXED)
    assert code == 0, err
    assert "deny" not in out
    assert err.startswith("checked 1 object of 1 kind in 1 file; ")
    assert (
        "skipped 10 documents without apiVersion and kind; skipped 1 template file: render "
        "them first"
    ) in err
    assert len(err.splitlines()) == 1


def test_findings_in_a_mixed_repository_still_count(check):
    code, out, _ = check(".", files=MIXED | {"manifests/vm.yaml": BOTH})
    assert code == 1
    assert "manifests/vm.yaml:7:3: deny: " in out


@pytest.mark.parametrize(
    "name",
    [
        "charts/shop/templates/vm.yaml",
        "mkdocs.yml",
        "openapi.yaml",
        "matrix.json",
        "words.yaml",
        "list.yaml",
    ],
)
def test_a_named_file_has_to_be_readable(check, name):
    code, _, err = check(name, files=MIXED)
    assert code == 2
    assert err.startswith(f"{name}:")


def test_strict_reads_folders_as_named_files(check):
    code, _, err = check(".", "--strict", files=MIXED)
    assert code == 2
    assert "mkdocs.yml:4:" in err
    assert "skipped" not in err


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("broken.yaml", "a: [1\n"),
        ("broken.json", '{"a": '),
        ("vm.yaml", BOTH + "      x: !Ref y\n"),
        ("vm.yaml", BOTH.replace("{devices: {}}", "{devices: {}, 1: 2}")),
    ],
    ids=["syntax", "JSON syntax", "tag in an object", "key of an object"],
)
def test_other_files_in_folders_that_cannot_be_read_are_exit_2(check, name, text):
    code, _, err = check(".", files=MIXED | {name: text})
    assert code == 2
    assert f"{name}:" in err
    assert "1 document could not be read" in err


def test_fixes_stay_with_their_documents(check, tmp_path):
    unset = FINE.replace("      evictionStrategy: None\n", "")
    check(".", "--fix", files={"all.yaml": f"other: 1\n---\n{unset}---\n[1]\n"})
    other, fixed, rest = (tmp_path / "all.yaml").read_text().split("---\n")
    assert (other, rest) == ("other: 1\n", "[1]\n")
    assert "evictionStrategy: LiveMigrate" in fixed


def test_excludes(check):
    files = {"a/vm.yaml": BOTH, "b/vm.yaml": FINE, "b/broken.yaml": "a: [1\n"}
    assert check(".", "--exclude", "broken.yaml", files=files)[0] == 1
    assert check(".", "--exclude", "a", "--exclude", "b/broken.*")[0] == 0
    assert check("a/vm.yaml", "--exclude", "a")[0] == 1


# --- .virt-admit.yaml

PROJECT = """\
paths: [manifests]
excludes: [legacy, '*.json']
policy: policies/warn.yaml
cluster: snapshot.yaml
"""
REPOSITORY = {
    ".virt-admit.yaml": PROJECT,
    "manifests/vm.yaml": BOTH,
    "manifests/legacy/broken.yaml": "a: [1\n",
    "policies/warn.yaml": "rules: {vm-running-and-run-strategy: {action: warn}}\n",
    "snapshot.yaml": (
        "apiVersion: virt-admit.io/v1alpha1\nkind: Snapshot\ncomplete: ['*']\nitems: []\n"
    ),
    "docs/readme.txt": "",
}


def actions(out):
    return {each["rule"]: each["action"] for each in json.loads(out)["results"]}


def unseen(out):
    return " ".join(each["unseen"] or "" for each in json.loads(out)["results"])


@pytest.mark.parametrize("folder", [".", "docs", "manifests/legacy"])
def test_the_settings_of_a_repository_hold_in_all_its_folders(check, tmp_path, monkeypatch, folder):
    check("manifests", files=REPOSITORY)
    monkeypatch.chdir(tmp_path / folder)
    code, out, err = check("-o", "json")
    assert code == 0, err
    assert actions(out)["vm-running-and-run-strategy"] == "warn"
    assert "virtualmachineinstances" not in unseen(out)
    assert (
        f"settings from {os.path.relpath(tmp_path / '.virt-admit.yaml', tmp_path / folder)}\n"
        in err
    )


def test_flags_and_the_environment_win_over_the_settings(check, monkeypatch):
    files = REPOSITORY | {"other.yaml": FINE, "strict.yaml": "extends: strict\n"}
    assert check("other.yaml", "-o", "json", files=files)[0] == 0
    assert check()[0] == 0
    assert check("--policy", "default")[0] == 1
    monkeypatch.setenv("VIRT_ADMIT_POLICY", "default")
    assert check()[0] == 1
    assert check("--policy", "policies/warn.yaml")[0] == 0
    assert "virtualmachineinstances" in unseen(check("--cluster", "other.yaml", "-o", "json")[1])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "paths: [a]\nexclude: [b]\n",
            ".virt-admit.yaml:2: exclude: unknown key: did you mean excludes?",
        ),
        (
            "colour: red\n",
            ".virt-admit.yaml:1: colour: unknown key: use paths, excludes, policy, cluster",
        ),
        ("\npaths: manifests\n", ".virt-admit.yaml:2: paths: must be a list of strings"),
        ("policy: [a]\n", ".virt-admit.yaml:1: policy: must be a string"),
        ("policy: a\npolicy: b\n", ".virt-admit.yaml:2: policy: duplicate key, first on line 1"),
        ("paths: [\n", ".virt-admit.yaml:"),
        ("- a\n", ".virt-admit.yaml:1:1: a list is not"),
        ("paths: [a]\n---\npaths: [b]\n", ".virt-admit.yaml:3: expected one document, found 2"),
    ],
)
def test_settings_that_are_not_valid_name_file_and_line(check, text, problem):
    code, _, err = check("vm.yaml", files={".virt-admit.yaml": text, "vm.yaml": FINE})
    assert code == 2
    assert err.startswith(problem)


def test_without_paths_the_command_says_where_to_set_them(check):
    code, _, err = check(files={".virt-admit.yaml": "", "vm.yaml": FINE})
    assert code == 2
    assert "name files or folders, or set paths in .virt-admit.yaml" in err


DISK = """\
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: db}
spec:
  runStrategy: Always
  template:
    spec:
      evictionStrategy: LiveMigrate
      domain: {devices: {disks: [{name: root, disk: {}}]}}
      volumes: [{name: root, persistentVolumeClaim: {claimName: disk}}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: disk}
spec: {accessModes: [ReadWriteOnce]}
"""


def test_claims_of_many_documents_are_looked_up_as_those_of_a_few(check):
    """Of many documents, only the fields that rules read are kept."""
    claim = (
        "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: c}\n"
        "spec: {accessModes: [ReadWriteMany]}\n"
    )
    more = "".join(claim.replace("name: c", f"name: c{number}") for number in range(BATCH))
    few, many = (
        check("a.yaml", "-q", files={"a.yaml": text})[:2] for text in (DISK, f"{DISK}{more}")
    )
    assert few == many
    assert "ReadWriteOnce claim 'disk'" in few[1]
