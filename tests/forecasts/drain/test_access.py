"""Certificates and APIs that commands need beside a drain."""

import base64

import pytest

from tests.builders import manifest
from tests.healthy.clusters import plain
from tests.healthy.parts import ago
from tests.incidents.control_path import expired_ca
from tests.incidents.held_nodes import powered_on
from tests.incidents.held_nodes import request as asks
from virt_admit.forecasts.drain.access import awaited_certificates, unavailable_apis
from virt_admit.model import certificate_requests
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object

CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
SERVING = "kubernetes.io/kubelet-serving"
NODES = [*map(Object, plain())]


def request(name="csr-1", *, signer=CLIENT, node="w1", minutes=300, user="system:node:", said=()):
    return manifest(
        *("certificates.k8s.io/v1", "CertificateSigningRequest", name),
        metadata={"creationTimestamp": ago(minutes=minutes)},
        spec={"signerName": signer, "username": f"{user}{node}"},
        status={"conditions": [{"type": each} for each in said]},
    )


def notes(*objects, node="w1"):
    return list(awaited_certificates.notes(node, Snapshot([*NODES, *objects], ["*"])))


def test_the_newest_request_of_a_kubelet_is_to_be_approved():
    (found,) = notes(request(), request("csr-2", minutes=40), request("csr-9", minutes=90))
    assert found.startswith(
        "CertificateSigningRequest csr-2 of the kubelet of w1 is pending for 39 min: once its "
        "present client certificate ends, the node no longer reports"
    )
    assert found.endswith("see why nothing does: kubectl certificate approve csr-2")
    (served,) = notes(request(signer=SERVING))
    assert "kubectl logs, exec and port-forward fail for pods of the node" in served
    assert notes(request(), node="w2") == []


@pytest.mark.parametrize(
    "fields",
    [
        {"minutes": 20},
        {"said": ("Approved",)},
        {"said": ("Denied",)},
        {"signer": "example.com/other"},
        {"user": "system:bootstrap:"},
        {"node": "gone"},
    ],
    ids=["young", "approved", "denied", "another-signer", "bootstrap", "no-node"],
)
def test_requests_that_cost_a_node_nothing(fields):
    found = Snapshot([*NODES, own := request(**fields)], ["*"])
    assert notes(own) == notes(own, node="gone") == []
    assert list(awaited_certificates.reported(found)) == []


def test_what_waits_is_counted_once():
    own = [request(f"csr-{each}", signer=SERVING, node=each) for each in ("w1", "w2", "w3")]
    (only,) = awaited_certificates.reported(Snapshot([*NODES, *own], ["*"]))
    assert only.text.startswith("nothing approves it, and without a serving certificate")
    assert (only.name, only.also) == ("csr-w1", ("csr-w2", "csr-w3"))


STUDENT, JOINS = "system:serviceaccount:students:default", "system:bootstrap:abcdef"


@pytest.mark.parametrize(
    ("user", "groups", "minutes", "said", "told"),
    [
        (STUDENT, ["system:authenticated"], 300, "", True),
        (STUDENT, ["system:authenticated"], 300, "Denied", False),
        (STUDENT, ["system:authenticated"], 10, "", False),
        (STUDENT, ["system:bootstrappers"], 300, "", False),
        (STUDENT, None, 300, "", False),
        (JOINS, ["system:bootstrappers"], 300, "", False),
        ("system:node:w1", ["system:nodes"], 300, "", False),
    ],
    ids=["told", "denied", "young", "of hosts", "groups unknown", "token", "kubelet"],
)
@pytest.mark.parametrize("host", ["w1", "w9"])
def test_another_account_asks_for_the_certificate_of_a_node(
    host, user, groups, minutes, said, told
):
    own = asks("csr-1", host, minutes, **({"conditions": [{"type": said}]} if said else {}))
    own["spec"] |= {"username": user} | ({"groups": groups} if groups else {})
    found = awaited_certificates.reported(Snapshot([*NODES, Object(own)], ["*"], time=ago()))
    texts = [each.text for each in found if "with the certificate" in each.text]
    assert bool(texts) is told
    for text in texts:
        assert text.startswith(f"{STUDENT} asks for the client certificate of node {host}, and no")
        assert "Approve none unless you asked for it" in text
        assert text.endswith("kubectl describe csr csr-1")


def test_another_account_is_not_taken_for_a_kubelet_that_lost_its_certificate():
    items = powered_on(asks("csr-1", "w1", 50), asks("csr-2", "w1", 5))
    known = lambda: Snapshot([*map(Object, items)], ["*"], time=ago())  # noqa: E731
    assert certificate_requests.of_node("w1", known()).requests == ("csr-1", "csr-2")
    items[-1]["spec"]["username"] = STUDENT
    assert certificate_requests.of_node("w1", known()).requests == ("csr-1",)
    items[-2]["spec"]["username"] = STUDENT
    assert certificate_requests.of_node("w1", known()) is None


@pytest.mark.parametrize(("group", "told"), [("subresources.kubevirt.io", True), ("x.io", False)])
def test_an_api_of_kubevirt_whose_ca_has_ended(group, told):
    bundle = base64.b64encode(expired_ca()).decode()
    name = f"v1.{group}"
    spec = {"group": group, "version": "v1", "caBundle": bundle}
    api = manifest("apiregistration.k8s.io/v1", "APIService", name, spec=spec)
    expected = f"APIService {name} is not available (CA bundle expired); virtctl fails"
    found = unavailable_apis.notes(Snapshot([*NODES, api], ["*"]))
    assert [each.startswith(expected) for each in found] == [True] * told
