"""Certificates that the kubelet of a node asks for and does not get: the node runs,
and cannot report.

A kubelet whose client certificate has expired asks again with its bootstrap account; approvers
leave such a request for a node that exists already to people. Sources:
kubernetes/kubernetes:pkg/kubelet/certificate/bootstrap/bootstrap.go #requestNodeCertificate;
openshift/cluster-machine-approver:pkg/controller/csr_check.go#authorizeCSR.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.kubernetes import clock, node_health
from virt_admit.model.kubernetes.cluster import Cluster, entry
from virt_admit.model.kubernetes.kinds import CSR, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import names

_CLIENT: Final = "kubernetes.io/kube-apiserver-client-kubelet"
_ACCOUNT: Final = b"system:node:"
_DECIDED: Final = frozenset(("Approved", "Denied", "Failed"))

READS: Final[Reads] = union(
    clock.READS,
    node_health.READS,
    {
        CSR: (
            "metadata.creationTimestamp",
            "spec.request",
            "spec.signerName",
            "spec.username",
            "status.conditions",
        )
    },
)


class Pending(NamedTuple):
    """The requests of one kubelet that nothing has approved, the oldest first."""

    node: str
    requests: tuple[str, ...]
    since: str
    """How long the first waits, as `` for 50 min``; empty: not known."""

    @property
    def reason(self) -> str:
        """What is wrong, as the end of a sentence about the node."""
        plural = "s" * (len(self.requests) > 1)
        return (
            "runs, but its kubelet has no valid certificate and cannot report: its "
            f"CertificateSigningRequest{plural} {names(self.requests)} {'are' if plural else 'is'} "
            f"pending{self.since}"
        )

    @property
    def remedy(self) -> str:
        """What ends it, with a command."""
        newest = argument(self.requests[-1])
        return typed(
            f"do not fence {self.node}; check that the request is of {self.node}, approve it, and "
            "then the one for kubelet-serving that follows",
            shell("kubectl", "certificate", "approve", newest),
        )


def of_node(node: str, cluster: Cluster) -> Pending | None:
    """Return the requests of the kubelet of a node that does not report; None:
    none is known to be pending.
    """
    known = entry(cluster, _pending, node)
    own = (
        find(cluster, NODE, "", node) if known and node_health.silence_now(node, cluster) else None
    )
    silent = own.condition("Ready")["lastTransitionTime"].text if own is not None else None
    found = [
        each
        for each in known or ()
        if silent and (each.metadata["creationTimestamp"].text or "") > silent
    ]
    if not found:
        return None  # a request from before the silence does not say that the node runs
    age = clock.since(found[0].metadata["creationTimestamp"].text, cluster)
    since = f" for {clock.duration(age)}" if age is not None else ""
    return Pending(node, tuple(each.name for each in found), since)


def _pending(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    """Return the requests for client certificates of kubelets that nothing has decided, by node."""
    by_node: dict[str, list[Object]] = {}
    for request in cluster.known(CSR):
        decided = any(
            each["type"].text in _DECIDED for each in request.at("status", "conditions").items()
        )
        renews = (request.at("spec", "username").text or "").startswith(
            "system:node:"
        )  # its certificate was valid then
        asks = request.at("spec", "signerName").text == _CLIENT and not decided and not renews
        if asks and (node := _subject(request)):
            by_node.setdefault(node, []).append(request)
    return {
        node: sorted(
            some, key=lambda each: (each.metadata["creationTimestamp"].text or "", each.name)
        )
        for node, some in by_node.items()
    }


def _subject(request: Object) -> str:
    """Return the node in the subject of a request: PEM in base64, of which the common name is text;
    empty: it is not read.
    """
    try:
        pem = base64.b64decode(request.at("spec", "request").text or "", validate=True)
        lines = [line for line in pem.splitlines() if line and not line.startswith(b"-----")]
        subject = base64.b64decode(b"".join(lines))
    except (binascii.Error, ValueError):
        return ""
    begin = subject.find(_ACCOUNT)
    if begin < 1:
        return ""
    length = subject[begin - 1]  # DER writes the length of a short text before it
    return subject[begin : begin + length].removeprefix(_ACCOUNT).decode("ascii", errors="ignore")
