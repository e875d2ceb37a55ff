"""A saved cluster answers as the live one did;
snapshots are read as they say themselves.
"""

from __future__ import annotations

import json
import re

import pytest

from tests.kube.test_cache import claim, node, store
from tests.rules.test_rules import CASES_BY_RULE, ask
from virt_admit.kube import snapshots
from virt_admit.kube.cache import ClusterCache, StoreState
from virt_admit.kube.snapshots import presentable
from virt_admit.model.kubernetes.cluster import Snapshot, Unseen
from virt_admit.model.kubernetes.kinds import KUBEVIRT, LEASE, NODE, PVC, VM, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.settings import SettingError


@pytest.mark.parametrize(("rule", "cases"), CASES_BY_RULE)
def test_a_rule_says_the_same_of_what_is_saved(rule, cases):
    """But for values that are only compared."""

    def said(result):
        return [(str(finding.path), finding.message) for finding in result.findings], result.unseen

    differing = {}
    for case in cases:
        shown = {
            **case,
            "object": presentable(Object(case["object"])),
            "cluster": [presentable(Object(data)) for data in case.get("cluster", ())],
        }
        answers = said(ask(rule, shown)[0]), said(ask(rule, case)[0])
        if answers[0] != answers[1]:
            differing[case["name"]] = answers
    assert not differing


def test_it_answers_as_the_live_one_did(tmp_path):
    leases = store(
        LEASE,
        {"metadata": {"name": "node-a", "namespace": "medik8s-leases"}},
        namespace="medik8s-leases",
    )
    live = ClusterCache(
        [
            store(PVC, claim("b"), claim("a"), whole=True),
            store(NODE, node("one")),
            store(VM, state=StoreState.ABSENT),
            store(VMI, state=StoreState.REFUSED),
            leases,
        ],
        "v1.36.3",
    )
    snapshots.save(live, tmp_path / "cluster.json")
    saved = snapshots.load(tmp_path / "cluster.json")

    assert saved.server_version == "v1.36.3"
    assert saved.unreadable == {"virtualmachineinstances.kubevirt.io"}
    assert [obj.full_name for obj in saved] == ["medik8s-leases/node-a", "one", "shop/a", "shop/b"]
    assert saved.get(PVC, "shop", "a").at("status", "phase").text == "Bound", (
        "as the API server gave it"
    )
    questions = [
        (PVC, "shop", "a"),
        (PVC, "shop", "x"),
        (VM, "shop", "x"),
        (VMI, "shop", "x"),
        (KUBEVIRT, "x", "x"),
    ]
    questions += [
        (LEASE, "medik8s-leases", "node-a"),
        (LEASE, "medik8s-leases", "x"),
        (LEASE, "kube-system", "x"),
    ]
    for question in questions:
        assert answer(saved, *question) == answer(live, *question), question


def test_the_time_of_the_listing_is_kept(tmp_path):
    live = ClusterCache([store(NODE, node("one"))])
    live.time = "2027-03-01T11:00:00Z"
    snapshots.save(live, tmp_path / "cluster.json")
    assert snapshots.load(tmp_path / "cluster.json").time == "2027-03-01T11:00:00Z"


def test_of_several_snapshots_the_oldest_time_counts(tmp_path):
    for name, time in (
        ("a", "2027-03-01T11:00:00Z"),
        ("b", "2027-03-01T11:30:00+01:00"),
        ("c", None),
    ):
        live = ClusterCache([])
        live.time = time
        snapshots.save(live, tmp_path / f"{name}.json")
    assert snapshots.load(tmp_path).time == "2027-03-01T10:30:00Z"


def saved_state(path, phase, version=None, time=None):
    """Save a snapshot of one claim."""
    metadata = {"name": "a", "namespace": "shop"} | (
        {"resourceVersion": version} if version else {}
    )
    live = ClusterCache(
        [store(PVC, {"metadata": metadata, "status": {"phase": phase}}, whole=True)]
    )
    live.time = time
    snapshots.save(live, path)


@pytest.mark.parametrize(
    ("first", "second", "phase"),
    [
        (("9", None), ("10", None), "second"),
        (("10", None), ("9", None), "first"),
        (("010", None), ("9", None), "first"),
        ((None, "2027-03-01T11:00:00Z"), (None, "2027-03-01T10:30:00Z"), "first"),
        ((None, "2027-03-01T11:00:00Z"), (None, "2027-03-01T11:00:01Z"), "second"),
        (("5", "2027-03-01T11:00:00Z"), ("x", "2027-03-01T11:00:01Z"), "second"),
    ],
)
def test_of_several_states_the_newest_counts(tmp_path, first, second, phase):
    saved_state(tmp_path / "a.json", "first", *first)
    saved_state(tmp_path / "b.json", "second", *second)
    told = []

    assert (
        snapshots.load(tmp_path, told.append).get(PVC, "shop", "a").at("status", "phase").text
        == phase
    )
    (line,) = told
    assert (
        "1 object in several states, such as PersistentVolumeClaim shop/a; the newest counts"
        in line
    )


def test_states_that_contradict_each_other_are_no_cluster(tmp_path):
    saved_state(tmp_path / "a.json", "first", None, "2027-03-01T11:00:00Z")
    saved_state(tmp_path / "b.json", "second")
    with pytest.raises(
        SettingError,
        match=r"a\.json and .*b\.json have different states of PersistentVolumeClaim shop/a",
    ):
        snapshots.load(tmp_path)


def test_an_object_that_is_equal_in_two_files_is_no_contradiction(tmp_path):
    for name in "ab":
        saved_state(tmp_path / f"{name}.json", "equal")
    told = []
    assert len(list(snapshots.load(tmp_path, told.append))) == 1
    assert told == []


def test_a_time_that_is_none_is_an_error(tmp_path):
    live = ClusterCache([])
    live.time = "yesterday"
    snapshots.save(live, tmp_path / "cluster.json")
    with pytest.raises(SettingError, match="time must be a time such as"):
        snapshots.load(tmp_path / "cluster.json")


def answer(cluster, kind, namespace, name):
    try:
        found = cluster.get(kind, namespace, name)
    except Unseen as unseen:
        return unseen.what
    return found and found.data


def test_equal_clusters_give_equal_bytes(tmp_path):
    snapshots.save(
        ClusterCache([store(PVC, claim("b"), claim("a", "z"), claim("a")), store(NODE)]),
        tmp_path / "a",
    )
    snapshots.save(
        ClusterCache([store(NODE), store(PVC, claim("a"), claim("b"), claim("a", "z"))]),
        tmp_path / "b",
    )
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"], "no unfinished files"


def test_an_empty_cluster(tmp_path):
    snapshots.save(ClusterCache([]), tmp_path / "x")
    assert json.loads((tmp_path / "x").read_text()) == {
        "apiVersion": "virt-admit.io/v1alpha1",
        "kind": "Snapshot",
        "complete": [],
        "unreadable": [],
        "items": [],
    }


def test_what_is_not_ours_is_left_out(tmp_path):
    secret = Object(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "x"},
            "data": {"password": "hunter2"},
        }
    )
    snapshots.save(
        Snapshot([secret, Object({"apiVersion": "v1", "kind": "Node", **node("one")})]),
        tmp_path / "x",
    )
    assert [item["kind"] for item in json.loads((tmp_path / "x").read_text())["items"]] == ["Node"]


def test_a_file_that_cannot_be_written(tmp_path):
    with pytest.raises(OSError, match="missing"):
        snapshots.save(ClusterCache([]), tmp_path / "missing" / "x")


NODE_A = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}
NODE_B = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "b"}}
NODE_C = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "c"}}
VMI_A = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstance",
    "metadata": {"name": "a", "namespace": "x"},
}


def written(*items, **said):
    return json.dumps(
        {"apiVersion": "virt-admit.io/v1alpha1", "kind": "Snapshot", "items": items, **said}
    )


def test_what_could_not_be_read_is_not_believed(tmp_path):
    file = tmp_path / "cluster.json"
    file.write_text(written(NODE_A, VMI_A, complete=["*"], unreadable=["nodes"]))
    cluster = snapshots.load(file)
    assert not cluster.known(NODE)
    assert not cluster.sees_all(NODE)
    assert [vmi.name for vmi in cluster.list(VMI)] == ["a"]


def test_of_a_mounted_config_map_only_what_is_shown_counts(tmp_path):
    """While it changes, both generations are there. Its items may be in folders."""
    for generation, nodes in (("..1", (NODE_A, NODE_A)), ("..2", (NODE_B, NODE_C))):
        (tmp_path / generation / "more").mkdir(parents=True)
        for file, node_ in zip(("cluster.json", "more/nodes.json"), nodes, strict=True):
            (tmp_path / generation / file).write_text(written(node_))
    (tmp_path / "..data").symlink_to("..2")
    for name in ("cluster.json", "more"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    assert [obj.name for obj in snapshots.load(tmp_path)] == ["b", "c"]


def test_manifests_beside_such_a_snapshot_are_believed(tmp_path):
    (tmp_path / "cluster.json").write_text(written(NODE_A, unreadable=["nodes"]))
    (tmp_path / "node.json").write_text(json.dumps(NODE_B))
    cluster = snapshots.load(tmp_path)
    assert [node.name for node in cluster.known(NODE)] == ["b"]
    assert not cluster.sees_all(NODE)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the file is empty"),
        ("# nothing\n", "the file is empty"),
        ("[1, 2]\n", "a list is not a Kubernetes object"),
        ("kind: Snapshot\nitems: []\n", "a Snapshot has apiVersion virt-admit.io/v1alpha1, not ''"),
        (
            "apiVersion: virt-admit.io/v1\nkind: Snapshot\n",
            "a Snapshot has apiVersion virt-admit.io/v1alpha1",
        ),
        (
            "apiVersion: virt-admit.io/v1alpha1\nkind: Snapshot\nitems: [1]\n",
            "each item must be an object",
        ),
        (
            '{"apiVersion": "v1", "kind": "Node", "spec": NaN}',
            "cluster.yaml:1:46: NaN is not a number that JSON has",
        ),
        (
            '{"apiVersion": "v1", "kind": "Node", "spec": 1e999}',
            "cluster.yaml:1:46: a number too large",
        ),
        (
            '{"apiVersion": "v1", "kind": "Node\\udc00"}',
            "cluster.yaml:1:30: an escape that is half a character",
        ),
    ],
)
def test_a_broken_snapshot_is_not_an_empty_cluster(tmp_path, text, says):
    file = tmp_path / "cluster.yaml"
    file.write_text(text)
    with pytest.raises(SettingError, match=re.escape(says)):
        snapshots.load(file)


def test_escapes_of_whole_characters_are_read(tmp_path):
    file = tmp_path / "cluster.json"
    file.write_text(
        json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "\U0001f5a5"}})
    )
    assert "\\ud83d" in file.read_text()
    assert [obj.name for obj in snapshots.load(file)] == ["\U0001f5a5"]


def test_what_others_call_a_snapshot_is_an_object(tmp_path):
    file = tmp_path / "cluster.yaml"
    file.write_text("apiVersion: longhorn.io/v1beta2\nkind: Snapshot\nmetadata: {name: a}\n")
    assert [obj.kind for obj in snapshots.load(file)] == ["Snapshot"]


def test_whole_characters_in_escapes_take_the_fast_path(tmp_path, monkeypatch):
    """Python and jq write other characters as pairs of escapes.

    The reader would take 20 times as long.
    """
    monkeypatch.setattr(snapshots.reader, "read", None)
    (tmp_path / "x.json").write_text(
        json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "\U0001f600"}})
    )

    (loaded,) = snapshots.load(tmp_path / "x.json")

    assert "\\ud83d\\ude00" in (tmp_path / "x.json").read_text()
    assert loaded.name == "\U0001f600"
