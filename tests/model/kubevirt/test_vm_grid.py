"""Thousands of VMs, each built from parts whose effect on a migration is known.

The parts in vm_grid.py say what must be the result; it is compared with what the rules and the
model say.
"""

import copy
from itertools import combinations

import pytest

from tests.model.kubevirt.vm_grid import (
    ALL,
    CHOICES,
    CHOSEN,
    DEVICES,
    NO,
    OUT_OF_THE_BOX,
    RULES,
    UNKNOWN,
    VOLUMES,
    YES,
    leaf,
    request,
)
from virt_admit.engine.review import fix, judge, review
from virt_admit.model.kubernetes import json_patch
from virt_admit.model.kubernetes.cluster import NOTHING
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.instances.migratability import assess


def test_there_are_thousands_and_every_pair_of_parts_occurs():
    assert len(ALL) > 2_500
    assert {machine.answer for machine in ALL} == {YES, NO, UNKNOWN}
    for (a, left), (b, right) in combinations(enumerate(CHOICES), 2):
        assert len({(choice[a], choice[b]) for choice in CHOSEN}) == len(left) * len(right)


def test_the_verdict_is_what_the_parts_say():
    for machine in ALL:
        assert assess(machine.obj, machine.world.cluster).migratable.value == machine.answer, (
            machine
        )


def wanted(machine):
    """What becomes of a machine without a strategy; None: nothing is written."""
    wish = (
        "None"
        if machine.never
        else {YES: "LiveMigrate"}.get(machine.answer, "LiveMigrateIfPossible")
    )
    says = machine.world.says
    if says in ("None", "External") or machine.world.one_node:
        return None
    if says == "LiveMigrateIfPossible":
        return wish if wish == "None" else None
    return None if says == wish else wish


def test_the_default_is_that_of_the_table_and_only_one_leaf_is_patched():
    for machine in ALL:
        response = fix(request(machine.obj), RULES, machine.world.cluster, OUT_OF_THE_BOX)
        assert not response.errors
        expected = None if machine.strategy else wanted(machine)
        if expected is None:
            assert response.patch == (), machine
            continue
        (step,) = response.patch
        assert (step.op, step.path, step.value) == ("add", leaf(machine.obj), expected), machine
        fixed = json_patch.apply(machine.obj, response.patch)
        assert json_patch.apply(fixed, [step._replace(op="remove")]).data == machine.obj.data
        assert fix(request(fixed), RULES, machine.world.cluster, OUT_OF_THE_BOX).patch == ()


def test_live_migrate_is_never_the_default_of_what_cannot_migrate():
    for machine in ALL:
        response = judge(request(machine.obj), RULES, machine.world.cluster, OUT_OF_THE_BOX)
        assert not response.errors
        effective = machine.strategy or next(
            (step.value for step in response.patch), machine.world.says
        )
        blocks = [v for v in response.verdicts if v.rule.id == "vm-live-migrate-not-migratable"]
        assert bool(blocks) == (effective == "LiveMigrate" and machine.answer == NO), machine
        if machine.strategy is None:
            assert not blocks


def test_removing_knowledge_of_the_cluster_never_denies():
    for index, machine in enumerate(ALL):
        subject = request(machine.obj)
        before = review(subject, RULES, machine.world.cluster, OUT_OF_THE_BOX)
        for less in (NOTHING, machine.world.with_less(index)):
            after = review(subject, RULES, less, OUT_OF_THE_BOX)
            assert not after.errors
            assert after.allowed or not before.allowed, machine


def test_a_further_reason_never_makes_it_migratable():
    for index, machine in enumerate(ALL):
        more = VOLUMES[-2] if index % 2 else DEVICES[3]
        worse = add(machine.obj, more)
        assert assess(worse, machine.world.cluster).migratable.value == NO
        before = {reason.name for reason in assess(machine.obj, machine.world.cluster).reasons}
        assert before <= {reason.name for reason in assess(worse, machine.world.cluster).reasons}


def add(obj, part):
    """The object with the part added to its lists."""
    data = copy.deepcopy(obj.data)
    path = vms.vmi_spec(obj).path
    for where, lists in ((path, part.spec), (path / "domain" / "devices", part.devices)):
        place = data
        for step in where:
            place = place.setdefault(step, {})
        for key, items in lists.items():
            place[key] = [*(place.get(key) or []), *items]
    return Object(data)


@pytest.mark.parametrize(
    "kind", ["VirtualMachine", "VirtualMachinePool", "VirtualMachineInstanceReplicaSet"]
)
def test_every_kind_is_among_them(kind):
    machines = [machine for machine in ALL if machine.obj.kind == kind]
    assert len(machines) > 500


def test_instances_are_neither_changed_nor_refused():
    for machine in ALL[::7]:
        template = vms.vmi_template(machine.obj)
        metadata = {"name": "db", "namespace": "shop", **template["metadata"].map}
        head = {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstance",
            "metadata": metadata,
        }
        instance = Object(head | {"spec": template["spec"].value})
        response = judge(request(instance), RULES, machine.world.cluster, OUT_OF_THE_BOX)
        assert response.allowed
        assert response.patch == ()


def test_on_update_nothing_is_written():
    for machine in ALL[::7]:
        assert (
            fix(request(machine.obj, "UPDATE"), RULES, machine.world.cluster, OUT_OF_THE_BOX).patch
            == ()
        )
