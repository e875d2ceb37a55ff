"""Another minor or major release of OpenShift that is refused, because Upgradeable is False.

An update within the present minor release is accepted all the same, until 4.21 only without
overrides. Sources, in openshift/cluster-version-operator:
pkg/payload/precondition/clusterversion/upgradeable.go#Run, by branch of a release;
pkg/cvo/status.go#setUpgradeableCondition; pkg/risk/upgradeable/util.go#MajorAndMinorUpdates;
before: pkg/cvo/upgradeable.go, whose message has the words of the operators.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from virt_admit.model.commands import about, shell, typed
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import (
    CLUSTER_OPERATOR,
    CLUSTER_VERSION,
    MACHINE_CONFIG_POOL,
    Kind,
)
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut_middle, names
from virt_admit.model.node_updates import (
    empty_refusals,
    incompatible_operators,
    update_acknowledgements,
)
from virt_admit.model.node_updates.operators import (
    paused_pools,
    poolless_nodes,
    single_node_workloads,
)

READS: Final[Reads] = union(
    empty_refusals.READS,
    incompatible_operators.READS,
    paused_pools.READS,
    poolless_nodes.READS,
    single_node_workloads.READS,
    {MACHINE_CONFIG_POOL: CONDITIONS},
)
_LONGEST: Final = 600
_BRIEF: Final = 180
_MINOR: Final = re.compile(r"(\d{1,9})\.(\d{1,9})")
_PASSING: Final = "UpdateInProgress"
"""The cluster-version operator says so while it updates."""


@dataclass(frozen=True, slots=True)
class ReleaseRefusal:
    """One object that refuses another minor release."""

    kind: str
    name: str
    reason: str
    remedy: str
    brief: str
    """The reason with the middle of long words cut."""


@dataclass(frozen=True, slots=True)
class RefusedReleases:
    """Which releases are refused, and by which objects."""

    present: str
    """The minor release, as ``4.18``; empty: it is not known."""
    accepted: tuple[str, ...]
    """Releases that are offered and not refused."""
    refused: tuple[str, ...]
    """Releases that are offered and refused."""
    by: tuple[ReleaseRefusal, ...]
    wanted: bool = False
    """Whether the channel, or what it offers, has a release that is refused."""
    every: bool = False
    """Whether releases of the present minor release are refused, too."""

    @property
    def within(self) -> str:
        """Return what is not refused, as ``4.18.20``, or ``releases of 4.18``."""
        if self.every:
            return "the present release"
        offered = names(self.accepted[-2:], 60) if self.accepted else ""
        return offered or f"releases of {self.present or 'this minor'}"

    @property
    def targets(self) -> str:
        """Return what is refused, as ``4.19.3``, or ``another minor release``."""
        return names(self.refused[-2:], 60) if self.refused else self.beyond

    @property
    def beyond(self) -> str:
        """Return the kind of release that is refused."""
        return "another release" if self.every else "another minor release"


def of_version(version: Object, cluster: Cluster) -> RefusedReleases | None:
    """Return what a ClusterVersion refuses; None: nothing, or it does not say."""
    upgradeable = version.condition("Upgradeable")
    if upgradeable["status"].text != "False" or upgradeable["reason"].text == _PASSING:
        return None
    now = version.at("status", "desired", "version").text or ""
    present = _MINOR.match(now)
    offered = list(_offered(version))
    if present is None:
        return RefusedReleases("", (), (), tuple(_causes(version, cluster)), wanted=bool(offered))
    within = [each for each in offered if _is_within(each, present)]
    beyond = [each for each in offered if not _is_within(each, present)]
    channel = _MINOR.search(version.at("spec", "channel").text or "")
    ahead = channel is not None and _numbers(channel) > _numbers(present)
    causes = tuple(_causes(version, cluster))
    wanted = ahead or bool(beyond)
    if empty_refusals.holds_every(version):
        refused = (*within, *beyond)
        return RefusedReleases(present[0], (), refused, causes, ahead or bool(refused), every=True)
    return RefusedReleases(present[0], tuple(within), tuple(beyond), causes, wanted)


def _offered(version: Object) -> Iterator[str]:
    """Yield the releases that the channel offers, also those with known risks."""
    status = version["status"]
    found = [each["version"].text for each in status["availableUpdates"].items()]
    found += [each.at("release", "version").text for each in status["conditionalUpdates"].items()]
    yield from sorted(
        set(filter(None, found)),
        key=lambda text: [int(part) for part in re.findall(r"\d{1,9}", text)],
    )


def _is_within(release: str, present: re.Match[str]) -> bool:
    found = _MINOR.match(release)
    return found is not None and found[0] == present[0]


def _numbers(found: re.Match[str]) -> tuple[int, int]:
    return int(found[1]), int(found[2])


def _causes(version: Object, cluster: Cluster) -> Iterator[ReleaseRefusal]:
    refusing = [each for each in cluster.known(CLUSTER_OPERATOR) if _refuses(each)]
    for operator in sorted(refusing, key=lambda each: each.name):
        yield of_operator(operator, cluster)
    condition = version.condition("Upgradeable")
    own = list(_own_parts(version, refusing))
    if not refusing and not own:
        own = [_flat(condition["message"].text)]
    for words in own:
        reason = condition["reason"].text or ""
        named = f" ({reason})" if reason and not reason.startswith("Multiple") else ""
        title = f"ClusterVersion {version.name} is not Upgradeable{named}"
        said = f"{title}: {cut_middle(words, _LONGEST)}"
        brief = f"{title}: {cut_middle(words, _BRIEF)}"
        remedy = _own_remedy(words, version, cluster)
        yield ReleaseRefusal("ClusterVersion", version.name, said, remedy, brief)


def _refuses(operator: Object) -> bool:
    return operator.condition("Upgradeable")["status"].text == "False"


def of_operator(operator: Object, cluster: Cluster) -> ReleaseRefusal:
    """Return why a ClusterOperator refuses another minor release."""
    condition = operator.condition("Upgradeable")
    words, reason = _flat(condition["message"].text), condition["reason"].text or ""
    pods = single_node_workloads.named_in(words, cluster)
    title = f"ClusterOperator {operator.name} is not Upgradeable{f' ({reason})' if reason else ''}"
    why, remedy = (pods.reason, pods.remedy) if pods is not None else ("", "")
    if old := paused_pools.refused_for(operator, cluster):
        why, remedy = paused_pools.refusal(old)
    elif paused_pools.is_of_kubelets(operator):
        for left in poolless_nodes.named_in(words, cluster)[:1]:
            why, remedy = left.reason, left.remedy
    elif reason == _UPDATING and (pools := _updating(cluster)):
        why, remedy = (
            f"{pools} counts as being updated",
            f"Nothing of its own: it ends once each node of {pools} has its configuration and is "
            "Ready and schedulable",
        )
    elif (empty := empty_refusals.of(operator, cluster)) is not None:
        why, remedy = empty
    title += f": {why}" if why else ""
    said = f"{title}: {cut_middle(words, _LONGEST)}" if words else title
    brief = title if why or not words else f"{title}: {cut_middle(words, _BRIEF)}"
    remedy = remedy or incompatible_operators.remedy(words, cluster, ordered=False)
    remedy = remedy or _vsphere(words) or _as_asked(words, cluster)
    described = about("describe", operator, CLUSTER_OPERATOR)
    other = typed(f"Resolve what ClusterOperator {operator.name} asks for", described)
    return ReleaseRefusal("ClusterOperator", operator.name, said, remedy or other, brief)


_UPDATING: Final = "PoolUpdating"
"""Why the machine-config operator refused another minor release while a pool was updated, up to
4.18 (openshift/machine-config-operator:pkg/operator/status.go#syncUpgradeableStatus).
"""
_HARDWARE: Final = re.compile(r"one or more VMs are on hardware version (vmx-\d{1,4})")
"""Nodes on virtual hardware below 15 (openshift/vsphere-problem-detector#49,
:pkg/check/node_hw_version.go, which logs the version of each node; openshift/openshift-docs:
updating/updating_a_cluster/updating-hardware-on-nodes-running-on-vsphere.adoc).
"""


def _updating(cluster: Cluster) -> str:
    """Return which MachineConfigPools say that they update their nodes."""
    pools = (each for each in cluster.known(MACHINE_CONFIG_POOL) if each.is_true("Updating"))
    found = names(each.name for each in pools)
    return f"MachineConfigPool {found}" if found else ""


def _vsphere(words: str) -> str:
    """Return what ends that the detector of vSphere problems refuses releases; empty: it does
    not for the hardware of nodes.
    """
    found = _HARDWARE.search(words)
    if found is None:
        return ""
    what = (
        "One node after the other: drain it, shut its vSphere VM down, raise the compatibility of "
        f"that VM from {found[1]} to hardware version 15 or later in vCenter while it is off, and "
        "start it. The log of the detector has the version of each node"
    )
    of = ("-n", "openshift-cluster-storage-operator")
    return typed(
        what, shell("kubectl", "logs", "deployment/vsphere-problem-detector-operator", *of)
    )


_ASKED: Final = re.compile(
    r"\b(?:update|set|change) the [`'\"]?([A-Za-z]{2,40})[`'\"]? (?:field )?(?:in|of) the "
    r"[`'\"]?([a-z]{2,30}\.config\.openshift\.io)[`'\"]? object to ([`'\"])([\w.-]{1,40})\3"
)
"""How an operator asks for a field of OpenShift's configuration, whose objects exist once each."""
_ONLY: Final = "cluster"


class _Setting(NamedTuple):
    """A field that a message may have set, as other fields need more than a patch."""

    kind: Kind
    field: str
    values: tuple[str, ...]
    consequence: str


_SETTINGS: Final = {
    ("nodes.config.openshift.io", "CgroupMode"): _Setting(
        kinds.guess("config.openshift.io/v1", "Node")._replace(namespaced=False),
        "cgroupMode",
        ("v1", "v2"),
        ", for which each node is drained and rebooted, and which cannot be changed back after the "
        "update",
    )
}
"""By object and field (openshift/machine-config-operator:pkg/operator/status.go
#syncUpgradeableStatus, ClusterOnCgroupV1; openshift/api:config/v1/types_node.go#NodeSpec)."""


def _as_asked(words: str, cluster: Cluster) -> str:
    """Return how to set the field that a message asks for; empty: it asks for none that is known,
    or the object has that value already.
    """
    asked = _ASKED.search(words)
    setting = _SETTINGS.get((asked[2], asked[1])) if asked is not None else None
    value = asked[4] if asked is not None else ""
    if asked is None or setting is None or value not in setting.values:
        return ""
    own = find(cluster, setting.kind, "", _ONLY)  # only snapshots hold it
    has = own.at("spec", setting.field).text if own is not None else None
    if has == value:
        return ""
    shown = f" (now {has})" if has else ""
    data = json.dumps({"spec": {setting.field: value}}, separators=(",", ":"))
    return typed(
        f"Set spec.{setting.field} of {asked[2]} {_ONLY} to {value}{shown}{setting.consequence}",
        shell("kubectl", "patch", asked[2], _ONLY, "--type=merge", "-p", data),
    )


_OF_OPERATORS: Final = re.compile(
    r"luster operators? .{0,200}should not be upgraded between minor|multiple reasons:", re.DOTALL
)


def _own_parts(version: Object, refusing: Sequence[Object]) -> Iterator[str]:
    """Yield what the cluster-version operator adds to the messages of the operators."""
    left = version.condition("Upgradeable")["message"].text or ""
    for operator in refusing:
        left = left.replace(operator.condition("Upgradeable")["message"].text or "\0", "")
    for part in re.split(r"(?:^|\n)\* ", left):
        words = _flat(part)
        if words and not words.endswith(":") and not _OF_OPERATORS.search(words):
            yield words


def _own_remedy(words: str, version: Object, cluster: Cluster) -> str:
    if "overrides" in words.lower():
        return without_overrides(version)
    acknowledge = update_acknowledgements.remedy(words, version, cluster, ordered=False)
    described = about("describe", version, CLUSTER_VERSION)
    return acknowledge or typed("Resolve what it names", described)


def without_overrides(version: Object) -> str:
    """Return how the cluster-version operator gets back all that it manages."""
    which = names(map(_component, empty_refusals.overrides(version)), _BRIEF)
    words = f"Remove spec.overrides{f' ({which})' if which else ''}"
    return typed(words, about("edit", version, CLUSTER_VERSION))


def _component(override: Field) -> str:
    space, name = override["namespace"].text or "", override["name"].text or "?"
    return f"{override['kind'].text or '?'} {f'{space}/' if space else ''}{name}"


def _flat(text: str | None) -> str:
    return " ".join((text or "").split()).rstrip(".")
