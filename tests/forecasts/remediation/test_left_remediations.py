"""What ``explain`` says of a node that does not exist while its remediation may go on."""

import pytest

from tests.builders import manifest
from tests.healthy.parts import ago
from virt_admit.forecasts.remediation import side_notes
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.remediation import health_checks

GROUP = "remediation.medik8s.io/v1alpha1"
OWNER = {"ownerReferences": [{"kind": "NodeHealthCheck", "name": "workers"}]}


def notes(*objects, hours=9, begun=True, kind="SelfNodeRemediation", **spec):
    resource = {"kind": kind, "name": "gone-x", "namespace": "ops"}
    remediations = [{"resource": resource, "started": ago(hours=hours)}] if begun else []
    check = manifest(
        *(GROUP, "NodeHealthCheck", "workers"),
        spec={"minHealthy": "51%", "selector": {}, **spec},
        status={"unhealthyNodes": [{"name": "gone", "remediations": remediations}]},
    )
    cluster = Snapshot([check, *objects], complete=["*"], time=ago())
    return " ".join(map(str, side_notes.left_over(health_checks.view(check), cluster)))


def deletion(status):
    metadata = {**OWNER, "creationTimestamp": ago(hours=9)}
    conditions = [{"type": "PermanentNodeDeletionExpected", "status": status}]
    return manifest(
        *("machine-deletion-remediation.medik8s.io/v1alpha1", "MachineDeletionRemediation"),
        *("gone", "ops"),
        metadata=metadata,
        status={"conditions": conditions},
    )


@pytest.mark.parametrize(
    "found",
    [
        notes(deletion("True")),
        notes(deletion("False")),
        notes(hours=0.2),
        notes(begun=False),
        notes(deletion("True"), pauseRequests=["maintenance"]),
    ],
    ids=["cloud", "bare metal", "just begun", "nothing begun", "paused"],
)
def test_a_remediation_that_may_go_on_is_not_to_be_deleted(found):
    assert found == ""


def test_others_are_deleted_only_if_no_node_comes_back():
    assert "objects if none of these nodes is to come back" in notes(kind="Metal3Remediation")
    assert "To do: take gone out of status.unhealthyNodes" in notes()
