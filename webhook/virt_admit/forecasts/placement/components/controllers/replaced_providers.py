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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from virt_admit.model.kubernetes import clock, events
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import DEPLOYMENT, NAMESPACE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find, next_unlike
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
    own, scaled = deployment.labels[PROVIDER], _scaled(deployment, cluster)
    installed, created = cluster.cached(_installed), clock.instant(deployment.created)
    last = installed.last(own, created) if created is not None else None
    if scaled is None:
        if last is None or not _is_recent(last, cluster):
            return None
        return _found(deployment, ReplacementStage.MAY_RUN, last, cluster)
    first = installed.first(own, scaled.time) if last is not None else None
    last = last if first is not None and last is not None else scaled.time
    begun = first is not None and first - scaled.time < _USUAL
    if scaled.manager == _CLUSTERCTL or (begun and not scaled.manager):
        at_once = first is not None and first - scaled.time < _AT_ONCE
        is_known = bool(scaled.manager or at_once) or _is_one_of_several(
            deployment, scaled.time, cluster
        )
        if not _is_recent(last, cluster):
            stage = ReplacementStage.LEFT if is_known else ReplacementStage.MAY_BE_LEFT
            return _found(deployment, stage, scaled.time, cluster)
        if is_known:
            return _found(deployment, ReplacementStage.RUNS, scaled.time, cluster)
        return _found(deployment, ReplacementStage.MAY_RUN, last, cluster)
    if first is not None and _is_recent(last, cluster):
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


class _OfProviders(NamedTuple):
    """Times of providers in their order, among which those of the others are found at once."""

    times: Sequence[datetime]
    providers: Sequence[str]
    following: Sequence[int]
    """For each time, the next one of another provider."""
    latest: Sequence[tuple[datetime, str]]
    """The latest times of the last two providers."""

    @classmethod
    def of(cls, found: Iterable[tuple[datetime, str]]) -> _OfProviders:
        every = sorted(found)
        times, providers = [time for time, _ in every], [provider for _, provider in every]
        latest = sorted(
            (time, own) for own, time in dict(zip(providers, times, strict=True)).items()
        )
        return cls(times, providers, next_unlike(providers), latest[-2:])

    def first(self, own: str, since: datetime) -> datetime | None:
        """Return the first time of another provider from a moment on; None: there is none."""
        at = bisect.bisect_left(self.times, since)
        if at < len(self.times) and self.providers[at] == own:
            at = self.following[at]
        return self.times[at] if at < len(self.times) else None

    def last(self, own: str, after: datetime) -> datetime | None:
        """Return the last time of another provider, if it is after a moment."""
        found = max((time for time, each in self.latest if each != own), default=None)
        return found if found is not None and found > after else None


def _installed(cluster: Cluster) -> _OfProviders:
    """Return when providers were installed again: their namespaces are older."""
    return _OfProviders.of((each.made, each.provider) for each in cluster.cached(_replaced))


class _Installed(NamedTuple):
    made: datetime
    provider: str
    deployment: tuple[str, str]
    """Its namespace and name."""


def _replaced(cluster: Cluster) -> Sequence[_Installed]:
    """Return the Deployments of providers that are younger than their namespaces."""
    found: list[_Installed] = []
    for each in cluster.known(DEPLOYMENT):
        provider, made = each.labels.get(PROVIDER), clock.instant(each.created)
        home = find(cluster, NAMESPACE, "", each.namespace) if provider and made else None
        since = clock.instant(home.created) if home is not None else None
        if provider and made and since is not None and made - since > _USUAL:
            found.append(_Installed(made, provider, (each.namespace, each.name)))
    return found


def _is_one_of_several(deployment: Object, time: datetime, cluster: Cluster) -> bool:
    """Return whether another provider was scaled to 0 at that time, too, and is installed again:
    that is clusterctl."""
    ended = cluster.cached(_ended).first(deployment.labels[PROVIDER], time - _TOGETHER + _MOMENT)
    return ended is not None and ended - time < _TOGETHER


_MOMENT: Final = timedelta.resolution


def _ended(cluster: Cluster) -> _OfProviders:
    """Return when providers were scaled to 0 that are installed again since."""
    ends = cluster.cached(_ends)
    return _OfProviders.of(
        (end, each.provider)
        for each in cluster.cached(_replaced)
        for end in ends.get(each.deployment, ())
        if end < each.made
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
