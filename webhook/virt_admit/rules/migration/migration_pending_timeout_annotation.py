"""A migration carries a test annotation of KubeVirt.

**Why.** The annotations replace the timeout after which KubeVirt cancels a migration whose target
pod is pending. The default is 300 s if the pod cannot be scheduled and 900 s otherwise. KubeVirt
silently ignores a value that is not an integer.

**Fix.** Remove the annotation.
"""

from virt_admit.model.kubernetes.selectors import integer
from virt_admit.rule import VMIM, Action, Context, Finding, Findings, Object, Patch, rule, show

REPLACES = {
    "kubevirt.io/migrationUnschedulablePodTimeoutSeconds": 300,
    "kubevirt.io/migrationPendingPodTimeoutSeconds": 900,
}


@rule(
    kinds=(VMIM,),
    metadata=tuple(REPLACES),
    action=Action.WARN,
    fixable=True,
    sources=("kubevirt/kubevirt:pkg/virt-controller/watch/migration/migration.go",),
)
def check(migration: Object, _context: Context) -> Findings:
    for key, seconds in REPLACES.items():
        annotation = migration.annotation(key)
        if not annotation.present:
            continue
        message = f"this test annotation replaces the {seconds} s timeout of pending migrations."
        if integer(annotation.value) is None:
            ignored = "so KubeVirt ignores this test annotation"
            message = f"{show(annotation.value)} is not an integer, {ignored}."
        yield Finding(
            annotation.path,
            f"{message} Remove it.",
            fix=(Patch("remove", annotation.path),),
            why="it is for tests of KubeVirt",
        )
