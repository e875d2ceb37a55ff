"""A virtual machine that should live-migrate uses an ephemeral volume whose claim only one node can
mount.

**Why.** KubeVirt does not check the claim that an ``ephemeral`` volume is based on, so it reports
the VM as migratable. The target pod of the migration cannot mount the claim on another node and
stays Pending.

**Fix.** Base the volume on a claim with ReadWriteMany or ReadOnlyMany.
"""

from virt_admit.model.kubernetes.kinds import POOL, VM, VMI, VMIRS
from virt_admit.model.kubevirt.instances import expand, migratability, storage, vms
from virt_admit.model.kubevirt.instances.migratability import Migratable
from virt_admit.model.problems import problem_of
from virt_admit.rule import Action, Context, Field, Finding, Findings, Object, Unseen, rule, show


@rule(
    kinds=(VM, POOL, VMIRS, VMI),
    reads=migratability.READS,
    action=Action.AUDIT,
    event="MigrationImpossible",
    at_admission=False,
    sources=("kubevirt/kubevirt:pkg/virt-handler/vm.go#checkVolumesForMigration",),
)
def check(obj: Object, context: Context) -> Findings:
    claims = [claim for claim in map(_claim, vms.vmi_spec(obj)["volumes"].items()) if claim.text]
    if not claims:
        return
    strategy = context.cached(expand.strategy, obj)
    if strategy.value not in ("LiveMigrate", "LiveMigrateIfPossible"):
        return
    assessment = context.cached(migratability.assess, obj)
    if assessment.migratable is not Migratable.YES:
        yield from map(Unseen, assessment.unseen)
        return
    for claim in claims:
        yield from _not_shared(claim, obj, context)


def _claim(volume: Field) -> Field:
    return volume.at("ephemeral", "persistentVolumeClaim", "claimName")


def _not_shared(claim: Field, obj: Object, context: Context) -> Findings:
    try:
        access = storage.access(
            context.cached(expand.expand, obj), claim.text or "", context.cluster
        )
    except Unseen as unseen:
        yield unseen
        return
    if not access.shared and "ReadOnlyMany" not in access.modes:
        what = f"claim {show(claim.value)} is {', '.join(access.modes)[:40]}"
        message = check.first_that_fits(
            claim.path,
            f"{what}, so no other node can mount it and a drain hangs. Make it ReadOnlyMany or "
            "ReadWriteMany.",
            f"{what}, so a drain hangs. Make it ReadOnlyMany or ReadWriteMany.",
        )
        yield Finding(claim.path, message, problem=problem_of("DisksNotLiveMigratable", obj))
