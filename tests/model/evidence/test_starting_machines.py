"""What Cluster API reports of a Machine that is being made is not told for a usual time."""

import pytest

from tests.builders import manifest
from virt_admit.model.evidence import reported
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.remediation import bare_metal

NOW = "2026-11-26T12:00:00Z"
CAPI = "cluster.x-k8s.io/v1beta2"
LABELS = {
    f"cluster.x-k8s.io/{key}-name": name
    for key, name in {"cluster": "c", "deployment": "md", "set": "md-1"}.items()
}
WAITS = "InfrastructureReady: Metal3Machine status.initialization.provisioned is false"
SHORT = "{} available replicas, at least 6 required (spec.replicas is 6)"


def reporting(kind, name, message, since="2026-11-26T11:45:00Z", **fields):
    condition = {"type": "Available", "status": "False", "message": message}
    condition["lastTransitionTime"] = since
    metadata = {"labels": LABELS} | fields
    status = {"conditions": [condition]}
    return manifest(CAPI, kind, name, "infra", metadata=metadata, status=status)


def told(*, created="2026-11-26T11:45:02Z", waits=WAITS, number=5, since="2026-11-26T11:45:00Z"):
    short = SHORT.format(number)
    objects = [
        reporting("Machine", "md-1-x", waits, created, creationTimestamp=created),
        reporting("MachineSet", "md-1", f"* Machine md-1-x: * {waits}", since),
        reporting("MachineDeployment", "md", short, since),
        reporting("Cluster", "c", f"* MachineDeployment md: {short}", since),
    ]
    return reported.of_cluster(Snapshot(objects, ["*"], time=NOW), ())


OLD = "Minimum availability requires 6 replicas, current {} available"


def serviced(state="servicing", since="2026-11-26T11:45:00Z", message="Node is Unknown", number=4):
    """What is reported of one Machine that starts and of one whose host has this state."""
    made = "2026-11-26T11:45:02Z"
    machine = reporting(
        "Machine", "md-1-y", message, since, creationTimestamp="2026-01-01T00:00:00Z"
    )
    machine.data["status"]["nodeRef"] = {"name": "y"}
    host = manifest(
        *("metal3.io/v1alpha1", "BareMetalHost", "h", "infra"),
        spec={"consumerRef": {"name": "md-1-y"}},
        status={"operationalStatus": state, "provisioning": {"state": "provisioned"}},
    )
    objects = [
        host,
        machine,
        reporting("Machine", "md-1-x", WAITS, made, creationTimestamp=made),
        reporting("MachineDeployment", "md", OLD.format(number), since),
    ]
    cluster = Snapshot(objects, ["*"], time=NOW)
    said = ["MachineDeployment infra/md, Machine infra/md-1-y"]
    return reported.around_named(cluster, said, (), bare_metal.serviced_machines(cluster))


def test_a_host_whose_firmware_is_updated_comes_back_by_itself():
    assert serviced() == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "OK"},
        {"since": "2026-11-26T11:15:00Z"},
        {"message": "Node cannot be reached"},
        {"number": 3},
    ],
    ids=["it is in use", "for long", "it fails", "one more is missing"],
)
def test_what_does_not_follow_from_the_service_of_a_host_is_told(changes):
    assert serviced(**changes)


def test_a_machine_that_starts_and_its_owners_report_nothing():
    assert told() == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"created": "2026-11-26T11:15:02Z", "since": "2026-11-26T11:15:00Z"},
        {"waits": "InfrastructureReady: NoAvailableHost: provisioning failed"},
        {"number": 4},
        {"since": "2026-11-26T11:30:00Z"},
    ],
    ids=["it starts for long", "it fails", "one more is missing", "it was so before"],
)
def test_what_does_not_follow_from_the_start_of_a_machine_is_told(changes):
    assert told(**changes)
