"""Certificates that the kubelet of a node at work has asked for, and that nothing approves."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

from virt_admit.model import certificate_requests
from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.evidence.reported import ReportedProblem
from virt_admit.model.kubernetes.cluster import Cluster, entry
from virt_admit.model.kubernetes.kinds import CSR
from virt_admit.model.lookups import grouped
from virt_admit.model.messages import sentence

READS: Final = certificate_requests.READS


def notes(node: str, cluster: Cluster) -> Iterator[str]:
    """Yield what a node loses without its next certificates, with the command that gives it one."""
    for each in entry(cluster, certificate_requests.renewals, node) or ():
        approve = shell("kubectl", "certificate", "approve", argument(each.name))
        see = f"once it is known to be of {node}, approve it, and see why nothing does"
        yield (
            f"CertificateSigningRequest {each.name} of the kubelet of {node} is pending"
            f"{each.since}: {each.effect}. {sentence(typed(see, approve))}"
        )


def reported(cluster: Cluster) -> Iterator[ReportedProblem]:
    """Yield what nodes lose without their next certificates, once for all nodes that lose it."""
    every = chain.from_iterable(cluster.cached(certificate_requests.renewals).values())
    for effect, requests in sorted(grouped(every, lambda each: each.effect).items()):
        name, *more = sorted(each.name for each in requests)
        text = f"nothing approves it, and {effect}"
        yield ReportedProblem(CSR.kind, "", name, text, None, also=tuple(more))
    if joining := certificate_requests.joining(cluster):
        first, *more = joining.hosts.values()
        told = f"{joining.reason}. {sentence(typed(joining.advice, joining.command))}"
        yield ReportedProblem(CSR.kind, "", first, told, None, also=tuple(more))
    for each in certificate_requests.strangers(cluster):
        first, *more = each.requests
        told = f"{each.reason}. {sentence(each.remedy)}"
        yield ReportedProblem(CSR.kind, "", first, told, None, also=tuple(more))
