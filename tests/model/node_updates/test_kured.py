"""The lock of kured: who has it, when it ends, and who waits for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.builders import manifest
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.node_updates import kured, updaters

NOW = "2026-01-01T12:00:00Z"
HOUR = 3600 * 10**9


def node(
    name: str,
    *,
    cordoned: bool = False,
    waits: bool = False,
    rebooted: bool = False,
    ready: str = "True",
    since: str = "2025-12-01T00:00:00Z",
):
    needed = "2026-01-01T08:00:00Z"
    notes = {"weave.works/kured-most-recent-reboot-needed": needed} if waits or rebooted else {}
    if waits:
        notes["weave.works/kured-reboot-in-progress"] = needed
    status = {"conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": since}]}
    return manifest(
        "v1",
        "Node",
        name,
        metadata={"annotations": notes},
        spec={"unschedulable": cordoned},
        status=status,
    )


def lock(on: str, since: str = "2026-01-01T09:00:00Z", lasts: Any = 0) -> dict[str, Any]:
    return {"nodeID": on, "metadata": {"unschedulable": False}, "created": since, "TTL": lasts}


def cluster(value: Any, *nodes: Any, **fields: Any) -> Snapshot:
    text = value if isinstance(value, str) else json.dumps(value)
    notes = {"annotations": {kured.LOCK: text}}
    daemon = manifest("apps/v1", "DaemonSet", "kured", "kube-system", metadata=notes, **fields)
    return Snapshot([daemon, *nodes], complete=["*"], time=NOW)


def test_the_node_with_the_lock_is_drained_and_the_others_wait() -> None:
    found = cluster(
        lock("a"), node("a", cordoned=True, waits=True), node("b", waits=True), node("c")
    )
    update = updaters.of_nodes(found)["a"]
    assert (update.kind, update.name, update.phase) == ("DaemonSet", "kured", "draining")
    (words,) = kured.words(found)
    assert words == (
        "b waits for the lock of kured (DaemonSet kube-system/kured), which a has for 3 h. kured "
        "goes on by itself once a is empty. Its lock does not expire, as --lock-ttl is not set"
    )


def test_a_node_that_was_rebooted_since_does_not_wait() -> None:
    back = node("b", rebooted=True)
    assert kured.waiting(cluster(lock("a"), node("a", cordoned=True), back)) == ()


def test_a_holder_that_does_not_exist_is_no_node_to_wait_for() -> None:
    for_good = cluster(lock("gone"), node("b", waits=True))
    assert not list(kured.words(for_good))  # the lock is never given up, which ``hold`` says
    (words,) = kured.words(cluster(lock("gone", lasts=24 * HOUR), node("b")))
    assert words.endswith(
        "which gone has for 3 h. That node does not exist any more. Its lock expires at "
        "2026-01-02T09:00:00Z"
    )


def test_nodes_without_marks() -> None:
    (words,) = kured.words(cluster(lock("a"), node("a", cordoned=True), node("b")))
    assert words.startswith("Other nodes that need a reboot wait for the lock")


def test_nodes_without_marks_where_kured_marks_them() -> None:
    spec = {"template": {"spec": {"containers": [{"args": ["--annotate-nodes=true"]}]}}}
    nodes = node("a", cordoned=True), node("b")
    assert not list(kured.words(cluster(lock("a"), *nodes, spec=spec)))


@pytest.mark.parametrize(
    ("lasts", "held"), [(2 * HOUR, False), (4 * HOUR, True), (2**70, True), ("1h", True)]
)
def test_a_lock_that_expires(lasts: Any, held: bool) -> None:
    assert bool(kured.locks(cluster(lock("a", lasts=lasts), node("a", cordoned=True)))) is held


def test_a_lock_that_ends_after_the_last_year_of_the_calendar() -> None:
    (found,) = kured.locks(cluster(lock("a", since="9999-12-31T00:00:00Z", lasts=2**62), node("a")))
    assert found.until is None


def test_the_end_of_a_lock_is_said() -> None:
    (words,) = kured.words(cluster(lock("a", lasts=4 * HOUR), node("a", cordoned=True)))
    assert words.endswith("Its lock expires at 2026-01-01T13:00:00Z")


def test_several_locks() -> None:
    both = {"maxOwners": 2, "locks": [lock("b"), lock("a")]}
    assert [each.node for each in kured.locks(cluster(both, node("a"), node("b")))] == ["a", "b"]


@pytest.mark.parametrize(
    "value", ["", "{", "[]", "3", '{"nodeID": 3}', '{"nodeID": ""}', '{"locks": [1, {}]}']
)
def test_a_value_that_kured_does_not_write(value: str) -> None:
    assert kured.locks(cluster(value, node("a"))) == ()


def test_a_node_that_is_not_cordoned_or_does_not_report() -> None:
    assert updaters.of_nodes(cluster(lock("a"), node("a"))) == {}
    assert updaters.of_nodes(cluster(lock("gone"), node("a"))) == {}
    assert (
        updaters.of_nodes(cluster(lock("a"), node("a", cordoned=True, ready="Unknown")))["a"].phase
        == "rebooting"
    )


def test_a_lock_of_several_that_another_node_needs_is_kept() -> None:
    begun = manifest(
        "v1", "Node", "b", metadata={"annotations": {"weave.works/kured-reboot-in-progress": NOW}}
    )
    stale = {"maxOwners": 2, "locks": [lock("gone")]}
    assert kured.hold(cluster(stale, begun)) is None  # another node may have the second lock
    stale["locks"] = [lock("gone"), lock("a")]
    # the annotation has the lock of a node that reboots
    assert kured.hold(cluster(stale, begun, node("a"))) is None
    stale["locks"] = [lock("gone"), lock("away")]
    assert kured.hold(cluster(stale, begun)) is not None


def test_an_annotation_that_is_nested_too_deep() -> None:
    assert kured.locks(cluster("[" * 200_000)) == ()


def delayed(*arguments: str, at: str = "2026-01-01T11:30:00Z", others: Any = ()) -> str:
    """Return what is said of the lock of a node that became Ready at a time, with these arguments
    of kured and other objects."""
    spec = {"template": {"spec": {"containers": [{"args": list(arguments)}]}}}
    notes = {kured.LOCK: json.dumps(lock("a", since="2026-01-01T11:20:00Z", lasts=2 * HOUR))}
    daemon = manifest(
        "apps/v1", "DaemonSet", "kured", "kube-system", metadata={"annotations": notes}, spec=spec
    )
    nodes = (node("a", since=at), node("b", waits=True))
    (words,) = kured.words(Snapshot([daemon, *nodes, *others], complete=["*"], time=NOW))
    return words


@pytest.mark.parametrize(
    ("on", "at", "until"),
    [
        ("a", "2026-01-01T11:31:10Z", "2026-01-01T12:16:10Z"),
        ("a", "2026-01-01T10:00:00Z", "2026-01-01T12:15:00Z"),  # of an earlier reboot
        ("b", "2026-01-01T11:31:10Z", "2026-01-01T12:15:00Z"),
    ],
)
def test_the_delay_begins_with_the_uncordon(on: str, at: str, until: str) -> None:
    event = manifest(
        "v1",
        "Event",
        "x",
        "default",
        involvedObject={"kind": "Node", "name": on},
        reason="NodeSchedulable",
        lastTimestamp=at,
    )
    assert f"until about {until}." in delayed("--lock-release-delay=45m", others=[event])


def test_a_node_that_is_back_keeps_the_lock_for_the_delay() -> None:
    words = delayed("--lock-release-delay=45m")
    assert (
        "a is back since 2026-01-01T11:30:00Z, and kured keeps the lock after that for "
        "--lock-release-delay=45m, until about 2026-01-01T12:15:00Z. Its lock expires at"
    ) in words
    assert "until about" not in delayed("--lock-release-delay=10m")


@pytest.mark.parametrize(
    "arguments", [(), ("--lock-release-delay=soon",), ("--lock-release-delay=0",)]
)
def test_a_node_that_is_back_without_a_delay(arguments: tuple[str, ...]) -> None:
    assert "kured goes on by itself once its pod there has given the lock up" in delayed(*arguments)


def test_a_node_that_has_not_rebooted_yet_is_not_back() -> None:
    assert "once a is back and uncordoned" in delayed(
        "--lock-release-delay=45m", at="2026-01-01T08:00:00Z"
    )


@pytest.mark.parametrize(("marks", "left"), [(True, {"b"}), (False, set())])
def test_nodes_that_are_not_marked_are_left_alone(marks: bool, left: set[str]) -> None:
    args = ["--annotate-nodes=true"] if marks else []
    spec = {"template": {"spec": {"containers": [{"args": args}]}}}
    nodes = node("a", cordoned=True), node("b", rebooted=True), node("c", waits=True)
    found = cluster(lock("a"), *nodes, spec=spec)
    begun = updaters.of_nodes(found)
    assert kured.left_alone(found) == left
    assert {name: update.phase for name, update in updaters.left_alone(begun, found).items()} == (
        dict.fromkeys(left, "not part")
    )


@pytest.mark.parametrize(
    ("arguments", "looks"),
    [([], "1h"), (["--period=2h30m"], "2h30m"), (["--period=soon"], "1h"), (["--period=20m"], "")],
)
def test_a_node_may_get_its_mark_at_the_next_look(arguments: list[str], looks: str) -> None:
    args = ["--annotate-nodes=true", *arguments]
    spec = {"template": {"spec": {"containers": [{"args": args}]}}}
    held = lock("a", since="2026-01-01T11:20:00Z")
    found = cluster(held, node("a", cordoned=True), node("b"), spec=spec)
    assert list(kured.unmarked(found)) == [
        "kured marks no further node for a reboot (it looks at each every "
        f"{each}, and a has its lock for 40 min)"
        for each in filter(None, [looks])
    ]


BLOCKS = ("--annotate-nodes=true", "--blocking-pod-selector=no-reboot=true")


def blocked(image: str = "ghcr.io/kubereboot/kured:1.13.2", *nodes: Any, **changes: Any):
    """Return the lock of a node with a pod that blocks its reboot."""
    labels = changes.get("labels", {"no-reboot": "true"})
    pod = manifest(
        "v1",
        "Pod",
        "batch",
        "prod",
        metadata={"labels": labels},
        spec={"nodeName": "a"},
        status={"phase": changes.get("phase", "Running")},
    )
    one = {"name": "kured", "image": image, "args": list(BLOCKS)}
    held = lock("a", changes.get("since", "2026-01-01T09:00:00Z"), changes.get("lasts", 0))
    return cluster(
        held,
        *(nodes or (node("a", waits=True), node("b", waits=True))),
        pod,
        spec={"template": {"spec": {"containers": [one]}}},
    )


def test_a_node_whose_reboot_a_pod_blocks_keeps_the_lock() -> None:
    found = blocked()
    hold = kured.hold(found)
    assert hold is not None
    assert hold.waiting == ("b",)
    assert "Its reboot is blocked by pod prod/batch (no-reboot=true)" in hold.reason(found)
    assert "update kured to 1.14" in hold.remedy
    assert not list(kured.words(found))  # it does not go on by itself


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(blocked("ghcr.io/kubereboot/kured:1.14.0"), id="looks before it locks"),
        pytest.param(blocked("ghcr.io/kubereboot/kured:1.12.0"), id="looked before it locked"),
        pytest.param(blocked("kured:latest"), id="release not known"),
        pytest.param(blocked(since="2026-01-01T11:50:00Z"), id="minutes old"),
        pytest.param(blocked(lasts=24 * HOUR), id="expires"),
        pytest.param(blocked(labels={}), id="another pod"),
        pytest.param(blocked(phase="Succeeded"), id="the pod has ended"),
        pytest.param(
            blocked("kured:1.13.2", node("a", waits=True, cordoned=True), node("b", waits=True)),
            id="its drain goes on",
        ),
        pytest.param(blocked("kured:1.13.2", node("a", waits=True), node("b")), id="none waits"),
        pytest.param(
            blocked(
                "kured:1.13.2",
                node("a", waits=True, since="2026-01-01T10:00:00Z"),
                node("b", waits=True),
            ),
            id="it has rebooted",
        ),
    ],
)
def test_a_lock_that_is_given_up(other: Snapshot) -> None:
    assert kured.hold(other) is None
