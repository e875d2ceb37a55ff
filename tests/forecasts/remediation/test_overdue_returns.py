"""Nodes that do not come back from the reboot of their update, and kubelets under a wrong name."""

import pytest

from tests.builders import manifest
from virt_admit.forecasts.remediation import awaited_return, node_faults
from virt_admit.forecasts.upgrade import rehearsal
from virt_admit.forecasts.upgrade.rehearsal import Options
from virt_admit.model import certificate_requests
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import NODE

NOON = "2026-01-01T12:00:00Z"
GROUP = "machineconfiguration.openshift.io"


def node(name, *, current="new", desired="new", silent="", taken="2026-01-01T09:00:00Z"):
    """Return a worker; ``silent``: since when its kubelet does not report."""
    notes = {f"{GROUP}/currentConfig": current, f"{GROUP}/desiredConfig": desired}
    notes[f"{GROUP}/state"] = "Working" if current != desired else "Done"
    drain = f"{'drain' if current != desired else 'uncordon'}-{desired}"
    notes |= {f"{GROUP}/desiredDrain": drain, f"{GROUP}/lastAppliedDrain": drain}
    ready = {"type": "Ready", "status": "Unknown" if silent else "True"}
    ready |= {"lastTransitionTime": silent or taken, "lastHeartbeatTime": silent or NOON}
    taint = {"key": "node.kubernetes.io/unschedulable", "timeAdded": "2026-01-01T09:00:00Z"}
    spec = {"unschedulable": True, "taints": [taint]} if silent else {}
    metadata = {"annotations": notes, "labels": {"node-role.kubernetes.io/worker": ""}}
    status = {"conditions": [ready]}
    return manifest("v1", "Node", name, metadata=metadata, spec=spec, status=status)


def pool():
    spec = {
        "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}},
        "configuration": {"name": "new"},
    }
    status = {"conditions": [{"type": "Updating", "status": "True"}]}
    kind = "MachineConfigPool"
    return manifest(f"{GROUP}/v1", kind, "worker", spec=spec, status=status)


def request(name, account, created, *decided):
    spec = {"signerName": "kubernetes.io/kubelet-serving", "username": f"system:node:{account}"}
    status = {"conditions": [{"type": each, "status": "True"} for each in decided]}
    metadata = {"creationTimestamp": created}
    kind = "CertificateSigningRequest"
    return manifest(
        "certificates.k8s.io/v1", kind, name, metadata=metadata, spec=spec, status=status
    )


def cluster(*objects, silent="2026-01-01T09:30:00Z", complete=("*",)):
    own = [
        node("a"),
        node("b", current="old", silent=silent),
        node("c", current="old", desired="old"),
    ]
    return Snapshot([pool(), *own, *objects], complete=list(complete), time=NOON)


def test_a_node_that_does_not_come_back_holds_its_pool():
    lost = cluster()
    over = awaited_return.overdue("b", lost)
    assert over.behind == ("c",)
    assert over.words.endswith("waits for it, and updates c only after it")
    (found,) = rehearsal.rehearse(lost, Options()).stops
    assert found.node == "b"
    assert "has not reported for 2 h 30, and 10 min were expected" in found.reason
    assert rehearsal.rehearse(lost, Options()).possible is False
    assert not rehearsal.rehearse(lost, Options()).waves
    assert any("for 2 h 30; a reboot usually takes less. Machine" in each for each in faults(lost))
    assert not any("does not end by itself" in each for each in faults(lost))


def remediated(since):
    begun = {"resource": {"kind": "SelfNodeRemediation", "name": "b"}, "started": since}
    status = {"unhealthyNodes": [{"name": "b", "remediations": [begun]}]}
    kind = "NodeHealthCheck"
    return manifest("remediation.medik8s.io/v1alpha1", kind, "nhc", spec={}, status=status)


def test_a_remediation_under_way_is_waited_for():
    young = cluster(remediated("2026-01-01T11:57:00Z"))
    assert awaited_return.overdue("b", young) is None
    assert rehearsal.rehearse(young, Options()).possible is True
    assert any("Wait for NodeHealthCheck nhc, which has been" in each for each in faults(young))
    old = cluster(remediated("2026-01-01T10:00:00Z"))
    assert awaited_return.overdue("b", old) is not None
    assert rehearsal.rehearse(old, Options()).possible is False


@pytest.mark.parametrize("silent", ["2026-01-01T11:58:00Z", "2026-01-01T11:35:00Z"])
def test_a_node_that_reboots_is_waited_for(silent):
    young = cluster(silent=silent)
    assert awaited_return.overdue("b", young) is None
    assert rehearsal.rehearse(young, Options()).possible is True
    assert not any("does not end by itself" in each for each in faults(young))


def test_more_minutes_for_a_node_are_more_patience():
    slow = cluster(silent="2026-01-01T10:30:00Z")
    assert rehearsal.rehearse(slow, Options()).possible is False
    assert rehearsal.rehearse(slow, Options(node_minutes=60)).possible is True


def faults(cluster):
    return [*node_faults.faults(cluster.get(NODE, "", "b"), cluster)]


ASKS = (
    request("csr-1", "localhost", "2026-01-01T10:00:00Z"),
    request("csr-2", "localhost", "2026-01-01T11:50:00Z"),
)


def test_a_kubelet_asks_under_a_name_of_no_node():
    found = certificate_requests.of_node("b", cluster(*ASKS))
    assert (found.alias, found.requests) == ("localhost", ("csr-1", "csr-2"))
    assert "calls itself localhost: 2 CertificateSigningRequests" in found.reason
    assert "approve none of these requests" in found.remedy
    assert "certificate approve" not in found.remedy
    (stop,) = rehearsal.rehearse(cluster(*ASKS), Options()).stops
    assert found.reason in stop.reason
    assert stop.remedy.startswith("On b, see the host name")


@pytest.mark.parametrize(
    "others",
    [
        (request("csr-1", "a", "2026-01-01T11:50:00Z"),),
        (request("csr-1", "localhost", "2026-01-01T11:50:00Z", "Approved"),),
        (request("csr-1", "localhost", "2026-01-01T09:10:00Z"),),
        (*ASKS, request("csr-3", "other", "2026-01-01T11:50:00Z")),
        (*ASKS, node("d", silent="2026-01-01T09:40:00Z")),
    ],
    ids=["its own name", "approved", "before its silence", "two names", "two silent nodes"],
)
def test_requests_that_show_no_wrong_name(others):
    assert certificate_requests.of_node("b", cluster(*others)) is None


def test_a_machine_may_be_the_one_that_asks():
    new = manifest("machine.openshift.io/v1beta1", "Machine", "m", "openshift-machine-api")
    asks = request("csr-1", "w9", "2026-01-01T11:50:00Z")
    assert certificate_requests.of_node("b", cluster(asks, new)) is None
    assert certificate_requests.of_node("b", cluster(*ASKS, new)).alias == "localhost"
    assert not certificate_requests.other_name("b", cluster(asks, new))


def test_a_name_of_another_host_does_not_show_that_the_node_runs():
    asks = request("csr-1", "w9", "2026-01-01T11:50:00Z")
    assert certificate_requests.of_node("b", cluster(asks)) is None
    said = awaited_return.advice("b", cluster(asks))
    assert said.startswith("repair or fence its node; if it runs and calls itself w9, correct")
    assert awaited_return.advice("b", cluster(asks), otherwise="") == ""
    own = request("csr-1", "b.example.com", "2026-01-01T11:50:00Z")
    assert certificate_requests.of_node("b", cluster(own)).alias == "b.example.com"


def bootstrap(name, created, *decided, body="LS0tLS0=", user="node-bootstrapper"):
    """Return a request of a host without a certificate, of which the subject cannot be read."""
    found = request(name, "", created, *decided)
    found.data["spec"] = {
        "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
        "username": f"system:serviceaccount:openshift-machine-config-operator:{user}",
        "request": body,
    }
    return found


HIDDEN = (bootstrap("csr-1", "2026-01-01T10:00:00Z"), bootstrap("csr-2", "2026-01-01T11:50:00Z"))


@pytest.mark.parametrize("body", ["LS0tLS0=", "%", "", None, 7, "c3lzdGVtOm5vZGU6", ["x"]])
def test_a_request_that_cannot_be_read_may_be_of_the_only_silent_node(body):
    own = [bootstrap(f"csr-{i}", f"2026-01-01T1{i}:50:00Z", body=body) for i in range(2)]
    said = awaited_return.advice("b", cluster(*own))
    assert certificate_requests.of_node("b", cluster(*own)) is None
    assert said == (
        "repair or fence its node; if it is up, see whether it asks for a certificate (2 "
        "CertificateSigningRequests are pending for 70 min, the newest being csr-1), and approve "
        "that one if its subject is b (kubectl describe csr csr-1 shows it; kubectl certificate "
        "approve csr-1)"
    )


@pytest.mark.parametrize(
    "others",
    [
        (bootstrap("csr-1", "2026-01-01T11:50:00Z", "Approved"),),
        (bootstrap("csr-1", "2026-01-01T11:50:00Z", user="other"),),
        (bootstrap("csr-1", "2026-01-01T09:10:00Z"),),
        (*HIDDEN, node("d", silent="2026-01-01T09:40:00Z")),
        (
            *HIDDEN,
            manifest("machine.openshift.io/v1beta1", "Machine", "m", "openshift-machine-api"),
        ),
    ],
    ids=["approved", "another account", "before its silence", "two silent nodes", "a new machine"],
)
def test_requests_that_are_not_of_the_silent_node(others):
    assert "certificate" not in awaited_return.advice("b", cluster(*others))


def test_unread_nodes_may_have_the_name():
    assert certificate_requests.of_node("b", cluster(*ASKS, complete=())) is None
