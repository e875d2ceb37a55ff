"""Values that are computed again only after something that they read has changed."""

import pytest

from virt_admit.engine.recorded_cluster import RecordedCluster
from virt_admit.engine.recorded_values import same, whole
from virt_admit.kube.cache import ClusterCache, KindStore, StoreState
from virt_admit.kube.frozen_cache import FrozenCache
from virt_admit.model.kubernetes.cluster import Unseen, each, entry, keep, more_may_exist, unlisted
from virt_admit.model.kubernetes.kinds import NODE, PVC
from virt_admit.model.kubernetes.objects import Object


def node(name, **labels):
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


class Rounds:
    """A cluster with two nodes, and the values that are recorded."""

    def __init__(self):
        self.live = ClusterCache([KindStore(NODE), KindStore(PVC)])
        self.live.stores[NODE].replace({"": {"a": node("a"), "b": node("b")}}, StoreState.LISTED)
        self.live.stores[PVC].replace({}, StoreState.LISTED)
        self.frozen = FrozenCache(self.live)
        self.frozen.refresh()
        self.recorded = RecordedCluster(self.frozen)
        self.runs = []

    def change(self, *objects):
        for obj in objects:
            self.live.stores[NODE].upsert(obj)
        self.frozen.refresh()
        names = [obj["metadata"]["name"] for obj in objects]
        reads = [(NODE, "", name) for name in names] + [whole(NODE, "", name) for name in names]
        self.recorded.change([(NODE, "", name) for name in names], [*reads, (NODE, None, None)])

    def noted(self, name, function):
        def compute(cluster):
            self.runs.append(name)
            return function(cluster)

        return compute

    def ran(self):
        found, self.runs = self.runs, []
        return found


@pytest.fixture
def rounds():
    return Rounds()


def zones(cluster):
    return {each.name: each.labels.get("zone", "") for each in cluster.known(NODE)}


def test_a_value_follows_the_object_that_it_looked_up_and_no_other(rounds):
    zone_of_a = rounds.noted("a", lambda cluster: cluster.get(NODE, "", "a").labels.get("zone"))
    assert rounds.recorded.remember("a", zone_of_a) is None
    rounds.change(node("b", zone="z"))
    rounds.recorded.remember("a", zone_of_a)
    assert rounds.ran() == ["a"]
    rounds.change(node("a", zone="z"))
    assert rounds.recorded.remember("a", zone_of_a) == "z"
    assert rounds.ran() == ["a"]


def test_a_shared_value_that_stays_equal_ends_the_chain(rounds):
    shared = rounds.noted("shared", zones)
    reader = rounds.noted("reader", lambda cluster: sorted(cluster.cached(shared).values()))
    rounds.recorded.remember("reader", reader)
    assert rounds.ran() == ["reader", "shared"]
    rounds.change(node("a", other="x"))
    rounds.recorded.remember("reader", reader)
    assert rounds.ran() == ["shared"]
    rounds.change(node("a", zone="z"))
    assert rounds.recorded.remember("reader", reader) == ["", "z"]
    assert rounds.ran() == ["shared", "reader"]


def test_a_value_rests_on_the_entry_that_it_asked_for(rounds):
    shared = rounds.noted("shared", zones)
    reader = rounds.noted("reader", lambda cluster: entry(cluster, shared, "a"))
    rounds.recorded.remember("reader", reader)
    rounds.ran()
    rounds.change(node("b", zone="z"))
    assert rounds.recorded.remember("reader", reader) == ""
    assert rounds.ran() == ["shared"]
    rounds.change(node("a", zone="y"))
    assert rounds.recorded.remember("reader", reader) == "y"


def test_a_read_after_the_computation_counts(rounds):
    reader = rounds.noted(
        "reader", lambda cluster: lambda name: cluster.get(NODE, "", name).labels.get("zone")
    )
    assert rounds.recorded.remember("reader", reader)("a") is None
    rounds.change(node("a", zone="z"))
    assert rounds.recorded.remember("reader", reader)("a") == "z"
    assert rounds.ran() == ["reader", "reader"]


def test_an_error_is_a_value(rounds):
    def missing(cluster):
        if "zone" not in cluster.get(NODE, "", "a").labels:
            raise Unseen("the zone")
        return "found"

    for _ in range(2):
        with pytest.raises(Unseen, match="the zone"):
            rounds.recorded.remember("zone", rounds.noted("zone", missing))
    assert rounds.ran() == ["zone"]
    rounds.change(node("a", zone="z"))
    assert rounds.recorded.remember("zone", missing) == "found"


def test_only_the_changed_objects_of_a_kind_are_read_again(rounds):
    def zone(obj):
        rounds.runs.append(obj.name)
        return obj.labels.get("zone")

    compute = lambda cluster: tuple(each(cluster, NODE, zone))  # noqa: E731
    assert rounds.recorded.remember("zones", compute) == (None, None)
    assert rounds.ran() == ["a", "b"]
    rounds.change(node("b", zone="z"))
    assert rounds.recorded.remember("zones", compute) == (None, "z")
    assert rounds.ran() == ["b"]


def test_whether_a_kind_is_complete_depends_on_no_object(rounds):
    reader = rounds.noted("reader", lambda cluster: unlisted(cluster, NODE))
    assert rounds.recorded.remember("reader", reader) == ""
    rounds.change(node("a", zone="z"))
    rounds.recorded.remember("reader", reader)
    assert rounds.ran() == ["reader"]
    rounds.live.stores[NODE].replace({}, StoreState.REFUSED)
    rounds.frozen.refresh()
    rounds.recorded.change([], [], [NODE])
    assert rounds.recorded.remember("reader", reader) == str(NODE)


def test_whether_more_of_a_kind_may_exist_depends_on_no_object(rounds):
    reader = rounds.noted(
        "reader", lambda cluster: [unseen.what for unseen in more_may_exist(cluster, NODE)]
    )
    assert rounds.recorded.remember("reader", reader) == []
    rounds.change(node("a", zone="z"))
    rounds.recorded.remember("reader", reader)
    assert rounds.ran() == ["reader"]
    rounds.live.stores[NODE].replace({}, StoreState.REFUSED)
    rounds.frozen.refresh()
    rounds.recorded.change([], [], [NODE])
    assert rounds.recorded.remember("reader", reader) == [str(NODE)]


def test_a_value_that_is_forgotten_is_computed_again(rounds):
    value = rounds.noted("value", zones)
    rounds.recorded.remember("value", value)
    rounds.recorded.forget("value")
    rounds.recorded.remember("value", value)
    assert rounds.ran() == ["value", "value"]


def test_values_that_nothing_uses_any_more_are_dropped(rounds):
    below = rounds.noted("below", zones)
    used = rounds.noted("used", lambda cluster: cluster.cached(below))
    reader = lambda cluster: "zone" in cluster.get(NODE, "", "a").labels or cluster.cached(used)  # noqa: E731
    rounds.recorded.remember("reader", reader)
    assert len(rounds.recorded) == 3
    rounds.change(node("a", zone="z"))
    assert rounds.recorded.remember("reader", reader) is True
    rounds.change(node("b"))
    assert len(rounds.recorded) == 1
    rounds.change(node("a"))
    rounds.ran()
    assert rounds.recorded.remember("reader", reader) == {"a": "", "b": ""}
    assert rounds.ran() == ["used", "below"]


def test_other_clusters_keep_nothing_by_key(rounds):
    value = rounds.noted("value", zones)
    assert (
        keep(rounds.live, "value", value) == keep(rounds.live, "value", value) == {"a": "", "b": ""}
    )
    assert rounds.ran() == ["value", "value"]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (1, True, False),
        ({"a": 1}, {"a": 1}, True),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, False),
        ((1,), [1], False),
        ({"a": 1}, {"a": True}, False),
        ([1, (2, "x")], [1, (2, "x")], True),
        (Object({"x": True}), Object({"x": 1}), False),
        (Object({"x": [1]}), Object({"x": [1]}), True),
    ],
)
def test_what_makes_two_values_the_same(one, other, expected):
    assert same(one, other) is expected
