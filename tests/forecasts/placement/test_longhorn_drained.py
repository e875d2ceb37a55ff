"""Volumes of Longhorn all of whose replicas are on nodes that are drained."""

import pytest

from tests.builders import manifest
from tests.forecasts.placement.test_longhorn_starts import (
    FAILED,
    engine,
    found,
    own,
    replica,
    volume,
)
from virt_admit.forecasts.placement.components.longhorn import stopped_managers
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import LONGHORN_MANAGER


def _manager(name, on, state):
    return own("InstanceManager", name, {"nodeID": on}, status={"currentState": state})


def _cordoned(name):
    return manifest("v1", "Node", name, spec={"unschedulable": True})


_DRAINED = [_cordoned("a"), _manager("im-a", "a", "stopped"), _manager("im-b", "b", "running")]
_DATA = {"healthyAt": FAILED}


@pytest.mark.parametrize(
    ("replicas", "says"),
    [
        (
            [replica("v1-r-1", "a", "stopped", "stopped", **_DATA)],
            "its only replica (…-r-1) is on a, where instance manager im-a does not run (stopped)",
        ),
        (
            [
                replica("v1-r-1", "a", "stopped", "stopped", lastHealthyAt=FAILED, failedAt=FAILED),
                replica("v1-r-2", "b", "stopped", "stopped"),
            ],
            "its only replica (…-r-1) is on a",
        ),
        (
            [
                replica("v1-r-1", "a", "stopped", "stopped", **_DATA),
                replica("v1-r-2", "b", "stopped", "stopped", **_DATA),
            ],
            None,
        ),
    ],
    ids=["one", "the other one has no data", "the other one can start"],
)
def test_a_volume_whose_replicas_are_on_a_drained_node(replicas, says):
    cause = found(*volume(), engine("v1-e-0", "b", "stopped", "stopped"), *_DRAINED, *replicas)

    assert (cause and says in cause.words) is (says and True)


def test_the_managers_of_a_node_are_looked_for_once():
    class Counting(Snapshot):
        walks = 0

        def known(self, kind, namespace=None):
            self.walks += kind is LONGHORN_MANAGER
            return super().known(kind, namespace)

    cluster = Counting(_DRAINED, ("*",))
    every = [stopped_managers.of_node(name, "v1", cluster) for name in "abab"]

    assert [each is not None for each in every] == [True, False, True, False]
    assert cluster.walks == 1
