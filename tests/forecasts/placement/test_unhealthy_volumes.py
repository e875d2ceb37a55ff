"""Volumes that old releases of Longhorn do not migrate, as they lack replicas."""

import pytest

from tests.builders import complete, node
from tests.forecasts.placement.test_longhorn_starts import moving, own, replica, volume
from virt_admit.forecasts.placement.components.longhorn import unhealthy_volumes
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.messages import cut_middle

ERROR = (
    "rpc error: code = Internal desc = Bad response statusCode [500]. Status [500 Internal Server "
    "Error]. Body: [message=unable to attach volume v1 to b: volume must be healthy to start "
    "migration, code=Server Error, detail=] from [http://longhorn-backend:9500/v1/volumes/v1]"
)
HEALTHY = {"healthyAt": "2021-09-06T13:20:00Z"}
NO_PLACE = replica("v1-r-3", "", "stopped", "stopped")
STORED = [
    replica("v1-r-1", "a", "running", **HEALTHY),
    replica("v1-r-2", "b", "running", **HEALTHY),
]
NODES = [own("Node", name, {"allowScheduling": True}) for name in ("a", "b")]


def degraded(robustness="degraded", replicas=3):
    found, own_volume = volume(on="a")
    own_volume.data["spec"]["numberOfReplicas"] = replicas
    own_volume.data["status"]["robustness"] = robustness
    return found, own_volume


def cause(*objects, error=ERROR):
    return unhealthy_volumes.of("pv", error, complete(node("b"), *objects))


def test_a_volume_that_lacks_a_replica_which_no_node_takes():
    found = cause(*degraded(), *STORED, NO_PLACE, *NODES)

    assert found.words == (
        "Longhorn says volume must be healthy to start migration, and it is degraded: 2 of 3 "
        "replicas are healthy as only a, b store replicas"
    )
    assert found.remedy == (
        "as a decision, set numberOfReplicas of the volume to 2: kubectl patch "
        "volumes.longhorn.io v1 -n longhorn-system --type=merge -p "
        """'{"spec":{"numberOfReplicas":2}}'; raise it to 3 again afterwards; or add a storage """
        "node, or update Longhorn to 1.2.1 or later"
    )
    assert found.lasts


def test_one_replica_alone_is_never_made_the_whole():
    found = cause(*degraded(), STORED[0], NO_PLACE, *NODES)

    assert "numberOfReplicas" not in found.remedy
    assert found.remedy.startswith("add a storage node")


def test_a_replica_that_is_rebuilt_ends_it():
    rebuilt = replica("v1-r-3", "c", "running")
    found = cause(*degraded(), *STORED, rebuilt, *NODES)

    assert "rebuilt first" in found.remedy
    assert not found.lasts


THIRD = own("Node", "c", {"allowScheduling": True})
DOWN = {"conditions": {"Ready": {"type": "Ready", "status": "False"}}}  # as up to 1.2


@pytest.mark.parametrize(
    ("others", "state"),
    [
        ([THIRD, node("c", ready="Unknown")], "is not ready"),
        ([own("Node", "c", {}, status=DOWN), node("c")], "is not ready"),
        ([THIRD, node("c", unschedulable=True)], "is cordoned"),
        ([THIRD], "is not in the cluster"),
    ],
)
@pytest.mark.parametrize("lost", [[NO_PLACE], [NO_PLACE, replica("v1-r-4", "c", "stopped")]])
def test_a_node_that_is_away_may_bring_the_replica_back(others, state, lost):
    found = cause(*degraded(), *STORED, *lost, *NODES, *others)

    assert found.words.endswith(f"healthy, and c, which stores replicas, {state}")
    assert found.remedy.startswith("let c return: kubectl describe ")
    assert "numberOfReplicas" not in found.remedy
    assert not found.lasts


@pytest.mark.parametrize(
    "others",
    [
        [node("a", unschedulable=True)],
        [own("Node", "c", {"allowScheduling": False})],
        [THIRD, node("c")],
    ],
    ids=["drained, with a replica", "stores none", "there, without room"],
)
def test_a_node_that_is_not_awaited(others):
    found = cause(*degraded(), *STORED, NO_PLACE, *NODES, *others)

    assert "as a decision, set numberOfReplicas" in found.remedy
    assert found.lasts


def test_a_replica_that_is_rebuilt_beside_one_without_a_node():
    rebuilt = replica("v1-r-4", "c", "running")
    found = cause(*degraded(replicas=4), *STORED, NO_PLACE, rebuilt, *NODES, THIRD, node("c"))

    assert found.remedy.startswith("let its replicas be rebuilt first")
    assert not found.lasts


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("replicas", "is degraded"),
        ("nodes.longhorn.io", "replicas are healthy"),
        ("settings", "as no node takes a further one"),
    ],
)
def test_what_cannot_be_read_is_not_counted(missing, said):
    kinds = {
        "volumes.longhorn.io",
        "persistentvolumes",
        "nodes",
        "replicas.longhorn.io",
        "nodes.longhorn.io",
        "settings.longhorn.io",
    }
    read = {each for each in kinds if not each.startswith(missing)}
    kept = [*STORED, NO_PLACE] if missing != "replicas" else []
    own_nodes = NODES if missing != "nodes.longhorn.io" else []
    seen = Snapshot([node("a"), node("b"), *degraded(), *kept, *own_nodes], complete=read)
    found = unhealthy_volumes.of("pv", ERROR, seen)

    assert found.words.endswith(said)
    assert found.lasts is (missing == "settings")
    assert "rebuilt" not in found.remedy


@pytest.mark.parametrize("robustness", ["healthy", "", None])
def test_a_volume_that_is_healthy_now_is_not_accused(robustness):
    assert cause(*degraded(robustness), *STORED, NO_PLACE, *NODES) is None


def test_another_error_is_not_explained_by_it():
    assert cause(*degraded(), *STORED, NO_PLACE, *NODES, error="no route to host") is None


def test_a_drain_names_it(monkeypatch):
    monkeypatch.setattr("tests.forecasts.placement.test_longhorn_starts.LATE", ERROR)
    result = moving(*degraded(), *STORED, NO_PLACE)

    assert result.outcome == "blocks the drain"
    assert "cannot be attached: Longhorn says volume must be healthy" in result.reason


def test_the_frame_of_the_rest_client_goes_before_the_reason():
    assert cut_middle(ERROR, 120).endswith("volume must be healthy to start migration")
