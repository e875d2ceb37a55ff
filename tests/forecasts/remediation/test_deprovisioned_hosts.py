"""A silent node of bare metal whose host is installed again, as its Machine is being deleted."""

import pytest

from tests.builders import manifest
from virt_admit.forecasts.remediation import awaited_return
from virt_admit.forecasts.upgrade import pool_obstacles
from virt_admit.model.kubernetes.cluster import Snapshot

NOON, SPACE = "2026-01-01T12:00:00Z", "openshift-machine-api"
STRATEGY = "machine.openshift.io/remediation-strategy"
NODE = manifest(
    "v1",
    "Node",
    "w4",
    spec={"unschedulable": True},
    status={
        "conditions": [
            {
                "type": "Ready",
                "status": "Unknown",
                "lastTransitionTime": "2026-01-01T07:40:00Z",
                "lastHeartbeatTime": "2026-01-01T07:39:00Z",
            }
        ]
    },
)
POOL = manifest("machineconfiguration.openshift.io/v1", "MachineConfigPool", "worker")


def machine(*, deleted=True):
    metadata = {"deletionTimestamp": "2026-01-01T07:45:00Z"} if deleted else {}
    status = {"nodeRef": {"kind": "Node", "name": "w4"}}
    kind = ("machine.openshift.io/v1beta1", "Machine", "m4", SPACE)
    return manifest(*kind, metadata=metadata, status=status)


def host(state="deprovisioning", began="2026-01-01T11:40:00Z", **status):
    spec = {"consumerRef": {"kind": "Machine", "name": "m4", "namespace": SPACE}}
    status = {"provisioning": {"state": state}, "operationalStatus": "OK"} | status
    status["operationHistory"] = {"deprovision": {"start": began}}
    return manifest("metal3.io/v1alpha1", "BareMetalHost", "w4", SPACE, spec=spec, status=status)


def check(**notes):
    kind = ("machine.openshift.io/v1beta1", "MachineHealthCheck", "workers", SPACE)
    return manifest(*kind, metadata={"annotations": notes}, spec={})


def deletion(name="m4"):
    said = f"Machine {SPACE}/workers/{name}/w4 has been remediated by requesting to delete Machine"
    about = {"kind": "Machine", "name": name, "namespace": SPACE}
    made = manifest("v1", "Event", "e", SPACE)
    made.data |= {"reason": "MachineDeleted", "message": said, "involvedObject": about}
    return made


def seen(*objects):
    return Snapshot([NODE, POOL, *objects], complete=["*"], time=NOON)


def test_the_health_check_that_deletes_the_machine_of_a_host():
    there = seen(machine(), host(), check(), deletion())
    says = awaited_return.advice("w4", there)

    assert says.startswith("do not repair or uncordon w4, and wait until Machine")
    assert "as a decision, once its console shows that it is off or is being cleaned" in says
    assert "delete the Node (kubectl delete node w4). MachineHealthCheck" in says
    assert "unusual" not in says
    assert "MachineHealthCheck workers has asked for that deletion, as it has neither" in says
    assert says.endswith(f"workers -n {SPACE} {STRATEGY}=external-baremetal --overwrite")
    assert "kubectl uncordon" not in pool_obstacles.end_of_absence(POOL, [NODE], there)


@pytest.mark.parametrize(
    "objects",
    [
        (check(), deletion("m5")),
        (check(**{STRATEGY: "external-baremetal"}), deletion()),
        (deletion(),),
    ],
    ids=["another Machine", "changed afterwards", "no such check"],
)
def test_no_health_check_is_to_be_changed(objects):
    says = awaited_return.advice("w4", seen(machine(), host(), *objects))

    assert says.startswith("do not repair or uncordon w4")
    assert "annotate" not in says


@pytest.mark.parametrize(
    "objects",
    [(machine(deleted=False), host()), (machine(), host("provisioned")), (machine(),)],
    ids=["the Machine stays", "its host is not wiped yet", "its host is not known"],
)
def test_a_host_that_is_not_deprovisioned(objects):
    there = seen(*objects, check(), deletion())

    assert awaited_return.advice("w4", there) == "repair or fence its node"


def test_a_node_that_is_cordoned_and_silent_is_repaired_before_it_is_uncordoned():
    words = pool_obstacles.end_of_absence(POOL, [NODE], seen())

    assert words.startswith("Repair w4, and uncordon w4: kubectl describe node w4")


@pytest.mark.parametrize(
    ("status", "begin", "has"),
    [
        (
            {
                "operationalStatus": "error",
                "errorType": "power management error",
                "errorMessage": "failed to power off: BMC unreachable",
            },
            "repair the power management (BMC) of BareMetalHost w4, whose deprovisioning fails "
            "(power management error: failed to power off: BMC unreachable). Do not repair or",
            "is deleted once that host is deprovisioned",
        ),
        (
            {"operationalStatus": "error", "errorType": "provisioning error"},
            "repair the fault of BareMetalHost w4, whose deprovisioning fails (provisioning",
            "is deleted once that host is deprovisioned",
        ),
        (
            {"began": "2026-01-01T08:00:00Z"},
            "do not repair or uncordon w4, and wait until Machine",
            "(for 4 h, which is unusual: see what it waits for)",
        ),
        (
            {"began": None},  # by the deletion of the Machine
            "do not repair or uncordon w4, and wait until Machine",
            "(for 4 h 15, which is unusual: see what it waits for)",
        ),
    ],
    ids=["power", "another error", "long", "long, since when not known"],
)
def test_a_host_whose_deprovisioning_does_not_end_by_itself(status, begin, has):
    says = awaited_return.advice("w4", seen(machine(), host(**status)))

    assert says.startswith(begin)
    assert has in says
    assert says.endswith("kubectl describe baremetalhost w4 -n openshift-machine-api")
