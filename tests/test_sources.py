"""Snapshots are read as they say themselves (contract.md 4)."""

import json

from webhook.model.kinds import NODE, VMI
from webhook.sources import load_snapshot

NODE_A = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}
NODE_B = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "b"}}
VMI_A = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "a", "namespace": "x"}}


def snapshot(*items, **said):
    return json.dumps({"apiVersion": "virt-admit.io/v1alpha1", "kind": "Snapshot", "items": items, **said})


def test_what_could_not_be_read_is_not_believed(tmp_path):
    file = tmp_path / "cluster.json"
    file.write_text(snapshot(NODE_A, VMI_A, complete=["*"], unreadable=["nodes"]))
    cluster = load_snapshot(file)
    assert not cluster.known(NODE)
    assert not cluster.sees_all(NODE)
    assert [vmi.name for vmi in cluster.list(VMI)] == ["a"]


def test_manifests_beside_such_a_snapshot_are_believed(tmp_path):
    (tmp_path / "cluster.json").write_text(snapshot(NODE_A, unreadable=["nodes"]))
    (tmp_path / "node.json").write_text(json.dumps(NODE_B))
    cluster = load_snapshot(tmp_path)
    assert [node.name for node in cluster.known(NODE)] == ["b"]
    assert not cluster.sees_all(NODE)
