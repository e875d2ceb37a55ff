"""The definitions of other projects: where they come from, and our own ones in their place."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import definitions
from tests.apiserver.crds import custom
from tools import field_tables
from virt_admit.model.kubernetes import kinds

TABLES = field_tables.judged()


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder next to the checkout with one definition, and a cache without any."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(definitions.CHOICE, raising=False)
    folder = tmp_path / "crds"
    folder.mkdir()
    (folder / f"{kinds.NHC}.yaml").write_text(yaml.safe_dump(definitions.own(kinds.NHC)))
    monkeypatch.setattr(definitions, "SHARED", folder)
    return folder


def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a command in the place of Go."""
    command = tmp_path / "bin" / "go"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\ntest "$1" = env && echo go1.99.0 && exit\n{script}\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}{os.pathsep}{os.environ['PATH']}")


def real(build: bool = True) -> dict[str, Path]:
    return dict(definitions.real.__wrapped__(build=build))


def test_without_go_the_folder_next_to_the_checkout_counts(
    shared: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    go(tmp_path, monkeypatch, "echo no network >&2; exit 1")

    assert real() == {str(kinds.NHC): shared / f"{kinds.NHC}.yaml"}
    assert "no network" in capsys.readouterr().err


def test_a_choice_of_neither_source(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(definitions.CHOICE, "")
    assert real() == {}


def test_go_modules_come_first_and_are_extracted_once(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, cdi = tmp_path / "module", definitions.own(kinds.CDI)
    for files in definitions.FILES.values():
        for file in files:
            (module / file).parent.mkdir(parents=True, exist_ok=True)
            (module / file).write_text(yaml.safe_dump(definitions.own(kinds.MHC)))
    cdi["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = "long"
    (tmp_path / "cdi.json").write_text(json.dumps(cdi))
    (tmp_path / "nhc.json").write_text(json.dumps(definitions.own(kinds.NHC)))
    copies = "\n".join(
        f"mkdir -p $folder && cp {tmp_path}/cdi.json $folder/{name}"
        for name in definitions.CDI_FILES
    )
    script = f"""
case "$1" in
run) cat {tmp_path}/nhc.json ;;
tool) folder=${{5#output:crd:dir=}}; {copies} ;;
mod) echo '{{"Dir": "{module}"}}' ;;
esac
"""
    go(tmp_path, monkeypatch, script)

    assert real(build=False) == {str(kinds.NHC): shared / f"{kinds.NHC}.yaml"}
    found = real()
    assert set(found) == {str(kinds.NHC), str(kinds.CDI), str(kinds.MHC)}
    assert all((tmp_path / "cache") in path.parents for path in found.values())
    assert definitions.load(found[str(kinds.CDI)]) == definitions.own(kinds.CDI)  # without the text
    monkeypatch.setenv("PATH", "")
    assert real() == found


def test_texts_are_removed_but_not_fields_of_that_name() -> None:
    schema = {
        "description": "text",
        "properties": {"description": {"type": "string", "description": "text"}},
    }
    assert definitions._without_texts(schema) == {"properties": {"description": {"type": "string"}}}


def test_own_definitions_are_like_the_real_ones() -> None:
    """Same names, scope, storage version and sub-resources, wherever the real one is at hand."""
    for kind in custom(kinds.ALL):
        assert _shape(definitions.own(kind)) == _shape(definitions.of(kind)), kind


def _shape(definition: dict[str, Any]) -> tuple[Any, ...]:
    spec = definition["spec"]
    storage = next(version for version in spec["versions"] if version["storage"])
    names = spec["names"]["plural"], spec["names"]["singular"], spec["names"]["kind"]
    return spec["group"], names, spec["scope"], storage["name"], storage.get("subresources") or {}


@pytest.mark.parametrize("kind", TABLES, ids=str)
def test_own_definitions_have_the_fields_of_the_table(kind: kinds.Kind) -> None:
    text = (field_tables.FOLDER / f"{kind.resource}.json").read_text()
    known = {
        version: types[0]
        for version, types in field_tables.releases(text).items()
        if version in kind.versions
    }
    assert known
    own = field_tables.releases(
        field_tables.table(field_tables.extended({}, definitions.own(kind)))
    )
    assert {version: types[0] for version, types in own.items()} == known


def test_fields_of_a_definition() -> None:
    own = definitions.own(kinds.NHC)
    assert definitions.has_field(own, "spec", "minHealthy")
    assert definitions.has_field(own, "status", "anything")
    assert not definitions.has_field(own, "spec", "minHealthyNodes")
    assert definitions.has_field(definitions.own(kinds.STORAGE_PROFILE), "anything")
