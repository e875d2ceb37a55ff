"""``virt-admit explain``: who replaces a Machine, and who never does."""

import pytest

from tests.cli.explain_cases import SNR, lines, vm
from tests.health_checks import CAPI, capi, machine, make, mhc, nhc, node, template
from virt_admit.cli.commands.explain import as_data, explain
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.reports.explain.check.report import report


def capi_machine(name, owner, **status):
    return machine(name, CAPI, "c", owner=owner, nodeRef={"name": name}, **status)


def capi_cluster(annotations=None, **spec):
    conditions = [
        {"type": kind, "status": "True"}
        for kind in ("InfrastructureReady", "ControlPlaneInitialized")
    ]
    made = make(CAPI, "Cluster", "c", "c", spec=spec, status={"conditions": conditions})
    made.data["metadata"]["annotations"] = annotations or {}
    return made


UNKNOWN = [{"type": "Ready", "status": "Unknown", "timeout": "5m"}]
KUBEADM = ("KubeadmControlPlane", "cp")


@pytest.mark.parametrize(
    ("check", "objects", "expected"),
    [
        (mhc(unhealthyConditions=UNKNOWN),
         [machine("m0", owner=None, nodeRef={"name": "n0"}), node("n0"), *vm("db", "Always", "n0")],
         [
            "does nothing to m0: no controller owns it, so it is never deleted",
            "VMs restart never: no controller owns it, so it is never deleted",
            (
                "stays off its node is never confirmed down: no controller owns it, so it is never "
                "deleted 1 VM: shop/db"
            ),
        ]),
        (mhc(unhealthyConditions=[{"type": "Terminating", "status": "True", "timeout": "0s"}]),
         [machine("m0", owner=None), machine("m1")],
         ["does nothing to m0: no controller owns it, so it is never deleted"]),
        (mhc(), [machine("m0", owner=("ControlPlaneMachineSet", "cluster"))], [
            (
                "1. the Machine is deleted and ControlPlaneMachineSet cluster creates a new one "
                "depends on the platform"
            ),
        ]),
        (capi(unhealthyConditions=UNKNOWN),
         [capi_cluster(), capi_machine("m0", ("TalosControlPlane", "cp"))], [
            (
                "does nothing to m0: TalosControlPlane cp replaces no unhealthy Machine (releases "
                "up to 0.5.12)"
            ),
            (
                "VMs restart never: TalosControlPlane cp replaces no unhealthy Machine (releases "
                "up to 0.5.12)"
            ),
        ]),
        (capi(unhealthyConditions=UNKNOWN), [capi_cluster(), capi_machine("m0", KUBEADM)], [
            "does nothing to m0: KubeadmControlPlane cp never deletes its only Machine",
        ]),
        (capi(unhealthyConditions=UNKNOWN),
         [capi_cluster(), capi_machine("m0", KUBEADM), capi_machine("m1", KUBEADM)], [
            (
                "limit maxUnhealthy 100%: acts while no more than 2 of 2 are unhealthy, on one "
                "control-plane machine at a time"
            ),
            (
                "1. the Machine is deleted (one at a time) and KubeadmControlPlane cp creates a "
                "new one depends on the platform"
            ),
        ]),
        (capi(), [capi_cluster({"cluster.x-k8s.io/paused": "true"}), machine("m0", CAPI, "c")], [
            "note the annotation cluster.x-k8s.io/paused of Cluster c/c does not pause this check. "
            "To pause it, set spec.paused of the Cluster",
        ]),
        (capi(unhealthyConditions=[{"type": "Ready", "status": "False", "timeout": "5m"}]),
         [capi_cluster(), capi_machine("m0", ("MachineSet", "md"))], [
            (
                "note the deletion of m0 waits without a limit for VMs that cannot leave while the "
                "node still reports: nodeDrainTimeout is not set"
            ),
        ]),
        (capi(unhealthyRange="[2-3]", unhealthyConditions=UNKNOWN), [
            capi_cluster(), *(machine(f"m{n}", CAPI, "c",
                                      nodeRef={"name": f"n{n}"}) for n in range(3)),
            node("n0", Ready="Unknown"), node("n1"), node("n2")],
            ["does nothing 1 is unhealthy: fewer than 2"]),
    ],
)  # fmt: skip
def test_who_remediates(check, objects, expected):
    found = lines(explain(check, Snapshot(objects, complete=["*"])))
    for line in expected:
        assert line in found


def test_the_machines_of_a_pool_are_only_marked():
    objects = [capi_cluster(), capi_machine("m0", ("MachinePool", "mp"))]
    said = (
        "whether MachinePool mp replaces m0: Cluster API leaves that to its infrastructure provider"
    )
    for check, notes in (
        (capi(unhealthyConditions=UNKNOWN), (said,)),
        (capi(remediationTemplate=template()), ()),
    ):
        assert explain(check, Snapshot([*objects, SNR], complete=["*"])).notes == notes


def test_a_machine_that_has_no_node_for_long():
    late = machine(
        "m0", phase="Provisioning", errorReason="InsufficientResources", errorMessage="no host"
    )
    late.data["metadata"]["creationTimestamp"] = "2026-01-01T08:00:00Z"
    found = explain(mhc(), Snapshot([late], complete=["*"], time="2026-01-01T12:00:00Z"))
    note = f"Machine {late.full_name} has no node for 4 h: InsufficientResources: no host"
    assert note in found.notes
    early = explain(mhc(), Snapshot([late], complete=["*"], time="2026-01-01T08:30:00Z"))
    assert note not in early.notes


@pytest.mark.parametrize(
    ("check", "objects"),
    [
        (
            capi(unhealthyConditions=UNKNOWN),
            [capi_cluster(paused=False), capi_machine("m0", ("MachineSet", "md"))],
        ),
        (mhc(), [machine("m0", nodeRef={"name": "n0"}), node("n0")]),
        (capi(remediationTemplate=template()), [capi_cluster(), capi_machine("m0", None), SNR]),
    ],
)
def test_what_is_in_order_gets_no_note(check, objects):
    found = explain(check, Snapshot(objects, complete=["*"]))
    assert found.notes == ()
    assert not any("controller owns" in text for text in found.obstacles)


def test_the_only_machine_of_a_control_plane_is_not_guessed_from_some_machines():
    found = explain(capi(), Snapshot([capi_machine("m0", KUBEADM)]))
    assert not any("only Machine" in text for text in found.obstacles)


def test_vms_that_restart_are_split_by_whether_a_node_can_run_them():
    check = nhc(remediationTemplate=template("self-node-remediation.medik8s.io/v1alpha1"))
    there = node("n0")
    there.data["metadata"]["labels"]["kubevirt.io/schedulable"] = "true"
    other = node("n1")
    other.data["metadata"]["labels"]["kubevirt.io/schedulable"] = "true"
    pinned = vm("db", "Always", "n0")
    pinned[1].data["spec"] = {"nodeSelector": {"kubernetes.io/hostname": "n0"}}
    pinned[0].data["spec"]["template"] = {"spec": pinned[1].data["spec"]}
    found = explain(
        check, Snapshot([there, other, SNR, *pinned, *vm("web", "Always", "n0")], complete=["*"])
    )

    waits = next(line for line in lines(found) if line.startswith("waits for a node"))
    assert waits.endswith("1 VM: shop/db")
    assert "restarted runStrategy Always 1 VM: shop/web" in lines(found)
    assert [(each["name"], bool(each["nowhere"])) for each in as_data(report(found))["vms"]] == [
        ("db", True),
        ("web", False),
    ]
