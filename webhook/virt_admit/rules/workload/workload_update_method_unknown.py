"""A workload update method that KubeVirt does not know.

**Why.** Nobody checks the names, and the controller skips those that it does not know. A typo silently switches a
method off: VMs keep their old launcher after each update.

**Fix.** Write ``LiveMigrate`` or ``Evict``, exactly.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import HCO, KUBEVIRT
from virt_admit.model.kubevirt import workload_updates
from virt_admit.model.objects import Object
from virt_admit.model.units import show
from virt_admit.rule import Action, Cause, Context, Finding, NoParams, Rule


def check(obj: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    for item in workload_updates.listed(obj).items():
        if item.value in workload_updates.METHODS:
            continue
        suggestion = workload_updates.did_you_mean(item.value)
        hint = f"; did you mean {suggestion}?" if suggestion else "; remove it"
        yield Finding(
            item.path,
            f"{show(item.value)} is no method and is skipped, the methods are LiveMigrate and Evict{hint}",
            cause=Cause.NOT_SUPPORTED,
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(HCO, KUBEVIRT),
    action=Action.DENY,
    check=check,
    sources=(
        "kubevirt/kubevirt:pkg/virt-controller/watch/workload-updater/workload-updater.go#getUpdateData",
        "kubevirt/hyperconverged-cluster-operator:controllers/handlers/kubevirt_test.go",
    ),
)
