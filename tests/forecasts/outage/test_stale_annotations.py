"""Control planes that skip remediations because of one that has ended."""

import json

import pytest

from tests.forecasts.outage.losses import master, snapshot
from tests.forecasts.outage.test_owner_turns import NOW, check, management, manifest, owned
from virt_admit.forecasts.outage import health_actors
from virt_admit.forecasts.outage.loss import Loss
from virt_admit.forecasts.outage.outages import Question, outages
from virt_admit.reports.outage import text

PREFIX = "controlplane.cluster.x-k8s.io/remediation"
BEGUN = {"machine": "machine-old", "timestamp": "2025-12-01T10:00:00Z", "retryCount": 0}
LONG = "2025-10-01T10:00:00Z"
LEFT = {
    "type": "OwnerRemediated",
    "status": "False",
    "reason": "WaitingForRemediation",
    "lastTransitionTime": "2026-01-01T11:20:00Z",
}


def controller(release):
    image = f"registry.k8s.io/cluster-api/kubeadm-control-plane-controller:v{release}"
    name = "capi-kubeadm-control-plane-controller-manager"
    spec = {"template": {"spec": {"containers": [{"name": "manager", "image": image}]}}}
    return manifest("apps/v1", "Deployment", name, "capi-kubeadm", spec=spec)


def machine(name, made=LONG, conditions=(), **metadata):
    metadata = {"creationTimestamp": made} | metadata
    status = {"conditions": list(conditions)}
    return owned(name, "KubeadmControlPlane", "cp", metadata=metadata, status=status)


def cluster(begun=BEGUN, third=None, release="1.5.2", lost=False, conditions=(LEFT,), **control):
    """Return a control plane of three, whose third Machine may be younger than the annotation."""
    note = {"annotations": {f"{PREFIX}-in-progress": json.dumps(begun)}} if begun else {}
    *above, own = management({"spec": {"replicas": 3}, "metadata": note} | control)
    own["metadata"] = {"name": "cp", "namespace": "capi"} | note
    replaces = {f"{PREFIX}-for": json.dumps(BEGUN)}
    third = third or machine("cp-2", "2025-12-01T10:00:25Z", annotations=replaces)
    nodes = [master(f"cp-{number}") for number in range(3)]
    if lost:
        since = {"status": "Unknown", "lastTransitionTime": "2026-01-01T11:10:00Z"}
        nodes[0]["status"]["conditions"] = [{"type": "Ready"} | since]
    machines = [machine("cp-0", conditions=conditions), machine("cp-1"), third]
    runs = [controller(release)] if release else []
    return snapshot(nodes, [*above, own], machines, runs, [check()], time=NOW)


def actor(**given):
    (found,) = health_actors.coverage("cp-0", Loss(("cp-0",), cluster(**given))).actors
    return found


def test_an_annotation_that_has_outlived_its_remediation():
    found = actor()
    assert found.refuses == (
        "KubeadmControlPlane capi/cp remediates none of its Machines (machine-cp-0 has "
        f"OwnerRemediated False for 40 min): its annotation {PREFIX}-in-progress of "
        "2025-12-01T10:00:00Z names Machine machine-old, which is gone and was replaced by "
        "machine-cp-2, and Cluster API 1.5.2 skips every remediation while it is there"
    )
    command = f"kubectl annotate kubeadmcontrolplane cp -n capi {PREFIX}-in-progress-"
    assert f"{command}; Cluster API 1.8" in found.remedy


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"third": machine("cp-2")}, "is gone, and all 3 replicas exist without it"),
        ({"third": machine("cp-2"), "release": "1.12.1"}, "is gone, and all 3 replicas exist"),
        ({"third": machine("old")}, "is there and is not being deleted"),
        ({"third": machine("cp-2", "2025-12-01T10:00:25Z")}, "is gone, although later ones were"),
    ],
)
def test_other_ways_in_which_it_has_ended(given, words):
    assert f"names Machine machine-old, which {words}" in actor(**given).refuses


@pytest.mark.parametrize(
    "given",
    [
        {"begun": None},
        {"begun": BEGUN | {"timestamp": "2026-01-01T11:50:00Z"}, "third": machine("cp-2")},
        {"release": "1.8.0"},
        {"third": machine("cp-2", "2026-01-01T11:50:00Z")},
        {"third": machine("old", deletionTimestamp="2025-12-01T10:00:00Z")},
        {"third": machine("cp-2", deletionTimestamp="2026-01-01T11:00:00Z")},
    ],
    ids=["none", "begun", "refuted", "replaced just now", "being deleted", "another is deleted"],
)
def test_a_remediation_that_may_go_on(given):
    found = actor(**given)
    assert not found.refuses
    assert not any(PREFIX in each for each in found.unseen)


def test_a_release_that_is_not_known_may_skip():
    found = actor(release="")
    assert (found.refuses, found.certain) == ("", False)
    assert any("Cluster API before 1.8 skips" in each for each in found.unseen)


def said(**given):
    return text.text(outages(Question(("cp-0",)), cluster(lost=True, **given)))


def test_a_node_that_is_lost_already():
    lines = said()
    assert "cp-0 has not reported for 50 min: 2 of 3 control-plane nodes are left" in lines
    assert f"{PREFIX}-in-progress-" in lines


def test_a_deletion_whose_time_has_passed_is_not_promised():
    lines = said(begun=None)
    assert "free the pods after" not in lines
    assert (
        "has not freed the pods in time. Not known is whether KubeadmControlPlane cp remediates "
        "it: machine-cp-0 waits for that for 40 min"
    ) in lines
    assert "Not known is why MachineHealthCheck all has not deleted" in said(
        begun=None, conditions=()
    )
