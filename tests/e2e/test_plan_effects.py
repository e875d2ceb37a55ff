"""What a plan changes, and KubeVirt's own controllers with kube-scheduler: before it a
node is never emptied, after it each is.

The plan is carried out by its scripts. virt-handler is a stand-in that publishes the condition of
the new object; disks are left out, because the program has no claims.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.programs import required
from tests.forecasts.repair.broken_clusters import cluster
from tests.forecasts.repair.carried_out import carried_out
from tests.forecasts.repair.test_causes import ALL
from tests.upstream import migration_cases
from tests.upstream.migrations import answer
from tests.upstream.renderer import MIGRATIONS, program
from virt_admit.forecasts.repair.planning import repair
from virt_admit.forecasts.repair.repair_plan import Goal
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import KUBEVIRT, NODE, VMI
from virt_admit.model.kubernetes.objects import Object

EFFECTS = (
    "a disk on one node",
    "a shared claim on a hostPath volume",
    "a bridge on the pod network",
    "an implied bridge",
    "pinned by a selector",
    "pinned by an affinity",
    "pinned, and changes are staged",
    "bound to another VM",
    "the only other node is cordoned",
    "no room for one",
    "no migration starts",
)
"""Causes after which the VM migrates, in all ways in which a step takes effect."""
ENDS_ANYWAY = ("a shared claim on a hostPath volume", "bound to another VM")
"""KubeVirt migrates the one to a node that may not have its data. The other VM follows the one that
it is bound to, if that moves first: our verdict is "cannot be determined".
"""
_PLACEMENT = ("nodeSelector", "affinity", "tolerations")


@pytest.fixture(scope="module")
def binary() -> Path:
    """KubeVirt's controllers as a program."""
    return required(lambda: program(MIGRATIONS))


def case(found: Snapshot) -> dict[str, Any]:
    """Return the case of a cluster for ``migrations/main.go``."""
    kubevirt = migration_cases.kubevirt(2, 1)
    (own,) = found.known(KUBEVIRT)
    kubevirt["spec"]["configuration"]["migrations"] |= own.at(
        "spec", "configuration", "migrations"
    ).map
    order = [node.name for node in found.known(NODE)]
    return {
        "kubevirt": kubevirt,
        "nodes": [_node(node, age) for age, node in enumerate(found.known(NODE))],
        "vmis": [_vmi(vmi) for vmi in found.known(VMI)],
        "pods": [],
        "pools": [{"nodes": order, "capacity": 1}],
        "reboot": 0,
        "deadline": migration_cases.DEADLINE,
    }


def _node(node: Object, age: int) -> dict[str, Any]:
    made = migration_cases.node(node.name, 64 * 1024, age)
    made["metadata"]["labels"] |= node.labels
    memory = node.at("status", "allocatable", "memory").value
    made["status"]["allocatable"] = made["status"]["capacity"] = made["status"]["allocatable"] | {
        "memory": memory
    }
    made["spec"] = {key: value for key, value in node["spec"].map.items() if value}
    return made


def _vmi(vmi: Object) -> dict[str, Any]:
    guest = int((vmi.at("spec", "domain", "memory", "guest").text or "").removesuffix("Gi"))
    made = migration_cases.vmi(vmi.name, vmi.at("status", "nodeName").text or "", guest, 3)
    made["metadata"]["labels"] |= vmi.labels
    made["spec"] |= {key: vmi["spec"][key].value for key in _PLACEMENT if vmi["spec"][key].present}
    for key in ("networks", "domain"):
        if vmi["spec"][key].value:
            more = vmi["spec"][key].value
            made["spec"][key] = (
                made["spec"]["domain"] | {"devices": more["devices"]} if key == "domain" else more
            )
    migratable = vmi.condition("LiveMigratable")["status"].text
    for condition in made["status"]["conditions"]:
        if condition["type"] == "LiveMigratable":
            condition["status"] = migratable
    return made


def emptied(binary: Path, found: Snapshot) -> set[str]:
    """Return the nodes that were drained one after another, until one was not."""
    return set(answer(binary, case(found))["ended"])


@pytest.mark.parametrize("name", EFFECTS)
def test_after_a_plan_kubevirt_empties_each_node(binary: Path, name: str) -> None:
    broken = cluster(*ALL[name][0])
    plan = repair(broken, Goal.DRAIN)
    assert plan.reaches

    after = carried_out(plan, broken)
    nodes = {node.name for node in after.known(NODE)}
    assert emptied(binary, after) == nodes
    if name not in ENDS_ANYWAY:
        assert emptied(binary, broken) < nodes
