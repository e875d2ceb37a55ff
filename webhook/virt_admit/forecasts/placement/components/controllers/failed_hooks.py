"""Jobs before the upgrade of a chart of the platform that failed, after which it did not begin.

Helm ends an upgrade whose hook fails before it applies any other object, and keeps the Job, unless
the chart asks to delete it (hook-failed). Until the Job is made again, the release before is what
runs. Longhorn's check refuses to skip a minor release, and says why in an Event alone, which names
no kind. Sources: helm/helm:pkg/action/hooks.go#execHook, :pkg/action/upgrade.go#failRelease;
longhorn/longhorn-manager:upgrade/util/util.go#checkLHUpgradePath, :app/pre_upgrade.go#Run;
longhorn/longhorn#9569, #8809.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.placement.components.controllers import hook_jobs, skewed_charts
from virt_admit.forecasts.placement.components.controllers.hook_jobs import HeldHook
from virt_admit.model.commands import about, logs_of, typed
from virt_admit.model.evidence import container_states
from virt_admit.model.kubernetes import clock, events
from virt_admit.model.kubernetes.cluster import Cluster, cached
from virt_admit.model.kubernetes.kinds import (
    DAEMON_SET,
    DEPLOYMENT,
    JOB,
    LONGHORN_SETTING,
    POD,
    STATEFUL_SET,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import WHOLE_CONDITIONS, Reads, union
from virt_admit.model.kubevirt.settings.versions import parse_version
from virt_admit.model.lookups import fields, find
from virt_admit.model.messages import cut_middle, names

_INSTALLED: Final = (DAEMON_SET, DEPLOYMENT, STATEFUL_SET)
READS: Final[Reads] = union(
    hook_jobs.READS,
    skewed_charts.READS,
    {
        JOB: ("status.startTime", *WHOLE_CONDITIONS),
        POD: ("metadata.ownerReferences", "spec.containers", *container_states.FIELDS),
        LONGHORN_SETTING: ("value",),
    },
    dict.fromkeys(_INSTALLED, ("metadata.labels",)),
)
_CHARTS: Final = ("helm.sh/chart", "chart")
_CHART: Final = re.compile(
    r"([a-z0-9][a-z0-9.-]{0,60}?)-(v?\d{1,4}\.\d{1,4}\.[0-9A-Za-z._+-]{1,40})"
)
_VERSION: Final = "app.kubernetes.io/version"
_PACKAGED: Final = re.compile(r"[_+]up(v?\d.*)")
"""What Rancher packages, in the release of its own chart: 107.0.0+up1.10.0 (rancher/charts). A
label has no plus sign."""
_BEFORE: Final = "pre-upgrade"
_RECENT: Final = timedelta(days=7)
"""An older attempt was given up."""
_CHECK: Final = "longhorn-pre-upgrade"
_REFUSED: Final = "FailedUpgradePreCheck"
_LONGHORN: Final = "longhorn"
_RUNNING: Final = "current-longhorn-version"
_STEP: Final = re.compile(r"from (v\d[\w.-]{1,30}) to (v\d[\w.-]{1,30}) for minor version")
_GIVEN_UP: Final = "BackoffLimitExceeded"
_LONGEST: Final = 240


def told(cluster: Cluster) -> Sequence[HeldHook]:
    """Return the charts of the platform that are not brought to their new release."""
    return (*held(cluster), *skewed_charts.held(cluster))


@cached
def held(cluster: Cluster) -> Sequence[HeldHook]:
    """Return the upgrades of platform charts that a hook holds: its pod has no node, or it failed
    within the last days and the chart has not been installed since.
    """
    failed = [each for each in cluster.known(JOB) if _has_failed(each, cluster)]
    found = [each for job in failed if (each := _of_job(job, cluster)) is not None]
    said = {each.owner.namespace for each in found}
    more = (
        each
        for namespace in {event.namespace for event in _refusals(None, cluster)} - said
        if (each := _of_event(next(_refusals(namespace, cluster)), cluster)) is not None
    )
    return (*hook_jobs.held(cluster), *found, *more)


def _has_failed(job: Object, cluster: Cluster) -> bool:
    ended = job.condition("Failed")
    age = clock.since(ended["lastTransitionTime"].text, cluster)
    return (
        ended["status"].text == "True"
        and age is not None
        and age <= _RECENT
        and not job.deleted
        and _BEFORE in hook_jobs.hooks(job)
        and hook_jobs.is_of_platform(job.namespace)
    )


def _of_job(job: Object, cluster: Cluster) -> HeldHook | None:
    chart = _chart(job)
    if chart is None or not (before := _before(job, *chart, cluster)):
        return None
    failed = job.condition("Failed")
    ago = clock.past(failed["lastTransitionTime"].text, cluster)
    code = f" ({failed['reason'].text})" if failed["reason"].text else ""
    how = f"its hook Job {job.full_name} ({_BEFORE}) failed{ago}{code}"
    pod, event = next(_pods(job, cluster), None), _refusal(job, cluster)
    why = _said(job, pod, event, cluster)
    see = logs_of(pod) if pod is not None else about("describe", job, JOB)
    release = _wanted(job, *chart, cluster)
    release = f"v{release.removeprefix('v')}" if before.startswith("v") else release
    return _held(job, _Attempt(chart[0], before, release), how, why, see)


def _chart(obj: Object) -> tuple[str, str] | None:
    """Return name and release of the chart that made an object; None: it does not say it."""
    found = _CHART.fullmatch(next(filter(None, map(obj.labels.get, _CHARTS)), ""))
    return (found[1], found[2]) if found is not None else None


def _wanted(job: Object, chart: str, release: str, cluster: Cluster) -> str:
    """Return the release to which a failed Job was to lead: of Longhorn itself, else of its chart,
    which others may have packaged.
    """
    if chart != _LONGHORN:
        return release
    named, packaged = job.labels.get(_VERSION, ""), _PACKAGED.search(release)
    if parse_version(named) is not None:
        return named
    event = _refusal(job, cluster)
    step = _STEP.search(events.message(event)) if event is not None else None
    return packaged[1] if packaged is not None else step[2] if step is not None else release


def _before(job: Object, chart: str, release: str, cluster: Cluster) -> str:
    """Return the release of a chart that is installed, which is not that of a failed Job; empty:
    it or a newer one has been installed since, or nothing known tells.
    """
    found = {
        each[1]
        for kind in _INSTALLED
        for obj in cluster.known(kind, job.namespace)
        if (each := _chart(obj)) is not None and each[0] == chart
    }
    if release in found:
        return ""
    if chart == _LONGHORN:
        running = _running(job.namespace, cluster)
        wanted, has = parse_version(_wanted(job, chart, release, cluster)), parse_version(running)
        if wanted is not None and has is not None:
            return "" if has >= wanted else running
    before = next(iter(found)) if len(found) == 1 else ""
    wanted, has = parse_version(release), parse_version(before)
    return "" if wanted is not None and has is not None and has > wanted else before


def _running(namespace: str, cluster: Cluster) -> str:
    """Return the release of Longhorn, which its managers write; empty: not known."""
    return fields(cluster, LONGHORN_SETTING, namespace, _RUNNING)["value"].text or ""


def _pods(job: Object, cluster: Cluster) -> Iterator[Object]:
    for pod in cluster.known(POD, job.namespace):
        if pod.owned_by(JOB.kind) == job.name:
            yield pod


def _said(job: Object, pod: Object | None, event: Object | None, cluster: Cluster) -> str:
    """Return what says why a Job failed, the most telling first; empty: nothing does."""
    if event is not None:
        return events.message(event)
    ends = container_states.terminations(pod) if pod is not None else ()
    told = [end["message"].words for _, end in ends if end["exitCode"].integer]
    begun = clock.instant(job.at("status", "startTime").text)
    warned = [said for why, said in events.warnings(job, begun, cluster) if why != _GIVEN_UP]
    return next(filter(None, (*told, *warned)), "")


# --- Longhorn's check -----------------------------------------------------------------------------


def _refusals(namespace: str | None, cluster: Cluster) -> Iterator[Object]:
    """Yield the events of Longhorn's check that refuses an upgrade, the newest first."""
    known = [
        each
        for each in events.known("", _REFUSED, cluster)
        if each.at("involvedObject", "name").text == _CHECK
        and each.namespace == (namespace or each.namespace)
    ]
    yield from sorted(known, key=lambda each: clock.stamp(events.time_of(each)) or "", reverse=True)


def _refusal(job: Object, cluster: Cluster) -> Object | None:
    """Return the event with which a failed Job of Longhorn's check refused; None: it did not."""
    event = next(_refusals(job.namespace, cluster), None) if job.name == _CHECK else None
    time = events.time_of(event) if event is not None else None
    begun = clock.instant(job.at("status", "startTime").text)
    return event if time is not None and (begun is None or time >= begun) else None


def _of_event(event: Object, cluster: Cluster) -> HeldHook | None:
    """Return what an event says whose Job is gone, or does not say its chart: the release that it
    names still runs.
    """
    told, time = events.message(event), events.time_of(event)
    step, age = _STEP.search(told), clock.elapsed(time, cluster)
    running = find(cluster, LONGHORN_SETTING, event.namespace, _RUNNING)
    again = any(
        _BEFORE in hook_jobs.hooks(job) and not (job.is_true("Failed") and _chart(job) is None)
        for job in cluster.known(JOB, event.namespace)
    )
    if again or step is None or running is None or age is None or age > _RECENT:
        return None
    if running["value"].text != step[1]:
        return None
    how = f"its check before the upgrade refused it{clock.past(clock.stamp(time), cluster)}"
    see = about("get", running, LONGHORN_SETTING, "-o", "yaml")
    return _held(running, _Attempt(_LONGHORN, step[1], step[2]), how, told, see)


def _skipped(attempt: _Attempt) -> Sequence[str]:
    """Return the minor releases that an upgrade leaves out, as ``v1.9``."""
    has, wanted = parse_version(attempt.before), parse_version(attempt.after)
    if has is None or wanted is None or has.major != wanted.major:
        return ()
    return [f"v{has.major}.{minor}" for minor in range(has.minor + 1, wanted.minor)]


class _Attempt(NamedTuple):
    """An upgrade of a chart, from one release to another."""

    chart: str
    before: str
    after: str

    @property
    def words(self) -> str:
        """Return it as the beginning of a sentence."""
        what = "Longhorn" if self.chart == _LONGHORN else f"chart {self.chart}"
        return f"The update of {what} from {self.before} to {self.after}"


def _held(owner: Object, attempt: _Attempt, how: str, why: str, see: str) -> HeldHook:
    said = f": {cut_middle(why, _LONGEST)}" if why else ""
    reason = f"{attempt.words} is stuck: {how}, so Helm has changed nothing{said}"
    skipped = _skipped(attempt) if attempt.chart == _LONGHORN and _STEP.search(why) else ()
    if not skipped:
        words = f"End what made it fail, then repeat the upgrade to {attempt.after}"
        return HeldHook(owner, reason, f"{attempt.words} failed: {how}{said}", typed(words, see))
    lines, first = names(skipped), ", then ".join(f"the latest {each}.x" for each in skipped)
    rule = f"Longhorn is updated by one minor release at a time, and this skips {lines}"
    words = (
        f"Upgrade Longhorn to {first}, let the engines of the volumes follow, and only then to "
        f"{attempt.after}"
    )
    brief = f"{attempt.words} failed, as it skips {lines}"
    return HeldHook(owner, f"{reason}. {rule}", brief, typed(words, see))
