"""The next release changes a feature gate that is in use.

**Why.** A gate of a feature that has graduated does nothing any more: the feature cannot be
disabled. The feature of a discontinued gate is removed, and KubeVirt rejects VMs that use it. A
gate that the release does not know is ignored.

**Fix.** Remove the gate after the upgrade. Replace a discontinued feature before the upgrade.
"""

from typing import Final

from virt_admit.model import releases
from virt_admit.model.kubevirt.settings import feature_gates
from virt_admit.model.kubevirt.settings.feature_gates import NamedGate
from virt_admit.model.kubevirt.settings.running_release import is_managed, running_release
from virt_admit.rule import HCO, KUBEVIRT, Action, Context, Finding, Findings, Object, rule


@rule(
    kinds=(KUBEVIRT, HCO),
    action=Action.WARN,
    at_admission=False,
    target={releases.KUBEVIRT: "1.6"},
    sources=(
        "kubevirt/kubevirt:pkg/virt-config/featuregate/active.go",
        "kubevirt/kubevirt:pkg/virt-config/featuregate/inactive.go",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    target = context.target.kubevirt
    if not target or is_managed(obj):
        return
    before = releases.about(releases.KUBEVIRT, running_release(obj, target)).get("gates", {})
    after = releases.about(releases.KUBEVIRT, target)["gates"]
    known = releases.kubevirt_gates()
    for gate in feature_gates.kubevirt_gates(obj):
        state = after.get(gate.name, "")
        if gate.name in known and state != before.get(gate.name, ""):
            yield from _finding(gate, state, target)


_OF_ENABLED: Final = {
    "GA": "always has the feature {}, so this gate does nothing. Remove it.",
    "Deprecated": (
        "deprecates the feature gate {}; a later release removes it. Plan a replacement."
    ),
    "Discontinued": (
        "removes the feature of the gate {}. Stop using the feature before the upgrade."
    ),
    "": "does not know the feature gate {} and ignores it. Remove it.",
}
"""What the next release does with a gate, by its state there."""
_OF_DISABLED: Final = {
    "GA": "always has the feature {}: it can no longer be disabled. Prepare for it."
}


def _finding(gate: NamedGate, state: str, target: str) -> Findings:
    if words := (_OF_ENABLED if gate.enabled else _OF_DISABLED).get(state):
        message = f"KubeVirt {target} {words.format(gate.name)}"
        most = Action.AUDIT if state == "GA" and gate.enabled else Action.DENY
        yield Finding(gate.path, message, value=gate.name, max_action=most)
