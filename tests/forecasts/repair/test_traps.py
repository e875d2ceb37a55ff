"""What makes a repair harmful or useless in KubeVirt, and what the plan does about it."""

from __future__ import annotations

import pytest

from tests.builders import manifest
from tests.forecasts.repair.broken_clusters import (
    ROOM,
    claim,
    cluster,
    disk,
    kubevirt,
    node,
    storage_class,
    vm,
)
from tests.forecasts.repair.moving_causes import MARKED, REFUSED, migration, refusal
from tests.forecasts.repair.test_causes import BRIDGE, CAUSES, DEVICE, HASWELL, HERE, SKYLAKE
from virt_admit.forecasts.repair.planning import repair
from virt_admit.forecasts.repair.repair_plan import (
    Command,
    CostClass,
    Goal,
    PlanStage,
    Proof,
    TakesEffect,
)
from virt_admit.forecasts.repair.wishes import Wishes
from virt_admit.model.kubernetes import json_patch, selectors
from virt_admit.model.kubernetes.json_patch import Patch
from virt_admit.model.kubernetes.objects import Object, Path

RESTART_REQUIRED = {"conditions": [{"type": "RestartRequired", "status": "True"}]}
NO_RWO = {"spec": disk(), "reason": "DisksNotLiveMigratable"}


def steps(*objects, wishes=None, **more):
    return repair(cluster(*objects, **more), Goal.DRAIN, (), wishes).steps


def kinds(*objects, **more):
    return [(step.id, step.cost.class_) for step in steps(*objects, **more)]


def test_a_changed_eviction_strategy_is_not_live():
    (step,) = steps(vm(spec=DEVICE, reason="HostDeviceNotLiveMigratable"))
    patch, restart = step.patched
    assert [each.as_json() for each in patch.patch if each.op != "test"] == [
        {
            "op": "replace",
            "path": "/spec/template/spec/evictionStrategy",
            "value": "LiveMigrateIfPossible",
        }
    ]
    assert restart.change.arguments == ("restart", "db", "-n", "shop")
    assert step.stage is PlanStage.RESTARTS


def test_a_vm_that_awaits_a_restart_has_no_live_steps():
    assert kinds(vm(spec=HERE, status=RESTART_REQUIRED)) == [("restart:shop/db", CostClass.RESTART)]


def test_a_vm_that_awaits_a_restart_is_not_copied():
    """The copy would not start, and the next restart would boot the new, empty disk."""
    (step,) = steps(vm(**NO_RWO, status=RESTART_REQUIRED), claim("root"), storage_class())
    assert step.cost.class_ is CostClass.RESTART
    assert any("RestartRequired" in other.lower_because for other in step.alternatives)


def test_all_disks_of_a_vm_are_in_one_patch():
    two = {
        "volumes": [
            {"name": name, "persistentVolumeClaim": {"claimName": name}}
            for name in ("root", "data")
        ]
    }
    (step,) = steps(
        vm(spec=two, reason="DisksNotLiveMigratable"), claim("root"), claim("data"), storage_class()
    )
    patches = [made for made in step.patched if made.change.command is Command.PATCH]
    assert len(patches) == 1
    values = [each.value for each in patches[0].patch if each.op == "replace"]
    assert values == [
        {"name": name, "dataVolume": {"name": f"{name}-shared"}} for name in ("root", "data")
    ]
    assert patches[0].patch[-1].as_json() == {
        "op": "add",
        "path": "/spec/updateVolumesStrategy",
        "value": "Migration",
    }


def test_the_templates_of_data_volumes_change_too():
    template = {
        "metadata": {"name": "root"},
        "spec": {
            "source": {"http": {"url": "http://user:secret@x/disk"}},
            "storage": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "10Gi"}},
            },
        },
    }
    of_volume = {"volumes": [{"name": "root", "dataVolume": {"name": "root"}}]}
    found = vm(
        spec=of_volume, own={"dataVolumeTemplates": [template]}, reason="DisksNotLiveMigratable"
    )
    (step,) = steps(found, claim("root"), storage_class())
    patch = step.patched[-1].patch
    changed = json_patch.apply(found[0], patch)
    made = changed.at("spec", "dataVolumeTemplates", 0)
    assert made.at("metadata", "name").text == "root-shared"
    assert made.at("spec", "storage", "accessModes").value == ["ReadWriteMany"]
    assert (
        changed.at("spec", "template", "spec", "volumes", 0, "dataVolume", "name").text
        == "root-shared"
    )
    assert "secret" not in str([each.as_json() for each in patch])


def test_no_disk_is_copied_that_kubevirt_does_not_copy():
    shared = {**disk(), "domain": {"devices": {"disks": [{"name": "root", "shareable": True}]}}}
    assert kinds(
        vm(spec=shared, reason="DisksNotLiveMigratable"), claim("root"), storage_class()
    ) == [("restart:shop/db", CostClass.RESTART)]


def test_a_copy_that_the_bandwidth_never_completes_gets_a_policy_first():
    slow = kubevirt(
        {"migrations": {"bandwidthPerMigration": "1Mi", "completionTimeoutPerGiB": 150}}
    )
    made = steps(vm(**NO_RWO), claim("root"), storage_class(), slow)
    assert [step.id for step in made] == ["before-copies:time:shop/db", "copy:shop/db"]
    assert "before-copies:time:shop/db" in made[1].needs
    policy = made[0].changes[0].manifest
    assert policy["spec"]["completionTimeoutPerGiB"] >= 1024


def test_a_storage_quota_is_raised_before_the_copy():
    limits = {"requests.storage": "15Gi"}
    quota = manifest(
        "v1",
        "ResourceQuota",
        "disks",
        "shop",
        spec={"hard": limits},
        status={"hard": limits, "used": {"requests.storage": "10Gi"}},
    )
    made = steps(vm(**NO_RWO), claim("root"), storage_class(), quota)
    assert [step.id for step in made] == ["before-copies:quota:shop/disks", "copy:shop/db"]
    assert made[1].needs == ("before-copies:quota:shop/disks",)
    assert made[0].changes[0].edits[0].value == "20Gi"


def test_hyperconverged_is_patched_in_the_version_that_is_served():
    zero = {"parallelMigrationsPerCluster": 0}
    hco = manifest(
        "hco.kubevirt.io/v1beta1",
        "HyperConverged",
        "hco",
        "kubevirt",
        spec={"liveMigrationConfig": zero},
    )
    (step,) = steps(vm(), kubevirt({"migrations": zero}), hco)
    assert step.subject.kind.kind == "KubeVirt" or step.changes[0].edits[0].path[:2] == (
        "spec",
        "liveMigrationConfig",
    )


def test_a_vm_of_another_controller_is_left_alone():
    owner = {"apiVersion": "x.io/v1", "kind": "Machine", "name": "m", "controller": True}
    plan = repair(cluster(vm(spec=HERE, metadata={"ownerReferences": [owner]})), Goal.DRAIN)
    assert plan.steps == ()
    assert "Machine m owns its VM" in plan.remaining[0].why


def test_a_vm_is_not_restarted_while_its_pods_are_refused():
    """What refuses the pod of its migration refuses that of its restart too,
    and the guest would stay off.
    """
    denied = refusal('admission webhook "pods.example.com" denied the request')
    plan = repair(cluster(vm(vmi_status=MARKED), migration(), denied), Goal.DRAIN)
    assert (plan.reaches, plan.steps) == (False, ())
    assert "let webhook pods.example.com accept it in shop" in plan.remaining[0].why


def test_a_refusal_that_no_quota_explains_makes_no_step():
    """A ClusterResourceQuota, which no snapshot holds, refuses pods with the same words."""
    plan = repair(cluster(vm(vmi_status=MARKED), migration(conditions=REFUSED)), Goal.DRAIN)
    assert (plan.reaches, plan.steps) == (False, ())
    assert "ClusterResourceQuota" in plan.remaining[0].why


def test_a_budget_is_never_deleted_or_lowered():
    budget = manifest(
        "policy/v1",
        "PodDisruptionBudget",
        "none",
        "shop",
        spec={"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}},
        status={
            "disruptionsAllowed": 0,
            "expectedPods": 1,
            "currentHealthy": 1,
            "desiredHealthy": 1,
        },
    )
    pod = manifest(
        "v1",
        "Pod",
        "web",
        "shop",
        metadata={"labels": {"app": "web"}},
        spec={"nodeName": "a"},
        status={"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    )
    plan = repair(cluster(pod, budget), Goal.DRAIN)
    assert plan.steps == ()
    assert plan.reaches is False
    assert plan.remaining[0].why.startswith(
        "No number of pods is enough, so let its owner set maxUnavailable: 1"
    )


def test_wishes_select_vms():
    objects = (vm(**NO_RWO, metadata={"labels": {"tier": "gold"}}), claim("root"), storage_class())
    gold, other = selectors.parse_text("tier=gold"), selectors.parse_text("tier=lead")
    assert kinds(*objects, wishes=Wishes(may_copy=gold)) == [("copy:shop/db", CostClass.COPY)]
    assert kinds(*objects, wishes=Wishes(may_copy=other)) == [
        ("restart:shop/db", CostClass.RESTART)
    ]
    assert kinds(*objects, wishes=Wishes(may_copy=other, may_restart=other)) == []
    assert kinds(*objects, wishes=Wishes(prefer="restart")) == [
        ("restart:shop/db", CostClass.RESTART)
    ]


def test_a_named_storage_class_is_used():
    objects = (vm(**NO_RWO), claim("root"), storage_class("ceph"), storage_class("zfs"))
    (step,) = steps(*objects, wishes=Wishes(storage_class="zfs"))
    assert step.copies[0].storage_class == "zfs"
    (step,) = steps(*objects, wishes=Wishes(storage_class="none"))
    assert step.cost.class_ is CostClass.RESTART


def test_gitops_is_named():
    flux = {"labels": {"kustomize.toolkit.fluxcd.io/name": "apps"}}
    (step,) = steps(vm(spec=HERE, metadata=flux))
    assert step.gitops.startswith("Flux writes this object")


def test_each_patch_begins_with_tests_and_can_be_undone():
    for objects, _ in CAUSES.values():
        broken = cluster(*objects)
        state = {}
        for step in repair(broken, Goal.DRAIN).steps:
            for made in step.patched:
                if made.change.command is not Command.PATCH:
                    continue
                before = state.get(made.change.subject) or broken.get(*made.change.subject)
                assert made.patch[0].op == "test", step.id
                assert made.undo[0].op == "test", step.id
                after = json_patch.apply(before, made.patch)
                assert json_patch.apply(after, made.undo).data == before.data, step.id
                state[made.change.subject] = after


def test_a_field_that_was_added_meanwhile_is_not_overwritten():
    tainted = node("b", taints=[{"key": "dedicated", "value": "x", "effect": "NoSchedule"}])
    broken = cluster(vm(), tainted)
    (step,) = repair(broken, Goal.DRAIN).steps
    (made,) = step.patched
    found = broken.get(*made.change.subject)
    own = Patch(
        "add",
        Path("spec", "template", "spec", "tolerations"),
        [{"key": "own", "operator": "Exists"}],
    )
    assert json_patch.apply(found, made.patch).at(*own.path).present
    with pytest.raises(json_patch.PatchError):
        json_patch.apply(json_patch.apply(found, [own]), made.patch)


def test_names_that_are_not_dns_names_are_the_work_of_a_person():
    (step,) = steps(vm("x$(id)'", spec=HERE))
    assert [made.change.command for made in step.patched] == [Command.PERSON]


def test_restarts_that_were_named_come_before_new_hardware():
    small = node("b", room={**ROOM, "memory": "6Gi"})
    objects = (vm(memory="8Gi", metadata={"labels": {"tier": "lead"}}), small)
    assert kinds(*objects) == [("add-nodes:a", CostClass.DECISION)]
    wishes = Wishes(may_restart=selectors.parse_text("tier=lead"))
    assert kinds(*objects, wishes=wishes) == [("restart:shop/db", CostClass.RESTART)]


def test_a_vm_with_a_bridge_is_restarted_before_its_disk_is_copied():
    made = steps(
        vm(spec={**BRIDGE, **disk()}, reason="InterfaceNotLiveMigratable"),
        claim("root"),
        storage_class(),
    )
    assert [step.id for step in made] == ["restart:shop/db", "copy:shop/db"]
    assert made[1].needs == ("restart:shop/db",)


def test_an_object_is_never_changed_in_place():
    objects = vm(**NO_RWO)
    before = [Object(each.data).data.copy() for each in objects]
    steps(objects, claim("root"), storage_class())
    assert [each.data for each in objects] == before


HCO = manifest(
    "hco.kubevirt.io/v1",
    "HyperConverged",
    "hco",
    "kubevirt",
    spec={},
    status={"versions": [{"name": "operator", "version": "1.18.0"}]},
)


def test_the_migration_controller_copies_where_it_exists():
    template = {
        "metadata": {"name": "root"},
        "spec": {"storage": {"accessModes": ["ReadWriteOnce"]}},
    }
    of_volume = {"volumes": [{"name": "root", "dataVolume": {"name": "root"}}]}
    found = vm(
        spec=of_volume, own={"dataVolumeTemplates": [template]}, reason="DisksNotLiveMigratable"
    )
    copy, templates = steps(found, claim("root"), storage_class(), HCO)
    assert [made.change.subject.kind.kind for made in copy.patched] == [
        "VirtualMachineStorageMigrationPlan",
        "VirtualMachineStorageMigration",
    ]
    plan = copy.changes[0].manifest["spec"]
    assert plan["retentionPolicy"] == "keepSource"
    target = plan["virtualMachines"][0]["targetMigrationPVCs"][0]["destinationPVC"]
    assert (target["storageClassName"], target["accessModes"]) == ("ceph", ["ReadWriteMany"])
    assert templates.needs[0] == copy.id
    # the controller has changed the name by then
    assert templates.patched[0].patch[0].value == "root-shared"


def test_a_name_that_the_controller_refuses_is_copied_by_hand():
    (step,) = steps(vm("my.db", **NO_RWO), claim("root"), storage_class(), HCO)
    assert step.changes[0].subject.kind.kind == "DataVolume"


def pool_of_two(strategy):
    owner = {
        "apiVersion": "pool.kubevirt.io/v1beta1",
        "kind": "VirtualMachinePool",
        "name": "web",
        "controller": True,
    }
    members = [
        vm(f"web-{number}", spec=HERE, metadata={"ownerReferences": [owner]}) for number in range(2)
    ]
    template = {"virtualMachineTemplate": {"spec": members[0][0].data["spec"]}}
    pool = manifest(
        "pool.kubevirt.io/v1beta1",
        "VirtualMachinePool",
        "web",
        "shop",
        spec=template | ({"updateStrategy": {strategy: {}}} if strategy else {}),
    )
    return repair(cluster(*members, pool), Goal.DRAIN)


def changed(plan):
    made = [made.change for step in plan.steps for made in step.patched]
    return {change.subject.kind.kind for change in made}, {change.command for change in made}


def test_a_pool_restarts_its_vms_whatever_changes_in_its_template():
    """A placement takes effect at once on a VM, but a pool compares the whole template
    (pool.go#isOutdatedVMI).
    """
    plan = pool_of_two("")
    assert plan.reaches
    # a restart by hand would be a second one
    assert changed(plan) == ({"VirtualMachinePool"}, {Command.PATCH})
    assert {step.cost.class_ for step in plan.steps} == {CostClass.RESTART}
    assert all("all at once unless its maxUnavailable is lower" in step.risk for step in plan.steps)
    assert plan.steps[0].patched[0].patch[-1].path[:3] == ("spec", "virtualMachineTemplate", "spec")


def test_a_pool_that_waits_for_restarts_changes_the_placement_live():
    plan = pool_of_two("opportunistic")
    assert plan.reaches
    assert changed(plan) == ({"VirtualMachinePool"}, {Command.PATCH})
    assert {step.cost.class_ for step in plan.steps} == {CostClass.NOTHING}


def test_the_vms_of_an_unmanaged_pool_are_changed_themselves():
    plan = pool_of_two("unmanaged")
    assert plan.reaches
    assert changed(plan) == ({"VirtualMachine"}, {Command.PATCH})


BR1 = {"bridge.network.kubevirt.io/br1": "1"}


def on_bridge():
    """Return a VM whose pod needs a bridge of its node."""
    found = vm()
    launcher = next(each for each in found if each.kind == "Pod")
    launcher.data["spec"]["containers"][0].setdefault("resources", {}).setdefault(
        "requests", {}
    ).update(BR1)
    return found


def test_another_processor_is_no_cause_on_nodes_that_never_run_the_vm():
    """The control plane has another processor, but the workers lack a bridge alone."""
    taint = [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]
    here, master = node("a", SKYLAKE, ROOM | BR1), node("c", HASWELL, taints=taint)
    (step,) = steps(on_bridge(), here, node("b", SKYLAKE), master)

    assert (step.title, step.proof) == ("make bridge br1 on b", Proof.FLIPS)
    (other,) = step.alternatives
    assert other.title.startswith("accept its downtime")


def test_a_bridge_is_made_by_a_person_where_nothing_else_is_missing():
    (step,) = steps(
        on_bridge(), node("a", SKYLAKE, ROOM | BR1), node("b", SKYLAKE), node("c", SKYLAKE)
    )

    assert step.title == "make bridge br1 on b or c"
    assert (step.subject.name, step.takes_effect, step.cost.class_) == (
        "b",
        TakesEffect.PERSON,
        CostClass.DECISION,
    )
    # a new node would not have it
    assert not any("like a" in other.title for other in step.alternatives)


def test_another_processor_is_no_cause_on_a_node_without_the_bridge():
    (step,) = steps(on_bridge(), node("a", SKYLAKE, ROOM | BR1), node("b", HASWELL))

    assert "CPU model" not in step.title
