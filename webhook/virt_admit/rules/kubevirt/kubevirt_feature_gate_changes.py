"""The next release changes a feature gate that is in use.

**Why.** A gate of a feature that has graduated does nothing any more: the feature cannot be
disabled. The feature of a discontinued gate is removed, and KubeVirt rejects VMs that use it. A
gate that the release does not know is ignored.

**Fix.** Remove the gate after the upgrade. Replace a discontinued feature before the upgrade.
"""

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


def _finding(gate: NamedGate, state: str, target: str) -> Findings:
    kubevirt = f"KubeVirt {target}"
    if state == "GA" and gate.enabled:
        message = (
            f"{kubevirt} always has the feature {gate.name}, so this gate does nothing. Remove it."
        )
        yield Finding(gate.path, message, value=gate.name, max_action=Action.AUDIT)
    elif state == "GA":
        message = (
            f"{kubevirt} always has the feature {gate.name}: it can no longer be disabled. Prepare "
            "for it."
        )
        yield Finding(gate.path, message, value=gate.name)
    elif state == "Deprecated" and gate.enabled:
        message = (
            f"{kubevirt} deprecates the feature gate {gate.name}; a later release removes it. Plan "
            "a replacement."
        )
        yield Finding(gate.path, message, value=gate.name)
    elif state == "Discontinued" and gate.enabled:
        message = (
            f"{kubevirt} removes the feature of the gate {gate.name}. Stop using the feature "
            "before the upgrade."
        )
        yield Finding(gate.path, message, value=gate.name)
    elif not state and gate.enabled:
        message = (
            f"{kubevirt} does not know the feature gate {gate.name} and ignores it. Remove it."
        )
        yield Finding(gate.path, message, value=gate.name)
