"""A container that ends again and again, told as such where its pod was ready in between."""

from datetime import timedelta

import pytest

from tests.builders import manifest
from virt_admit.forecasts.placement.components import broken_pods
from virt_admit.model.evidence import container_states
from virt_admit.model.kubernetes.cluster import Snapshot

NOW = "2027-03-01T10:00:00Z"


def pod(restarts, unready="2027-03-01T09:58:00Z"):
    waiting = {"reason": "CrashLoopBackOff"}
    ended = {"reason": "OOMKilled", "exitCode": 137, "startedAt": "2027-03-01T09:57:50Z"}
    states = {"state": {"waiting": waiting}, "lastState": {"terminated": ended}}
    own = {"name": "main", "restartCount": restarts, "ready": False, **states}
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": unready}
    status = {"phase": "Running", "conditions": [ready], "containerStatuses": [own]}
    spec = {"containers": [{"name": "main"}]}
    return manifest("v1", "Pod", "p", "kube-system", spec=spec, status=status)


def backs_off(first="2027-03-01T09:19:00Z", last="2027-03-01T09:59:00Z"):
    about = {"kind": "Pod", "name": "p", "namespace": "kube-system"}
    return manifest(
        *("v1", "Event", "e", "kube-system"),
        involvedObject=about,
        type="Warning",
        reason="BackOff",
        firstTimestamp=first,
        lastTimestamp=last,
    )


def row(of, *objects, age=2):
    cluster = Snapshot([of, *objects], ["*"], time=NOW)
    return container_states.row(of, "main", timedelta(minutes=age), cluster)


@pytest.mark.parametrize(
    ("of", "objects", "age", "words"),
    [
        (pod(12), [backs_off()], 2, " (12 restarts, first reported 41 min ago)"),
        (pod(12), [], 2, " (12 restarts)"),
        (pod(12), [backs_off(last="2027-03-01T09:30:00Z")], 2, " (12 restarts)"),
        (pod(12), [backs_off()], 40, ""),
        (pod(12), [], 40, ""),
        (pod(1), [backs_off()], 2, ""),
    ],
    ids=["reported", "no event", "an old event", "as long", "for long", "a first end"],
)
def test_restarts_are_counted_where_the_pod_was_ready_in_between(of, objects, age, words):
    assert row(of, *objects, age=age) == words


def test_a_pod_that_ends_again_and_again_is_not_new():
    own = pod(12)
    broken = broken_pods.of_pod(own, Snapshot([own, backs_off()], ["*"], time=NOW))

    assert broken.words == (
        "pod p is not ready for 2 min: CrashLoopBackOff (12 restarts, first reported 41 min ago), "
        "container main OOMKilled"
    )
