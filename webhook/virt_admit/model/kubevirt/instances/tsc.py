"""The frequency of the time stamp counter (TSC) that KubeVirt gives to VMIs which need one.

Sources: kubevirt/kubevirt:pkg/virt-controller/watch/topology/hinter.go#LowestTSCFrequencyOnCluster,
tsc.go#CalculateTSCLabelDiff (the tolerance is in 0.58.2, 0.59.1 and later; kubevirt#9615, #9640).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from virt_admit.model.kubernetes import nodes
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import KUBEVIRT, NODE, VMI
from virt_admit.model.kubernetes.nodes import SCHEDULABLE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubernetes.selectors import integer
from virt_admit.model.kubevirt.settings import configuration
from virt_admit.model.kubevirt.settings.versions import Feature, Version, kubevirt_version
from virt_admit.model.messages import names

TSC_FREQUENCY: Final = "cpu-timer.node.kubevirt.io/tsc-frequency"
"""Label of nodes: the frequency of their time stamp counter in hertz."""

SCALABLE: Final = "cpu-timer.node.kubevirt.io/tsc-scalable"
"""Label of nodes: ``true`` where a guest gets a lower frequency than that of the node."""
SELECTED: Final = "scheduling.node.kubevirt.io/tsc-frequency-"
"""Begin of the label that a pod with a frequency demands of its node."""
DEMANDED: Final = "TSC frequency "
"""How the refusal begins of a node without that label."""
_BACKPORT: Final = Version(0, 58, 2)

READS: Final[Reads] = {KUBEVIRT: (), NODE: ("metadata.labels",), VMI: ("status.nodeName",)}
"""The fields that ``frequency_is_known`` reads."""


def frequency_is_known(cluster: Cluster) -> bool:
    """Whether KubeVirt finds a frequency: the configured one, else the lowest of the nodes.

    A configured frequency that is not positive is an error in KubeVirt, which then asks no node.

    Raises:
        Unseen: KubeVirt, the nodes or the VMIs cannot be read, and the others show no frequency.
    """
    unseen: Unseen | None = None
    try:
        minimum = configuration.minimum_tsc_frequency(cluster)
        if minimum is not None:
            return minimum > 0
    except Unseen as blind:
        unseen = blind
    if not nodes.every(cluster):
        raise Unseen(str(NODE))
    if cluster.cached(_some_node_shows_it):
        return True
    if unseen is not None:
        raise unseen
    showing = frozenset(node.name for node in nodes.every(cluster) if _shows_it(node))
    return bool(showing) and _run_vmis(showing, cluster)


class FrequencyGap(NamedTuple):
    """Nodes that refuse a pod for its TSC frequency alone."""

    words: str
    remedy: str
    updates: bool
    """Whether a later KubeVirt labels some of them with that frequency."""


def gap(
    refusals: Mapping[str, str], labels: Mapping[str, Mapping[str, object]], cluster: Cluster
) -> FrequencyGap | None:
    """Return how far the frequencies of nodes are from the one that a pod demands; None: no node
    refuses it for that alone, or their frequencies are not known.

    The kernel measures the frequency at each boot, so equal nodes differ by some kHz. A KubeVirt
    whose release is not known is as the newest, which takes those.

    ``labels``: those of the nodes.
    """
    alone = {
        name: integer(why.removeprefix(DEMANDED)) or 0
        for name, why in sorted(refusals.items())
        if why.startswith(DEMANDED)
    }
    own = {name: integer(labels.get(name, {}).get(TSC_FREQUENCY)) or 0 for name in alone}
    wanted = next(iter(alone.values()), 0)
    if not wanted or {*alone.values()} != {wanted} or not all(own.values()):
        return None
    fixed = all(labels[name].get(SCALABLE) != "true" for name in own)
    has = names(f"{name} has {frequency}" for name, frequency in own.items())
    has += ", not scalable" * fixed
    near = any(abs(each - wanted) * 1_000_000 <= each * 250 for each in own.values())
    release, since = kubevirt_version(cluster), Feature.TSC_TOLERANCE.since
    label = f"(label {SELECTED}{wanted}, for Hyper-V reenlightenment or invtsc)"
    if near and wants_equal(release):
        return FrequencyGap(
            f"{has}, and KubeVirt {release} wants them equal {label}",
            f"update KubeVirt to {since} or later, which accepts a difference of 250 ppm",
            updates=True,
        )
    other = f"add a node with TSC frequency {wanted}, or a scalable one with a higher frequency"
    return FrequencyGap(f"{has} {label}", "" if near else other, updates=False)


def wants_equal(release: Version | None) -> bool:
    """Return whether a release of KubeVirt accepts no other frequency than that of a VMI."""
    since = Feature.TSC_TOLERANCE.since
    return release is not None and release < since and not _BACKPORT <= release < (0, 59)


def demand(vmi: Object) -> str:
    """Return where a VMI has its frequency, and the feature that asks for one."""
    feature = "CPU feature invtsc" if _has_invtsc(vmi) else "hyperv.reenlightenment"
    return f"status.topologyHints.tscFrequency, for {feature}"


def undemanded(vmi: Object) -> str:
    """Return how a VM needs no frequency; empty: its guest would see another CPU."""
    if _has_invtsc(vmi):
        return ""
    return "if its guest runs no VMs of its own, remove hyperv.reenlightenment from the VM"


def _has_invtsc(vmi: Object) -> bool:
    """Return whether a VMI has the feature that asks first (tsc.go#GetTscFrequencyRequirement)."""
    features = vmi.at("spec", "domain", "cpu", "features").items()
    named = (each["policy"].text for each in features if each["name"].text == "invtsc")
    return any(policy in ("require", "force") for policy in named)


def _some_node_shows_it(cluster: Cluster) -> bool:
    return any(
        node.labels.get(SCHEDULABLE) == "true" and _shows_it(node) for node in nodes.every(cluster)
    )


def _shows_it(node: Object) -> bool:
    return (integer(node.labels.get(TSC_FREQUENCY)) or 0) > 0


def _run_vmis(names: frozenset[str], cluster: Cluster) -> bool:
    """Whether a VMI in any phase is on one of these nodes, schedulable or not: it counts then."""
    return any(vmi.at("status", "nodeName").text in names for vmi in cluster.list(VMI))
