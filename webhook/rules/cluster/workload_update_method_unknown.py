"""A workload update method that KubeVirt does not know.

**Why.** Nobody checks the names, and the controller skips those that it does not know. A typo silently switches a
method off: VMs keep their old launcher after each update.

**Fix.** Write ``LiveMigrate`` or ``Evict``, exactly.
"""

from collections.abc import Iterator

from webhook.model import workload_updates
from webhook.model.kinds import HCO, KUBEVIRT
from webhook.model.objects import Object
from webhook.model.units import show
from webhook.rule import Action, Cause, Context, Finding, NoParams, Rule


def check(obj: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    for item in workload_updates.listed(obj).items():
        if item.value in workload_updates.METHODS:
            continue
        meant = workload_updates.meant(item.value)
        hint = f"; did you mean {meant}?" if meant else "; remove it"
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
