"""A feature gate of CDI has a name that no release knows.

**Why.** CDI compares the names exactly and ignores unknown ones silently, so a misspelt gate
changes nothing. With ``HonorWaitForFirstConsumer`` misspelt, a volume of a first-consumer class is
bound on a node where the VM may not fit.

**Fix.** Write the name as CDI's documentation does, or remove the entry.
"""

from typing import Final

from virt_admit.model.kubevirt.settings.versions import parse_version
from virt_admit.model.messages import did_you_mean
from virt_admit.rule import CDI, Action, Cause, Context, Finding, Findings, Object, cut, rule

KNOWN: Final = ("DataVolumeClaimAdoption", "HonorWaitForFirstConsumer", "WebhookPvcRendering")
"""The gates of CDI 1.58 to 1.66."""


NEWEST: Final = (1, 66)


@rule(
    kinds=(CDI,),
    action=Action.WARN,
    at_admission=False,
    sources=(
        (
            "kubevirt/containerized-data-importer:pkg/feature-gates/"
            "feature-gates.go#isFeatureGateEnabled"
        ),
    ),
)
def check(cdi: Object, _context: Context) -> Findings:
    running = parse_version(cdi.at("status", "observedVersion").text)
    if running is not None and running[:2] > NEWEST:
        return  # it may know more gates
    for gate in cdi.at("spec", "config", "featureGates").items():
        if gate.text and gate.text not in KNOWN:
            nearest = did_you_mean(gate.text, KNOWN)
            remedy = f"Write {nearest}." if nearest else "Correct the name, or remove it."
            yield Finding(
                gate.path,
                f"CDI has no feature gate {cut(gate.text, 60)} and ignores it silently. {remedy}",
                value=gate.text,
                cause=Cause.NOT_SUPPORTED,
            )
