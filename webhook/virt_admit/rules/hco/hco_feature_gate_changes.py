"""The next release of HyperConverged changes a feature gate that is in use.

**Why.** HyperConverged replaces feature gates by fields and then ignores the gate. The feature
keeps its default, or the operator warns until the gate is removed.

**Fix.** Set the field that replaces the gate, and remove the gate.
"""

from virt_admit.model import releases
from virt_admit.model.kubevirt.settings.feature_gates import hyperconverged_gates
from virt_admit.model.kubevirt.settings.running_release import running_hyperconverged
from virt_admit.rule import HCO, Action, Context, Finding, Findings, Object, rule

GONE = "ignored"
DEPRECATED = "deprecated"


@rule(
    kinds=(HCO,),
    action=Action.WARN,
    at_admission=False,
    target={releases.HYPERCONVERGED: "1.16", releases.KUBEVIRT: "1.6"},
    sources=(
        "kubevirt/hyperconverged-cluster-operator:pkg/featuregatedetails/feature-gates.json",
        (
            "kubevirt/hyperconverged-cluster-operator:api/v1beta1/"
            "hyperconverged_types.go#HyperConvergedFeatureGates"
        ),
    ),
)
def check(hco: Object, context: Context) -> Findings:
    target = context.target.hyperconverged
    if not target:
        return
    known = {gate.lower() for gate in releases.hyperconverged_gates()}
    running = running_hyperconverged(hco, target)
    for gate in hyperconverged_gates(hco):
        state = _state(gate.name, target)
        if gate.name.lower() not in known or not state or state == _state(gate.name, running):
            continue
        instead = releases.about(releases.HYPERCONVERGED, target)["instead"].get(gate.name)
        remedy = f"Use {instead} of the v1 API instead." if instead else "Remove it."
        verb = "ignores" if state == GONE else "deprecates"
        message = f"HyperConverged {target} {verb} the feature gate {gate.name}. {remedy}"
        yield Finding(gate.path, message, value=gate.name)


def _state(gate: str, release: str) -> str:
    """Return whether a release ignores or deprecates a gate; empty if the gate works."""
    table = releases.about(releases.HYPERCONVERGED, release)
    phases = {name.lower(): phase for name, phase in table["phases"].items()}
    if gate in table["ignored"] or (phases and gate.lower() not in phases):
        return GONE
    return DEPRECATED if phases.get(gate.lower()) == DEPRECATED else ""
