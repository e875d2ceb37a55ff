"""What ``virt-admit explain`` says of a health check that deletes the Machine of a node."""

import pytest

from tests.cli.explain_cases import SNR, data_of, lines, vm
from tests.health_checks import machine, make, nhc, node, template
from virt_admit.cli.commands.explain import explain
from virt_admit.model.kubernetes.cluster import Snapshot

MDR = make(
    "machine-deletion-remediation.medik8s.io/v1alpha1",
    "MachineDeletionRemediationTemplate",
    "auto",
    "wa",
    spec={"template": {"spec": {}}},
)
DELETES = nhc(
    remediationTemplate={
        "apiVersion": MDR.api_version,
        "kind": MDR.kind,
        "name": "auto",
        "namespace": "wa",
    }
)


def with_machine(name, machine):
    made = node(name)
    made.data["metadata"]["annotations"] = {
        "machine.openshift.io/machine": f"openshift-machine-api/{machine}"
    }
    return made


def owned(name):
    made = machine(name)
    made.data["metadata"]["ownerReferences"] = [
        {"kind": "MachineSet", "name": "s", "controller": True}
    ]
    return made


@pytest.mark.parametrize(
    ("objects", "complete", "expected"),
    [
        ([node("n0"), with_machine("n1", "gone")], ["*"], [
            "VMs restart never: no Machine exists (n0, n1)",
            "does nothing to n0, n1: no Machine exists",
            "5m50s it does nothing: no Machine exists (n0, n1)",
        ]),
        ([with_machine("n0", "m0"), machine("m0", owner=None), node("n1")], ["*"], [
            "VMs restart never: its Machine has no controller (n0); no Machine exists (n1)",
        ]),
        ([with_machine("n0", "m0"), owned("m0"), node("n1")], ["*"], [
            "does nothing to n1: no Machine exists",
            "5m50s or later machine and node are deleted; its VMs can start elsewhere",
        ]),
        ([node("n0"), machine("m0", nodeRef={"name": "n0"})], ["*"], [
            "5m50s or later machine and node are deleted; its VMs can start elsewhere",
        ]),
        ([node("n0")], ["nodes"], [
            (
                "5m50s or later machine and node are deleted if a Machine owns the node; then its "
                "VMs can start elsewhere"
            ),
            "machines.machine.openshift.io",
        ]),
        ([node("n0")], ["machines.machine.openshift.io"], [
            (
                "5m50s or later machine and node are deleted if a Machine owns the node; then its "
                "VMs can start elsewhere"
            ),
            "nodes",
        ]),
    ],
)  # fmt: skip
def test_machine_deletion_needs_a_machine(objects, complete, expected):
    found = lines(explain(DELETES, Snapshot([MDR, *objects], complete=complete)))
    for line in expected:
        assert line in found


def test_vms_on_a_node_without_a_machine_do_not_restart():
    objects = [
        with_machine("n0", "m0"),
        owned("m0"),
        node("n1"),
        *vm("web", "Always", "n0"),
        *vm("db", "Always", "n1"),
    ]
    assert lines(explain(DELETES, Snapshot([MDR, *objects], complete=["*"])))[-2:] == [
        "restarted runStrategy Always 1 VM: shop/web",
        "stays off its node is never confirmed down: no Machine exists 1 VM: shop/db",
    ]


def test_a_step_that_deletes_no_machine_is_left_out():
    steps = [(1, "10m", DELETES["spec"]["remediationTemplate"].value), (2, "10m", template())]
    check = nhc(escalatingRemediations=[
        {"order": order, "timeout": timeout, "remediationTemplate": step} for order, timeout,
        step in steps
    ])  # fmt: skip
    found = explain(check, Snapshot([MDR, SNR, node("n0")], complete=["*"]))
    assert [step["fails"] for step in data_of(found)["steps"]] == ["no Machine exists (n0)", None]
    assert (
        "VMs restart after 18m50s = 50s until noticed + 5m Ready=Unknown + 10m wasted + 3m "
        "remediator"
    ) in lines(found)
    assert not found.obstacles
