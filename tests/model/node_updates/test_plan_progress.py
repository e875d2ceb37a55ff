"""How far Plans of the system-upgrade-controller are, and a Job that has failed for good."""

import pytest

from tests.builders import manifest
from virt_admit.forecasts.upgrade import rehearsal, rollouts
from virt_admit.forecasts.upgrade.rehearsal import Options
from virt_admit.forecasts.upgrade.rollouts import Driver
from virt_admit.kube.cache import ClusterCache, KindStore
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import NODE, PLAN, POD
from virt_admit.model.messages import command_of
from virt_admit.model.node_updates import cordoners, plan_progress, upgrade_plans
from virt_admit.model.node_updates.operators import cordons

NOON, BEFORE = "2026-01-01T12:00:00Z", "2026-01-01T11:40:00Z"
GROUP, HASH, HOST = "upgrade.cattle.io", "f00d", "kubernetes.io/hostname"
FAILED = "Job sys/apply-agents-on-b-1 failed on Node b: {}"
LATE = FAILED.format("DeadlineExceeded: Job was active longer than specified deadline")
READY = {"type": "Ready", "status": "True", "lastHeartbeatTime": NOON}

MANAGED = {"harvesterhci.io/managed": "true"}


def node(name, *, done=False, cordoned=False, version="v1.31.9+k3s1"):
    labels = {HOST: name, "role": "agent"} | ({f"plan.{GROUP}/agents": HASH} if done else {})
    spec = {"unschedulable": True} if cordoned else {}
    status = {
        "nodeInfo": {"kubeletVersion": "v1.32.5+k3s1" if done else version},
        "conditions": [READY],
    }
    return manifest("v1", "Node", name, metadata={"labels": labels}, spec=spec, status=status)


def plan(reason="SyncJob", message="", **spec):
    own = {
        "concurrency": 1,
        "cordon": True,
        "nodeSelector": {"matchLabels": {"role": "agent"}},
        **spec,
    }
    complete = {
        "type": "Complete",
        "status": "False",
        "reason": reason,
        "message": message,
        "lastUpdateTime": BEFORE,
    }
    status = {
        "latestHash": HASH,
        "latestVersion": "v1.32.5-k3s1",
        "applying": ["b"],
        "conditions": [complete],
    }
    return manifest(f"{GROUP}/v1", "Plan", "agents", "sys", spec=own, status=status)


def pod(step, phase="Pending"):
    running = {"state": {"running": {"startedAt": "2026-01-01T11:57:00Z"}}, "name": step}
    part = "containerStatuses" if step == "upgrade" else "initContainerStatuses"
    labels = {f"{GROUP}/plan": "agents", f"{GROUP}/node": "b"}
    return manifest(
        "v1",
        "Pod",
        "apply",
        "sys",
        metadata={"labels": labels},
        spec={"nodeName": "b"},
        status={"phase": phase, part: [running]},
    )


def cluster(*objects, complete=("*",)):
    return Snapshot([*objects], complete=list(complete), time=NOON)


A, B, C = node("a", done=True), node("b", cordoned=True), node("c")
STOPPED = (plan("JobFailed", LATE), A, B, C)


def phases(*objects):
    pools = plan_progress.progress(cluster(*objects))
    return {name: str(update.phase) for pool in pools for name, update in pool.nodes.items()}


def test_a_job_that_was_too_slow_stops_the_plan():
    (order,) = upgrade_plans.standing(cluster(*STOPPED))
    assert order.certain
    assert order.reason == (
        "Plan sys/agents has stopped: its Job sys/apply-agents-on-b-1 on b failed 20 min ago "
        "(DeadlineExceeded: Job was active longer than specified deadline), and the Plan makes it "
        "again only when the Plan is changed. b stays cordoned at v1.31.9+k3s1, and c is not begun"
    )
    assert '"jobActiveDeadlineSecs":7200' in command_of(order.remedy)
    assert phases(*STOPPED) == {"a": "done", "b": "failing", "c": "waiting"}


def test_a_live_cluster_shows_the_same():
    """Each look-up makes new views of the objects."""
    stores = {kind: KindStore(kind, packed=True) for kind in (NODE, PLAN, POD)}
    for each in (plan(), A, B, C, pod("drain")):
        stores[kinds.of(each)].upsert(each.data)
    live = ClusterCache(stores.values())
    live.time = NOON
    (pool,) = plan_progress.progress(live)
    assert {name: str(update.phase) for name, update in pool.nodes.items()} == phases(
        plan(), A, B, C, pod("drain")
    )
    assert str(pool.nodes["b"].phase) == "draining"


def event(
    reason="JobFailed", message="Job failed on Node b", at="2026-01-01T11:45:00Z", of="agents"
):
    about = {"kind": "Plan", "namespace": "sys", "name": of}
    kind = "Warning" if reason == "JobFailed" else "Normal"
    return manifest(
        "v1",
        "Event",
        f"{of}.{reason}",
        "sys",
        involvedObject=about,
        reason=reason,
        message=message,
        type=kind,
        lastTimestamp=at,
    )


def test_a_release_that_writes_an_event_alone():
    objects = (
        plan(),
        A,
        B,
        C,
        event(),
        event("Resolved", "Resolved latest version", "2026-01-01T11:40:00Z"),
    )
    (order,) = upgrade_plans.standing(cluster(*objects))
    assert order.certain
    assert order.reason.startswith(
        "Plan sys/agents has stopped: its Job on b failed 15 min ago, and the Plan makes it"
    )
    assert phases(*objects) == {"a": "done", "b": "failing", "c": "waiting"}


@pytest.mark.parametrize(
    "objects",
    [
        (plan(), A, B, C, event(at="2026-01-01T11:39:00Z")),
        (plan(), A, B, C, event(), event("Resolved", "x", "2026-01-01T11:46:00Z")),
        (plan(), A, B, C, event(of="other")),
        (plan(), A, B, C, event(message="Job failed on Node c")),
        (plan(), A, B, C, event(), pod("drain")),
        (plan(), A, node("b", done=True), C, event()),
    ],
    ids=[
        "before this version",
        "a new version",
        "another Plan",
        "not its turn",
        "it runs again",
        "it is done",
    ],
)
def test_an_event_that_is_over(objects):
    assert list(upgrade_plans.standing(cluster(*objects))) == []


def test_two_nodes_whose_jobs_have_failed():
    both = plan("JobFailed", LATE, concurrency=2)
    both.data["status"]["applying"] = ["b", "c"]
    objects = (both, A, B, node("c", cordoned=True), event(message="Job failed on Node c"))
    assert phases(*objects) == {"a": "done", "b": "failing", "c": "failing"}


def test_the_deadline_that_is_proposed_is_longer_than_the_own_one():
    (order,) = upgrade_plans.standing(
        cluster(plan("JobFailed", LATE, jobActiveDeadlineSecs=9000), A, B, C)
    )
    assert '"jobActiveDeadlineSecs":18000' in command_of(order.remedy)


@pytest.mark.parametrize(
    ("pods", "command"), [((), "kubectl describe"), ((pod("upgrade", "Failed"),), "kubectl logs")]
)
def test_a_job_that_failed_for_another_reason(pods, command):
    (order,) = upgrade_plans.standing(
        cluster(plan("JobFailed", FAILED.format("BackoffLimitExceeded: x")), A, B, C, *pods)
    )
    assert "correct that, then change Plan sys/agents" in order.remedy
    assert command_of(order.remedy).startswith(command)


def test_the_upgrade_stops_and_counts_what_is_done():
    found = rehearsal.rehearse(cluster(*STOPPED), Options(), forecast_only=True)
    assert found.possible is False
    assert [stop.reason.partition(":")[0] for stop in found.stops] == [
        "Plan sys/agents has stopped"
    ]
    assert found.progress is not None
    assert found.progress.done == ("a",)


def test_the_cordon_stays():
    cordon = cordoners.of_node(B, cluster(*STOPPED))
    assert cordon is not None
    assert (cordon.ends, cordon.by) == (False, "Plan sys/agents of the system upgrade controller")
    assert cordoners.of_node(C, cluster(*STOPPED)) is None


@pytest.mark.parametrize(
    "objects",
    [
        (plan(), A, B, C),
        (plan("JobFailed", LATE), A, B, C, pod("drain")),
        (plan("JobFailed", LATE), A, node("b", done=True), C),
        (plan("JobFailed", LATE), A, C),
        (plan("JobFailed", "no words"), A, B, C),
    ],
    ids=["under way", "its Job runs again", "the node is done", "the node is gone", "other words"],
)
def test_a_plan_that_goes_on(objects):
    assert [each for each in upgrade_plans.standing(cluster(*objects)) if each.certain] == []


def test_pods_that_are_not_known_may_be_the_job_that_runs_again():
    (order,) = upgrade_plans.standing(
        cluster(*STOPPED, complete=("nodes", "plans.upgrade.cattle.io"))
    )
    assert not order.certain


@pytest.mark.parametrize(
    ("step", "phase"),
    [("prepare", "next"), ("drain", "draining"), ("upgrade", "updating"), ("other", "draining")],
)
def test_the_node_whose_turn_it_is(step, phase):
    assert phases(plan(), A, B, C, pod(step)) == {"a": "done", "b": phase, "c": "waiting"}


def servers(kubelet="v1.31.9+k3s1", done=False):
    """Return the Plan of the servers with its only node."""
    spec = {"nodeSelector": {"matchLabels": {"role": "server"}}}
    own = manifest(f"{GROUP}/v1", "Plan", "servers", "sys", spec=spec, status={"latestHash": HASH})
    labels = {HOST: "s", "role": "server", "node-role.kubernetes.io/control-plane": "true"}
    labels |= {f"plan.{GROUP}/servers": HASH} if done else {}
    status = {"nodeInfo": {"kubeletVersion": kubelet}, "conditions": [READY]}
    return own, manifest("v1", "Node", "s", metadata={"labels": labels}, status=status)


@pytest.mark.parametrize(
    ("args", "done", "phase"),
    [
        (["prepare", "servers"], False, "waiting"),
        (["prepare", "servers"], True, "next"),
        (["prepare", "other"], False, "next"),
    ],
    ids=["waits for servers", "the servers are done", "waits for another Plan"],
)
@pytest.mark.parametrize("pods", [[], [pod("prepare")]], ids=["no pod yet", "prepares"])
def test_an_agent_that_waits_for_the_plan_of_the_servers(args, done, phase, pods):
    agents = plan(prepare={"args": args})
    found = phases(agents, A, node("b"), C, *servers(done=done), *pods)

    assert found["b"] == phase


def test_the_servers_come_before_an_agent_that_has_its_turn():
    agents = plan(prepare={"args": ["prepare", "servers"]})
    objects = (agents, node("a"), node("b"), C, *servers(), pod("prepare"))
    found = rehearsal.rehearse(cluster(*objects), Options(), forecast_only=True)

    assert [wave.nodes for wave in found.waves] == [("s",), ("b",), ("a",), ("c",)]


def test_what_its_pod_does_now():
    objects = (plan(), A, B, C, pod("drain"))
    cordon = cordoners.of_node(B, cluster(*objects))
    assert cordon is not None
    assert "has been draining the node for 3 min" in cordon.waits
    found = rehearsal.rehearse(cluster(*objects), Options(), forecast_only=True)
    assert found.possible
    assert [wave.nodes for wave in found.waves] == [("b",), ("c",)]


def held(begun, reason="ImagePullBackOff", drained=True):
    """Return a pod of the Plan that waits since a time for a container."""
    labels = {f"{GROUP}/plan": "agents", f"{GROUP}/node": "b"}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "apply-b", "controller": True}
    waits = {"state": {"waiting": {"reason": reason, "message": "pulling image x"}}}
    ended = {"state": {"terminated": {"exitCode": 0, "finishedAt": begun}}}
    own = {"labels": labels, "ownerReferences": [owner], "creationTimestamp": begun}
    status = {
        "phase": "Pending",
        "initContainerStatuses": [{"name": "drain", **(ended if drained else waits)}],
        "containerStatuses": [{"name": "upgrade", **waits}],
    }
    spec = {"nodeName": "b"}
    return manifest("v1", "Pod", "apply-b-x", "sys", metadata=own, spec=spec, status=status)


LONG_AGO, JUST_NOW = "2025-12-31T12:00:00Z", "2026-01-01T11:58:00Z"


def test_a_deleted_plan_uncordons_nothing():
    cordon = cordoners.of_node(B, cluster(A, B, C, held(LONG_AGO)))
    assert cordon is not None
    assert cordon.closed.startswith("cordoned by the deleted Plan agents")
    assert cordon.ends is False
    assert "sys/apply-b-x has been in ImagePullBackOff for 24 h (pulling image x)" in cordon.waits
    assert command_of(cordon.remedy) == "kubectl delete job apply-b -n sys"
    assert "then uncordon the node (kubectl uncordon b)" in cordon.remedy
    assert cordons.KEEP not in cordon.words


@pytest.mark.parametrize("pod", [held(JUST_NOW), pod("drain")])
def test_the_work_of_a_deleted_plan_is_not_cut_off(pod):
    cordon = cordoners.of_node(B, cluster(A, B, C, pod))
    assert cordon is not None
    assert cordon.ends is False
    assert "wait until that pod has ended" in cordon.remedy
    assert "delete" not in cordon.remedy


def test_a_plan_that_exists_uncordons_the_node_of_a_deleted_one():
    left = held(LONG_AGO)
    left.metadata.value["labels"][f"{GROUP}/plan"] = "older"
    for objects in ((left, pod("drain")), (pod("drain"), left)):
        cordon = cordoners.of_node(B, cluster(plan(), A, B, C, *objects))
        assert cordon is not None
        assert cordon.by.startswith("Plan agents")
        assert cordon.ends is None


@pytest.mark.parametrize("pod", [held(LONG_AGO, drained=False), pod("upgrade")])
def test_a_pod_that_has_not_cordoned_its_node_is_not_accused(pod):
    assert cordoners.of_node(B, cluster(A, B, C, pod)) is None


def test_plans_that_are_not_read_may_exist():
    cordon = cordoners.of_node(B, cluster(A, B, C, held(LONG_AGO), complete=("nodes", "pods")))
    assert cordon is not None
    assert (cordon.ends, cordon.failed) == (None, True)
    assert "delete" not in cordon.remedy


@pytest.mark.parametrize("reason", ["ImagePullBackOff", "CrashLoopBackOff", "ContainerCreating"])
def test_a_job_that_hangs_is_not_waited_for(reason):
    cordon = cordoners.of_node(B, cluster(plan(), A, B, C, held(LONG_AGO, reason)))
    assert cordon is not None
    assert (cordon.ends, cordon.failed, cordon.uncordon) == (None, True, False)
    assert f"has been in {reason} for 24 h" in cordon.waits
    assert command_of(cordon.remedy) == "kubectl describe pod apply-b-x -n sys"
    (order,) = upgrade_plans.standing(cluster(plan(), A, B, C, held(LONG_AGO, reason)))
    assert not order.certain  # a registry may come back
    assert f"apply-b-x has been in {reason} for 24 h" in order.reason


@pytest.mark.parametrize(
    ("begun", "reason"), [(JUST_NOW, "ErrImagePull"), (BEFORE, "PodInitializing")]
)
def test_a_job_that_has_just_begun_is_waited_for(begun, reason):
    cordon = cordoners.of_node(B, cluster(plan(), A, B, C, held(begun, reason)))
    assert cordon is not None
    assert (cordon.failed, cordon.remedy) == (False, "")
    assert not list(upgrade_plans.standing(cluster(plan(), A, B, C, held(begun, reason))))


def test_a_pod_that_no_node_takes():
    unplaced = held(LONG_AGO)
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available",
        "lastTransitionTime": LONG_AGO,
    }
    unplaced.data["status"] = {"phase": "Pending", "conditions": [condition]}
    cordon = cordoners.of_node(B, cluster(plan(), A, B, C, unplaced))
    assert cordon is not None
    assert "has been Unschedulable for 24 h (0/3 nodes are available)" in cordon.waits


@pytest.mark.parametrize("selector", [None, {"matchLabels": {"role": "server"}}])
def test_a_plan_that_selects_no_node_is_not_under_way(selector):
    assert phases(plan(nodeSelector=selector), A, B, C) == {}


def test_nodes_of_no_plan_and_of_one_that_is_complete():
    other = manifest("v1", "Node", "d", metadata={"labels": {HOST: "d", "role": "server"}})
    complete = {"conditions": [{"type": "Complete", "status": "True"}], "latestHash": HASH}
    servers = {"nodeSelector": {"matchLabels": {"role": "server"}}}
    ended = manifest(f"{GROUP}/v1", "Plan", "servers", "sys", spec=servers, status=complete)
    assert phases(plan(), A, C, other)["d"] == "not part"
    assert phases(plan(), A, C, other, ended)["d"] == "done"


@pytest.mark.parametrize(
    ("objects", "limit"),
    [
        ((plan(concurrency=2), A), (2, "concurrency of Plan sys/agents")),
        ((A,), (1, "nodes at the same time")),
        ((manifest("v1", "Node", "h", metadata={"labels": MANAGED}),), (1, "")),
    ],
    ids=["a Plan", "no updater", "Harvester"],
)
def test_what_sets_how_many_nodes_are_updated_at_once(objects, limit):
    (pool,) = rollouts.pools(Driver.PLAIN, cluster(*objects, B, C), None, ["a", "b", "c"], ())
    assert (pool.capacity, pool.limit) == limit


def completed(*, of=HASH, on="b", kind="Complete"):
    labels = {f"{GROUP}/plan": "agents", f"{GROUP}/node": on, f"plan.{GROUP}/agents": of}
    conditions = [{"type": kind, "status": "True"}]
    status = {"completionTime": "2026-01-01T11:50:00Z", "conditions": conditions}
    return manifest("batch/v1", "Job", "apply", "sys", metadata={"labels": labels}, status=status)


NEW = "v1.32.5+k3s1"


@pytest.mark.parametrize(
    ("node_b", "job", "phase"),
    [
        (node("b", cordoned=True, version=NEW), completed(), "returning"),
        (node("b", version=NEW), completed(), "done"),
        (node("b", cordoned=True), completed(), "next"),
        (node("b", cordoned=True, version=NEW), completed(of="beef"), "next"),
        (node("b", cordoned=True, version=NEW), completed(on="c"), "next"),
        (node("b", cordoned=True, version=NEW), completed(kind="Suspended"), "next"),
    ],
    ids=[
        "cordoned",
        "not cordoned",
        "the kubelet is old",
        "Job of a former version",
        "Job of another node",
        "Job not completed",
    ],
)
def test_a_node_is_updated_before_its_controller_records_it(node_b, job, phase):
    found = cluster(plan(), A, node_b, C, job)
    (pool,) = plan_progress.progress(found)
    assert str(pool.nodes["b"].phase) == phase
    assert ("its Job has completed" in pool.nodes["b"].waits_for) is (phase == "returning")
    remedy = plan_progress.unrecorded_remedy("b", found)
    assert (command_of(remedy) == "kubectl uncordon b") is (phase == "returning")


@pytest.mark.parametrize(
    ("spec", "phase"),
    [({"cordon": False}, "done"), ({"cordon": False, "drain": {"force": True}}, "returning")],
)
def test_a_plan_that_does_not_cordon_leaves_the_cordon_of_another(spec, phase):
    found = cluster(plan(**spec), A, node("b", cordoned=True, version=NEW), C, completed())
    (pool,) = plan_progress.progress(found)
    assert str(pool.nodes["b"].phase) == phase
    assert bool(plan_progress.unrecorded_remedy("b", found)) is (phase == "returning")
