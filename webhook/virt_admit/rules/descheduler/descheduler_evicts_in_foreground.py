"""A descheduler that takes every VM that is migrating for a pod that it failed to evict.

**Why.** KubeVirt answers the eviction of a launcher pod with a refusal and migrates the VM. A
descheduler without evictions in background counts that as a failure and evicts the next VM of the
node in the same round: too many VMs move, back and forth, and they compete with drains for the
places of migrations.

**Fix.** Use the profile ``KubeVirtRelieveAndMigrate``, in older releases
``DevKubeVirtRelieveAndMigrate``. Where neither exists, set
``profileCustomizations.devEnableEvictionsInBackground``.
"""

from virt_admit.model import deschedulers
from virt_admit.rule import KUBE_DESCHEDULER, Action, Context, Finding, Findings, Object, rule


@rule(
    kinds=(KUBE_DESCHEDULER,),
    action=Action.WARN,
    at_admission=False,
    sources=(
        (
            "openshift/runbooks:alerts/openshift-virtualization-operator/"
            "HCOMisconfiguredDescheduler.md"
        ),
        (
            "kubernetes-sigs/descheduler:pkg/descheduler/evictions/"
            "evictions.go#EvictionRequestInProgress"
        ),
    ),
)
def check(descheduler: Object, _context: Context) -> Findings:
    if deschedulers.evicts_in_foreground(descheduler):
        yield Finding(
            descheduler.at("spec", "profiles").path,
            "this descheduler takes a VM that migrates for a failed eviction and evicts more and "
            "more VMs. Use the profile KubeVirtRelieveAndMigrate, or set "
            "devEnableEvictionsInBackground.",
        )
