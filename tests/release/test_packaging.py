"""What package indexes, editors and the forge read: metadata, hooks and templates."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.paths import ROOT
from tests.release.test_tool import VERSIONS
from virt_admit.settings import DOCS_URL, DOMAIN

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
FORMS = [file for file in TEMPLATES if file.name != "config.yml"]
HOOKS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]


def test_the_metadata_name_the_pages_and_each_python_that_is_tested() -> None:
    assert PROJECT["authors"]
    assert PROJECT["urls"] == {"Homepage": f"https://{DOMAIN}", "Documentation": DOCS_URL}
    named = [
        found[1]
        for each in PROJECT["classifiers"]
        if (found := re.fullmatch(r".* :: (3\.\d+)", each))
    ]
    assert named == list(VERSIONS)
    assert PROJECT["requires-python"] == f">={named[0]}"


def test_our_own_hooks_are_steps_of_make_check() -> None:
    check = (ROOT / "Makefile").read_text().partition("\ncheck: ")[2].partition("\n\n")[0]
    for hook in HOOKS:
        assert hook["entry"] == "make check" or hook["entry"].removeprefix(".venv/bin/") in check, (
            hook["id"]
        )


@pytest.mark.parametrize(
    "hook", [hook for hook in HOOKS if hook["entry"] != "make check"], ids=lambda hook: hook["id"]
)
def test_a_hook_refuses_a_bad_file_and_accepts_a_good_one(
    hook: dict[str, str], tmp_path: Path
) -> None:
    def code(text: str) -> int:
        file = tmp_path / "example.py"
        file.write_text(text)
        return subprocess.run(
            [*hook["entry"].split(), file], cwd=ROOT, capture_output=True, check=False
        ).returncode

    assert code("import os\nx = (1)\n") == 1
    assert code("x = 1\n") == 0


@pytest.mark.parametrize("form", FORMS, ids=lambda file: file.stem)
def test_an_issue_form_has_unique_ids_and_a_required_question(form: Path) -> None:
    content = yaml.safe_load(form.read_text())
    assert {"name", "description", "labels", "body"} == set(content)
    questions = [each for each in content["body"] if each["type"] != "markdown"]
    assert {each["type"] for each in questions} <= {"input", "textarea", "dropdown", "checkboxes"}
    ids = [each["id"] for each in questions]
    assert len(set(ids)) == len(ids)
    assert any(each.get("validations", {}).get("required") for each in questions)


def test_the_checks_of_the_pull_request_template_exist() -> None:
    text = (ROOT / ".github" / "pull_request_template.md").read_text()
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"`make ([a-z-]+)`", text)
    assert len(targets) == 3
    assert all(
        re.search(rf"^(?:\w+ )*{target}(?: \w+)*:", makefile, re.MULTILINE) for target in targets
    )


def test_text_files_are_as_the_editor_configuration_says() -> None:
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    files = [
        ROOT / name
        for name in names.split("\0")
        if Path(name).suffix in (".py", ".md", ".yaml", ".yml", ".toml")
    ]
    assert len(files) > 100
    for file in files:
        if file.is_file() and (content := file.read_bytes()):
            assert b"\r" not in content, file
            assert content.endswith(b"\n"), file
