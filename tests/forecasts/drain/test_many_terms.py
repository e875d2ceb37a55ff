"""VMs with more affinity terms than are written by hand: they cost others no time,
and turn nothing into a yes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from tests.builders import complete, kubevirt, manifest, node
from tests.work import measured
from virt_admit.engine import review as engine
from virt_admit.engine.admission_review import Request, Response
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.placement import candidates
from virt_admit.forecasts.upgrade import rehearsal
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import (
    OUT_OF_TIME,
    OutOfTime,
    Snapshot,
    check_time,
    time_limit,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.scheduler import pod_terms, search_cost
from virt_admit.policy.files import load_policy
from virt_admit.rule import Operation
from virt_admit.rules import load_rules
from virt_admit.serving.worker import review_limits

pytestmark = pytest.mark.slow

ALL = load_rules()
HOSTNAME = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
ROOM = {"cpu": "640", "memory": "5120Gi", "pods": "2500", "devices.kubevirt.io/kvm": "1000"}
Terms = Sequence[Mapping[str, Any]]


def term(label: object, **more: Any) -> dict[str, Any]:
    selector = {"matchExpressions": [{"key": f"x{label}", "operator": "Exists"}]}
    return {"labelSelector": selector, "topologyKey": HOSTNAME, **more}


def broad(number: object) -> dict[str, Any]:
    """A term that no index helps with: it selects pods without two labels, in all namespaces."""
    selector = {
        "matchExpressions": [
            {"key": key, "operator": "DoesNotExist"} for key in ("kubevirt.io", f"x{number}")
        ]
    }
    return {"labelSelector": selector, "topologyKey": HOSTNAME, "namespaceSelector": {}}


def instance(
    name: str, host: str, namespace: str, terms: Terms, kind: str = "podAntiAffinity"
) -> Iterator[Object]:
    """A VM that runs and can migrate, and its pod."""
    affinity = {"affinity": {kind: {REQUIRED: list(terms)}}} if terms else {}
    domain = {"cpu": {"model": "host-passthrough"}, "devices": {}}
    labels = {
        "kubevirt.io": "virt-launcher",
        "kubevirt.io/created-by": f"uid-{name}",
        "vm.kubevirt.io/name": name,
    }
    yield manifest(
        "kubevirt.io/v1",
        "VirtualMachineInstance",
        name,
        namespace,
        metadata={"uid": f"uid-{name}"},
        spec={
            "evictionStrategy": "LiveMigrate",
            "architecture": "amd64",
            "domain": domain,
            **affinity,
        },
        status={
            "phase": "Running",
            "nodeName": host,
            "conditions": [{"type": "LiveMigratable", "status": "True"}],
        },
    )
    yield manifest(
        "v1",
        "Pod",
        f"virt-launcher-{name}",
        namespace,
        metadata={
            "labels": labels,
            "ownerReferences": [{"kind": "VirtualMachineInstance", "name": name}],
        },
        spec={
            "nodeName": host,
            "containers": [{"resources": {"requests": {"memory": "1Gi"}}}],
            **affinity,
        },
        status={"phase": "Running"},
    )


def world(
    crowded: int,
    terms: int,
    others: int,
    hosts: int = 10,
    each: int = 0,
    of: Callable[..., Mapping[str, Any]] = term,
    **more: Any,
) -> Snapshot:
    """VMs with that many terms, all different, among others with ``each`` of them."""
    names = [f"n{number}" for number in range(hosts)]
    labels = [{"kubernetes.io/arch": "amd64", HOSTNAME: name} for name in names]
    nodes = [node(name, own, allocatable=ROOM) for name, own in zip(names, labels, strict=True)]
    number = itertools.count()
    vms = [
        part
        for index in range(crowded + others)
        for part in instance(
            f"vm{index}",
            names[index % hosts],
            "crowded" if index < crowded else f"ns{index % 5}",
            [of(next(number), **more) for _ in range(terms if index < crowded else each)],
        )
    ]
    namespaces = [
        manifest("v1", "Namespace", name)
        for name in ("crowded", *(f"ns{index}" for index in range(5)))
    ]
    return complete(*nodes, *vms, *namespaces, kubevirt())


def cordon(cluster: Snapshot, name: str = "n0") -> Response:
    old = cluster.get(kinds.NODE, "", name)
    assert old is not None
    new = Object({**old.data, "spec": {"unschedulable": True}})
    return reviewed(Request(Operation.UPDATE, kinds.NODE, new, old, uid="1"), cluster)


def maintenance(cluster: Snapshot) -> Response:
    new = manifest(
        "nodemaintenance.medik8s.io/v1beta1", "NodeMaintenance", "n0", spec={"nodeName": "n0"}
    )
    return reviewed(Request(Operation.CREATE, kinds.NM, new, None, uid="1"), cluster)


def reviewed(request: Request, cluster: Snapshot) -> Response:
    return engine.review(
        request, ALL.at_admission, cluster, load_policy("default", ALL), review_limits()
    )


SAYS = "affinity terms; more than 100 are not searched"


@pytest.mark.parametrize("ask", [cordon, maintenance])
def test_three_vms_with_5000_terms_stall_no_review(ask: Any) -> None:
    cluster = world(3, 5_000, 1_000)
    with measured() as work:
        response = ask(cluster)
    assert work.seconds < 1.5
    said = {what for _, what in response.unseen}
    # a busy machine ends it sooner
    assert said & {f"the affinity of pods: crowded/vm0 has 5,000 {SAYS}", OUT_OF_TIME}
    assert not response.errors


@pytest.mark.parametrize("ask", [cordon, maintenance])
def test_many_vms_with_100_terms_end_a_review_in_time(ask: Any) -> None:
    cluster = world(0, 0, 1_000, each=100, of=broad)
    with measured() as work:
        response = ask(cluster)
    assert work.seconds < 1.5
    assert response.not_judged or response.unseen
    assert not response.errors
    assert not response.verdicts


def test_a_drain_is_bounded_and_cannot_be_determined() -> None:
    cluster = world(3, 8_000, 300, namespaceSelector={})
    with measured() as work:
        plan = drain_plan.plan(cluster)
    assert work.seconds < 3
    assert plan.drainable is None
    assert f"the affinity of pods: crowded/vm0 has 8,000 {SAYS}" in plan.unseen
    row = next(each for node in plan.nodes for each in node.forecasts if each.vmi.name == "vm0")
    assert row.reason == f"the affinity of pods: crowded/vm0 has 8,000 {SAYS}"
    assert row.remedy == "reduce them, so that they can be judged", "virt-admit has read them"
    assert all(each.drainable is None for each in plan.nodes), (
        "their terms may select pods of every namespace"
    )


def test_terms_that_select_no_other_namespace_hide_nothing_there() -> None:
    plan = drain_plan.plan(world(3, 101, 300))
    assert {each.name for each in plan.nodes if each.drainable is None} == {"n0", "n1", "n2"}


def test_terms_that_demand_a_label_are_indexed_and_all_judged() -> None:
    with measured() as work:
        plan = drain_plan.plan(world(0, 0, 150, each=100))
    assert work.seconds < 3
    assert plan.drainable is True


@pytest.mark.parametrize(("vms", "terms", "most"), [(49, 100, 10), (600, 10, 3)])
@pytest.mark.parametrize("ask", ["drain", "upgrade"])
def test_many_vms_with_a_few_terms_that_no_index_helps_with_are_bounded(
    vms: int, terms: int, most: int, ask: str
) -> None:
    cluster = world(vms, terms, 600, of=broad)
    with measured() as work:
        if ask == "drain":
            plan = drain_plan.plan(cluster)
            possible, unseen = plan.drainable, plan.unseen
        else:
            found = rehearsal.rehearse(cluster, rehearsal.Options())
            possible, unseen = found.possible, found.unseen
    assert work.seconds < 5
    assert possible is None
    assert (
        f"the affinity of pods: crowded/vm0 has {terms} affinity terms; more than {most} are "
        "not searched"
    ) in unseen


def test_the_affinity_of_vmis_counts_whatever_their_pods_have() -> None:
    """A VM can get other affinity while it runs. Its pod has it only after the next migration."""
    cluster = world(0, 0, 150)
    affinity = {"podAntiAffinity": {REQUIRED: [broad(number) for number in range(100)]}}
    assert candidates.scheduler(cluster).most_terms == 100
    assert (
        candidates.scheduler(with_spec(cluster, of=(kinds.VMI,), affinity=affinity)).most_terms
        == 10
    )


def test_even_few_terms_are_not_searched_if_all_together_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search_cost, "MOST_COMPARISONS", {100: 10, 3: 20})
    plan = drain_plan.plan(world(0, 0, 20, each=1, of=broad))
    assert plan.drainable is None
    what = (
        "the affinity of pods: ns0/vm0 has 1 affinity terms, not searched because there are too "
        "many in all"
    )
    assert what in plan.unseen


def spread(number: object) -> dict[str, Any]:
    selector = {
        "matchLabels": {"kubevirt.io": "virt-launcher"},
        "matchExpressions": term(number)["labelSelector"]["matchExpressions"],
    }
    return {
        "maxSkew": 5,
        "topologyKey": HOSTNAME,
        "labelSelector": selector,
        "whenUnsatisfiable": "DoNotSchedule",
    }


def with_spec(
    cluster: Snapshot, *, of: Sequence[kinds.Kind] = (kinds.VMI, kinds.POD), **fields: Any
) -> Snapshot:
    """The same cluster with these fields in the spec of each VMI and each pod."""
    return complete(
        *(
            Object({**obj.data, "spec": {**obj.data["spec"], **fields}})
            if kinds.of(obj) in of
            else obj
            for obj in cluster
        )
    )


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        (
            {"topologySpreadConstraints": [spread(number) for number in range(100)]},
            "100 constraints; more than 10 are",
        ),
        (
            {"tolerations": [{"key": f"x{number}"} for number in range(5_000)]},
            "5,002 demands on nodes; more than 1,000 are",
        ),
        (
            {"nodeSelector": {f"x{number}": "v" for number in range(5_000)}},
            "5,002 demands on nodes; more than 1,000 are",
        ),
        (
            {
                "affinity": {
                    "nodeAffinity": {
                        REQUIRED: {
                            "nodeSelectorTerms": [term(n)["labelSelector"] for n in range(1_000)]
                        }
                    }
                }
            },
            "2,002 demands on nodes; more than 1,000 are",
        ),
    ],
)
def test_every_list_of_a_vm_that_counts_for_each_node_or_pod_is_bounded(
    fields: Mapping[str, Any], what: str
) -> None:
    cluster = with_spec(world(0, 0, 100, hosts=100), **fields)
    with measured() as work:
        plan = drain_plan.plan(cluster)
    assert work.seconds < 4
    assert plan.drainable is None
    assert any(f"{what} not searched" in each for each in plan.unseen), plan.unseen[:2]


def test_a_vm_with_many_demands_on_nodes_stalls_no_review() -> None:
    terms = [
        {"matchExpressions": [{"key": f"x{number}", "operator": "Exists"}]}
        for number in range(5_000)
    ]
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
    template = {
        "spec": {"evictionStrategy": "LiveMigrate", "domain": {"devices": {}}, "affinity": affinity}
    }
    new = manifest(
        "kubevirt.io/v1",
        "VirtualMachine",
        "db",
        "ns0",
        spec={"runStrategy": "Always", "template": template},
    )
    schedulable = {"kubevirt.io/schedulable": "true", "kubernetes.io/arch": "amd64"}
    cluster = complete(
        *(node(f"n{number}", schedulable, allocatable=ROOM) for number in range(1_000)), kubevirt()
    )
    with measured() as work:
        response = reviewed(Request(Operation.CREATE, kinds.VM, new, None, uid="1"), cluster)
    assert work.seconds < 1.5
    assert response.not_judged
    assert not response.errors


def test_an_upgrade_is_bounded_and_cannot_be_determined() -> None:
    with measured() as work:
        found = rehearsal.rehearse(world(3, 5_000, 100), rehearsal.Options())
    assert work.seconds < 3
    assert found.possible is None
    assert f"the affinity of pods: crowded/vm0 has 5,000 {SAYS}" in found.unseen


def drainable(*terms: Mapping[str, Any], kind: str = "podAntiAffinity") -> bool | None:
    labels = {"kubernetes.io/arch": "amd64"}
    nodes = [node(name, {**labels, HOSTNAME: name}, allocatable=ROOM) for name in ("n0", "n1")]
    first, second = instance("a", "n0", "shop", terms, kind), instance("b", "n1", "shop", ())
    objects = (*nodes, *first, *second, manifest("v1", "Namespace", "shop"), kubevirt())
    return drain_plan.plan(complete(*objects), "n0").drainable


LAUNCHERS = {
    "labelSelector": {"matchLabels": {"kubevirt.io": "virt-launcher"}},
    "topologyKey": HOSTNAME,
}


@pytest.mark.parametrize(("count", "expected"), [(1, False), (100, False), (5_000, False)])
def test_equal_terms_are_one(count: int, expected: bool) -> None:
    assert drainable(*[LAUNCHERS] * count) is expected
    assert drainable(*[term("absent")] * count) is not expected


@pytest.mark.parametrize("kind", ["podAntiAffinity", "podAffinity"])
def test_100_different_terms_are_searched_and_101_are_not(kind: str) -> None:
    terms = [term(number) for number in range(101)]
    assert drainable(*terms[:100], kind=kind) is (kind == "podAntiAffinity")
    assert drainable(*terms, kind=kind) is None


def test_the_requirements_of_few_terms_have_a_bound_too() -> None:
    wide = {
        "matchExpressions": [
            {"key": f"k{number}", "operator": "DoesNotExist"} for number in range(1_001)
        ]
    }
    assert drainable({"labelSelector": wide, "topologyKey": HOSTNAME}) is None
    narrow = {"matchExpressions": wide["matchExpressions"][:1_000]}
    assert drainable({"labelSelector": narrow, "topologyKey": HOSTNAME}) is False


@pytest.mark.parametrize(("count", "expected"), [(100, True), (101, None), (5_000, None)])
def test_topology_spread_has_a_bound_too(count: int, expected: bool | None) -> None:
    spread = [
        {
            "maxSkew": 5,
            "topologyKey": HOSTNAME,
            "labelSelector": {},
            "whenUnsatisfiable": "DoNotSchedule",
        }
    ] * count
    nodes = [
        node(name, {"kubernetes.io/arch": "amd64", HOSTNAME: name}, allocatable=ROOM)
        for name in ("n0", "n1")
    ]
    running, launcher = instance("a", "n0", "shop", ())
    running = Object(
        {**running.data, "spec": {**running.data["spec"], "topologySpreadConstraints": spread}}
    )
    plan = drain_plan.plan(
        complete(*nodes, running, launcher, manifest("v1", "Namespace", "shop"), kubevirt()), "n0"
    )
    assert plan.drainable is expected


def test_the_message_counts_requirements() -> None:
    wide = {"matchLabels": {f"k{number}": "v" for number in range(1_001)}}
    affinity = Object(
        {"affinity": {"podAffinity": {REQUIRED: [{"labelSelector": wide, "topologyKey": "a"}]}}}
    )
    found = pod_terms.pod_terms(affinity["affinity"], "shop", "db", {}).unsearched
    assert found is not None
    assert found.what.endswith(
        "shop/db has 1,001 requirements in its affinity terms; more than 1,000 are not searched"
    )


def test_what_the_time_limit_ended_is_not_remembered() -> None:
    """Even if the function itself went on without the part that ended."""
    cluster, over = Snapshot([], ["*"]), [True]

    def count(_cluster: Any) -> int:
        try:
            check_time()
        except OutOfTime:
            return 0
        return 1

    with time_limit(lambda: over[0]), pytest.raises(OutOfTime):
        cluster.cached(count)
    with time_limit(lambda: False):
        assert cluster.cached(count) == 1


def test_the_filters_are_not_remembered_half() -> None:
    cluster, calls = world(0, 0, 10), itertools.count()
    with time_limit(lambda: next(calls) > 3), pytest.raises(OutOfTime):
        candidates.scheduler(cluster)
    assert len(list(candidates.scheduler(cluster).state.all_pods())) == 10
