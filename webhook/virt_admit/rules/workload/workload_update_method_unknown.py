"""A workload update method is not a valid value.

**Why.** The API server does not check the names, and the controller skips unknown names. A typo
silently switches a method off, and VMs keep their old launcher after each update.

**Fix.** Write ``LiveMigrate`` or ``Evict``. The comparison is case-sensitive.
"""

from virt_admit.forecasts.drain import workload_updates
from virt_admit.model import cel
from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT
from virt_admit.model.kubevirt.settings.cel_settings import cel_path, cel_setting
from virt_admit.model.kubevirt.settings.configuration import Setting
from virt_admit.rule import Action, Cause, Context, Finding, Findings, Object, Patch, rule, show


@rule(
    kinds=(HCO, KUBEVIRT),
    action=Action.DENY,
    fixable=True,
    denials=(
        cel.Denial(
            each=cel.items(f"{cel_setting(Setting.UPDATES)}.?workloadUpdateMethods"),
            when=f"!(item in {list(workload_updates.METHODS)})",
            path=f"{cel_path(Setting.UPDATES)} + '.workloadUpdateMethods'",
            message=(
                "'this is not a valid method, so KubeVirt skips it (valid: LiveMigrate, Evict).'"
            ),
            value="item",
        ),
    ),
    sources=(
        (
            "kubevirt/kubevirt:pkg/virt-controller/watch/workload-updater/"
            "workload-updater.go#getUpdateData"
        ),
        "kubevirt/hyperconverged-cluster-operator:controllers/handlers/kubevirt_test.go",
    ),
)
def check(obj: Object, _context: Context) -> Findings:
    for item in workload_updates.listed(obj).items():
        if item.value in workload_updates.METHODS:
            continue
        suggestion = workload_updates.did_you_mean(item.value)
        hint = f"Did you mean {suggestion}?" if suggestion else "Remove it."
        yield Finding(
            item.path,
            f"{show(item.value)} is not a valid method, so KubeVirt skips it (valid: LiveMigrate, "
            f"Evict). {hint}",
            cause=Cause.NOT_SUPPORTED,
            fix=(Patch("replace", item.path, suggestion),) if suggestion else (),
            why="the value is misspelt",
        )
