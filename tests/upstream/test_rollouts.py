"""Order and limits of the roll-out, for cases that the unit tests of the MachineConfig operator and
of Cluster API have.

The cases are ours; each names the upstream test whose table has the same situation.
"""

import pytest

from tests.builders import manifest
from tests.for_each import for_each
from virt_admit.forecasts.upgrade.rollouts import Driver, Pool, pools
from virt_admit.model.kubernetes.cluster import Snapshot

MCO = "openshift/machine-config-operator:pkg/controller/node/node_controller_test.go"
CAPI = "kubernetes-sigs/cluster-api:core/reconcilers/machinedeployment/mdutil/util_test.go"
CONFIG = "machineconfiguration.openshift.io"
WORKER, MASTER, INFRA = (
    f"node-role.kubernetes.io/{role}" for role in ("worker", "master", "infra")
)


def node(
    name, labels=(WORKER,), zone="", age=0, ready="True", cordoned=False, current="v0", desired="v0"
):
    return manifest(
        "v1",
        "Node",
        name,
        metadata={
            "labels": dict.fromkeys(labels, "")
            | ({"topology.kubernetes.io/zone": zone} if zone else {}),
            "annotations": {f"{CONFIG}/currentConfig": current, f"{CONFIG}/desiredConfig": desired},
            "creationTimestamp": f"2026-01-{31 - age:02}T00:00:00Z",
        },
        spec={"unschedulable": True} if cordoned else {},
        status={"conditions": [{"type": "Ready", "status": ready}]},
    )


def config_pool(name="worker", label=WORKER, **spec):
    selector = {"matchLabels": {label: ""}}
    return manifest(
        f"{CONFIG}/v1", "MachineConfigPool", name, spec={"nodeSelector": selector, **spec}
    )


def by_pool(driver, *objects) -> dict[str, Pool]:
    return {
        pool.name.split()[1]: pool
        for pool in pools(driver, Snapshot(list(objects), ["*"]), None, [])
    }


@pytest.mark.parametrize(
    ("limit", "nodes", "capacity"),
    [
        (None, 6, 1),
        (3, 6, 3),
        (0, 6, 1),
        ("50%", 6, 3),
        ("49%", 6, 2),  # rounded down
        ("10%", 6, 1),  # never none
        ("100%", 6, 6),
    ],
)
def test_max_unavailable_of_a_config_pool(limit, nodes, capacity):
    """Source: MCO#TestMaxUnavailable."""
    spec = {} if limit is None else {"maxUnavailable": limit}
    found = by_pool(
        Driver.MACHINE_CONFIG, config_pool(**spec), *(node(f"n{number}") for number in range(nodes))
    )

    assert found["worker"].capacity == capacity
    assert found["worker"].obstacle is None


@pytest.mark.parametrize("limit", ["70", "30 percent", "30 %", "some"])
def test_a_limit_that_is_not_valid_stops_a_config_pool(limit):
    """Source: MCO#TestMaxUnavailable, the cases with an error:
    syncMachineConfigPool returns before any node is chosen.
    """
    found = by_pool(Driver.MACHINE_CONFIG, config_pool(maxUnavailable=limit), node("a"))

    assert "not valid" in found["worker"].obstacle.reason


def test_nodes_go_by_zone_then_by_age_and_those_without_a_zone_are_last():
    """Source: MCO#TestSortNodeList."""
    nodes = [
        node("e", age=9),
        node("a", zone="north", age=1),
        node("d", zone="south", age=2),
        node("c", zone="south", age=5),
        node("f", age=1),
        node("b", zone="north", age=0),
    ]
    assert by_pool(Driver.MACHINE_CONFIG, config_pool(), *nodes)["worker"].nodes == (
        "a",
        "b",
        "c",
        "d",
        "e",
        "f",
    )


@pytest.mark.parametrize(
    ("labels", "owner"),
    [
        ((WORKER,), "worker"),
        ((MASTER,), "master"),
        ((MASTER, WORKER), "master"),
        ((INFRA, WORKER), "infra"),
        ((MASTER, INFRA), "master"),
        ((), None),
    ],
)
def test_a_node_belongs_to_one_pool(labels, owner):
    """Source: MCO#TestGetPrimaryPoolForNode."""
    every = [config_pool(), config_pool("master", MASTER), config_pool("infra", INFRA)]
    found = by_pool(Driver.MACHINE_CONFIG, *every, node("a", labels))

    # a node without a pool is left out
    updated = [name for name, pool in found.items() if pool.nodes and pool.obstacle is None]
    assert updated == ([owner] if owner else [])


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"ready": "False"}, True),
        ({"ready": "Unknown"}, True),
        ({"cordoned": True}, True),
        # the operator is updating it, so it comes back
        ({"ready": "False", "desired": "v1"}, False),
        ({"cordoned": True, "desired": "v1"}, False),
    ],
)
def test_nodes_that_are_not_available_are_not_updated(given, named):
    """Source: MCO#TestGetCandidateMachines, the cases with a node that is not Ready."""
    objects = node("a"), node("away", **given)
    one = by_pool(Driver.MACHINE_CONFIG, config_pool(maxUnavailable=1), *objects)["worker"]
    two = by_pool(Driver.MACHINE_CONFIG, config_pool(maxUnavailable=2), *objects)["worker"]

    assert ("away" in one.obstacle.reason) if named else one.obstacle is None
    assert two.obstacle is None
    assert (two.capacity, two.nodes, two.left_out) == (
        (1, ("a",), ("away",)) if named else (2, ("a", "away"), ())
    )


def test_a_paused_and_a_degraded_pool():
    """Source: MCO#TestPaused."""
    degraded = manifest(
        f"{CONFIG}/v1",
        "MachineConfigPool",
        "infra",
        spec={"nodeSelector": {"matchLabels": {INFRA: ""}}},
        status={
            "conditions": [{"type": "Degraded", "status": "True", "message": "node z is broken"}]
        },
    )
    found = by_pool(Driver.MACHINE_CONFIG, config_pool(paused=True), degraded, node("a"))

    assert "paused" in found["worker"].obstacle.reason
    assert "node z is broken" in found["infra"].obstacle.reason


@for_each(
    "surge, unavailable, replicas, at_once",
    [
        (None, None, 4, 1),  # the defaults: one more, none less
        (2, 1, 6, 3),
        (0, 4, 10, 4),
        (0, 20, 6, 6),  # no more than there are
        ("25%", "0%", 10, 3),  # the surge is rounded up
        ("0%", "25%", 10, 2),  # what may be missing is rounded down
        ("25%", "25%", 10, 5),
        ("0%", "5%", 10, 1),  # both are none, so one may be missing
    ],
)
@for_each("version", ["v1beta1", "v1beta2"])
def test_limits_of_a_machine_deployment(version, surge, unavailable, replicas, at_once):
    """Sources: CAPI#TestResolveFenceposts, CAPI#TestMaxUnavailable."""
    limits = {"maxSurge": surge, "maxUnavailable": unavailable}
    strategy = {
        "strategy": {
            "rollingUpdate": {key: value for key, value in limits.items() if value is not None}
        }
    }
    names = [f"n{number}" for number in range(replicas)]
    machines = [
        manifest(
            f"cluster.x-k8s.io/{version}",
            "Machine",
            name,
            "default",
            metadata={"labels": {"cluster.x-k8s.io/deployment-name": "md"}},
            status={"nodeRef": {"name": name}},
        )
        for name in names
    ]
    spec = {"rollout": strategy} if version == "v1beta2" else strategy
    deployment = manifest(
        f"cluster.x-k8s.io/{version}", "MachineDeployment", "md", "default", spec=spec
    )
    found = by_pool(Driver.CLUSTER_API, deployment, *machines, *map(node, names))["default/md"]

    assert (set(found.nodes), found.capacity) == (set(names), at_once)
