"""The next release of HyperConverged changes a default of migrations that this object relies on.

**Why.** From 1.19 on one migration leaves a node at a time instead of two, and a migration may take
20 s for each GiB instead of 150 s. Drains and upgrades take longer, and migrations of busy VMs end
earlier. HyperConverged stores the defaults when it is created: a stored limit stays, a stored
time-out of 150 s becomes 20 s.

**Fix.** Set the fields in ``liveMigrationConfig`` to the values that you want.
"""

from virt_admit.model import releases
from virt_admit.model.kubevirt.settings.configuration import Setting, setting
from virt_admit.model.kubevirt.settings.running_release import running_hyperconverged
from virt_admit.rule import HCO, Action, Context, Field, Finding, Findings, Object, rule

REPLACED = {"completionTimeoutPerGiB": 150}
"""Stored values that the operator replaces when it is upgraded to 1.19
(assets/upgradePatches.json).
"""
REPLACED_BY = "1.19"


@rule(
    kinds=(HCO,),
    action=Action.WARN,
    at_admission=False,
    target={releases.HYPERCONVERGED: "1.19", releases.KUBEVIRT: "1.9"},
    sources=(
        (
            "kubevirt/hyperconverged-cluster-operator:api/v1beta1/"
            "hyperconverged_types.go#LiveMigrationConfigurations"
        ),
        "kubevirt/hyperconverged-cluster-operator:assets/upgradePatches.json",
    ),
)
def check(hco: Object, context: Context) -> Findings:
    target = context.target.hyperconverged
    if not target:
        return
    running = running_hyperconverged(hco, target)
    before = releases.about(releases.HYPERCONVERGED, running)["migration_limits"]
    after = releases.about(releases.HYPERCONVERGED, target)["migration_limits"]
    limits = setting(hco, Setting.MIGRATIONS)
    for key, value in after.items():
        field, old = limits[key], before.get(key, value)
        if old == value:
            continue
        hyperconverged = f"HyperConverged {target}"
        if not field.present:
            changes = f"{hyperconverged} changes this default from {old} to {value}"
            yield Finding(field.path, f"{changes}. Set the value that you want.")
        elif _is_replaced(field, key, target):
            replaces = f"{hyperconverged} replaces the stored {old} by {value}"
            yield Finding(field.path, f"{replaces}. Use another value, such as {old + 1}.")


def _is_replaced(field: Field, key: str, target: str) -> bool:
    if releases.order(target) < releases.order(REPLACED_BY):
        return False
    return field.integer == REPLACED.get(key)
