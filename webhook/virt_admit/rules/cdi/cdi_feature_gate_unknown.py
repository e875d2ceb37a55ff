"""A feature gate of CDI has a name that no release knows.

**Why.** CDI compares the names exactly and ignores unknown ones silently, so a misspelt gate changes nothing. With
``HonorWaitForFirstConsumer`` misspelt, a volume of a first-consumer class is bound on a node where the VM may not fit.

**Fix.** Write the name as CDI's documentation does, or remove the entry.
"""

from collections.abc import Iterator
from typing import Final

from virt_admit.model.kubernetes.kinds import CDI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.settings.versions import parse_version
from virt_admit.model.messages import cut, did_you_mean
from virt_admit.rule import Action, Cause, Context, Finding, NoParams, Rule

KNOWN: Final = ("DataVolumeClaimAdoption", "HonorWaitForFirstConsumer", "WebhookPvcRendering")
"""The gates of CDI 1.58 to 1.66."""


NEWEST: Final = (1, 66)


def check(cdi: Object, _context: Context[NoParams]) -> Iterator[Finding]:
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


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(CDI,),
    action=Action.WARN,
    at_admission=False,
    check=check,
    sources=("kubevirt/containerized-data-importer:pkg/feature-gates/feature-gates.go#isFeatureGateEnabled",),
)
