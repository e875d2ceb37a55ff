"""Controllers of Cluster API that ``clusterctl upgrade apply`` has scaled to 0, and installs again.

It first scales the Deployments of all providers that get another version to 0. Then it deletes and
installs one provider after the other, except for their namespaces. An old pod that lives on may
answer the conversion webhooks of the new version, so that the upgrade fails. Source:
kubernetes-sigs/cluster-api:cmd/clusterctl/client/cluster/upgrader.go#doUpgrade,
#scaleDownDeployment (an update of the Deployment by the manager clusterctl).
"""

from __future__ import annotations

import bisect
import enum
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from virt_admit.model.kubernetes import clock, events
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import DEPLOYMENT, NAMESPACE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import names

PROVIDER: Final = "cluster.x-k8s.io/provider"
"""The label of all objects of a provider (cmd/clusterctl/api/v1alpha3/provider_type.go
#ManifestLabel)."""
READS: Final[Reads] = union(
    clock.READS,
    {
        DEPLOYMENT: (
            "metadata.creationTimestamp",
            "metadata.labels",
            "metadata.managedFields",
            "spec.replicas",
        ),
        NAMESPACE: ("metadata.creationTimestamp",),
    },
)
_CLUSTERCTL: Final = "clusterctl"
_USUAL: Final = timedelta(minutes=15)
"""Between two steps: it loads manifests, waits a minute at most for old pods, and tries each write
again. It waits five minutes for the new ones."""
_TOGETHER: Final = timedelta(minutes=2)
"""It scales one Deployment after the other to 0, before it installs any."""
_AT_ONCE: Final = timedelta(minutes=3)
"""It installs the first one once the pods of all have ended, or a minute later."""


class ReplacementStage(enum.StrEnum):
    """What is known of an upgrade that may have scaled a Deployment to 0."""

    RUNS = "runs"
    MAY_RUN = "may run"
    """When the Deployment was scaled to 0 is not known, or by what."""
    BESIDE = "beside"
    """It replaces other providers, and something else has scaled this one to 0."""
    LEFT = "left"
    """It has not gone on for long."""
    MAY_BE_LEFT = "may be left"
    """The same, if it has scaled the Deployment to 0."""


class ReplacedProvider(NamedTuple):
    """A provider that has 0 replicas, and the upgrade of the providers."""

    deployment: Object
    stage: ReplacementStage
    words: str
    """A clause: ``clusterctl has been replacing the controllers of Cluster API for 24 s``."""


class _Scaled(NamedTuple):
    time: datetime
    manager: str
    """Empty: not known."""


def of(deployment: Object, cluster: Cluster) -> ReplacedProvider | None:
    """Return the upgrade that may have scaled a Deployment to 0; None: none has."""
    if not deployment.labels.get(PROVIDER) or deployment.at("spec", "replicas").integer != 0:
        return None
    installed, scaled = _installed(deployment, cluster), _scaled(deployment, cluster)
    if scaled is None:
        goes_on = bool(installed) and _is_recent(installed[-1], cluster)
        return (
            _found(deployment, ReplacementStage.MAY_RUN, installed[-1], cluster)
            if goes_on
            else None
        )
    steps = [each for each in installed if each >= scaled.time]
    last = steps[-1] if steps else scaled.time
    begun = bool(steps) and steps[0] - scaled.time < _USUAL
    if scaled.manager == _CLUSTERCTL or (begun and not scaled.manager):
        at_once = begun and steps[0] - scaled.time < _AT_ONCE
        is_known = bool(scaled.manager or at_once) or _is_one_of_several(
            deployment, scaled.time, cluster
        )
        if not _is_recent(last, cluster):
            stage = ReplacementStage.LEFT if is_known else ReplacementStage.MAY_BE_LEFT
            return _found(deployment, stage, scaled.time, cluster)
        if is_known:
            return _found(deployment, ReplacementStage.RUNS, scaled.time, cluster)
        return _found(deployment, ReplacementStage.MAY_RUN, last, cluster)
    if steps and _is_recent(last, cluster):
        return _found(deployment, ReplacementStage.BESIDE, last, cluster)
    return None


def awaited(cluster: Cluster) -> frozenset[str]:
    """Return the namespaces of providers that an upgrade installs again in a moment, or may."""
    going = (ReplacementStage.RUNS, ReplacementStage.MAY_RUN)
    every = cluster.cached(_every)
    return frozenset(each.deployment.namespace for each in every if each.stage in going)


def doubts(cluster: Cluster) -> Iterator[str]:
    """Yield that an upgrade may have scaled providers to 0, as what has done so is not known."""
    for each in cluster.cached(_every):
        if each.stage is ReplacementStage.MAY_RUN:
            title = f"{DEPLOYMENT.kind} {each.deployment.full_name}"
            yield f"whether clusterctl installs {title} again, which is scaled to 0: {each.words}"


def before_nodes(cluster: Cluster) -> str:
    """Return that an upgrade replaces controllers, which ends by itself; empty: none does."""
    every = cluster.cached(_every)
    found = [each for each in every if each.stage is ReplacementStage.RUNS]
    if not found:
        return ""
    which = names((each.deployment.full_name for each in found), 120)
    verb = "is" if len(found) == 1 else "are"
    return (
        f"{found[0].words}: {DEPLOYMENT.kind} {which} {verb} scaled to 0 until it installs the "
        "next version. Scale nothing up and start no roll-out before clusterctl has ended"
    )


def _every(cluster: Cluster) -> Sequence[ReplacedProvider]:
    found = (of(each, cluster) for each in cluster.known(DEPLOYMENT))
    return sorted(filter(None, found), key=lambda each: each.deployment.full_name)


def _found(
    deployment: Object, stage: ReplacementStage, since: datetime, cluster: Cluster
) -> ReplacedProvider:
    length = clock.elapsed(since, cluster)
    if stage in (ReplacementStage.LEFT, ReplacementStage.MAY_BE_LEFT):
        ago = f" {clock.duration(length)} ago" if length is not None else ""
        did = "did" if stage is ReplacementStage.LEFT else "may have done"
        words = f"a clusterctl upgrade {did} that{ago} and has not installed it again"
    elif stage is ReplacementStage.RUNS:
        lasts = clock.lasts(length)
        words = f"clusterctl has been replacing the controllers of Cluster API{lasts}"
    else:
        ago = f" {clock.duration(length)} ago" if length is not None else ""
        words = f"clusterctl has replaced another provider{ago}, and may not have ended"
    return ReplacedProvider(deployment, stage, words)


def _is_recent(time: datetime, cluster: Cluster) -> bool:
    length = clock.elapsed(time, cluster)
    return length is not None and length < _USUAL


def _installed(deployment: Object, cluster: Cluster) -> Sequence[datetime]:
    """Return when other providers were installed again, the latest at last: their namespaces are
    older, as is this Deployment."""
    own, created = deployment.labels[PROVIDER], clock.instant(deployment.created)
    found = cluster.cached(_replaced)
    begin = bisect.bisect_right(found, created, key=_made) if created is not None else len(found)
    return [each.made for each in found[begin:] if each.provider != own]


class _Installed(NamedTuple):
    made: datetime
    provider: str
    deployment: tuple[str, str]
    """Its namespace and name."""


def _made(installed: _Installed) -> datetime:
    return installed.made


def _replaced(cluster: Cluster) -> Sequence[_Installed]:
    """Return the Deployments of providers that are younger than their namespaces, the youngest at
    last."""
    found: list[_Installed] = []
    for each in cluster.known(DEPLOYMENT):
        provider, made = each.labels.get(PROVIDER), clock.instant(each.created)
        home = find(cluster, NAMESPACE, "", each.namespace) if provider and made else None
        since = clock.instant(home.created) if home is not None else None
        if provider and made and since is not None and made - since > _USUAL:
            found.append(_Installed(made, provider, (each.namespace, each.name)))
    return sorted(found)


def _is_one_of_several(deployment: Object, time: datetime, cluster: Cluster) -> bool:
    """Return whether another provider was scaled to 0 at that time, too, and is installed again:
    that is clusterctl."""
    ended = cluster.cached(_ends)
    return any(
        abs(end - time) < _TOGETHER and end < each.made
        for each in cluster.cached(_replaced)
        if each.provider != deployment.labels[PROVIDER]
        for end in ended.get(each.deployment, ())
    )


def _scaled(deployment: Object, cluster: Cluster) -> _Scaled | None:
    """Return when and by what a Deployment was scaled to 0; None: that is not known."""
    writes = [
        _Scaled(time, each["manager"].text or "")
        for each in deployment.metadata["managedFields"].items()
        if each.at("fieldsV1", "f:spec", "f:replicas").present
        if (time := clock.instant(each["time"].text)) is not None
    ]
    ends = cluster.cached(_ends).get((deployment.namespace, deployment.name), ())
    told = [_Scaled(time, "") for time in ends]
    created = clock.instant(deployment.created)
    found = [each for each in writes or told if created is None or each.time > created]
    return max(found, default=None)


def _ends(cluster: Cluster) -> Mapping[tuple[str, str], Sequence[datetime]]:
    """Return when Deployments were scaled to 0, as events tell, by namespace and name."""
    found: dict[tuple[str, str], list[datetime]] = {}
    for each in events.known(DEPLOYMENT.kind, "ScalingReplicaSet", cluster):
        about, time = each["involvedObject"], events.time_of(each)
        if time is not None and _TO_NONE.match(events.message(each)):
            key = about["namespace"].text or "", about["name"].text or ""
            found.setdefault(key, []).append(time)
    return found


_TO_NONE: Final = re.compile(r"Scaled down replica set \S+ (?:from \d+ )?to 0\b")
