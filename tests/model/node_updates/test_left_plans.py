"""Cordons of Jobs whose Plan was deleted, and those that something else will end."""

import pytest

from tests.builders import manifest
from tests.work import measured
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.node_updates import cordoners
from virt_admit.model.node_updates.rancher import left_plans

NOON, TURN, CORDON = "2026-01-01T12:00:00Z", "2026-01-01T11:10:00Z", "2026-01-01T11:11:00Z"
GROUP = "upgrade.cattle.io"
LABEL = f"plan.{GROUP}/agents"


def node(name="b", *, version="v1.31.6+k3s1", since=CORDON, labels=(), by="kubectl"):
    spec = {"unschedulable": True, "taints": [cordon(since)]} if since else {}
    owned = {"manager": by, "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}
    own = {"labels": {"kubernetes.io/hostname": name, **dict(labels)}, "managedFields": [owned]}
    status = {"nodeInfo": {"kubeletVersion": version}}
    return manifest("v1", "Node", name, metadata=own, spec=spec, status=status)


def cordon(since):
    return {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", "timeAdded": since}


def event(reason, message, time=TURN, kind="Plan", name="agents"):
    about = {"kind": kind, "namespace": "system-upgrade", "name": name}
    found = manifest("v1", "Event", f"{reason}-{time}", "system-upgrade")
    found.data.update(reason=reason, message=message, lastTimestamp=time, involvedObject=about)
    return found


SYNCED = event("SyncJob", "Jobs synced for version v1.31.7-k3s1 on Nodes a,b. Hash: 77d0")
DONE = event("JobComplete", "Job completed on Node b", "2026-01-01T11:10:30Z")
WAITING = event(
    "JobCompleteWaiting",
    "Job completed on Node b, waiting 5m0s PostCompleteDelay",
    "2026-01-01T11:10:30Z",
)
PLAN = manifest(f"{GROUP}/v1", "Plan", "agents", "system-upgrade")


def pod(phase="Running"):
    labels = {f"{GROUP}/plan": "agents", f"{GROUP}/node": "b"}
    own = {"metadata": {"labels": labels}, "status": {"phase": phase}}
    return manifest("v1", "Pod", "apply", "system-upgrade", **own)


def left(*objects, complete=("*",)):
    cluster = Snapshot(list(objects), complete=list(complete), time=NOON)
    return cordoners.of_node(objects[0], cluster)


def test_the_job_of_a_deleted_plan_left_a_cordon():
    failed = event(
        "Failed", 'Failed to pull image "k3s-upgrade"', kind="Pod", name="apply-agents-on-b-x"
    )
    found = left(node(), SYNCED, failed, pod("Failed"))

    assert found.closed == (
        "cordoned by a Job of Plan system-upgrade/agents, which does not exist any more"
    )
    assert "No Plan and no Job uncordons it for 49 min" in found.waits
    assert 'The kubelet said of its pod: Failed to pull image "k3s-upgrade".' in found.waits
    assert "The node has v1.31.6+k3s1, that Plan brought v1.31.7-k3s1." in found.waits
    assert "kubectl uncordon b" in found.remedy
    assert found.ends is False


@pytest.mark.parametrize(
    "objects",
    [
        (node(), SYNCED, PLAN),
        (node(), SYNCED, DONE),
        (node(), SYNCED, pod()),
        (node(since="2026-01-01T11:09:00Z"), SYNCED),
        (node(), SYNCED, WAITING),
        (node(by="Mozilla"), SYNCED),
        (node("c"), SYNCED),
        (node(),),
    ],
    ids=[
        *("the Plan exists", "completed", "its pod runs", "cordoned before", "waits after its job"),
        *("by a person", "another node", "none"),
    ],
)
def test_a_cordon_that_a_deleted_plan_did_not_leave(objects):
    assert left(*objects) is None


def test_a_cordon_long_after_the_turn_may_be_of_someone_else():
    found = left(node(since="2026-01-01T11:50:00Z"), SYNCED)

    assert found.closed.startswith("cordoned by kubectl, perhaps in a Job of Plan")
    assert found.ends is None


def test_host_names_with_dots():
    synced = event("SyncJob", "Jobs synced for version v1.31.7-k3s1 on Nodes a.b.c,b.b.c. Hash: 7")

    assert left(node("b.b.c"), synced).ends is False
    assert left(node("a"), synced) is None


@pytest.mark.parametrize("kind", ["upgrade.cattle.io/plans", "pods"])
def test_nothing_is_said_where_plans_or_pods_are_not_known(kind):
    every = {"nodes", "upgrade.cattle.io/plans", "pods", "events"}
    assert left(node(), SYNCED, complete=every - {kind}) is None


OLD = "2025-12-31T12:00:00Z"
NEWER = node("a", version="v1.31.7+k3s1", since="", labels={LABEL: "77d0"})


def test_events_have_expired():
    found = left(node(since=OLD), NEWER)

    assert found.closed == "cordoned by kubectl 24 h ago"
    assert found.waits.startswith(
        "Plan agents, which has labelled a (now at v1.31.7+k3s1), does not"
    )
    assert found.ends is None
    assert found.failed


@pytest.mark.parametrize(
    "objects",
    [
        (node(), NEWER),
        (node(since=OLD, version="v1.31.7+k3s1"), NEWER),
        (node(since=OLD, labels={LABEL: "66c0"}), NEWER),
        (node(since=OLD), NEWER, PLAN),
        (node(since=OLD, labels={"node-role.kubernetes.io/control-plane": ""}), NEWER),
    ],
    ids=["young", "has the version", "reached", "the Plan exists", "a server"],
)
def test_a_cordon_of_a_maintenance(objects):
    assert left(*objects) is None


def test_the_job_of_a_plan_in_another_namespace_completes_none():
    other = event("JobComplete", "Job completed on Node b", "2026-01-01T11:10:30Z")
    other.data["involvedObject"] = other.data["involvedObject"] | {"namespace": "other"}

    assert left(node(), SYNCED, other) is not None


def several(number, *, turns):
    """Return cordoned nodes, each of a Plan of its own that is gone."""
    since = CORDON if turns else "2026-01-01T01:00:00Z"
    for each in range(number):
        labels = {} if turns else {f"plan.{GROUP}/p{each}": "x"}
        yield node(f"n{each}", since=since, labels=labels)
        if turns:
            said = f"Jobs synced for version v1.31.7 on Nodes n{each}. Hash"
            for reason, message in (("SyncJob", said), ("JobComplete", "Job completed on Node z")):
                found = event(reason, message, name=f"p{each}")
                found.data["metadata"] = found.data["metadata"] | {"name": f"{reason}-{each}"}
                yield Object(found.data)


@pytest.mark.parametrize("turns", [True, False])
def test_many_cordons_are_judged_in_time(turns):
    made = list(several(1500, turns=turns))
    cluster = Snapshot(made, complete=["*"], time=NOON)
    nodes = [each for each in made if each.kind == "Node"]
    with measured() as work:
        found = [left_plans.of_node(each, cluster) for each in nodes]
    assert sum(each is not None for each in found) == (len(nodes) if turns else 0)
    assert work.seconds < 1
