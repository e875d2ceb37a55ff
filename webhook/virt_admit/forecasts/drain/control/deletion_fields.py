"""The fields that ``stuck_deletions`` reads, without what it computes: ``check`` of files loads them with the rules."""

from __future__ import annotations

from typing import Final

from virt_admit.model.kubernetes.kinds import (
    API_SERVICE,
    CDI,
    CLUSTER_INSTANCETYPE,
    CLUSTER_PREFERENCE,
    CONTROLLER_REVISION,
    DEPLOYMENT,
    ENDPOINT_SLICE,
    HCO,
    INSTANCETYPE,
    KUBEVIRT,
    MUTATING_CONFIGURATION,
    NAMESPACE,
    NODE,
    POD,
    PREFERENCE,
    SERVICE,
    VALIDATING_CONFIGURATION,
    VM,
    VM_SNAPSHOT,
    VMI,
)
from virt_admit.model.kubernetes.reads import NAME, Reads

READS: Final[Reads] = {
    NODE: ("status.conditions.lastHeartbeatTime",),
    SERVICE: (),
    ENDPOINT_SLICE: (
        "metadata.labels",
        "endpoints.conditions.ready",
        "endpoints.nodeName",
        "endpoints.targetRef",
    ),
    VALIDATING_CONFIGURATION: (),
    MUTATING_CONFIGURATION: (),
    NAMESPACE: (
        "status.conditions.message",
        "status.conditions.status",
        "status.conditions.type",
        "metadata.name",
        "metadata.labels",
        "status.conditions",
    ),
    DEPLOYMENT: (
        "spec.selector",
        "spec.template.metadata.labels",
        "metadata.name",
    ),
    KUBEVIRT: (),
    CDI: (),
    HCO: (),
    POD: (
        "metadata.labels",
        "status.phase",
        "status.conditions.type",
        "status.conditions.status",
    ),
    API_SERVICE: (
        "spec.service",
        "spec.group",
        "spec.version",
    ),
    VM: (
        "metadata.finalizers",
        "metadata.labels",
        "spec.instancetype",
        "spec.preference",
        "spec.template.spec.terminationGracePeriodSeconds",
        "status.snapshotInProgress",
    ),
    VMI: (
        "metadata.finalizers",
        "spec.terminationGracePeriodSeconds",
        "status.phase",
        "status.nodeName",
    ),
    VM_SNAPSHOT: ("metadata.creationTimestamp", "spec.source.name", "status"),
    INSTANCETYPE: NAME,
    CLUSTER_INSTANCETYPE: NAME,
    PREFERENCE: NAME,
    CLUSTER_PREFERENCE: NAME,
    CONTROLLER_REVISION: NAME,
}
