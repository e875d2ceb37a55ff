"""Where kube-scheduler would make room by preemption.

``tests/scheduler`` asks the real one about the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.builders import complete, manifest
from tests.builders import node as make_node
from virt_admit.forecasts.placement import candidates
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.scheduler import pods
from virt_admit.model.scheduler.packing import Item, pack
from virt_admit.model.scheduler.pod_placement import Placement
from virt_admit.model.scheduler.preemption import Preemption

ZONE = "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
SIZE = {"cpu": "8", "memory": "8Gi", "pods": "3"}
WEB = {"app": "web"}
SELECTED = {"labelSelector": {"matchLabels": WEB}, "topologyKey": ZONE}
APART = {"affinity": {"podAntiAffinity": {REQUIRED: [SELECTED]}}}
SPREAD = {
    "topologySpreadConstraints": [
        SELECTED | {"maxSkew": 1, "minDomains": 2, "whenUnsatisfiable": "DoNotSchedule"}
    ]
}
DEDICATED = {"taints": [{"key": "dedicated", "effect": "NoSchedule"}]}


def node(name: str = "a", **spec: Any) -> Object:
    return make_node(name, {ZONE: name}, allocatable=SIZE, **spec)


def pod(
    name: str, on: str = "", memory: str = "0", labels: Mapping[str, str] | None = None, **spec: Any
) -> Object:
    containers = [{"name": "c", "resources": {"requests": {"memory": memory}}}]
    spec = {"containers": containers, "nodeName": on} | spec
    return manifest("v1", "Pod", name, "shop", metadata={"labels": dict(labels or {})}, spec=spec)


def weigh(new: Object, *objects: Object) -> Placement:
    scheduler = candidates.scheduler(complete(*objects))
    read = pods.read(new)
    return Preemption(scheduler).weigh(read, scheduler.place(read))


FULL = pod("low", "a", memory="6Gi")
BIG = pod("new", memory="4Gi", priority=10)


@pytest.mark.parametrize(
    ("new", "objects"),
    [
        (BIG, [node(), FULL]),
        (BIG, [node(), pod("negative", "a", memory="6Gi", priority=-1)]),
        (pod("new", priority=1), [node(), *(pod(f"low-{index}", "a") for index in range(3))]),
        (pod("new", labels=WEB, priority=1, **APART), [node(), pod("low", "a", labels=WEB)]),
        (pod("new", labels=WEB, priority=1), [node(), pod("low", "a", labels=WEB, **APART)]),
        (pod("new", labels=WEB, priority=1, **SPREAD), [node(), pod("low", "a", labels=WEB)]),
        (BIG, [node("b", **DEDICATED), node(), FULL]),
    ],
)
def test_pods_of_lower_priority_make_room(new: Object, objects: list[Object]) -> None:
    found = weigh(new, *objects)

    assert found.preempting == "a"
    assert found.certain is None
    assert found.refusals["a"]


@pytest.mark.parametrize(
    ("new", "objects"),
    [
        (pod("new", memory="4Gi"), [node(), FULL]),
        (BIG, [node(), pod("equal", "a", memory="6Gi", priority=10), pod("low", "a")]),
        (pod("new", memory="4Gi", priority=10, preemptionPolicy="Never"), [node(), FULL]),
        (pod("new", memory="9Gi", priority=10), [node(), FULL]),
        (BIG, [node(**DEDICATED), FULL]),
        (BIG, [node(unschedulable=True), FULL]),
        (pod("new", memory="4Gi", priority=10, nodeSelector={ZONE: "b"}), [node(), FULL]),
        (
            BIG,
            [
                node(),
                pod("equal", "a", memory="6Gi", priority=10),
                node("b", **DEDICATED),
                pod("low", "b"),
            ],
        ),
        (
            pod("new", labels=WEB, priority=1, **APART),
            [node(), pod("equal", "a", labels=WEB, priority=1), pod("low", "a")],
        ),
    ],
)
def test_preemption_does_not_help(new: Object, objects: list[Object]) -> None:
    found = weigh(new, *objects)

    assert found.preempting == ""
    assert found.certain == ()


def test_kube_scheduler_preempts_only_if_no_node_takes_the_pod() -> None:
    found = weigh(BIG, node(), FULL, node("b"))

    assert found.preempting == ""
    assert found.certain == ("b",)


def test_only_pods_on_one_node_are_preempted() -> None:
    """Each of two nodes of one zone has a pod that the new one avoids:
    no single node becomes free of both.
    """
    nodes = [make_node(name, {ZONE: "z"}, allocatable=SIZE) for name in "ab"]
    low = [pod(f"low-{name}", name, labels=WEB) for name in "ab"]
    new = pod("new", labels=WEB, priority=1, **APART)

    assert weigh(new, *nodes, *low).preempting == ""
    assert weigh(new, *nodes, low[1]).preempting == "b"


# --- several pods at the same time ----------------------------------------------------------------


def may_fit(new: list[Object], *objects: Object) -> bool:
    scheduler = candidates.scheduler(complete(*objects))
    items = [Item(read, scheduler.place(read).candidates) for read in map(pods.read, new)]
    assert pack(items, scheduler).fits is False
    return Preemption(scheduler).may_fit(items)


def big(name: str, priority: int, memory: str = "4Gi", **spec: Any) -> Object:
    return pod(name, memory=memory, priority=priority, **spec)


@pytest.mark.parametrize(
    ("new", "there", "expected"),
    [
        ([big("x", 0), big("y", 0)], pod("low", "a", memory="1Gi", priority=-1), True),
        ([big("x", 0), big("y", 0)], pod("equal", "a", memory="1Gi"), False),
        (
            [big("x", 0), big("y", 0, memory="5Gi")],
            pod("low", "a", memory="1Gi", priority=-1),
            False,
        ),
        # y may preempt x after it has moved
        ([big("x", 0), big("y", 5)], pod("equal", "a", memory="1Gi"), True),
        (
            [big("x", 0), big("y", 5, preemptionPolicy="Never")],
            pod("equal", "a", memory="1Gi"),
            False,
        ),
        (
            [big("x", 5), big("y", 5), big("z", 0)],
            pod("high", "a", memory="1Gi", priority=9),
            False,
        ),
    ],
)
def test_pods_that_fit_only_after_preemption(
    new: list[Object], there: Object, expected: bool
) -> None:
    assert may_fit(new, node(), there) is expected
