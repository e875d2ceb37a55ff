"""A feature gate has a name that no release knows.

**Why.** KubeVirt and HyperConverged ignore unknown feature gates silently, so a misspelt gate changes nothing. Names of
KubeVirt's gates are compared exactly; those of HyperConverged in any case.

**Fix.** Write the name as the documentation of the release does, or remove the entry.
"""

from collections.abc import Iterable, Iterator

from virt_admit.model import releases
from virt_admit.model.kinds import HCO, KUBEVIRT
from virt_admit.model.kubevirt import feature_gates, versions
from virt_admit.model.kubevirt.feature_gates import JSON_PATCH, NamedGate
from virt_admit.model.messages import cut, did_you_mean
from virt_admit.model.objects import Object
from virt_admit.rule import Action, Cause, Context, Finding, NoParams, Rule


def check(obj: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    if _is_newer(obj):
        return
    yield from _findings(feature_gates.kubevirt_gates(obj), releases.kubevirt_gates(), "KubeVirt", exact=True)
    if obj.kind == HCO.kind:  # the schema of v1beta1 has a field for each gate
        listed = (gate for gate in feature_gates.hyperconverged_gates(obj) if gate.path[-1] == "name")
        yield from _findings(listed, releases.hyperconverged_gates(), "HyperConverged", exact=False)


def _findings(gates: Iterable[NamedGate], known: Iterable[str], owner: str, *, exact: bool) -> Iterator[Finding]:
    every = sorted(known)
    words = {word if exact else word.lower() for word in every}
    for gate in gates:
        if (gate.name if exact else gate.name.lower()) in words:
            continue
        nearest = did_you_mean(gate.name, every)
        remedy = f"Write {nearest}." if nearest else "Correct the name, or remove it."
        yield Finding(
            gate.path,
            f"{owner} has no feature gate {cut(gate.name, 60)} and ignores it silently. {remedy}",
            value=gate.name,
            cause=Cause.NOT_SUPPORTED,
        )


def _is_newer(obj: Object) -> bool:
    """Whether the operator that wrote the status is newer than the tables, so that it may know more gates."""
    if obj.kind == KUBEVIRT.kind:
        running = versions.parse_version(obj.at("status", "observedKubeVirtVersion").text)
        return running is not None and running[:2] > versions.NEWEST[:2]
    operator = versions.hco_release(obj)
    return operator is not None and operator[:2] > releases.order(releases.releases(releases.HYPERCONVERGED)[-1])


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(KUBEVIRT, HCO),
    action=Action.WARN,
    metadata=(JSON_PATCH,),
    check=check,
    sources=(
        "kubevirt/kubevirt:pkg/virt-config/featuregate/feature-gates.go#IsEnabled",
        "kubevirt/hyperconverged-cluster-operator:api/v1/featuregates/feature_gates.go#IsEnabled",
    ),
)
