"""A feature gate has a name that no release knows, or the running KubeVirt has removed its feature.

**Why.** KubeVirt and HyperConverged ignore unknown feature gates silently, so a misspelt gate
changes nothing. Names of KubeVirt's gates are compared exactly; those of HyperConverged in any
case. A gate whose feature was removed does nothing either, and KubeVirt rejects VMs that use the
feature. What HyperConverged writes into its KubeVirt is not judged: its JSON patch for KubeVirt is.

**Fix.** Write the name as the documentation of the release does, or remove the entry.
"""

from collections.abc import Iterable
from typing import Final

from virt_admit.model import releases
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT
from virt_admit.model.kubevirt.settings import feature_gates, versions
from virt_admit.model.kubevirt.settings.feature_gates import JSON_PATCH, NamedGate
from virt_admit.model.kubevirt.settings.running_release import is_managed
from virt_admit.model.messages import did_you_mean
from virt_admit.rule import Action, Cause, Cluster, Context, Finding, Findings, Object, cut, rule

_INSTEAD: Final = {"ExperimentalVirtiofsSupport": "Enable EnableVirtioFsStorageVolumes."}
"""The remedy for gates that another gate replaced."""


@rule(
    kinds=(KUBEVIRT, HCO),
    reads={KUBEVIRT: ()},
    action=Action.WARN,
    metadata=(JSON_PATCH,),
    sources=(
        "kubevirt/kubevirt:pkg/virt-config/featuregate/feature-gates.go#IsEnabled",
        "kubevirt/kubevirt:pkg/virt-config/featuregate/inactive.go",
        "kubevirt/hyperconverged-cluster-operator:api/v1/featuregates/feature_gates.go#IsEnabled",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    if is_managed(obj) or _may_know_others(obj):
        return
    yield from _removed(obj, context.cluster)
    yield from _findings(
        feature_gates.kubevirt_gates(obj), releases.kubevirt_gates(), "KubeVirt", exact=True
    )
    if obj.kind == HCO.kind:  # the schema of v1beta1 has a field for each gate
        listed = (
            gate for gate in feature_gates.hyperconverged_gates(obj) if gate.path[-1] == "name"
        )
        yield from _findings(listed, releases.hyperconverged_gates(), "HyperConverged", exact=False)


def _removed(obj: Object, cluster: Cluster) -> Findings:
    status = obj.at("status", "observedKubeVirtVersion").text if kinds.of(obj) is KUBEVIRT else None
    running = versions.parse_version(status) or versions.kubevirt_version(cluster)
    release = releases.reached(releases.KUBEVIRT, running[:2]) if running is not None else ""
    if not release:
        return
    states = releases.about(releases.KUBEVIRT, release)["gates"]
    for gate in feature_gates.kubevirt_gates(obj):
        if gate.enabled and states.get(gate.name) == "Discontinued":
            yield Finding(
                gate.path,
                f"KubeVirt {release} has removed the feature of {gate.name}, so this gate does "
                f"nothing. {_INSTEAD.get(gate.name, 'Remove it.')}",
                value=gate.name,
                cause=Cause.NOT_SUPPORTED,
            )


def _findings(
    gates: Iterable[NamedGate], known: Iterable[str], owner: str, *, exact: bool
) -> Findings:
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


_OLDEST: Final = versions.Version(1, 0)
"""Gates that older releases had, such as DataVolumes, are in no table."""


def _may_know_others(obj: Object) -> bool:
    """Whether the operator that wrote the status is newer or older than the tables,
    so that it may know other gates.
    """
    if obj.kind == KUBEVIRT.kind:
        running = versions.parse_version(obj.at("status", "observedKubeVirtVersion").text)
        return running is not None and (running[:2] > versions.NEWEST[:2] or running < _OLDEST)
    operator = versions.hco_release(obj)
    return operator is not None and operator[:2] > releases.order(
        releases.releases(releases.HYPERCONVERGED)[-1]
    )
