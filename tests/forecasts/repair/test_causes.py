"""For every cause one cluster of which a node cannot be drained,
and the plan after which it can.
"""

from __future__ import annotations

import pytest

from tests.builders import EVERY_NODE, manifest
from tests.for_each import for_each
from tests.forecasts.repair.broken_clusters import (
    INTERFACES,
    ROOM,
    claim,
    cluster,
    disk,
    kubevirt,
    node,
    storage_class,
    vm,
)
from tests.forecasts.repair.budget_causes import BUDGETS, REPLICAS, budget, web
from tests.forecasts.repair.carried_out import carried_out
from tests.forecasts.repair.moving_causes import MOVING
from tests.forecasts.repair.rare_causes import RARE, SLOW
from tools import example_cluster
from tools.example_vms import TIME
from virt_admit.forecasts.drain.drain_plan import plan as drain
from virt_admit.forecasts.repair.applying import applied
from virt_admit.forecasts.repair.causes import node_steps
from virt_admit.forecasts.repair.changed_cluster import ChangedCluster
from virt_admit.forecasts.repair.planning import repair
from virt_admit.forecasts.repair.repair_plan import CostClass, Goal, Proof
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import PDB
from virt_admit.model.kubernetes.objects import Object

SMALL = {**ROOM, "memory": "6Gi"}
BRIDGE = {
    "domain": {
        "devices": {"interfaces": [{"name": "default", "bridge": {}}]},
        "memory": {"guest": "4Gi"},
    }
}
DEVICE = {
    "domain": {
        "devices": {"hostDevices": [{"name": "x", "deviceName": "a/b"}], "interfaces": INTERFACES},
        "memory": {"guest": "4Gi"},
    }
}
HERE = {"nodeSelector": {"kubernetes.io/hostname": "a"}}
ONLY_A = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["a"]}
AFFINE = {
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [ONLY_A]}]
            }
        }
    }
}
WITH_ITSELF = {
    "affinity": {
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"app": "web"}},
                }
            ]
        }
    }
}
SKYLAKE = {
    "host-model-cpu.node.kubevirt.io/Skylake": "true",
    "cpu-model-migration.node.kubevirt.io/Skylake": "true",
    "cpu-model.node.kubevirt.io/Haswell": "true",
}
HASWELL = {
    "host-model-cpu.node.kubevirt.io/Haswell": "true",
    "cpu-model.node.kubevirt.io/Haswell": "true",
}


def quota(hard, used):
    limits = {"requests.memory": hard}
    return manifest(
        "v1",
        "ResourceQuota",
        "compute",
        "shop",
        spec={"hard": limits},
        status={"hard": limits, "used": {"requests.memory": used}},
    )


CAUSES = {
    "a disk on one node": (
        (vm(spec=disk(), reason="DisksNotLiveMigratable"), claim("root"), storage_class()),
        [("copy:shop/db", CostClass.COPY)],
    ),
    "a disk without a class to copy to": (
        (vm(spec=disk(), reason="DisksNotLiveMigratable"), claim("root")),
        [("restart:shop/db", CostClass.RESTART)],
    ),
    "a disk whose copy needs a setting first": (
        (
            vm(spec=disk(), reason="DisksNotLiveMigratable"),
            claim("root"),
            storage_class(),
            kubevirt(methods=(), settings={"vmRolloutStrategy": "Stage"}),
        ),
        [
            ("before-copies:methods", CostClass.NOTHING),
            ("before-copies:rollout", CostClass.NOTHING),
            ("copy:shop/db", CostClass.COPY),
        ],
    ),
    "a bridge on the pod network": (
        (vm(spec=BRIDGE, reason="InterfaceNotLiveMigratable"),),
        [("restart:shop/db", CostClass.RESTART)],
    ),
    "a bridge and a disk": (
        (
            vm(spec={**BRIDGE, **disk()}, reason="InterfaceNotLiveMigratable"),
            claim("root"),
            storage_class(),
        ),
        [("restart:shop/db", CostClass.RESTART), ("copy:shop/db", CostClass.COPY)],
    ),
    "a device of the host": (
        (vm(spec=DEVICE, reason="HostDeviceNotLiveMigratable"),),
        [("restart:shop/db", CostClass.RESTART)],
    ),
    "a reason that no object explains": (
        (vm(reason="SomethingNew"),),
        [("restart:shop/db", CostClass.RESTART)],
    ),
    "pinned by a selector": ((vm(spec=HERE),), [("place:shop/db", CostClass.NOTHING)]),
    "pinned by an affinity": ((vm(spec=AFFINE),), [("place:shop/db", CostClass.NOTHING)]),
    "bound to another VM": (
        (vm(spec=WITH_ITSELF), vm("web")),
        [("place:shop/db", CostClass.NOTHING)],
    ),
    "kept off by a taint": (
        (vm(), node("b", taints=[{"key": "dedicated", "value": "x", "effect": "NoSchedule"}])),
        [("place:shop/db", CostClass.NOTHING)],
    ),
    "pinned, and changes are staged": (
        (vm(spec=HERE), kubevirt({"vmRolloutStrategy": "Stage"})),
        [("restart:shop/db", CostClass.RESTART)],
    ),
    "the only other node is cordoned": (
        (vm(), node("b", unschedulable=True)),
        [("uncordon:b", CostClass.DECISION)],
    ),
    "another processor": (
        (vm(), node("a", SKYLAKE), node("b", HASWELL)),
        [("restart:shop/db", CostClass.RESTART)],
    ),
    "no room for one": (
        (vm(memory="8Gi"), node("b", room=SMALL)),
        [("add-nodes:a", CostClass.DECISION)],
    ),
    "no room for all": (
        (*(vm(f"v{number}", memory="3Gi") for number in range(4)), node("b", room=SMALL)),
        [("add-nodes:a", CostClass.DECISION)],
    ),
    "External without a controller": (
        (vm(strategy="External"),),
        [("restart:shop/db", CostClass.RESTART)],
    ),
    "no migration starts": (
        (vm(), kubevirt({"migrations": {"parallelMigrationsPerCluster": 0}})),
        [("MigrationLimitZero:kubevirt/kubevirt", CostClass.NOTHING)],
    ),
    "a quota": ((vm(), quota("6Gi", "4Gi")), [("QuotaExceeded:shop/compute", CostClass.NOTHING)]),
    "a LimitRange": (
        (
            vm(),
            manifest(
                "v1",
                "LimitRange",
                "small",
                "shop",
                spec={"limits": [{"type": "Container", "max": {"memory": "2Gi"}}]},
            ),
        ),
        [("LimitRangeExceeded:shop/small", CostClass.NOTHING)],
    ),
    "a budget over a VM with None": (
        (vm(strategy="None"), budget("db", {"app": "db"}, minAvailable=1)),
        [("restart:shop/db", CostClass.RESTART)],
    ),
    "a mark that is left over": (
        (vm(vmi_status={"evacuationNodeName": "z"}),),
        [("unmark:shop/db", CostClass.NOTHING)],
    ),
}


ALL = CAUSES | RARE | MOVING | BUDGETS


@for_each("name", ALL)
def test_the_plan_flips_the_verdict(name):
    objects, steps = ALL[name]
    broken = cluster(*objects)
    assert drain(broken).drainable is (None if name in UNDETERMINED else False)

    plan = repair(broken, Goal.DRAIN)

    assert plan.reaches, plan.remaining
    assert [(step.id, step.cost.class_) for step in plan.steps] == steps
    assert {step.proof for step in plan.steps} <= {Proof.FLIPS, Proof.PART}
    assert drain(applied(plan.steps, broken)).drainable
    assert drain(carried_out(plan, broken)).drainable
    assert {solved for step in plan.steps for solved in step.solves} == {
        problem.id for problem in plan.problems
    }


@for_each("name", ALL)
def test_a_step_left_out_brings_a_blocker_back(name):
    broken = cluster(*ALL[name][0])
    plan = repair(broken, Goal.DRAIN)
    for step in plan.steps:
        if step.id.startswith("before-copies:"):  # a trap of the copy, which a drain does not see
            continue
        rest = [other for other in plan.steps if other is not step]
        assert drain(applied(rest, broken)).drainable is not True, step.id


UNDETERMINED = (
    "bound to another VM",
    "a shared claim on a hostPath volume",
    "a bandwidth with which no migration ends",
    "a bandwidth of HyperConverged with which none ends",
)
"""Nothing that was read says that these drains end, and nothing that they do not."""


def test_a_policy_that_limits_migrations_is_named():
    limits = {"bandwidthPerMigration": "1Mi", "completionTimeoutPerGiB": 10}
    selector = {"selectors": {"virtualMachineInstanceSelector": {"app": "db"}}}
    policy = manifest(
        "migrations.kubevirt.io/v1alpha1", "MigrationPolicy", "slow", spec=limits | selector
    )
    plan = repair(cluster(vm(memory="60Gi"), policy), Goal.DRAIN)
    assert (plan.reaches, plan.steps) == (None, ())
    assert "MigrationPolicy slow limits its migrations" in plan.remaining[0].why


def test_one_limit_is_raised_for_all_migrations_that_take_too_long():
    slow = cluster(vm(memory="20Gi"), vm("web", memory="20Gi"), kubevirt(SLOW))
    (step,) = repair(slow, Goal.DRAIN).steps
    assert step.solves == ("MigrationTimesOut:shop/db", "MigrationTimesOut:shop/web")


TAINTED = node("b", taints=[{"key": "dedicated", "value": "x", "effect": "NoSchedule"}])
SEVERAL = {
    "pinned by a selector and an affinity": (vm(spec={**HERE, **AFFINE}),),
    "pinned, and bound to another VM": (vm(spec={**HERE, **WITH_ITSELF}), vm("web")),
    "pinned, and kept off by a taint": (vm(spec=HERE), TAINTED),
    "pinned, and a quota": (vm(spec=HERE), quota("6Gi", "4Gi")),
    "two VMs pinned, and room for one": (
        vm(spec=HERE),
        vm("web", spec=HERE),
        node("b", room=SMALL),
    ),
    "a budget that demands all pods": (
        (
            web(1, "a"),
            web(2, "b"),
            *REPLICAS,
            budget("web", {"app": "web"}, pods=2, minAvailable="100%"),
        )
    ),
}


@pytest.mark.parametrize(
    ("key", "tolerated"), [("dedicated", True), ("drbd.linbit.com/lost-quorum", False)]
)
def test_a_taint_that_says_that_a_node_is_not_fit_is_never_tolerated(key, tolerated):
    tainted = node("b", taints=[{"key": key, "effect": "NoSchedule"}])
    plan = repair(cluster(vm(), tainted), Goal.DRAIN)
    assert any("tolerate taint" in step.title for step in plan.steps) is tolerated


@for_each("name", SEVERAL)
def test_each_of_several_causes_is_repaired_or_named(name):
    """A picture of a change that ends more than the change does would leave one of them out."""
    broken = cluster(*SEVERAL[name])
    plan = repair(broken, Goal.DRAIN)

    assert plan.reaches is drain(carried_out(plan, broken)).drainable
    assert plan.reaches or plan.remaining


def test_a_pool_is_unpaused_last():
    pool = manifest(
        "machineconfiguration.openshift.io/v1",
        "MachineConfigPool",
        "worker",
        spec={"paused": True, "nodeSelector": EVERY_NODE},
    )
    plan = repair(cluster(vm(spec=HERE), pool), Goal.UPGRADE)
    assert [step.id for step in plan.steps] == ["place:shop/db", "unpause:worker"]
    assert plan.reaches


def test_a_cluster_that_is_well_needs_nothing():
    plan = repair(cluster(vm()), Goal.DRAIN)
    assert (plan.holds, plan.reaches, plan.steps, plan.problems) == (True, True, (), ())


def test_what_was_not_read_leaves_the_answer_open():
    plan = repair(cluster(vm(), unreadable=("poddisruptionbudgets.policy",)), Goal.DRAIN)
    assert (plan.holds, plan.reaches, plan.steps) == (None, None, ())
    assert "poddisruptionbudgets.policy" in plan.unseen


def test_a_vm_whose_outcome_is_unknown_is_named():
    """It may leave its node, so no step is made;
    a plan that is silent about it would look complete.
    """
    stuck = Snapshot(example_cluster.objects(), ["*"], (), "v1.34.2", TIME)
    plan = repair(stuck, Goal.DRAIN)
    left = {"BudgetForbidsEviction:shop/checkout", "CannotBeDetermined:shop/db"}
    assert {each.problem.id for each in plan.remaining} == left
    assert left <= {problem.id for problem in plan.problems}

    healthy = {"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2}
    budgets = [Object({**each.data, "status": healthy}) for each in stuck.known(PDB)]
    plan = repair(ChangedCluster(applied(plan.steps, stuck), budgets), Goal.DRAIN)
    assert (plan.holds, plan.reaches, plan.steps) == (None, None, ())
    assert [each.problem.id for each in plan.remaining] == ["CannotBeDetermined:shop/db"]
    assert "more bandwidth" in plan.remaining[0].why


def test_a_node_that_is_being_drained_is_not_uncordoned():
    leaves = vm("web", on="b", vmi_status={"evacuationNodeName": "b"})
    steps = repair(cluster(vm(), node("b", unschedulable=True), leaves), Goal.DRAIN, ["a"]).steps
    assert "uncordon:b" not in [step.id for step in steps]


def test_a_node_in_maintenance_mode_gets_its_annotations_removed_with_the_cordon():
    cordoned = node("b", unschedulable=True)
    cordoned.data["metadata"]["annotations"] = {
        "harvesterhci.io/drain-requested": "true",
        "team": "a",
    }
    (found,) = (
        step
        for step in repair(cluster(vm(), cordoned), Goal.DRAIN).steps
        if step.id == "uncordon:b"
    )

    assert found.title == "end the maintenance mode of the node"
    (change,) = found.changes
    paths = [edit.path for edit in change.edits]
    assert paths == [
        ("metadata", "annotations", "harvesterhci.io/drain-requested"),
        ("spec", "unschedulable"),
    ]


DELETED = "2026-01-01T00:00:00Z"
KEPT = {"deletionTimestamp": DELETED, "finalizers": ["x/y"]}
IMAGE = {"name": "c", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "x"}}}
MARKS = {"upgrade.cattle.io/plan": "os", "upgrade.cattle.io/node": "b"}
FAILED = {"nvidia.com/gpu-driver-upgrade-state": "upgrade-failed"}
CLOSING = {
    "Machine": (
        {"annotations": {"machine.openshift.io/machine": "machines/b"}},
        manifest(
            "machine.openshift.io/v1beta1",
            "Machine",
            "b",
            "machines",
            metadata={"deletionTimestamp": DELETED},
            status={"nodeRef": {"name": "b"}},
        ),
    ),
    "maintenance": (
        {},
        manifest(
            "nodemaintenance.medik8s.io/v1beta1",
            "NodeMaintenance",
            "x",
            spec={"nodeName": "b"},
            status={"phase": "Succeeded"},
        ),
    ),
    "Plan": (
        {},
        manifest(
            "v1",
            "Pod",
            "apply",
            "cattle-system",
            metadata={"labels": MARKS, "creationTimestamp": DELETED},
            spec={"nodeName": "b"},
            status={"phase": "Pending", "containerStatuses": [IMAGE]},
        ),
        manifest("upgrade.cattle.io/v1", "Plan", "os", "cattle-system", spec={"cordon": True}),
    ),
    "deletion": (KEPT,),
    "deletion after a failed driver": ({**KEPT, "labels": FAILED},),
}


@pytest.mark.parametrize("case", CLOSING.values(), ids=CLOSING)
def test_a_node_is_not_uncordoned_where_that_neither_lasts_nor_helps(case):
    """``drain`` and ``explain`` say so too. A restart would find no node either."""
    metadata, *others = case
    closed = node("b", metadata.get("labels"), unschedulable=True)
    closed.data["metadata"] = {**metadata, **closed.data["metadata"]}
    plan = repair(cluster(vm(), closed, *others), Goal.DRAIN, ["a"])
    assert plan.steps == ()
    assert [each.problem.id for each in plan.remaining] == ["NoTargetNode:shop/db"]


def test_a_vm_that_would_stay_off_is_not_restarted():
    """A taint of LINSTOR keeps all pods off: a guest that stops does not start again."""
    taint = {"key": "drbd.linbit.com/lost-quorum", "effect": "NoSchedule"}
    plan = repair(cluster(vm(), node("a", taints=[taint]), node("b", taints=[taint])), Goal.DRAIN)
    assert plan.steps == ()
    assert "do not stop the VM before" in " ".join(each.remedy for each in plan.problems)


def test_an_added_node_has_the_daemons_of_the_one_that_it_is_like():
    pods = [
        manifest(
            "v1",
            "Pod",
            name,
            "kube-system",
            metadata={"ownerReferences": [{"kind": owner, "name": "x", "controller": True}]},
            spec={"nodeName": "a"},
            status={"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
        )
        for name, owner, ready in (
            ("csi", "DaemonSet", "True"),
            ("ill", "DaemonSet", "False"),
            ("web", "ReplicaSet", "True"),
        )
    ]
    made = node_steps.added(node("a"), 1, cluster(*pods)).predicted
    names = [(each.kind, each.name, each.at("spec", "nodeName").text) for each in made]
    assert names == [("Node", "a-added-1", None), ("Pod", "csi-a-added-1", "a-added-1")]
