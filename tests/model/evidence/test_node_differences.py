"""What one node has unlike all others of its role."""

import pytest

from tests.builders import manifest
from virt_admit.model.evidence import node_differences
from virt_admit.model.kubernetes.cluster import Snapshot

LABELS = {"kubevirt.io/schedulable": "true", "example.com/plugin": "true"}
INFO = {"kubeletVersion": "v1.34.2", "bootID": "1"}


def node(name, labels=None, *, annotations=None, taints=(), info=None, devices=None):
    own = {**LABELS, "kubernetes.io/hostname": name, **(labels or {})}
    return manifest(
        "v1", "Node", name,
        metadata={"labels": {k: v for k, v in own.items() if v is not None},
                  "annotations": annotations or {}},
        spec={"taints": list(taints)},
        status={"nodeInfo": {**INFO, **(info or {})},
                "allocatable": {"cpu": "8", "example.com/gpu": "4", **(devices or {})}},
    )  # fmt: skip


def differences(one, *others):
    found = node_differences.of(one.name, Snapshot([one, *others], ["*"]))
    return [(each.what, each.own, each.others) for each in found]


@pytest.mark.parametrize(
    ("one", "found"),
    [
        (node("a"), []),
        (
            node("a", {"example.com/plugin": "paused"}),
            [("label example.com/plugin", "paused", "true")],
        ),
        (node("a", {"example.com/plugin": None}), [("label example.com/plugin", None, "true")]),
        (
            node("a", annotations={"example.com/fence": "skip"}),
            [("annotation example.com/fence", "skip", None)],
        ),
        (
            node("a", annotations={"example.com/join-token": "abc"}),
            [("annotation example.com/join-token", "…", None)],
        ),
        (
            node("a", taints=[{"key": "example.com/off", "effect": "NoSchedule"}]),
            [("taint example.com/off", "NoSchedule", None)],
        ),
        (node("a", info={"kubeletVersion": "v1.33.0"}), [("kubeletVersion", "v1.33.0", "v1.34.2")]),
        (node("a", devices={"example.com/gpu": "0"}), [("device example.com/gpu", None, "some")]),
        (node("a", devices={"example.com/fpga": "0"}), []),
        (
            node("a", annotations={"example.com/registry-auth": "abc"}),
            [("annotation example.com/registry-auth", "…", None)],
        ),
        # what each node has of its own, what repeats a condition, and processors
        (node("a", annotations={"example.com/address": "10.0.0.7"}), []),
        (node("a", annotations={"example.com/since": "2026-11-27T10:00:00Z"}), []),
        (node("a", annotations={"example.com/machine": "machine-of-a"}), []),
        (node("a", annotations={"kubevirt.io/heartbeat": "x"}), []),
        (node("a", {"kubevirt.io/schedulable": "false"}), []),
        (node("a", {"cpu-model.node.kubevirt.io/Haswell": "true"}), []),
        (
            node("a", taints=[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]),
            [],
        ),
        # a node of another kind
        (node("a", {f"example.com/{number}": "x" for number in range(9)}), []),
    ],
)
def test_a_difference_is_told_if_all_others_agree(one, found):
    assert differences(one, node("b"), node("c"), node("d")) == found


def test_others_that_do_not_agree_show_nothing():
    one = node("a", {"example.com/plugin": "paused"})
    assert differences(one, node("b", {"example.com/plugin": "old"}), node("c")) == []


def test_one_other_node_is_too_few_and_other_roles_do_not_count():
    one = node("a", {"example.com/plugin": "paused"})
    server = {"node-role.kubernetes.io/control-plane": ""}
    assert differences(one, node("b")) == []
    assert differences(one, node("b"), node("c", server), node("d", server)) == []


@pytest.mark.parametrize("odd", [None, [], "x", {"taints": "x"}, {"taints": [None, {"key": 5}]}])
def test_odd_nodes(odd):
    one = node("a")
    one.data["spec"] = odd
    assert differences(one, node("b"), node("c")) == []


@pytest.mark.parametrize("value", ["v" * 64, "v" * 70_000])
def test_a_long_annotation_is_not_absent(value):
    short = {"example.com/list": "v"}
    others = [node(name, annotations=short) for name in "bc"]
    assert differences(node("a", annotations={"example.com/list": value}), *others) == []


def test_several_effects_of_one_taint():
    no, out = ({"key": "example.com/off", "effect": each} for each in ("NoSchedule", "NoExecute"))
    others = [node(name, taints=[out, no]) for name in "bc"]
    assert differences(node("a", taints=[no, out]), *others) == []
    assert differences(node("a", taints=[no]), *others) == [
        ("taint example.com/off", "NoSchedule", "NoExecute, NoSchedule")
    ]


def test_nodes_that_could_not_be_listed_may_have_it_too():
    one = node("a", {"example.com/plugin": "paused"})
    assert node_differences.of("a", Snapshot([one, node("b"), node("c")])) == ()
