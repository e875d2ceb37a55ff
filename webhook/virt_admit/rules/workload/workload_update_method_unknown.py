"""A workload update method is not a valid value.

**Why.** The API server does not check the names, and the controller skips unknown names. A typo silently switches a method
off, and VMs keep their old launcher after each update.

**Fix.** Write ``LiveMigrate`` or ``Evict``. The comparison is case-sensitive.
"""

from collections.abc import Iterator

from virt_admit.forecasts.drain import workload_updates
from virt_admit.model.kubernetes.json_patch import Patch
from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.units import show
from virt_admit.rule import Action, Cause, Context, Finding, NoParams, Rule


def check(obj: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    for item in workload_updates.listed(obj).items():
        if item.value in workload_updates.METHODS:
            continue
        suggestion = workload_updates.did_you_mean(item.value)
        hint = f"Did you mean {suggestion}?" if suggestion else "Remove it."
        yield Finding(
            item.path,
            f"{show(item.value)} is not a valid method, so KubeVirt skips it (valid: LiveMigrate, Evict). {hint}",
            cause=Cause.NOT_SUPPORTED,
            fix=(Patch("replace", item.path, suggestion),) if suggestion else (),
            why="the value is misspelt",
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(HCO, KUBEVIRT),
    action=Action.DENY,
    fixable=True,
    check=check,
    sources=(
        "kubevirt/kubevirt:pkg/virt-controller/watch/workload-updater/workload-updater.go#getUpdateData",
        "kubevirt/hyperconverged-cluster-operator:controllers/handlers/kubevirt_test.go",
    ),
)
