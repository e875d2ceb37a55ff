"""VMs of a lost node that find room, and may not start there: the pod network of a node,
and volumes that stay.
"""

import pytest

from tests.forecasts.outage.losses import (
    claim,
    deployed,
    disk,
    lose,
    manifest,
    nhc,
    node,
    snapshot,
    vm,
)

NOW = "2027-03-01T11:00:00Z"
NODES = [node("n1"), node("n2"), node("n3")]


def at(cluster):
    cluster.time = NOW
    return cluster


def cilium(on, *, ready="False", since="2027-03-01T10:00:00Z"):
    found = deployed(f"cilium-{on}", on, "1Gi", "DaemonSet")
    found["metadata"]["labels"] = {"k8s-app": "cilium"}
    found["status"]["conditions"] = [
        {"type": "Ready", "status": ready, "lastTransitionTime": since}
    ]
    return found


@pytest.mark.parametrize(
    ("daemon", "survives"),
    [
        (cilium("n2"), None),
        (cilium("n2", ready="True"), True),
        (cilium("n2", since="2027-03-01T10:58:00Z"), True),
        (cilium("n1"), True),
    ],
    ids=["broken", "works", "restarts", "the lost node"],
)
def test_a_node_without_pod_network(daemon, survives):
    found = lose(at(snapshot(NODES, vm("db", "n1", "20Gi"), nhc(), daemon)), "n1")
    (row,) = found.outages[0].vms

    assert found.survives is survives
    assert row.outcome == ("unknown" if survives is None else "restarts")
    if survives is None:
        assert (
            "kube-scheduler may choose n2, and the pod network on n2 does not work"
            in found.because[0]
        )
        assert row.remedy.endswith("kubectl cordon n2")


def detaching(since, *, on="n1", attacher="block.example.com", error="device is busy"):
    return manifest(
        "storage.k8s.io/v1",
        "VolumeAttachment",
        "csi-old",
        metadata={"deletionTimestamp": since},
        spec={"nodeName": on, "attacher": attacher, "source": {"persistentVolumeName": "pv-old"}},
        status={"detachError": {"message": error}} if error else {},
    )


HOURS_AGO = "2027-03-01T06:00:00Z"


@pytest.mark.parametrize(
    ("attachment", "mode", "survives"),
    [
        (detaching(HOURS_AGO), "ReadWriteOnce", None),
        (detaching(HOURS_AGO), "ReadWriteMany", True),
        (detaching(HOURS_AGO, attacher="file.example.com"), "ReadWriteOnce", True),
        (detaching(HOURS_AGO, on="n2"), "ReadWriteOnce", True),
        (detaching(HOURS_AGO, error=""), "ReadWriteOnce", True),
        (detaching("2027-03-01T10:55:00Z"), "ReadWriteOnce", True),
    ],
    ids=["stuck", "a shared volume", "another driver", "another node", "no error", "a moment ago"],
)
def test_a_driver_that_detaches_nothing_from_the_lost_node(attachment, mode, survives):
    parts = vm("db", "n1", "20Gi", volumes=[disk("data")]), claim("data", mode)
    found = lose(at(snapshot(NODES, *parts, nhc(), attachment)), "n1")
    (row,) = found.outages[0].vms

    assert found.survives is survives
    if survives is None:
        says = (
            "block.example.com has not detached volume pv-old from n1 for 300 min (device is "
            "busy), so its own volumes"
        )
        assert says in row.reason
        assert (
            row.remedy
            == "repair the driver: kubectl describe volumeattachments.storage.k8s.io csi-old"
        )
