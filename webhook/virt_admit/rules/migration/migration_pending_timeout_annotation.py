"""A migration carries an annotation that was made for KubeVirt's own tests.

**Why.** The annotations replace the time after which a migration with a pending target pod is cancelled (300 s where
the pod cannot be scheduled, 900 s otherwise). What is no integer is ignored without notice.

**Fix.** Remove the annotation.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import VMIM
from virt_admit.model.objects import Object
from virt_admit.model.selectors import integer
from virt_admit.model.units import show
from virt_admit.rule import Action, Context, Finding, NoParams, Rule

REPLACES = {
    "kubevirt.io/migrationUnschedulablePodTimeoutSeconds": 300,
    "kubevirt.io/migrationPendingPodTimeoutSeconds": 900,
}


def check(migration: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    for key, seconds in REPLACES.items():
        annotation = migration.annotation(key)
        if not annotation.present:
            continue
        if integer(annotation.value) is None:
            effect = f"{show(annotation.value)} is no integer and is ignored"
        else:
            effect = f"it replaces the {seconds} seconds after which a pending migration is cancelled"
        yield Finding(annotation.path, f"made for KubeVirt's tests: {effect}; remove it")


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(VMIM,),
    metadata=tuple(REPLACES),
    action=Action.WARN,
    check=check,
    sources=("kubevirt/kubevirt:pkg/virt-controller/watch/migration/migration.go",),
)
