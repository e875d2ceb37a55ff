"""A virtual machine that should live-migrate uses a ReadWriteMany claim whose volume is on one
node.

**Why.** KubeVirt believes the access mode and reports the VM as migratable. The volume of hostpath,
local or LVM storage exists on one node, so the target pod of a migration is never scheduled, or
finds no data, and a drain hangs.

**Fix.** Move the disk to shared storage, or set ``evictionStrategy: None``.
"""

from typing import Final

from virt_admit.forecasts.drain import vmi_evictions
from virt_admit.model.kubernetes.kinds import POOL, VM, VMI, VMIRS
from virt_admit.model.kubevirt.instances import (
    expand,
    migratability,
    node_local_volumes,
    storage,
    vms,
)
from virt_admit.rule import Action, Context, Finding, Findings, Object, Unseen, cut, rule, union

_CLAIMS: Final = (("persistentVolumeClaim", "claimName"), ("dataVolume", "name"))


@rule(
    kinds=(VM, POOL, VMIRS, VMI),
    only_with=("volumes",),
    reads=union(migratability.READS, node_local_volumes.READS),
    action=Action.WARN,
    event="MigrationImpossible",
    sources=(
        "kubevirt/kubevirt:pkg/virt-handler/vm.go#checkVolumesForMigration",
        "kubevirt/hostpath-provisioner:README.md",
        "topolvm/topolvm:docs/limitations.md",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    volumes = vms.vmi_spec(obj)["volumes"].items()
    claims = [claim for volume in volumes for path in _CLAIMS if (claim := volume.at(*path)).text]
    if not claims or not vmi_evictions.awaits_migration(obj, context.facts):
        return
    vmi = context.cached(expand.expand, obj)
    for claim in claims:
        name = claim.text or ""
        try:
            access = storage.access(vmi, name, context.cluster)
            if not access.shared:
                continue
            why = node_local_volumes.reason(obj, name, access, context.cluster)
        except Unseen as unseen:
            yield unseen
            continue
        if why:
            remedy = (
                "so it cannot migrate and a drain hangs. Use shared storage, or set "
                "evictionStrategy: None."
            )
            message = check.first_that_fits(
                claim.path,
                f"ReadWriteMany claim {name[:63]} is {why}, {remedy}",
                f"this claim is on one node ({cut(why, 40)}), so a drain hangs. Use shared "
                "storage.",
            )
            yield Finding(claim.path, message, value=name)
