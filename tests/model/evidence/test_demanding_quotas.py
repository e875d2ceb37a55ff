"""Pods that a quota refuses because their containers set no requests or limits."""

from __future__ import annotations

import pytest

from tests.builders import manifest
from virt_admit.model.evidence import complaints, demanding_quotas, reported
from virt_admit.model.kubernetes.cluster import Snapshot

NOW = "2026-11-26T12:00:00Z"
HARD = {"limits.cpu": "8", "limits.memory": "8Gi", "requests.cpu": "4", "requests.memory": "4Gi"}
BOTH = {"limits": {"cpu": "1", "memory": "1Gi"}}
REFUSED = 'pods "check-{}" is forbidden: failed quota: compute: must specify limits.cpu for: main'


def job(main=None, first=None, status=None, created="2026-11-26T09:00:00Z", **spec):
    pod = {
        "containers": [{"name": "main", "resources": main or {}}],
        "initContainers": [{"name": "first", "resources": first or {}}],
    }
    metadata = {"creationTimestamp": created}
    given = {"template": {"spec": pod | spec.pop("pod", {})}} | spec
    return manifest(
        "batch/v1", "Job", "check", "shop", spec=given, status=status or {}, metadata=metadata
    )


def quota(hard=None, **spec):
    return manifest("v1", "ResourceQuota", "compute", "shop", spec={"hard": hard or HARD} | spec)


def defaults(kind="Container", **item):
    limits = [{"type": kind} | item]
    return manifest("v1", "LimitRange", "sizes", "shop", spec={"limits": limits})


def found(*parts, complete=("*",)):
    cluster = Snapshot(parts, list(complete), time=NOW)
    return demanding_quotas.of_job(parts[0], cluster)


def test_a_quota_demands_what_no_container_sets():
    assert found(job(), quota()).words == (
        "ResourceQuota compute of shop demands requests and limits of CPU and memory, which main "
        "and first do not set, and no LimitRange there has defaults"
    )


@pytest.mark.parametrize(
    ("given", "missing", "containers"),
    [
        ([job(first=BOTH), quota()], tuple(sorted(HARD)), ("main",)),
        ([job(BOTH, BOTH), quota({"cpu": "4", "pods": "9"})], None, None),
        ([job(), quota({"cpu": "4", "pods": "9"})], ("cpu",), ("main", "first")),
        ([job(), quota({"pods": "9", "requests.storage": "1Ti"})], None, None),
        ([job(), quota(), defaults(defaultRequest={"cpu": "1", "memory": "1Gi"})],
         ("limits.cpu", "limits.memory"), ("main", "first")),
        ([job(), quota(), defaults(max={"cpu": "1", "memory": "1Gi"})], None, None),
        ([job(), quota(), defaults("Pod", max={"cpu": "1", "memory": "1Gi"})],
         tuple(sorted(HARD)), ("main", "first")),
        ([job(status={"active": 1}), quota()], None, None),
        ([job(status={"conditions": [{"type": "Failed", "status": "True"}]}), quota()], None, None),
        ([job(suspend=True), quota()], None, None),
        ([job(parallelism=0), quota()], None, None),
        ([job(managedBy="kueue.x-k8s.io/multikueue"), quota()], None, None),
        ([job(pod={"resources": BOTH}), quota()], None, None),
        ([job(), quota(scopes=["NotBestEffort"])], None, None),
        ([job(BOTH), quota(scopes=["NotBestEffort"])], tuple(sorted(HARD)), ("first",)),
        ([job(), quota(scopes=["Terminating"])], None, None),
        ([job(pod={"activeDeadlineSeconds": 60}), quota(scopes=["Terminating"])],
         tuple(sorted(HARD)), ("main", "first")),
        ([job(), quota(scopeSelector={"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]})], None, None),
    ],
)  # fmt: skip
def test_which_pods_a_quota_refuses(given, missing, containers):
    refused = found(*given)
    told = (tuple(sorted(refused.missing)), refused.containers) if refused else (None, None)
    assert told == (missing, containers)


def test_nothing_is_said_where_limit_ranges_could_not_be_read():
    assert found(job(), quota(), complete=["resourcequotas"]) is None


@pytest.mark.parametrize(
    ("said", "demanded"),
    [(REFUSED.format(1), True), ('pods "check-1" is forbidden: no service account', False)],
)
def test_a_job_that_says_something_else_does_not_lack_what_the_quota_demands(said, demanded):
    about = {"kind": "Job", "name": "check", "namespace": "shop"}
    event = {"involvedObject": about, "type": "Warning", "reason": "FailedCreate", "message": said}
    refused = found(job(), quota(), manifest("v1", "Event", "e", "shop", **event))
    assert (refused is not None) is demanded


def refusals(*minutes):
    about = {"kind": "Job", "name": "check", "namespace": "shop"}
    for minute in minutes:
        time = f"2026-11-26T11:{minute}:00Z"
        event = {"involvedObject": about, "type": "Warning", "reason": "FailedCreate", "count": 1}
        event |= {"message": REFUSED.format(minute), "firstTimestamp": time, "lastTimestamp": time}
        yield manifest("v1", "Event", f"e{minute}", "shop", **event)


@pytest.mark.parametrize(
    ("minutes", "times"),
    [((10, 20, 30, 40, 50), 5), ((30, 40, 50), 0), ((10, 15, 20, 25, 30), 0)],
    ids=["still", "seldom", "over"],
)
def test_refusals_of_pods_with_other_names_are_counted_together(minutes, times):
    cluster = Snapshot([job(), *refusals(*minutes)], ["*"], time=NOW)
    said = [each.words for each in complaints.lasting(job(), cluster)]
    expected = f"FailedCreate, {times} times: {REFUSED.format(50)}"
    assert said == [expected] * bool(times)


@pytest.mark.parametrize(
    ("status", "times"),
    [
        ({"active": 1}, 0),
        ({"succeeded": 1, "completionTime": "2026-11-26T11:52:00Z"}, 0),
        ({"failed": 1}, 5),
    ],
    ids=["it runs", "it has ended", "it tries again"],
)
def test_refusals_are_over_once_a_job_has_its_pods(status, times):
    own = job(status=status)
    cluster = Snapshot([own, *refusals(10, 20, 30, 40, 50)], ["*"], time=NOW)
    said = [each.words for each in complaints.lasting(own, cluster)]
    assert len(said) == bool(times)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([quota()], "it has no pod: ResourceQuota compute of shop demands requests and limits"),
        (refusals(10, 20, 30, 40, 50), "must specify limits.cpu for: main"),
    ],
    ids=["by comparison", "by events"],
)
def test_a_scan_says_it_with_what_ends_it(given, words):
    (told,) = reported.of_cluster(Snapshot([job(), *given], ["*"], time=NOW), [])
    assert words in told.text
    assert told.text.endswith(
        ". Give namespace shop a LimitRange with default requests and limits as large as VMs need: "
        "kubectl describe resourcequota compute -n shop; or set them in what makes these pods"
    )


def test_a_job_that_has_just_been_made_is_not_told():
    new = job(created="2026-11-26T11:55:00Z")
    assert reported.of_cluster(Snapshot([new, quota()], ["*"], time=NOW), []) == ()
