"""Problems: what is wrong with one object for one cause, under the same id in every verb."""

from __future__ import annotations

import enum
import re
from typing import Final, NamedTuple

from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.kinds import VMI
from virt_admit.model.kubernetes.objects import Object


class ProblemCause(enum.StrEnum):
    """The causes besides the reasons of KubeVirt's condition ``LiveMigratable``, which are causes
    under their own name.

    A cause is part of an id, so it never changes.
    """

    NOT_MIGRATABLE = "NotLiveMigratable"
    """KubeVirt names no reason."""
    NOT_REPORTED = "MigratabilityNotReported"
    EXTERNAL = "ExternalEvictionStrategy"
    MOVER_IDLE = "ExternalControllerIdle"
    """The controller that has to move a VM with the strategy External has not done so for long."""
    BUDGET = "BudgetForbidsEviction"
    SEVERAL_BUDGETS = "SeveralBudgets"
    NO_MIGRATION = "MigrationLimitZero"
    QUOTA = "QuotaExceeded"
    LIMIT_RANGE = "LimitRangeExceeded"
    STOP_OVERDUE = "StopOverdue"
    POD_NOT_ENDING = "PodNotEnding"
    POD_RETURNS = "PodReturns"
    """A workload tolerates the cordon, and makes its pods again on the node that is drained."""
    POD_KEPT = "CompletedPodKept"
    """A pod has ended, and what drains its node waits until it is deleted."""
    VOLUME_KEPT = "VolumeKeptAttached"
    """A pod that no drain ends keeps a volume attached,
    for which the deletion of a Machine waits.
    """
    POD_WITHOUT_VMI = "PodWithoutVmi"
    MIGRATION_FAILS = "MigrationFails"
    TARGETS_INCOMPATIBLE = "MigrationTargetsIncompatible"
    TIMES_OUT = "MigrationTimesOut"
    NOT_CREATED = "MigrationNotCreated"
    """KubeVirt cannot create a migration or its target pod."""
    MARK_LEFT = "EvacuationMarkLeft"
    QUEUED = "MigrationQueued"
    NO_OTHER_NODE = "NoOtherNode"
    NO_NODE_READY = "NoNodeReady"
    NO_ROOM = "NoRoom"
    NODE_COMING = "NodeBeingAdded"
    """The same, while the cluster-autoscaler adds a node."""
    NO_TARGET = "NoTargetNode"
    HOST_MODEL = "HostModelUnavailable"
    CLAIM_BROKEN = "ClaimNotMountable"
    NETWORK_MISSING = "NetworkMissing"
    NODE_SILENT = "NodeNotReporting"
    NODE_CANNOT_END_PODS = "NodeCannotEndPods"
    COMPONENT = "ComponentUnavailable"
    WEBHOOK = "WebhookUnreachable"
    BUNDLE = "WebhookBundleExpired"
    POOL_PAUSED = "PoolPaused"
    POOL_DEGRADED = "PoolDegraded"
    POOL_NODES = "PoolNodesUnavailable"
    POOL_INVALID = "PoolLimitInvalid"
    POOL_AMBIGUOUS = "PoolAmbiguous"
    POOL_MISSING = "PoolMissing"
    MACHINE_WAITS = "MachineWaits"
    """A Machine does not become a Node."""
    START_TOO_SHORT = "MachineStartTimeTooShort"
    """A health check deletes Machines before they can become Nodes."""
    CONTROL_PLANE_DOWN = "ControlPlaneNodeDown"
    UPDATE_NOT_ACCEPTED = "UpdateNotAccepted"
    UPDATE_FAILING = "UpdateFailing"
    """The operators of the cluster are updated before its nodes,
    and one of them does not get well.
    """
    NODE_UPDATE_FAILED = "NodeUpdateFailed"
    NODE_UPDATE_LATE = "NodeUpdateLate"
    ORDER_STANDS = "UpdateOrderStands"
    """An order to update nodes does not go on."""
    EVICTION_REFUSED = "EvictionRefused"
    VOLUMES_DIFFER = "VolumesDiffer"
    VOLUME_DEGRADED = "VolumeDegraded"
    IMAGE_FAILS = "UpgradeImageFails"
    BLOCKED = "DrainBlocked"
    """Any other."""


class ProblemId(NamedTuple):
    """What identifies a problem: ``DisksNotLiveMigratable:shop/db``."""

    cause: str
    namespace: str
    """Of the root object; empty: it is cluster-scoped."""
    name: str

    def __str__(self) -> str:
        if self.namespace:
            return f"{self.cause}:{self.namespace}/{self.name}"
        return f"{self.cause}:{self.name}"


class Problem(NamedTuple):
    """Why something does not happen, and the remedy."""

    reason: str
    remedy: str
    cause: str = ProblemCause.BLOCKED
    id: ProblemId | None = None
    """None: it is a problem of the object that the caller asked about."""
    command: str = ""
    """What an administrator types, where it is known already. The remedy contains it then,
    or gets it.
    """
    brief: str = ""
    """The reason in at most about 130 characters, true on its own; empty:
    its first statements are.
    """

    def about(self, obj: Object) -> Problem:
        """Return the problem with an id: its own, else that of an object."""
        return self if self.id is not None else self._replace(id=problem_of(self.cause, obj))


_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9]{0,99}")


def problem_of(cause: str, obj: Object) -> ProblemId:
    """Return the id of a problem of an object.

    The root of a VMI is its VM, which has the same name, or its replica set. A cause that is not a
    reason of a condition by Kubernetes's rules, which a cluster may contain anyway, is not
    repeated.
    """
    kind = kinds.of(obj)
    namespace = (obj.namespace or "default") if kind is None or kind.namespaced else ""
    safe = cause if _WORD.fullmatch(cause) else str(ProblemCause.NOT_MIGRATABLE)
    return ProblemId(safe, namespace, _root(obj) if kind is VMI else obj.name)


_OWNERS: Final = ("VirtualMachine", "VirtualMachineInstanceReplicaSet")


def _root(vmi: Object) -> str:
    owners = vmi.metadata["ownerReferences"].items()
    names = (owner["name"].text for owner in owners if owner["kind"].text in _OWNERS)
    return next(filter(None, names), vmi.name)
