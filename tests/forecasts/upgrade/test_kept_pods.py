"""Cluster API waits for pods that kubectl drain leaves alone,
and says so in the condition of its Machine.
"""

from __future__ import annotations

import copy
from typing import Any, Final

import pytest

from tests.healthy.machines import claim
from tests.healthy.machines import machine as vm
from tests.healthy.parts import Object as Raw
from tests.healthy.parts import ago, budget, obj, pod, snapshot
from tests.incidents_platform.case import NODES, cluster, only, unready
from tests.incidents_platform.cluster_api import completed_pod_for_which_it_waits, machine, rolling
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.upgrade import drain_waits
from virt_admit.forecasts.upgrade.rehearsal import Options, Rehearsal, rehearse
from virt_admit.forecasts.upgrade.rollouts import Driver
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.remediation import machine_drain

WORDS = "Drain not completed yet (started at 2026-11-20T07:00:00Z):\n* Pod "


def items() -> list[Raw]:
    return copy.deepcopy(completed_pod_for_which_it_waits().items)


def world(raw: list[Raw]) -> Snapshot:
    found = snapshot(raw)
    return Snapshot(map(Object, found["items"]), ["*"], time=found["time"])


def rehearsed(raw: list[Raw]) -> Rehearsal:
    return rehearse(world(raw), Options(), forecast_only=True)


def says(raw: list[Raw], words: str) -> None:
    only(raw, "Machine", "machine-n1")["status"]["conditions"][0]["message"] = WORDS + words


def test_it_is_no_obstacle_for_kubectl() -> None:
    assert drain_plan.plan(world(items()), "n1").drainable is True
    assert rehearsed(items()).possible is False


def test_a_pod_that_runs_may_complete() -> None:
    raw = items()
    only(raw, "Pod", "report-x")["status"]["phase"] = "Running"
    found = rehearsed(raw)
    assert (found.possible, found.stops) == (None, ())
    assert (
        "when pod vms/report-x of n1 completes and is deleted: Cluster API waits for that"
        in found.unseen[0]
    )


def test_a_pod_that_has_just_completed_may_be_deleted_by_its_job() -> None:
    raw = items()
    raw[raw.index(only(raw, "Pod", "report-x"))] = done = unready(
        only(raw, "Pod", "report-x"), since=ago(minutes=9)
    )
    assert done["status"]["phase"] == "Succeeded"
    assert rehearsed(raw).possible is None


@pytest.mark.parametrize(
    "field", [{"nodeDrainTimeout": "6h"}, {"deletion": {"nodeDrainTimeoutSeconds": 21600}}]
)
def test_a_time_out_ends_the_wait(field: Raw) -> None:
    raw = items()
    only(raw, "Machine", "machine-n1")["spec"] |= field
    assert rehearsed(raw).possible is True


def test_a_rule_that_is_gone_is_known_by_the_words_of_the_machine_alone() -> None:
    raw = items()
    only(raw, "Pod", "report-x")["metadata"]["labels"] = {}
    (stop,) = rehearsed(raw).stops
    assert "does not evict it (a MachineDrainRule)" in stop.reason
    assert str(stop.problem) == "CompletedPodKept:vms/report-x"


@pytest.mark.parametrize(
    ("value", "waits"),
    [
        ("wait-completed", True),
        ("WaitCompleted", True),
        ("waitcompleted", True),
        ("skip", False),
        ("Skip", False),
        ("s-kip", None),
        ("x", None),
        ("", None),
    ],
)
def test_the_label_in_each_of_its_forms(value: str, waits: bool | None) -> None:
    one = Object(pod("a", "b", "n1", {machine_drain.WAIT_LABEL: value}, None))
    found = machine_drain.spared(one, Object(machine("m", "n1")), world([]))
    assert (found.waits if found is not None else None) is waits


def rule(name: str, behavior: str, namespace: str = "capi", **spec: Any) -> Raw:
    return obj(
        "MachineDrainRule",
        "cluster.x-k8s.io/v1beta2",
        name,
        namespace,
        spec={"drain": {"behavior": behavior}} | spec,
    )


LABELS = {"matchLabels": {"app": "batch"}}
ELSEWHERE = {"selector": LABELS, "namespaceSelector": LABELS}
RULES: dict[str, tuple[list[Raw], bool]] = {
    "each pod of each Machine": ([rule("a", "WaitCompleted")], True),
    "of another namespace": ([rule("a", "WaitCompleted", "other")], False),
    "that evicts": ([rule("a", "Drain")], False),
    "the first one by its name": ([rule("b", "WaitCompleted"), rule("a", "Skip")], False),
    "this pod": (
        [
            rule(
                "a",
                "WaitCompleted",
                pods=[{"selector": {"matchLabels": {"app": "no"}}}, {"selector": LABELS}],
            )
        ],
        True,
    ),
    "this pod in another namespace": ([rule("a", "WaitCompleted", pods=[ELSEWHERE])], False),
    "other pods": (
        [rule("a", "WaitCompleted", pods=[{"selector": {"matchLabels": {"app": "no"}}}])],
        False,
    ),
    "these Machines": (
        [
            rule(
                "a",
                "WaitCompleted",
                machines=[{"selector": {"matchLabels": {"cluster.x-k8s.io/cluster-name": "prod"}}}],
            )
        ],
        True,
    ),
    "Machines of other Clusters": (
        [rule("a", "WaitCompleted", machines=[{"clusterSelector": LABELS}])],
        False,
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_the_rule_that_decides(name: str) -> None:
    rules, waits = RULES[name]
    batch = unready(pod("report-x", "vms", "n2", {"app": "batch"}, None), since=ago(hours=4))
    batch["status"]["phase"] = "Succeeded"
    found = rehearsed([*cluster(), *rolling(1, 0), batch, *rules])
    assert found.possible is not waits
    assert [
        f"MachineDrainRule capi/{rules[0]['metadata']['name']}" in stop.reason
        for stop in found.stops
    ] == [True] * waits


def guarded(labels: Raw) -> list[Raw]:
    """Return a roll-out of a node with a pod that its budget never lets go."""
    kept = budget("batch", "vms", {"app": "batch"}, 1, available=1)
    return [
        *cluster(),
        *rolling(1, 0),
        pod("batch-x", "vms", "n2", {"app": "batch"} | labels, owned()),
        kept,
    ]


def test_a_pod_that_is_skipped_stops_nothing_nor_does_its_budget() -> None:
    skip = {machine_drain.WAIT_LABEL: "skip"}
    assert rehearsed(guarded({})).possible is False
    assert rehearsed(guarded(skip)).possible is True
    assert (
        rehearsed([*guarded({}), rule("a", "Skip", pods=[{"selector": LABELS}])]).possible is True
    )
    assert rehearsed([*guarded({}), rule("a", "Skip", "other")]).possible is False


def test_a_budget_stops_the_roll_out_for_another_pod_that_is_evicted() -> None:
    other = pod("batch-y", "vms", "n2", {"app": "batch"}, owned())
    found = rehearsed([*guarded({machine_drain.WAIT_LABEL: "skip"}), other])
    assert [str(stop.problem) for stop in found.stops] == ["BudgetForbidsEviction:vms/batch"]


def test_the_budget_of_a_pod_for_which_it_waits_is_not_asked() -> None:
    found = rehearsed(guarded({machine_drain.WAIT_LABEL: "wait-completed"}))
    assert (found.possible, found.stops) == (None, ())
    assert "when pod vms/batch-x of n2 completes and is deleted" in found.unseen[0]


def test_kubectl_drain_asks_the_budget_of_a_pod_that_cluster_api_skips() -> None:
    found = world(guarded({machine_drain.WAIT_LABEL: "skip"}))
    assert drain_plan.plan(found, "n2").drainable is False
    assert rehearse(found, Options(driver=Driver.PLAIN), forecast_only=True).possible is False


def test_a_vm_that_is_skipped_may_be_lost() -> None:
    raw = [*cluster(), *rolling(1, 0)]
    only(raw, "Pod", "virt-launcher-web-k2x7q")["metadata"]["labels"][machine_drain.WAIT_LABEL] = (
        "skip"
    )
    found = rehearsed(raw)
    assert found.possible is None
    assert found.unseen[0].startswith(
        "whether anything moves pod vms/virt-launcher-web-k2x7q before Cluster API"
    )


def test_rules_may_be_unread() -> None:
    found = snapshot([*cluster(), *rolling(1, 0)])
    unread = ("machinedrainrules.cluster.x-k8s.io",)
    result = rehearse(
        Snapshot(map(Object, found["items"]), ["*"], unread, time=found["time"]),
        Options(),
        forecast_only=True,
    )
    assert (result.possible, unread[0] in result.unseen) == (None, True)


def test_a_pod_of_a_node_whose_turn_comes_later() -> None:
    raw = [*cluster(), *rolling(1, 0)]
    done = unready(
        pod("report-x", "vms", "n2", {machine_drain.WAIT_LABEL: "wait-completed"}, None),
        since=ago(hours=4),
    )
    done["status"]["phase"] = "Failed"
    stops = rehearsed([*raw, done]).stops
    assert [(stop.node, str(stop.problem)) for stop in stops] == [
        ("n2", "CompletedPodKept:vms/report-x")
    ]
    done["metadata"]["labels"] = {}
    assert rehearsed([*raw, done]).possible is True


def test_a_long_drain_whose_words_no_forecast_explains() -> None:
    raw = [each for each in items() if each["metadata"]["name"] != "report-x"]
    says(raw, "vms/other-y: failed to evict Pod, admission webhook denied the request")
    found = rehearsed(raw)
    assert (found.possible, found.stops) == (None, ())
    assert (
        "when the drain for Machine capi/machine-n1 ends, which has waited for 5 h: Pod vms/other-y"
        in found.unseen[0]
    )


def test_a_drain_that_has_begun_lately_is_not_late() -> None:
    raw = [each for each in items() if each["metadata"]["name"] != "report-x"]
    says(raw, "vms/other-y: deletionTimestamp set, but still not removed from the Node")
    only(raw, "Machine", "machine-n1")["status"]["deletion"] = {
        "nodeDrainStartTime": ago(minutes=20)
    }
    assert rehearsed(raw).possible is True


@pytest.mark.parametrize("named", ["vms/virt-launcher-big-k2x7q", "vms/other-y"])
def test_vms_that_still_leave_explain_a_long_drain(named: str) -> None:
    raw = [each for each in items() if each["metadata"]["name"] != "report-x"]
    raw += (
        vm("big", "n1", strategy="LiveMigrate", disks=["big"])
        + claim("big")
        + [pod("other-y", "vms", "n1", {}, owned())]
    )
    says(raw, f"{named}: cannot evict pod as it would violate the pod's disruption budget.")
    assert rehearsed(raw).possible is (True if "launcher" in named else None)


def owned() -> Any:
    return obj("ReplicaSet", "apps/v1", "other", "vms")


def test_the_words_of_each_api_version() -> None:
    later = {
        "type": "Deleting",
        "status": "True",
        "reason": "DrainingNode",
        "message": f"{WORDS}a/b: waiting for completion",
    }
    older = {
        "type": "DrainingSucceeded",
        "status": "False",
        "reason": "Draining",
        "message": "Draining the node before deletion",
    }
    for condition, words in (
        (later, "Pod a/b: waiting for completion"),
        (older, "Draining the node before deletion"),
    ):
        found, began = machine_drain.reported(
            Object(machine("m", NODES[0], conditions=[condition]))
        )
        assert (found, began) == (words, None)
    assert machine_drain.reported(Object(machine("m", NODES[0]))) == ("", None)


def test_pods_that_are_named_to_go_later_do_not_stay_now() -> None:
    words = (
        "Pods a/b, c/d-1: waiting for completion After above Pods have been removed from the Node, "
        "waiting for e/f"
    )
    assert machine_drain.reported_pods(words) == ["a/b", "c/d-1"]


DETACH: Final = {"nodeVolumeDetachTimeoutSeconds": 600}


@pytest.mark.parametrize(
    ("spec", "volumes", "found", "says"),
    [
        ({"nodeDrainTimeoutSeconds": 3600, **DETACH}, ["n1"], (40, 600), "10 min later are lost"),
        ({"nodeDrainTimeoutSeconds": 3600, **DETACH}, ["n2"], (40, 600), "run then are lost"),
        ({"nodeDrainTimeoutSeconds": 3600}, ["n1"], None, ""),
        ({"nodeDrainTimeoutSeconds": 3600}, [], (40, 0), "run then are lost with the node"),
        (DETACH, [], None, ""),
    ],
    ids=["both", "no volume here", "volumes wait", "no volume", "drain waits"],
)
def test_both_time_outs_of_a_machine_end_a_drain(
    spec: Raw, volumes: list[str], found: tuple[int, int] | None, says: str
) -> None:
    own = machine("machine-n1", "n1")
    own["metadata"]["deletionTimestamp"] = ago(minutes=20)
    own["spec"]["deletion"] = spec
    attached = [
        obj(
            "VolumeAttachment",
            "storage.k8s.io/v1",
            f"csi-{node}",
            spec={"nodeName": node, "source": {"persistentVolumeName": "pvc-1"}},
            status={"attached": True},
        )
        for node in volumes
    ]
    cluster = Snapshot(map(Object, [own, *attached]), ["*"], time=ago())
    ends = {"n1": (clock.instant(ago(minutes=-found[0])), found[1])} if found is not None else {}
    assert drain_waits.deadlines(cluster) == ends
    told = "".join(drain_waits.time_outs(["n1"], cluster))
    assert says in told
    assert bool(told) is bool(ends)
