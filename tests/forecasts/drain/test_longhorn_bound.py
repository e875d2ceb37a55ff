"""What keeps a volume of Longhorn on its node: its only replica, and work of Longhorn itself."""

import pytest

from tests.builders import manifest
from tests.forecasts.drain import operator_clusters as world
from tests.forecasts.drain.operator_clusters import policy, replica, volume
from tests.forecasts.drain.test_operator_budgets import blocker, used, wait


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
