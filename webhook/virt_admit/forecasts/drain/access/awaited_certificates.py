"""Certificates that the kubelet of a node at work has asked for, and that nothing approves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from virt_admit.model import certificate_requests
from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.kubernetes.cluster import Cluster, entry
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
