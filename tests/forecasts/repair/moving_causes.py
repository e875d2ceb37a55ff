"""Clusters of which no node can be drained,
with a migration that already waits for what the plan changes.

What such a migration has recorded is of the cluster before the change: a plan that believes it
would not reach its goal.
"""

from __future__ import annotations

from typing import Any, Final

from tests.builders import manifest
from tests.forecasts.repair.broken_clusters import kubevirt, launcher, vm
from tests.forecasts.repair.rare_causes import RESTART, ZERO, hco
from virt_admit.forecasts.repair.repair_plan import CostClass
from virt_admit.model.kubernetes.objects import Object

HERE: Final = {"nodeSelector": {"kubernetes.io/hostname": "a"}}
MARKED: Final = {
    "evacuationNodeName": "a",
    "conditions": [
        {"type": "LiveMigratable", "status": "True"},
        {
            "type": "EvictionRequested",
            "status": "True",
            "lastTransitionTime": "2027-03-01T10:30:00Z",
        },
    ],
}
REFUSED: Final = [{"type": "migrationRejectedByResourceQuota", "status": "True"}]
USERFAULTFD: Final = (
    "internal error: unable to execute QEMU command 'migrate-set-capabilities': Postcopy is not "
    "supported: Userfaultfd not available: Operation not permitted"
)
ALLOWED: Final = {"allowPostCopy": True}
POST_COPY: Final = {"migrations": ALLOWED}
OF_DB: Final = {"selectors": {"virtualMachineInstanceSelector": {"app": "db"}}}


def migration(
    name: str = "m", phase: str = "Pending", at: str = "10:40", of: str = "db", **status: Any
) -> Object:
    metadata = {
        "uid": f"uid-{name}",
        "creationTimestamp": f"2027-03-01T{at}:00Z",
        "annotations": {"kubevirt.io/evacuationMigration": "a"},
    }
    return manifest(
        "kubevirt.io/v1",
        "VirtualMachineInstanceMigration",
        name,
        "shop",
        metadata=metadata,
        spec={"vmiName": of},
        status={"phase": phase} | status,
    )


def failed(number: int, text: str) -> Object:
    state = {
        "migrationUid": f"uid-m{number}",
        "failed": True,
        "completed": True,
        "failureReason": text,
    }
    state |= {"sourceNode": "a", "targetNode": "b"}
    return migration(f"m{number}", "Failed", f"10:{10 + 10 * number}", migrationState=state)


def refusal(text: str) -> Object:
    about = {"kind": "VirtualMachineInstance", "namespace": "shop", "name": "db"}
    fields = {"reason": "FailedCreate", "message": text, "lastTimestamp": "2027-03-01T10:59:00Z"}
    return manifest(
        "v1", "Event", "refused", "shop", involvedObject=about, type="Warning", **fields
    )


def target() -> Object:
    """Return the target pod of the migration, which no node takes."""
    pod = launcher("db", "shop", "", "4Gi", HERE)
    labels = {**pod.metadata["labels"].map, "kubevirt.io/migrationJobUID": "uid-m"}
    metadata = {**pod.metadata.map, "name": "virt-launcher-db-y", "labels": labels}
    metadata["creationTimestamp"] = "2027-03-01T10:58:00Z"
    waits = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/2 nodes are available",
    }
    spec = {key: value for key, value in pod["spec"].map.items() if key != "nodeName"}
    return Object(
        {
            **pod.data,
            "metadata": metadata,
            "spec": spec,
            "status": {"phase": "Pending", "conditions": [waits]},
        }
    )


def quota() -> Object:
    limits = {"requests.memory": "6Gi"}
    status = {"hard": limits, "used": {"requests.memory": "4Gi"}}
    return manifest("v1", "ResourceQuota", "compute", "shop", spec={"hard": limits}, status=status)


FORBIDDEN: Final = [failed(number, USERFAULTFD) for number in range(3)]
SMALL: Final = {"limits": [{"type": "Container", "max": {"memory": "2Gi"}}]}

MOVING: Final[dict[str, tuple[Any, list[tuple[str, CostClass]]]]] = {
    "a quota that has refused the pod of a migration": (
        (vm(vmi_status=MARKED), migration(conditions=REFUSED), quota()),
        [("QuotaExceeded:shop/compute", CostClass.NOTHING)],
    ),
    "a LimitRange that has refused the pod of a migration": (
        (
            vm(vmi_status=MARKED),
            migration(),
            refusal(
                'pods "virt-launcher-db-y" is forbidden: maximum memory usage per Container is 2Gi'
            ),
            manifest("v1", "LimitRange", "small", "shop", spec=SMALL),
        ),
        [("LimitRangeExceeded:shop/small", CostClass.NOTHING)],
    ),
    "a migration that no limit lets begin": (
        (vm(vmi_status=MARKED), migration(), kubevirt({"migrations": ZERO})),
        [("MigrationLimitZero:kubevirt/kubevirt", CostClass.NOTHING)],
    ),
    "an evacuation that no limit lets begin": (
        (vm(vmi_status=MARKED), kubevirt({"migrations": ZERO})),
        [("MigrationLimitZero:kubevirt/kubevirt", CostClass.NOTHING)],
    ),
    "a migration whose pod no node takes": (
        (vm(spec=HERE, vmi_status=MARKED), migration(), target()),
        [("place:shop/db", CostClass.NOTHING)],
    ),
    "a migration whose pod no node takes, and changes are staged": (
        (
            vm(spec=HERE, vmi_status=MARKED),
            migration(),
            target(),
            kubevirt({"vmRolloutStrategy": "Stage"}),
        ),
        RESTART,
    ),
    "migrations that fail, and another one that runs": (
        (
            vm(vmi_status=MARKED),
            *(failed(number, "connection refused") for number in range(3)),
            migration("m3", "Running", "10:50"),
        ),
        RESTART,
    ),
    "nodes that forbid what post-copy needs": (
        (vm(), *FORBIDDEN, kubevirt(POST_COPY)),
        [("post-copy:kubevirt/kubevirt", CostClass.NOTHING)],
    ),
    "nodes that forbid what post-copy of HyperConverged needs": (
        (
            vm(),
            vm("web"),
            *FORBIDDEN,
            kubevirt(POST_COPY),
            hco("v1", {"virtualization": {"liveMigrationConfig": ALLOWED}}),
        ),
        [("post-copy:kubevirt/kubevirt-hyperconverged", CostClass.NOTHING)],
    ),
    "nodes that forbid what a policy allows": (
        (
            vm(),
            *FORBIDDEN,
            manifest(
                "migrations.kubevirt.io/v1alpha1", "MigrationPolicy", "db", spec=ALLOWED | OF_DB
            ),
        ),
        [("post-copy:db", CostClass.NOTHING)],
    ),
}
"""For each cause the objects, and the steps of the plan."""
