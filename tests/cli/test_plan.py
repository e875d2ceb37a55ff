"""``virt-admit plan``: exit codes, formats, the folder, and input that is hostile or wrong."""

from __future__ import annotations

import json
import shutil
import subprocess

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from tests.forecasts.repair.broken_clusters import claim, cluster, disk, storage_class, vm
from tests.forecasts.repair.test_causes import BRIDGE, CAUSES, HERE
from tests.paths import ROOT
from virt_admit.cli.main import virt_admit

ATTACK = "x';$(touch pwned)`touch pwned`\n../../y\u202e"
SCHEMA = json.loads((ROOT / "docs" / "plan.schema.json").read_text())


def saved(tmp_path, *objects, unreadable=()):
    found = cluster(*objects)
    snapshot = {
        "apiVersion": "virt-admit.io/v1alpha1",
        "kind": "Snapshot",
        "complete": ["*"],
        "unreadable": list(unreadable),
        "time": found.time,
        "items": [obj.data for obj in found],
    }
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(snapshot))
    return path


def run(path, *args):
    return CliRunner().invoke(
        virt_admit, ["plan", "--cluster", str(path), *args], standalone_mode=False
    )


@pytest.mark.parametrize(
    ("objects", "unreadable", "code", "says"),
    [
        ((vm(),), (), 0, "Nothing to do: all 2 nodes can be drained."),
        ((vm(spec=HERE),), (), 1, "1 step in 1 namespace makes all 2 nodes drainable."),
        ((vm(),), ("pods",), 2, "Cannot be determined: whether all 2 nodes can be drained."),
    ],
)
def test_the_first_line_and_the_exit_code(tmp_path, objects, unreadable, code, says):
    done = run(saved(tmp_path, *objects, unreadable=unreadable))
    assert done.return_value == code
    assert done.stdout.splitlines()[0] == says


@pytest.mark.parametrize("name", CAUSES)
def test_json_obeys_its_schema(tmp_path, name):
    done = run(saved(tmp_path, *CAUSES[name][0]), "-o", "json")
    data = json.loads(done.stdout)
    jsonschema.validate(data, SCHEMA)
    assert list(data)[:3] == ["version", "goal", "holds"]
    assert {"reaches", "steps", "problems", "remaining", "unseen", "totals"} <= data.keys()
    assert (data["reaches"], data["totals"]["steps"]) == (True, len(data["steps"]))


def test_equal_clusters_give_equal_bytes(tmp_path):
    path = saved(tmp_path, *CAUSES["a bridge and a disk"][0])
    for form in ("text", "json", "html"):
        assert run(path, "-o", form).stdout == run(path, "-o", form).stdout


def test_one_node_is_planned_alone(tmp_path):
    path = saved(tmp_path, vm(spec=HERE), vm("web", on="b", strategy="External"))
    data = json.loads(run(path, "a", "-o", "json").stdout)
    assert [step["id"] for step in data["steps"]] == ["place:shop/db"]
    assert data["nodes"] == ["a"]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("nowhere",), "node nowhere"),
        (("--for", "upgrade", "a"), "is about all nodes: name none"),
        (("--may-restart", "!!"), "--may-restart"),
        (("-o", "pdf"), "unknown output format pdf"),
        (("-o", "folder"), "-o folder=DIR"),
        (("-o", "json", "-o", "html"), "give -o once"),
        (("-o", "json", "--summary"), "--summary is for text output only"),
    ],
)
def test_wrong_usage_is_one_clear_error(tmp_path, args, says):
    done = CliRunner().invoke(virt_admit, ["plan", "--cluster", str(saved(tmp_path, vm())), *args])
    assert done.exit_code != 0
    assert says in str(done.output) + str(done.exception)


def test_steps_have_the_numbers_of_their_scripts(tmp_path):
    """Headings with the numbers of stages looked like steps of which some were missing."""
    lines = run(
        saved(tmp_path, *CAUSES["a disk whose copy needs a setting first"][0])
    ).stdout.splitlines()
    assert [line.split()[0] for line in lines if line.startswith("  ") and line[2].isdigit()] == [
        "1.",
        "2.",
        "3.",
    ]
    assert "Settings of the cluster" in lines
    assert not any(line.startswith("Stage ") for line in lines)


def test_a_summary_counts_steps(tmp_path):
    done = run(saved(tmp_path, *CAUSES["a bridge and a disk"][0]), "--summary")
    assert "  shop: 2 steps" in done.stdout.splitlines()


def test_pages_for_each_owner(tmp_path):
    path = saved(tmp_path, vm(spec=HERE), vm("web", namespace="bank", spec=HERE))
    folder = tmp_path / "pages"
    assert run(path, "-o", f"html={folder}", "--pages-by", "namespace").return_value == 1
    assert {file.name for file in folder.iterdir()} == {
        "index.html",
        "owner-bank.html",
        "owner-shop.html",
    }
    assert "shop/db" not in (folder / "owner-bank.html").read_text()


# --- the folder -----------------------------------------------------------------------------------


def folder_of(tmp_path, *objects):
    folder = tmp_path / "plan"
    assert run(saved(tmp_path, *objects), "-o", f"folder={folder}").return_value == 1
    return folder


def contents(folder):
    return {
        str(file.relative_to(folder)): file.read_text()
        for file in folder.rglob("*")
        if file.is_file()
    }


BOTH = (
    vm(spec={**BRIDGE, **disk()}, reason="InterfaceNotLiveMigratable"),
    claim("root"),
    storage_class(),
)


def test_the_folder_has_a_script_and_patches_for_each_step(tmp_path):
    files = contents(folder_of(tmp_path, *BOTH))
    assert set(files) == {
        "README.md",
        "plan.json",
        "steps/010-shop-db-restart.sh",
        "patches/010-shop-db-restart-1.yaml",
        "patches/010-shop-db-restart-1.undo.yaml",
        "steps/020-shop-db-copy.sh",
        "objects/020-shop-db-copy-1.yaml",
        "patches/020-shop-db-copy-2.yaml",
        "patches/020-shop-db-copy-2.undo.yaml",
        "owners/shop.md",
    }
    patch = yaml.safe_load(files["patches/010-shop-db-restart-1.yaml"])
    assert [each["op"] for each in patch] == ["test", "replace"]
    assert yaml.safe_load(files["objects/020-shop-db-copy-1.yaml"])["spec"]["source"] == {
        "blank": {}
    }
    assert "virtctl restart db -n shop" in files["steps/010-shop-db-restart.sh"]


def test_a_folder_is_written_again(tmp_path):
    folder = folder_of(tmp_path, *BOTH)
    before = contents(folder)
    (folder / "steps" / "999-old.sh").write_text("old")
    folder_of(tmp_path, *BOTH)
    assert contents(folder) == before


def test_a_symlink_in_a_folder_leads_to_nothing_that_is_written(tmp_path):
    folder = folder_of(tmp_path, *BOTH)
    before, other = contents(folder), tmp_path / "other"
    (other / "steps").mkdir(parents=True)
    (other / "file").write_text("mine")
    for name in ("steps", "patches"):
        shutil.rmtree(folder / name)
        (folder / name).symlink_to(other / "steps")
    (folder / "README.md").unlink()
    (folder / "README.md").symlink_to(other / "file")
    folder_of(tmp_path, *BOTH)
    assert contents(folder) == before
    assert contents(other) == {"file": "mine"}
    assert not (folder / "steps").is_symlink()


@pytest.mark.parametrize("present", ["notes.txt", "plan.json"])
def test_a_folder_of_somebody_else_is_left_alone(tmp_path, present):
    folder = tmp_path / "plan"
    folder.mkdir()
    (folder / present).write_text("[1]")
    done = CliRunner().invoke(
        virt_admit, ["plan", "--cluster", str(saved(tmp_path, *BOTH)), "-o", f"folder={folder}"]
    )
    assert done.exit_code == 1  # click's own code; ``main`` makes it 2
    assert "is not empty" in done.output
    assert contents(folder) == {present: "[1]"}


def test_nothing_is_written_for_a_goal_that_cannot_be_determined(tmp_path):
    path = saved(tmp_path, vm(), unreadable=["pods"])
    done = CliRunner().invoke(
        virt_admit, ["plan", "--cluster", str(path), "-o", f"folder={tmp_path / 'plan'}"]
    )
    assert "could not be read, so nothing is written" in done.output
    assert not (tmp_path / "plan").exists()


def test_hostile_names_are_never_typed(tmp_path):
    objects = (
        vm(ATTACK, spec=HERE),
        vm(namespace="../up", spec=HERE),
        vm("ok", spec={"nodeSelector": {ATTACK: "1"}}),
    )
    folder = folder_of(tmp_path, *objects)
    assert {file.name for file in folder.iterdir()} <= {
        "README.md",
        "plan.json",
        "steps",
        "patches",
        "objects",
        "owners",
    }
    fake = tmp_path / "bin"
    fake.mkdir()
    for name in ("kubectl", "virtctl"):
        (fake / name).write_text("#!/bin/sh\nexit 0\n")
        (fake / name).chmod(0o755)
    for script in folder.glob("steps/*.sh"):
        subprocess.run(
            ["sh", str(script)], check=False, env={"PATH": f"{fake}:/usr/bin:/bin"}, timeout=20
        )
    assert not list(tmp_path.rglob("pwned"))
    assert "\u202e" not in (folder / "README.md").read_text()
    for form in ("text", "html"):
        assert "\u202e" not in run(saved(tmp_path, *objects), "-o", form).stdout


def test_no_secret_is_written(tmp_path):
    cloud_init = {"name": "init", "cloudInitNoCloud": {"userData": "password: secret"}}
    spec = {**HERE, "volumes": [cloud_init]}
    files = contents(folder_of(tmp_path, vm(spec=spec)))
    assert "secret" not in "".join(files.values())
