"""Pods that a policy engine changed when they were created, by the mark that it leaves.

Kyverno writes one line a rule: ``rule.policy.kyverno.io: replaced /spec/containers/0/image``.
Source: kyverno/kyverno:pkg/engine/utils/patches.go; kyverno/kyverno:pkg/webhooks/utils/
generate_annotations (``policies.kyverno.io/last-applied-patches``).
"""

from __future__ import annotations

import re
from typing import Final

from virt_admit.model.kubernetes import workloads
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.messages import names

_MARK: Final = "policies.kyverno.io/last-applied-patches"
READS: Final[Reads] = {POD: (f"metadata.annotations.{_MARK}", "metadata.ownerReferences")}
_POLICY: Final = re.compile(r"(?m)^[a-z0-9-]+\.([a-z0-9.-]+)\.kyverno\.io: [a-z]+ /spec/")
"""A patch of metadata ends no container."""


def alone(pod: Object, cluster: Cluster) -> str:
    """Return which policies changed a pod and not its ready siblings, as ``policy NAME of
    Kyverno``; empty: none is known to.

    The siblings are the pods of the same owner. A mark that ready ones have as well explains
    nothing, nor does one that a sibling with a fault does not have.
    """
    policies = sorted(set(_POLICY.findall(pod.annotation(_MARK).text or "")))
    every = [
        (each.is_true("Ready"), each.annotation(_MARK).present)
        for each in (workloads.siblings(pod, cluster) if policies else ())
    ]
    if not any(ready for ready, _ in every) or any(ready is mark for ready, mark in every):
        return ""
    return f"policy {names(policies, 80)} of Kyverno"
