"""ClusterOperators that refuse another minor release of OpenShift and name no cause.

An operator that was degraded for a moment may leave its condition Upgradeable behind, as
cloud-controller-manager did up to 4.12.17: it sets the condition to False together with Degraded,
with the reason AsExpected and no message, and its second controller kept it so (OCPBUGS-13188,
openshift/cluster-cloud-controller-manager-operator#254, :pkg/controllers/status.go
#setStatusDegraded; okd-project/okd#1838). The check of Upgradeable is one that a forced update
skips, with all others and the signature (openshift/cluster-version-operator:
pkg/payload/precondition/clusterversion/upgradeable.go, pkg/cvo/sync_worker.go#loadUpdatedPayload).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.model.commands import shell, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import CLUSTER_OPERATOR, CLUSTER_VERSION
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.messages import names

READS: Final[Reads] = union(
    clock.READS,
    {CLUSTER_VERSION: (), CLUSTER_OPERATOR: (*CONDITIONS, "status.conditions.lastTransitionTime")},
)
_PASSES: Final = timedelta(hours=1)
"""An operator that just recovered sets its condition back within minutes."""
_EMPTY: Final = (None, "", "AsExpected")
_KNOWN: Final = {"cloud-controller-manager": re.compile(r"4\.12\.(?:\d|1[0-7])(?!\d)")}
"""Operators that leave the condition behind, each with the releases that do."""


class EmptyRefusal(NamedTuple):
    """A refusal without a cause."""

    why: str
    remedy: str


def of(operator: Object, cluster: Cluster) -> EmptyRefusal | None:
    """Return that an operator refuses another release and names no cause although it is well; None:
    it names one, is not well, or has said so for less than an hour.
    """
    said = operator.condition("Upgradeable")
    well = operator.is_true("Available") and all(
        operator.condition(each)["status"].text == "False" for each in ("Degraded", "Progressing")
    )
    empty = not (said["message"].text or "").strip() and said["reason"].text in _EMPTY
    if not (well and empty and said["status"].text == "False"):
        return None
    if not clock.has_lasted(said["lastTransitionTime"].text, _PASSES, cluster):
        return None
    lasts = clock.lasting(said["lastTransitionTime"].text, cluster)
    why = f"it names no cause{lasts} (no message), although it is Available and not Degraded"
    version = next(iter(cluster.known(CLUSTER_VERSION)), None)
    release = version.at("status", "desired", "version").text if version is not None else None
    known = _KNOWN.get(operator.name)
    if known is not None and known.match(release or ""):
        left = "the operator of this release leaves the condition behind (fixed in 4.12.18)"
        why += f": {left}, and nothing in the cluster is to be repaired for it"
    else:
        why += ", so that its operator may have left the condition behind"
    return EmptyRefusal(why, _remedy(operator, version, cluster))


_HELD_UP_TO: Final = (4, 21)
"""The last minor release in which overrides also hold releases of the same minor (4.22 has
openshift/cluster-version-operator#1314; the branches of 4.12 to 4.21 compare spec.overrides in
pkg/payload/precondition/clusterversion/upgradeable.go#Run).
"""


def overrides(version: Object) -> Sequence[Field]:
    """Return the components that the cluster-version operator is told not to manage."""
    every = version.at("spec", "overrides").items()
    return [each for each in every if each["unmanaged"].boolean]


def holds_every(version: Object) -> bool:
    """Return whether a ClusterVersion refuses each other release, also of its own minor."""
    present = re.match(
        r"(\d{1,9})\.(\d{1,9})", version.at("status", "desired", "version").text or ""
    )
    early = present is not None and (int(present[1]), int(present[2])) <= _HELD_UP_TO
    return early and bool(overrides(version))


def _remedy(operator: Object, version: Object | None, cluster: Cluster) -> str:
    """Return what gets past it: a release of the same minor, else a forced update as a decision."""
    if version is None:
        return "Update to a later release of the same minor, whose operator sets it back"
    present = version.at("status", "desired", "version").text or ""
    minor = ".".join(present.split(".")[:2])
    offered = [
        each["version"].text or "" for each in version.at("status", "availableUpdates").items()
    ]
    own = [each for each in offered if each.startswith(f"{minor}.")]
    see = shell("kubectl", "get", "clusteroperators")
    if own and not holds_every(version):
        newest = max(own, key=lambda each: [int(part) for part in re.findall(r"\d{1,9}", each)])
        way = f"Update to {newest} first, which Upgradeable=False does not hold"
        return typed(f"{way}, and see whether its operator sets the condition back", see)
    retrieved = version.condition("RetrievedUpdates")
    if retrieved["status"].text == "False":
        why = f"RetrievedUpdates is False: {retrieved['reason'].words or 'no reason'}"
        way = (
            f"Find a later release of {minor or 'this minor'} and update to it first: none is known"
        )
        return typed(f"{way} here ({why})", shell("kubectl", "describe", "clusterversion"))
    others = [
        each.name
        for each in cluster.known(CLUSTER_OPERATOR)
        if each.name != operator.name
        and (
            each.condition("Upgradeable")["status"].text == "False"
            or each.is_true("Degraded")
            or each.condition("Available")["status"].text == "False"
        )
    ]
    no_later = f"No later release of {minor or 'this minor'} is offered here"
    if others or unlisted(cluster, CLUSTER_OPERATOR):
        which = names(others) if others else "the other operators"
        return typed(f"{no_later}. See first what {which} reports", see)
    asked = version.at("spec", "desiredUpdate")
    image, release = asked["image"].text or "", asked["version"].text or "it"
    forced = ("oc", "adm", "upgrade", "--force", "--allow-explicit-upgrade", "--to-image", image)
    how = f"force the update to {release} ({shell(*forced)})" if image else "force the update"
    decision = (
        "no other ClusterOperator is Degraded or not Upgradeable: as a decision and with a backup "
        f"of etcd, {how}, which skips every check of the release, that of its signature too"
    )
    return typed(f"{no_later}. See that all operators are well", see, decision)
