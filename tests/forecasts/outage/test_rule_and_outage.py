"""``outage --worst 1`` never survives after a certain no of the rules on failover capacity,
and their sums agree.
"""

from tests.forecasts.outage import losses
from tests.forecasts.outage.losses import filler, nhc, node, snapshot, vm
from tests.scheduler.lossy_clusters import lossy_cluster
from virt_admit.forecasts.outage import failover_nodes, failover_room
from virt_admit.forecasts.outage.outages import Question, outages
from virt_admit.forecasts.outage.tolerance import ONE_NODE, Tolerance
from virt_admit.model.kubernetes.cluster import Unseen

NODES = [node("n1"), node("n2"), node("n3")]


def certain_no(cluster, tolerance=ONE_NODE):
    try:
        return failover_nodes.worst(failover_room.room(cluster), tolerance, cluster)
    except Unseen:
        return None


def test_random_clusters():
    refused = 0
    for seed in range(400):
        cluster = lossy_cluster(seed).snapshot()
        found = certain_no(cluster)
        if found is not None:
            refused += 1
            assert outages(Question(worst=1), cluster).survives is not True, (seed, found)
    assert refused > 10


def test_random_clusters_that_lose_two_nodes():
    refused = 0
    for seed in range(150):
        cluster = lossy_cluster(seed).snapshot()
        found = certain_no(cluster, Tolerance(nodes=2))
        if found is not None:
            refused += 1
            assert outages(Question(worst=2), cluster).survives is not True, (seed, found)
    assert refused > 5


def test_a_lighter_pair_is_short_where_the_vms_of_the_heaviest_are_bound_to_it():
    bound = {"kubernetes.io/hostname": "n1"}
    objects = [
        *NODES,
        node("n4"),
        vm("bound", "n1", "60Gi", nodeSelector=bound),
        vm("db", "n2", "50Gi"),
    ]
    cluster = snapshot(objects, vm("web", "n3", "50Gi"), filler("n4", "30Gi"))
    room = failover_room.room(cluster)
    heaviest, *lighter = room.losses("memory", Tolerance(nodes=2))
    assert len(lighter) == 5
    assert [each.weight for each in lighter] == sorted(
        (each.weight for each in lighter), reverse=True
    )
    assert heaviest.weight >= lighter[0].weight
    found = certain_no(cluster, Tolerance(nodes=2))
    assert found.loss.nodes == {"n2", "n3"}
    assert outages(Question(worst=2), cluster).survives is False


def test_the_sums_of_the_rule_are_the_capacity():
    for memory in ("10Gi", "30Gi", "60Gi"):
        objects = [
            NODES,
            vm("db", "n1", memory),
            vm("web", "n2", "8Gi"),
            filler("n3", "20Gi"),
            nhc(),
        ]
        cluster = snapshot(objects)
        room = failover_room.room(cluster)
        (worst, *_) = room.losses("memory", ONE_NODE)
        capacity = outages(Question(worst=1), cluster).capacity
        assert capacity["memory"] == room.free("memory") - worst.weight
        assert (certain_no(cluster) is not None) is (capacity["memory"] < 0 or memory == "60Gi")


def test_room_in_pieces_is_a_no_of_both():
    objects = [
        NODES,
        filler("n2", "40Gi"),
        filler("n3", "40Gi"),
        vm("db", "n1", "30Gi"),
        vm("web", "n1", "10Gi"),
    ]
    cluster = snapshot(objects, nhc())
    assert certain_no(cluster).vms == 1
    assert outages(Question(worst=1), cluster).survives is False
    assert losses.lose(cluster, "n1").capacity["memory"] == 8 * 2**30
