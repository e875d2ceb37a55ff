"""The pod for which an operator of OpenShift waits, in the words of the upgrade and of a rule."""

from __future__ import annotations

from typing import Any

from tests.healthy.parts import Object as Raw
from tests.healthy.parts import ago, obj, pod
from tests.incidents_platform.cluster_updates import operator
from tests.model.node_updates.test_cluster_updates import BEHIND, FAILING, applying, rehearsed

SAID = 'DaemonSet "/openshift-ingress/router" rollout is not making progress'
SPACE = "openshift-ingress"


def _crashing(name: str, of: Raw | None, **late: float) -> Raw:
    found = pod(name, SPACE, "n1", {}, of)
    since = ago(**late)
    for each in found["status"]["conditions"]:
        if each["type"] in ("Ready", "ContainersReady"):
            each |= {"status": "False", "lastTransitionTime": since}
    ended = {"exitCode": 1, "startedAt": ago(minutes=2), "finishedAt": ago(minutes=1)}
    status = found["status"]["containerStatuses"][0]
    status |= {"ready": False, "restartCount": 40, "lastState": {"terminated": ended}}
    status["state"] = {"waiting": {"reason": "CrashLoopBackOff"}}
    return found


def _stop(*pods: Raw) -> Any:
    found = rehearsed(
        applying(FAILING), BEHIND, operator("ingress", "4.20.1", Degraded=SAID), *pods
    )
    assert found.possible is False
    return next(each for each in found.stops if "ClusterOperator ingress" in each.reason)


ROUTER = obj("DaemonSet", "apps/v1", "router", SPACE)


def test_the_pod_behind_an_operator_is_named() -> None:
    stop = _stop(_crashing("router-x", ROUTER, hours=3))
    assert SAID in stop.reason
    assert "pod openshift-ingress/router-x (DaemonSet router) is not ready for 3 h" in stop.reason
    assert "CrashLoopBackOff" in stop.reason
    assert "kubectl logs router-x" in stop.remedy
    assert "after which the update goes on by itself" in stop.remedy


def test_a_pod_that_starts_or_that_is_not_meant_is_not_blamed() -> None:
    other = obj("DaemonSet", "apps/v1", "canary", SPACE)
    stop = _stop(_crashing("router-x", ROUTER, minutes=4), _crashing("other-x", other, hours=3))
    assert "router-x" not in stop.reason
    assert "other-x" not in stop.reason
    assert "kubectl describe clusteroperator ingress" in stop.remedy
