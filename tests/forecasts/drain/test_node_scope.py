"""A live forecast of one node decodes only what concerns it,
and says what the forecast of the whole cluster says.
"""

from __future__ import annotations

from tests.for_each import for_each
from tests.forecasts.drain.vm_motion import (
    NOW,
    ago,
    attachment,
    cluster,
    failed,
    launcher,
    migration,
    node,
    vmi,
)
from virt_admit.forecasts.drain import node_scope
from virt_admit.forecasts.drain.drain_plan import plan
from virt_admit.forecasts.placement import candidates
from virt_admit.kube.cache import ClusterCache, KindStore, StoreState
from virt_admit.kube.field_filter import FieldSet
from virt_admit.kube.indexed_store import IndexedStore
from virt_admit.kube.moments import ScopedMoments
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.kinds import POD, VMI
from virt_admit.reports.drain.follow import READS
from virt_admit.reports.drain.report import report
from virt_admit.reports.values import as_data

SOURCE = {"migrationUid": "uid-m", "sourceNode": "a", "targetNode": "b", "startTimestamp": ago(60)}
CASES = {
    "at rest": (vmi(), launcher(), vmi("web", on="b"), launcher("web", on="b")),
    "marked": (vmi(evacuationNodeName="a"), launcher()),
    "queued": (
        *(
            each
            for name in ("db", "web", "api")
            for each in (vmi(name, evacuationNodeName="a"), launcher(name))
        ),
        *(migration(f"m-{name}", of=name) for name in ("web", "api")),
        migration("m", phase="Running", of="db"),
        vmi("db", evacuationNodeName="a", migrationState=SOURCE),
    ),
    "the cluster's limit is held elsewhere": (
        vmi(evacuationNodeName="a"),
        launcher(),
        migration("m-db"),
        *(each for n in range(5) for each in (vmi(f"o{n}", on="b"), launcher(f"o{n}", on="b"))),
        *(migration(f"m{n}", phase="Running", of=f"o{n}") for n in range(5)),
    ),
    "failed": (
        vmi(evacuationNodeName="a"),
        launcher(),
        *(failed(n, "connection reset", age=n * 900) for n in (1, 2, 3)),
    ),
    "arriving": (
        vmi("web", on="b", migrationState=SOURCE | {"sourceNode": "b", "targetNode": "a"}),
        launcher("web", on="b"),
        launcher("web", on="a", suffix="2", job="uid-m"),
        migration("m", phase="Running", of="web"),
    ),
    "has left": (vmi(on="b"), launcher(on="a"), launcher(on="b", suffix="2")),
    "waits for its attachment": (
        vmi(spec={"volumes": [{"name": "v", "dataVolume": {"name": "v", "hotpluggable": True}}]}),
        launcher(),
        migration("m", phase="Scheduling"),
        target := launcher(on="b", suffix="2", job="uid-m"),
        attachment(target, ready=False),
    ),
    "no room": (
        vmi(spec={"domain": {"memory": {"guest": "900Gi"}, "devices": {}}}),
        launcher(),
        node("b", unschedulable=True),
        node("c", unschedulable=True),
    ),
}


def live(*objects):
    """Return a live cluster with these objects, as informers fill it."""
    stores = [
        IndexedStore(kind, node_scope.KEYS[kind], FieldSet(paths))
        if kind in node_scope.KEYS
        else KindStore(kind, fields=FieldSet(paths), packed=True)
        for kind, paths in READS.items()
    ]
    cache = ClusterCache(stores)
    shown = {(each.kind, each.namespace, each.name): each for each in cluster(*objects)}
    for store in cache.stores.values():
        listed = {}
        for each in shown.values():
            if kinds.of(each) == store.kind:
                store.add(listed, dict(each.data))
        store.replace(listed, StoreState.LISTED)
    return cache


def moments(cache, name="a"):
    scope = lambda named, keys: node_scope.of_node(name, named, keys)  # noqa: E731
    return ScopedMoments(cache, scope, (candidates.whole_scheduler,))


@for_each("case", CASES)
@for_each("name", ["a", "b"])
def test_the_scope_of_a_node_says_what_the_whole_cluster_says(case, name):
    cache = live(*CASES[case])
    cache.time = NOW
    assert as_data(report(plan(moments(cache, name).at(NOW), name))) == as_data(
        report(plan(cache, name))
    )


def test_objects_of_other_nodes_are_not_decoded():
    others = [each for n in range(20) for each in (vmi(f"o{n}", on="b"), launcher(f"o{n}", on="b"))]
    scoped = moments(live(vmi(), launcher(), *others)).at(NOW)
    assert [each.name for each in scoped.known(VMI)] == ["db"]
    assert [each.name for each in scoped.known(POD)] == ["virt-launcher-db-1"]


def test_the_index_follows_changes_and_relisting():
    cache = live(vmi(), launcher())
    store = cache.stores[VMI]
    assert store.named(("node", "a")) == (("shop", "db"),)
    store.upsert(dict(vmi(on="b").data))
    assert (store.named(("node", "a")), store.named(("node", "b"))) == ((), (("shop", "db"),))
    store.delete(dict(vmi(on="b").data))
    assert store.named(("node", "b")) == ()
    store.upsert(dict(vmi().data))
    listed = {}
    store.add(listed, dict(vmi("web").data))
    # a listing that is not complete changes nothing
    assert store.named(("node", "a")) == (("shop", "db"),)
    store.replace(listed, StoreState.LISTED)
    assert store.named(("node", "a")) == (("shop", "web"),)
    store.replace({}, StoreState.REFUSED)
    assert store.named(("node", "a")) == ()
