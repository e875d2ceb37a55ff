"""What an upgrade says of Machines without a node,
and of the control plane that is rolled out before the nodes.
"""

import pytest

from tests.builders import EVERY_NODE, manifest, node
from virt_admit.forecasts.upgrade import rehearsal
from virt_admit.forecasts.upgrade.rehearsal import Options
from virt_admit.model.kubernetes.cluster import Snapshot

CAPI, NOW, LONG = "cluster.x-k8s.io/v1beta2", "2026-01-01T12:00:00Z", "2026-01-01T08:00:00Z"
OF_CLUSTER = {"cluster.x-k8s.io/cluster-name": "prod"}
OWNED = [{"kind": "KubeadmControlPlane", "name": "cp", "controller": True}]
HELD = {
    "type": "ScalingUp",
    "status": "True",
    "message": (
        'Blocked because: * KubeadmControlPlane fleet/cp is upgrading ("ControlPlaneIsStable" '
        "preflight check failed)"
    ),
}


def worker(name):
    labels = OF_CLUSTER | {"cluster.x-k8s.io/deployment-name": "md"}
    return manifest(
        CAPI,
        "Machine",
        f"m-{name}",
        "fleet",
        metadata={"labels": labels},
        status={"nodeRef": {"name": name}},
    )


def control_plane(spec=None, annotations=None, **status):
    fields = {"metadata": {"annotations": annotations or {}}, "status": status}
    kind, spec = "KubeadmControlPlane", {"replicas": 3, "version": "v1.32.1"} | (spec or {})
    return manifest(
        "controlplane.cluster.x-k8s.io/v1beta2", kind, "cp", "fleet", spec=spec, **fields
    )


def rehearse(*objects):
    deployment = manifest(
        CAPI,
        "MachineDeployment",
        "md",
        "fleet",
        metadata={"labels": OF_CLUSTER},
        spec={"replicas": 2},
    )
    nodes = [node(name, runs_vms=False) for name in "ab"]
    cluster = Snapshot(
        [*nodes, worker("a"), worker("b"), deployment, *objects], complete=["*"], time=NOW
    )
    return rehearsal.rehearse(cluster, Options(), forecast_only=True)


def machine_set(*conditions):
    return manifest(CAPI, "MachineSet", "md-x", "fleet", status={"conditions": list(conditions)})


@pytest.mark.parametrize(
    ("objects", "words"),
    [
        (
            [control_plane(replicas=4, upToDateReplicas=2, version="v1.31.4"), machine_set(HELD)],
            (
                "fleet/cp to v1.32.1 (2 of 3 Machines are up to date, and its own nodes are not "
                "counted), before"
            ),
        ),
        (
            [control_plane(replicas=3, updatedReplicas=1, version="v1.32.1"), machine_set()],
            (
                "KubeadmControlPlane fleet/cp (1 of 3 Machines are up to date, and its own nodes "
                "are not counted)"
            ),
        ),
        ([control_plane(replicas=3, upToDateReplicas=3, version="v1.32.1"), machine_set()], ""),
        ([control_plane()], ""),
    ],
    ids=["held", "of the same version", "done", "says nothing"],
)
def test_a_control_plane_that_is_rolled_out(objects, words):
    found = rehearse(*objects)
    assert found.possible is True
    notes = [note for note in found.rests_on if "roll-out of" in note]
    assert bool(notes) is bool(words)
    assert not words or words in notes[0]
    assert not words or notes[0].endswith("MachineSets create no Machine") is words.endswith(
        "before"
    )


def test_a_control_plane_that_waits_for_itself_stops_the_upgrade():
    left = {"type": "OwnerRemediated", "status": "False", "reason": "WaitingForRemediation"}
    metadata = {"labels": OF_CLUSTER, "ownerReferences": OWNED, "creationTimestamp": LONG}
    new = manifest(
        CAPI, "Machine", "cp-new", "fleet", metadata=metadata, status={"conditions": [left]}
    )
    begun = '{"machine":"cp-gone","timestamp":"2026-01-01T09:00:00Z","retryCount":0}'
    owner = control_plane(
        annotations={"controlplane.cluster.x-k8s.io/remediation-in-progress": begun}
    )
    found = rehearse(new, owner)
    assert found.possible is False
    assert "KubeadmControlPlane fleet/cp waits for itself: for 3 h" in found.stops[0].reason
    assert found.stops[0].remedy.endswith(
        "kubectl delete machines.cluster.x-k8s.io cp-new -n fleet"
    )
    assert "once all other members of etcd are healthy" in found.stops[0].remedy
    # nothing says that a remediation is in progress
    assert rehearse(new, control_plane()).possible is None


def test_a_machine_of_openshift_without_a_node_is_no_stop():
    pool = manifest(
        "machineconfiguration.openshift.io/v1",
        "MachineConfigPool",
        "worker",
        spec={"nodeSelector": EVERY_NODE},
    )
    error = {
        "phase": "Provisioning",
        "errorReason": "InsufficientResources",
        "errorMessage": "no capacity",
    }
    late = manifest(
        "machine.openshift.io/v1beta1",
        "Machine",
        "w-4",
        "mapi",
        metadata={"creationTimestamp": LONG},
        status=error,
    )
    cluster = Snapshot([node("a", runs_vms=False), pool, late], complete=["*"], time=NOW)
    found = rehearsal.rehearse(cluster, Options(), forecast_only=True)
    assert found.possible is True
    assert (
        "the nodes that exist: Machine mapi/w-4 has no node for 4 h: InsufficientResources: no "
        "capacity"
    ) in found.rests_on
