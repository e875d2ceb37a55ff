"""Which conditions and states are wrong, by their words, and which of these are usual.

Source: kubernetes/community:contributors/devel/sig-architecture/api-conventions.md#typical-status-
properties.
"""

from __future__ import annotations

import re
from typing import Final

from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.kinds import DATA_VOLUME, HARVESTER_UPGRADE, NODE
from virt_admit.model.kubernetes.objects import Field, Object

_GOOD: Final = re.compile(
    r"(?i)(?<!not)(?<!un)(?<!dis)(?<!\bin)(ready|available|scheduled|healthy|established|accepted|"
    r"succeeded|valid|synced|synchronized|upgradeable|resolved|bound|connected|complete|applied|deployed|"
    r"reconciled|approved|schedulable|compatible)\Z"
)
"""Ends of the types of conditions that are wrong when they are False."""
_BAD: Final = re.compile(
    r"(?i)fail|error|degraded|pressure|unavailable|problem|invalid|stalled|denied|corrupt|"
    r"unhealthy|resizepending|terminationstuck|deadlock|readonlyfilesystem|\Afrequent"
)
"""Words in the types of conditions that are wrong when they are True. The last three are of
node-problem-detector (kubernetes/node-problem-detector:config)."""
_NEGATED: Final = re.compile(r"\bNo[A-Z]|Free\Z")
"""Types that say the opposite of a word in them: ``NoProblems``, ``ErrorFree``."""
BAD_STATE: Final = re.compile(
    r"(?i)(?:fail(?:ed|ure|ing)?|failed(?:validation|verification)|error|faulted|degraded|"
    r"unhealthy)\Z|(?:err|lost|red|health_err)\Z"
)
"""Ends of the states that are failures."""
_SERIOUS: Final = frozenset(("Critical", "Error"))
"""Categories of conditions that only exist while they are wrong, as those of Forklift."""
_UNCLEAR: Final = re.compile(
    r"noreason|Pending|StatusUnknown|AwaitingReconciliation|Unmanaged|NotApplicable|NotConfigured"
)
"""Begins of the reasons of conditions that are Unknown for good: Cilium counts in them (noreason),
Karpenter and HyperShift do not use them (AwaitingReconciliation, StatusUnknown), nothing serves a
GatewayClass (Pending), an administrator manages the records of DNS (UnmanagedDNS). Sources:
cilium/cilium:operator/pkg/lbipam/lbipam.go, kubernetes-sigs/karpenter:pkg/controllers/nodepool/
registrationhealth/controller.go, openshift/hypershift:support/conditions/conditions.go,
openshift/cluster-ingress-operator:pkg/operator/controller/dns/controller.go.
"""
_UNUSED: Final = ("SCAAvailable", "ClusterTransferAvailable")
"""Types of conditions that are False where a subscription does not have what they are about
(openshift/insights-operator:pkg/ocm)."""
EMPTY: Final = (
    *("backup target URL is empty", "Not ready"),
    "lost track of the corresponding snapshot info inside volume engine",
)
"""What Longhorn says of a backup target that is not set and of a snapshot that is gone, and what
KubeVirt says of a snapshot that it still makes (pkg/storage/snapshot/snapshot.go)."""
_UNFILLED: Final = ("Bound", "Pending")
"""Type and reason of the condition of a data volume whose claim is not bound yet."""
_EXPECTED: Final = frozenset(
    (
        *("KubernetesNodeCordoned", "InUse", "GuestNotRunning", "VMINotExists", "PodNotExists"),
        # also of a launcher pod that is Completed; a pod that does not end is said of the pod
        "PodTerminating",
        *("AsExpected", "NotYetOccurred", "NotYetOccured", "NoClusterTransfer", "NoTraffic"),
        "AdminAckRequired",  # each release asks for it before the next; `upgrade` says it
    )
)
"""Reasons of conditions that follow from what an administrator does,
or from what another object reports.
"""
_ALL_BEGUN: Final = "no virtual machines are ready for storage migration"
"""Of a VirtualMachineStorageMigrationPlan that moves all its VMs, until the last one is done
(kubevirt/kubevirt-migration-controller:internal/controller/storagemigplan/controller.go).
"""
_NO_LOG: Final = ("LogReady", "Disabled")
"""Type and reason of the condition of Harvester's Upgrade without logEnabled."""
FAILED: Final = "Error"


def is_wrong(condition: Field, obj: Object, *, of_part: bool) -> bool:
    """Return whether the status of a condition is a bad one.

    ``of_part``: it is that of a part of the object's status, which does not have to be known. Nor
    does a node, of which it is judged when it does not report.
    """
    kind, status = condition["type"].text or "", condition["status"].text
    good = _GOOD.search(kind.removesuffix("Condition"))  # as providers of Cluster API name them
    bad = not good and _BAD.search(kind) and not _NEGATED.search(kind)
    if bad or condition["category"].text in _SERIOUS:
        return status == "True"
    if status == "Unknown":
        known = of_part or kinds.of(obj) is NODE or _UNCLEAR.match(condition["reason"].text or "")
        return bool(good) and not known
    failed = obj.kind == DATA_VOLUME.kind and condition["reason"].text == FAILED
    return status == "False" and (bool(good) or failed)


def is_usual(kind: str, reason: str, message: str, obj: Object) -> bool:
    """Return whether a condition that is wrong is so for a time, or by intent.

    A claim that CDI fills is Pending until then (pkg/controller/populators), and says more itself.
    """
    return (
        reason in _EXPECTED
        or (kind, reason) == _UNFILLED
        or ((kind, reason) == _NO_LOG and kinds.of(obj) is HARVESTER_UPGRADE)
        or reason.endswith(("InProgress", "Successful"))
        or message in EMPTY
        or kind in _UNUSED
        or (message == _ALL_BEGUN and obj.at("status", "inProgressMigrations", 0).present)
    )
