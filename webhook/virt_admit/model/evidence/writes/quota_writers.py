"""Who writes the limits of a ResourceQuota, and where they are raised.

Rancher writes the quota of a namespace back from the Namespace whenever its agent starts.
Harvester before 1.4.2 adds the limits of a VM that migrates once, and notes that in an annotation
of the quota, so that a limit which Rancher has written back stays too low. Sources:
rancher/rancher:pkg/controllers/managementuser/resourcequota/resource_quota_sync.go
#CreateResourceQuota; harvester/harvester:pkg/controller/master/migration/vmim_controller.go
#scaleResourceQuotaWithVMI, pkg/controller/master/resourcequota/resourcequota_controller.go (since
1.4.2), issue #7178.
"""

from __future__ import annotations

from typing import Final

from virt_admit.model.commands import kubectl
from virt_admit.model.evidence import writers
from virt_admit.model.kubernetes.kinds import RESOURCE_QUOTA
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads

OF_RANCHER: Final = "resourcequota.management.cattle.io/default-resource-quota"
BASE: Final = "field.cattle.io/resourceQuota"
"""The annotation of a Namespace with the limits that Rancher writes into its quota."""
_MIGRATING: Final = ("harvesterhci.io/migrating-", "harvesterhci.io/migratingUID-")
"""How the annotations of a quota begin with what Harvester has added for a migration. Meanwhile its
webhook refuses other limits of the namespace
(harvester/harvester:pkg/webhook/resources/namespace/validator.go#resourceQuotaValidation)."""
READS: Final[Reads] = {
    RESOURCE_QUOTA: (
        *("metadata.labels", "metadata.annotations", "metadata.ownerReferences"),
        "metadata.managedFields",
    )
}


def is_of_rancher(quota: Object) -> bool:
    """Return whether Rancher writes a quota back."""
    return quota.label(OF_RANCHER).text == "true"


def is_raised(quota: Object) -> bool:
    """Return whether Harvester has added something to a quota for a migration."""
    return any(key.startswith(_MIGRATING) for key in quota.annotations)


def raising(name: str, namespace: str, quota: Object | None, least: str = "") -> tuple[str, str]:
    """Return how a quota is raised (``least``: to what), with the command; empty: in Rancher."""
    command = kubectl("edit", RESOURCE_QUOTA, name, namespace)
    if quota is None:
        return f"raise ResourceQuota {name}{least}", command
    if is_of_rancher(quota):
        busy = "; Harvester refuses that until all migrations of the namespace have ended"
        words = (
            f"raise the limits of namespace {namespace} in its Rancher project{least}, whose own "
            f"limit must have room for that (Rancher overwrites ResourceQuota {name}"
            f"{busy if is_raised(quota) else ''})"
        )
        return words, ""
    if (owner := writers.owner_above(quota)) is not None:
        above = f"raise {owner.title}{least}, which writes ResourceQuota {name}"
        return above, owner.command("edit")
    if (writer := writers.of(quota)) is not None:
        return f"raise ResourceQuota {name}{least} in {writer.source}, which writes it", ""
    return f"raise ResourceQuota {name}{least}", command


def last_writer(quota: Object) -> tuple[str, str]:
    """Return the manager that wrote the limits last, and when; empty: not known."""
    entries = (
        (entry["time"].text or "", entry["manager"].text or "")
        for entry in quota.metadata["managedFields"].items()
        if entry.at("fieldsV1", "f:spec", "f:hard").present
    )
    time, manager = max(entries, default=("", ""))
    return manager, time
