"""What keeps a volume of Longhorn on its node: its only replica, and work of Longhorn itself."""

from dataclasses import replace

import pytest

from tests.builders import manifest
from tests.forecasts.drain import operator_clusters as world
from tests.forecasts.drain.operator_clusters import policy, replica, volume
from tests.forecasts.drain.test_operator_budgets import blocker, drained, used, wait
from virt_admit.forecasts.drain.drain_plan import plan
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.reports.drain.surroundings import with_reported


def bound(name="v1", on=""):
    """Return a volume whose only replica stays on its node."""
    found = volume(name, 1, on)
    found.data["spec"]["dataLocality"] = "strict-local"
    return found


STAYS = "dataLocality: strict-local of Longhorn volume v1 binds the only replica to node a"


@pytest.mark.parametrize(
    ("value", "demands"),
    [
        ("block-for-eviction", "waits for a move to another node"),
        ("block-for-eviction-if-contains-last-replica", "waits for a move to another node"),
        ("block-if-contains-last-replica", "demands a healthy copy on another node"),
    ],
)
def test_a_replica_that_can_never_move(value, demands):
    found = blocker(world.longhorn(replica("v1", "a", state="stopped"), bound(), policy(value)))

    assert f"node-drain-policy {value} {demands}, but {STAYS}" in found["reason"]
    assert found["now"] is False
    assert '{"value":"allow-if-replica-is-stopped"}' in found["remedy"]
    assert "if not, their data goes with the node, so back these volumes up" in found["remedy"]


def test_a_replica_that_can_never_move_stops_with_its_user():
    running = [replica("v1", "a"), policy("allow-if-replica-is-stopped")]
    assert wait(world.longhorn(*running, bound(on="a")))


def leaving():
    """Return a Machine that is being deleted."""
    return manifest(
        *("cluster.x-k8s.io/v1beta1", "Machine", "m", "fleet"),
        metadata={"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x"]},
        status={"nodeRef": {"kind": "Node", "name": "a"}},
    )


def test_the_replica_of_a_node_that_goes_for_good():
    evicting = policy("block-for-eviction")
    found = blocker([*world.longhorn(replica("v1", "a"), bound(), evicting), leaving()])

    assert "Machine of a is being deleted, and their data goes with the node" in found["remedy"]
    assert "allow-if-replica-is-stopped" not in found["remedy"]


@pytest.mark.parametrize(
    ("types", "said"),
    [
        (["volume-restore-controller"], ", and the restore of claim shop/disk is done"),
        (["volume-clone-controller"], ", and the clone into claim shop/disk is done"),
        (["csi-attacher", "volume-clone-controller"], ""),  # a pod holds it as well
        (["longhorn-api"], ""),
        ([], ""),
    ],
)
def test_longhorn_waits_for_its_own_work_on_the_node(types, said):
    tickets = {each: {"id": each, "type": each, "nodeID": "a"} for each in types}
    spec = {"volume": "v1", "attachmentTickets": tickets}
    own = manifest("longhorn.io/v1beta2", "VolumeAttachment", "v1", world.LONGHORN, spec=spec)
    manual = manifest(
        *("longhorn.io/v1beta2", "Setting", "detach-manually-attached-volumes-when-cordoned"),
        *(world.LONGHORN,),
        value="true",
    )
    copies = [replica("v1", on) for on in "abc"]
    items = world.longhorn(*copies, used(3, on="a"), own, manual)

    assert wait(items)["reason"].endswith(f"have left node a{said}")


BY_DEFAULT = "block-if-contains-last-replica"


def test_last_replicas_that_are_stopped_are_held_by_the_policy_alone():
    stopped = [replica(name, "a", state="stopped") for name in ("v1", "v2")]
    volumes = [volume(name, 1, "") for name in ("v1", "v2")]
    found = blocker(world.longhorn(*stopped, *volumes, policy(BY_DEFAULT)))

    assert (
        "Longhorn volumes v1, v2 is on node a, which node-drain-policy block-if-"
        in (found["reason"])
    )
    assert '{"value":"allow-if-replica-is-stopped"}' in found["remedy"]
    assert (
        "set numberOfReplicas: 2 in the Longhorn volume, which Longhorn builds only while"
        in (found["remedy"])
    )


def test_replicas_that_run_or_go_with_their_node_are_not_left_behind():
    running = [replica("v1", "a"), replica("v2", "a", state="stopped"), policy(BY_DEFAULT)]
    volumes = [volume("v1", 1, "a"), volume("v2", 1, "")]
    assert "allow-if" not in blocker(world.longhorn(*running, *volumes))["remedy"]

    alone = world.longhorn(replica("v2", "a", state="stopped"), volumes[1], policy(BY_DEFAULT))
    assert "allow-if" not in blocker([*alone, leaving()])["remedy"]


def storing(name):
    """Return a node with a disk for replicas."""
    spec = {"allowScheduling": True, "disks": {"d": {"allowScheduling": True}}}
    return manifest("longhorn.io/v1beta2", "Node", name, world.LONGHORN, spec=spec)


def evicted(*more, on="abc", wanted=3, value="block-for-eviction"):
    """Return what a drain of a meets whose replica of v1 is to move first."""
    objects = [replica("v1", each) for each in on]
    disks = [storing(each) for each in "abc"]
    objects += [attached(wanted), policy(value), *disks, *more]
    return world.longhorn(*objects)


def attached(wanted, name="v1", **spec):
    found = volume(name, wanted, on="b")
    found.data["spec"] |= spec
    said = {
        "type": "Scheduled",
        "status": "False",
        "reason": "ReplicaSchedulingFailure",
        "message": "precheck new replica failed",
        "lastTransitionTime": "2027-03-01T10:00:00Z",
    }
    found.data["status"] |= {"state": "attached", "conditions": [said]}
    return found


def test_replicas_that_have_no_node_to_move_to():
    found = blocker(evicted())

    assert found["now"] is False
    assert found["reason"] == (
        "node-drain-policy block-for-eviction first moves the replicas of 1 volume off a, such as "
        "of v1 (numberOfReplicas 3), but each other node with disks (b, c) has one already and "
        "takes no second one (replica-soft-anti-affinity is false). Volumes report: Scheduled is "
        "False (ReplicaSchedulingFailure): precheck new replica failed"
    )
    assert found["remedy"].startswith("Add a node with disks for Longhorn, to which it moves them")
    assert '{"value":"block-if-contains-last-replica"}' in found["remedy"]
    assert found["remedy"].endswith("or as a decision, set numberOfReplicas of v1 to 2")


def test_the_complaint_of_volumes_that_hold_a_drain_is_not_told_apart():
    agent = manifest("apps/v1", "DaemonSet", "longhorn-manager", world.LONGHORN)
    others = (attached(3, "v2"), *(replica("v2", on) for on in "abc"))
    cluster = Snapshot(evicted(agent, *others), complete=["*"], time="2027-03-01T12:00:00Z")
    result = plan(cluster, "a")
    assert with_reported(result, cluster).reported == ()
    quiet = tuple(replace(each, pods=replace(each.pods, blockers=())) for each in result.nodes)
    (told,) = with_reported(replace(result, nodes=quiet), cluster).reported
    assert (told.name, told.also) == ("v1", ("longhorn-system/v2",))


def being_moved(on, *more):
    """Return what a drain of a meets while Longhorn writes the replica that is to follow that of a;
    healthy ones are on these nodes.
    """
    objects = [*(replica("v1", each) for each in on), replica("v1", "c", healthy=False)]
    disks = [storing(each) for each in {*on, "c"}]
    return world.longhorn(
        *objects, attached(len(on)), *disks, *more or [policy("block-for-eviction")]
    )


def test_another_copy_ends_the_move_of_a_last_one():
    last = policy("block-for-eviction-if-contains-last-replica")
    copies = [replica("v1", "a"), *(replica("v1", on, healthy=False) for on in "bc")]
    objects = world.longhorn(*copies, attached(3), last, *map(storing, "abc"))
    found = blocker(objects)
    assert found["now"] is True
    assert found["reason"] == "the only healthy copy of Longhorn volume v1 is on node a"
    assert found["remedy"].startswith("Wait until Longhorn has rebuilt a copy on another node")

    movable = [replica("v2", "a"), attached(1, "v2")]
    assert drained([*objects, *movable])["drainable"] is None


def test_the_number_that_is_lowered_is_that_of_all_volumes_without_a_place():
    more = [attached(3, "v2"), replica("v2", "a"), replica("v2", "b")]
    healthy, building = replica("v2", "c"), replica("v2", "c", healthy=False)
    assert blocker(evicted(*more, healthy))["remedy"].endswith("numberOfReplicas of v1, v2 to 2")
    assert "numberOfReplicas" not in blocker(evicted(*more, building))["remedy"]


SOFT = manifest(
    *("longhorn.io/v1beta2", "Setting", "replica-soft-anti-affinity", world.LONGHORN), value="true"
)


@pytest.mark.parametrize(
    ("objects", "unreadable"),
    [
        (evicted(storing("d")), ()),
        (evicted(on="ab", wanted=2), ()),
        (evicted(wanted=2), ()),
        (being_moved("ab"), ()),
        (being_moved("a", policy("block-for-eviction-if-contains-last-replica")), ()),
        (evicted(SOFT), ()),
        (evicted(attached(3, replicaSoftAntiAffinity="enabled")), ()),
        (evicted(), ("nodes.longhorn.io",)),
    ],
    ids=[
        "a-fourth-node",
        "two-copies",
        "one-too-many",
        "under-way",
        "last",
        "soft",
        "soft-volume",
        "no-nodes",
    ],
)
def test_replicas_that_may_have_a_node_to_move_to(objects, unreadable):
    found = drained(objects, unreadable=unreadable)
    assert found["drainable"] is None
    assert not found["blockers"]


def test_replicas_stay_on_a_node_only_with_healthy_copies_elsewhere():
    broken = [replica("v1", on) for on in "abc"]
    for each in broken[1:]:
        each.data["spec"]["healthyAt"] = ""
    disks = [storing(each) for each in "abc"]
    found = blocker(world.longhorn(*broken, attached(3), policy("block-for-eviction"), *disks))
    assert found["remedy"].startswith("Add a node with disks for Longhorn, to which it moves them")
    assert "; or " not in found["remedy"]
