"""Bundles that the Operator Lifecycle Manager could not unpack, and the Job whose result it keeps.

A Job in the namespace of the catalog pulls the image of the bundle and writes it into a ConfigMap.
Both have the hash of the image as name. As long as a failed Job exists, OLM takes its result for
every later InstallPlan and Subscription. Sources, in operator-framework/operator-lifecycle-manager:
pkg/controller/bundle/bundle_unpacker.go#UnpackBundle #ensureJob #hash #sortUnpackJobs
(newer releases: ttlSecondsAfterFinished, bundle-unpack-min-retry-interval);
pkg/controller/operators/catalog/subscription/state.go#InstallPlanNotFound (it is made again).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from virt_admit.model.commands import about, argument, kubectl, shell, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, gather
from virt_admit.model.kubernetes.kinds import INSTALL_PLAN, JOB
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import WHOLE_CONDITIONS, Reads, union
from virt_admit.model.messages import cut, names
from virt_admit.model.node_updates.operators.operator_groups import GROUP
from virt_admit.model.problems import Problem

_REF: Final = "operatorframework.io/bundle-unpack-ref"
READS: Final[Reads] = union(
    clock.READS,
    {
        INSTALL_PLAN: (
            "metadata.creationTimestamp",
            "status.bundleLookups.catalogSourceRef",
            "status.bundleLookups.conditions",
            "status.bundleLookups.path",
        ),
        JOB: (*WHOLE_CONDITIONS, f"metadata.labels.{_REF}", "spec.ttlSecondsAfterFinished"),
    },
)
_RETRY: Final = "operatorframework.io/bundle-unpack-min-retry-interval"
_FAILED: Final = re.compile(r"bundle unpacking failed(?:\. Reason:| -) *(\w{1,60})", re.IGNORECASE)
"""How an InstallPlan, or in newer releases a Subscription, says that a Job failed."""
_NAME_LENGTH: Final = 63
"""Characters of the hash: a label has no more. Older releases took all 64."""


def brief(words: str) -> str:
    """Return a few words, as ``bundle unpacking failed (DeadlineExceeded: ...)``."""
    found = _FAILED.search(words)
    if found is None:
        return words
    said = words[found.end() :].removeprefix(", and Message").lstrip(": ").partition(". ")[0]
    return f"bundle unpacking failed ({': '.join(filter(None, (found[1], cut(said, 60))))})"


class _Bundle(NamedTuple):
    """A bundle that was not unpacked."""

    namespace: str
    name: str
    image: str


def failure(
    subscription: Object, plan: Object | None, words: str, cluster: Cluster
) -> Problem | None:
    """Return what keeps a bundle from being unpacked again, a failed Job whose result OLM keeps, as
    ``the failed unpack Job a/b still exists, ...``; without a reason where none is known. None: it
    is another fault.

    Args:
        plan: the InstallPlan that failed; None: the Subscription says so, or it cannot be read.
    """
    if not _FAILED.search(words):
        return None
    bundles = list(_bundles(plan)) if plan is not None else []
    source = subscription.at("spec", "sourceNamespace").text or ""
    space = bundles[0].namespace if bundles else source
    jobs, unseen = gather(cluster.list(JOB, space))
    alike = [job for job in jobs if _is_of(job, bundles, words)]
    own = alike if bundles or (not unseen and _is_certain(alike)) else []
    image = f"image {bundles[0].image.partition('@')[0]}" if bundles else "the image of the bundle"
    again = _deletion(subscription, plan)
    if not own or not all(job.is_true("Failed") for job in own):  # OLM takes one that has not
        return _without_job(
            bundles if unseen else [], image, space, again, is_gone=not unseen and own == alike
        )
    cause = f"{_of_jobs(own)}{_older(own[0], plan)}, and OLM keeps its result"
    removed = own[0].at("spec", "ttlSecondsAfterFinished").present
    if not again and (removed or _retries(subscription, cluster)):
        described = about("describe", own[0], JOB)
        what = "See that its image can be pulled. OLM tries it again by itself"
        return Problem(cause, typed(what, described))
    pairs = ((job.label(_REF).text or job.name, job.name) for job in own)
    both = list(dict.fromkeys(name for pair in pairs for name in pair))
    return Problem(cause, _removal(both, space, again))


def _deletion(subscription: Object, plan: Object | None) -> str:
    """Return the command that lets OLM make another InstallPlan; empty: none failed."""
    if plan is not None:
        return about("delete", plan, INSTALL_PLAN)
    failed = subscription.is_true("InstallPlanFailed")
    name = subscription.at("status", "installPlanRef", "name").text or ""
    return kubectl("delete", INSTALL_PLAN, name, subscription.namespace) if failed and name else ""


def _bundles(plan: Object) -> Iterator[_Bundle]:
    """Yield the bundles of an InstallPlan whose Job failed."""
    for lookup in plan.at("status", "bundleLookups").items():
        image, space = lookup["path"].text or "", lookup["catalogSourceRef"]["namespace"].text or ""
        failed = any(
            each["type"].text == "BundleLookupFailed" and each["status"].text == "True"
            for each in lookup["conditions"].items()
        )
        if image and space and failed:
            yield _Bundle(space, hashlib.sha256(image.encode()).hexdigest(), image)


def _is_of(job: Object, bundles: Sequence[_Bundle], words: str) -> bool:
    """Return whether a Job is for one of the bundles; without any, as the words say."""
    ref = job.label(_REF).text
    if job.deleted:
        return False
    if bundles:
        return any((ref or job.name) in (each.name, each.name[:_NAME_LENGTH]) for each in bundles)
    failed = job.condition("Failed")
    said = all((failed[each].text or "") in words for each in ("reason", "message"))
    return ref is not None and job.is_true("Failed") and said


def _is_certain(alike: Sequence[Object]) -> bool:
    """Return whether the words tell the Job: those of other operators fail in the same way."""
    if len(alike) != 1:
        return False
    failed = alike[0].condition("Failed")
    return all(failed[each].text for each in ("reason", "message"))


def _of_jobs(jobs: Sequence[Object]) -> str:
    if len(jobs) == 1:
        return f"the failed unpack Job {jobs[0].full_name} still exists"
    return f"the failed unpack Jobs {names((job.full_name for job in jobs), 300)} still exist"


def _older(job: Object, plan: Object | None) -> str:
    """Return that a Job failed before the InstallPlan was made: a result that was taken over."""
    failed = clock.instant(job.condition("Failed")["lastTransitionTime"].text)
    if plan is None or failed is None:
        return ""
    made = clock.instant(plan.created)
    if made is None or failed >= made:
        return ""
    return f" (it failed {clock.duration(made - failed)} before the InstallPlan)"


def _retries(subscription: Object, cluster: Cluster) -> bool:
    groups = cluster.known(GROUP, subscription.namespace)
    return len(groups) == 1 and bool(groups[0].annotation(_RETRY).text)


def _without_job(
    missing: Sequence[_Bundle], image: str, space: str, again: str, *, is_gone: bool
) -> Problem:
    if missing:  # the name follows from the image, although Jobs cannot be read
        found = [each.name[:_NAME_LENGTH] for each in missing]
        which = f"{names([f'{space}/{name}' for name in found], 300)}, if it still exists"
        cause = f"OLM does not unpack again while the failed unpack Job exists: {which}"
        return Problem(cause, _removal(found, space, again))
    if again and is_gone:
        what = f"See that {image} can be pulled; then delete the InstallPlan, which OLM makes again"
        return Problem("", typed(what, again))
    where = ("-n", space) if space else ("-A",)
    then = ", then the InstallPlan" if again else ""
    both = f"the failed unpack Job and its ConfigMap{then}"
    what = f"See that {image} can be pulled; then delete {both}"
    return Problem("", typed(what, shell("kubectl", "get", "jobs", *where, "-l", _REF)))


def _removal(found: Sequence[str], space: str, again: str) -> str:
    """Return how OLM unpacks again: a ConfigMap has the name of the first Job for its bundle."""
    named = map(argument, found)
    command = shell("kubectl", "delete", "job,configmap", *named, "-n", space, "--ignore-not-found")
    which = "that Job and its ConfigMap" if len(found) == 1 else "those Jobs and their ConfigMaps"
    if not again:
        return typed(
            f"Once its image can be pulled, delete {which}, after which OLM unpacks it again",
            command,
        )
    then = "then the InstallPlan, which OLM makes again"
    what = f"Once its image can be pulled, delete {which}, {then}"
    return typed(what, f"{command} && {again}")
