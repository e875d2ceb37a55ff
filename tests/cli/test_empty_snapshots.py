"""``scan`` and ``policy diff`` over snapshots that say nothing about a cluster."""

import json

import click
import pytest
from click.testing import CliRunner

from virt_admit.cli import main
from virt_admit.model.kubernetes.kinds import VM

NOTHING = {
    "{}": "{}",
    "null": "null",
    "another kind": '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}',
}


@pytest.mark.parametrize("content", NOTHING.values(), ids=NOTHING)
@pytest.mark.parametrize("verb", [("scan",), ("policy", "diff", "audit", "default")])
def test_a_snapshot_of_nothing_is_not_a_clean_cluster(tmp_path, verb, content):
    file = tmp_path / "cluster.json"
    file.write_text(content)
    done = CliRunner().invoke(
        main.virt_admit, [*verb, "--cluster", str(file)], standalone_mode=False
    )
    assert isinstance(done.exception, click.ClickException)
    assert str(done.exception).startswith(f"{file}")
    file.unlink()
    done = CliRunner().invoke(
        main.virt_admit, [*verb, "--cluster", str(tmp_path)], standalone_mode=False
    )
    assert str(done.exception) == (
        f"{tmp_path} is not a snapshot of a cluster: it has no object that a rule judges, and is "
        "complete for no such kind. Save one with: virt-admit scan --save FILE"
    )


@pytest.mark.parametrize(
    ("snapshot", "code"),
    [
        ({"complete": ["*"]}, 0),
        ({"complete": [VM.resource]}, 0),
        ({"complete": [f"shop/{VM.resource}"]}, 0),
        ({"complete": ["secrets"]}, None),
        ({"complete": ["*"], "unreadable": [VM.resource]}, 2),
        (
            {
                "complete": [],
                "items": [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}],
            },
            0,
        ),
    ],
)
def test_a_snapshot_of_which_something_is_known(tmp_path, snapshot, code):
    file = tmp_path / "cluster.json"
    file.write_text(
        json.dumps({"apiVersion": "virt-admit.io/v1alpha1", "kind": "Snapshot", **snapshot})
    )
    done = CliRunner().invoke(
        main.virt_admit, ["scan", "--cluster", str(file)], standalone_mode=False
    )
    assert done.return_value == code


def test_rules_of_other_kinds_alone_are_no_reason_to_refuse_a_snapshot(tmp_path):
    file = tmp_path / "cluster.json"
    known = {"apiVersion": "virt-admit.io/v1alpha1", "kind": "Snapshot", "complete": [VM.resource]}
    file.write_text(json.dumps(known))
    args = ["scan", "--cluster", str(file), "--select", "mhc-*"]
    assert CliRunner().invoke(main.virt_admit, args, standalone_mode=False).exception is None


def test_one_of_several_snapshots_is_empty(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "cluster.json").write_text(
        '{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}'
    )
    args = [
        "scan",
        "--cluster",
        str(tmp_path / "empty"),
        "--cluster",
        str(tmp_path / "cluster.json"),
    ]
    done = CliRunner().invoke(main.virt_admit, args, standalone_mode=False)
    assert done.return_value == 2
    assert "empty cannot be read: " in done.stderr
