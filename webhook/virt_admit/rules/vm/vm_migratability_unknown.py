"""A virtual machine must live-migrate, but whether it can migrate cannot be determined.

**Why.** With ``LiveMigrate`` a VM that cannot migrate blocks drains forever. virt-admit could not
read data that decides this, such as a claim that does not exist yet, an instance type or a cluster
default. With ``LiveMigrateIfPossible``, also where it is the default, such a VM is shut down
instead: virt-admit names the claims that decide.

**Fix.** Create the object that is missing, or give virt-admit the right to read it. For files, name
the cluster: ``check --cluster FILE`` or ``check --live``.
"""

from collections.abc import Sequence

from virt_admit.model import messages
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import AbsentObject, Cluster
from virt_admit.model.kubernetes.kinds import DATA_VOLUME, POOL, PVC, VM, VMI, VMIRS
from virt_admit.model.kubevirt.instances import expand, migratability, storage, vmis, vms
from virt_admit.model.kubevirt.instances.migratability import Migratable
from virt_admit.model.lookups import find
from virt_admit.rule import Action, Context, DrainAdvice, Finding, Findings, Object, rule, union

_CLAIMS = (PVC.resource, DATA_VOLUME.resource)


@rule(
    kinds=(VM, POOL, VMIRS, VMI),
    reads=union(migratability.READS, vmis.READS),
    action=Action.AUDIT,
    drain_advice=DrainAdvice.UNKNOWN,
    at_admission=False,
    sources=("kubevirt/kubevirt:pkg/virt-handler/vm.go#calculateLiveMigrationCondition",),
)
def check(obj: Object, context: Context) -> Findings:
    if not vms.vmi_spec(obj).is_map:
        return
    strategy = context.cached(expand.strategy, obj)
    if strategy.value not in ("LiveMigrate", "LiveMigrateIfPossible"):
        return
    assessment = context.cached(migratability.assess, obj)
    if assessment.migratable is not Migratable.UNKNOWN or _is_reported(obj, context.cluster):
        return
    claims = [what for what in assessment.unseen if what.startswith(_CLAIMS)]
    if strategy.value == "LiveMigrate":
        effect, missing = "blocks drains if the VM cannot migrate", assessment.unseen
    elif claims:
        effect, missing = "shuts the VM down on a drain if it cannot migrate", tuple(claims)
    else:
        return
    unknown = f"which cannot be determined without {messages.names(missing, 70)}."
    texts = (f"{strategy.phrase} {effect}, {unknown} {each}" for each in _advice(missing))
    message = check.first_that_fits(strategy.path, *texts)
    yield Finding(strategy.path, message, value=strategy.value)


def _advice(missing: Sequence[str]) -> Sequence[str]:
    """Return what to do, the longest form first."""
    if all(what.endswith(storage.NONE_THERE) for what in missing):
        return ("Set spec.claimPropertySets there.",)
    if all(what == storage.NO_DEFAULT for what in missing):
        return ("Mark one as the default, or name a storageClassName.",)
    if all(isinstance(what, AbsentObject) for what in missing):
        return ("Create it.",)
    return "Create it, or make it readable.", "Make it readable."


def _is_reported(obj: Object, cluster: Cluster) -> bool:
    """Whether KubeVirt has reported on the running VMI of a VM: that answers the question."""
    if kinds.of(obj) is not VM:
        return False
    vmi = find(cluster, VMI, obj.namespace, obj.name)
    return vmi is not None and vmis.migratable(vmi) is not None
