"""Our model of kube-scheduler against its real filters, and against the process that binds pods.

A few dozen clusters; ``make verify-scheduler COUNT=1000`` tries more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver.control_plane import ControlPlane
from tests.scheduler.comparison import compare
from tests.scheduler.random_clusters import RandomCluster, random_cluster
from tests.scheduler.seeds import DISAGREED
from tests.waiting import eventually
from virt_admit.forecasts.placement import candidates
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.scheduler import pods

PLUGINS = {
    "InterPodAffinity",
    "NodeAffinity",
    "NodeResourcesFit",
    "NodeUnschedulable",
    "NodeVolumeLimits",
    "PodTopologySpread",
    "TaintToleration",
    "VolumeBinding",
    "VolumeRestrictions",
    "VolumeZone",
}
STORAGE = {"claims", "exclusive", "attach limits"}
NOT_READY = "node.kubernetes.io/not-ready:NoSchedule-"


def test_the_model_agrees_with_the_filters_of_kube_scheduler(oracle: Path) -> None:
    result = compare(oracle, [*DISAGREED, *range(5000, 5060)])

    assert not result.invalid
    assert not [str(found) for found in result.failures]
    assert result.by_plugin.keys() >= PLUGINS
    assert result.preempted["makes room/makes room"]
    assert result.packed.keys() >= {"fits/fits", "does not fit/does not fit"}


@pytest.mark.parametrize(
    ("seed", "schedulable"),
    [
        (6018, True),
        (6061, False),
        (6085, True),
        (6125, True),
        (6146, True),
        (6174, True),
        (6183, False),
    ],
)
def test_the_process_binds_to_a_candidate(
    control_plane: ControlPlane, seed: int, schedulable: bool
) -> None:
    with created(control_plane, random_cluster(seed)) as pod:
        found = json.loads(
            control_plane.kubectl(
                "get", "--output=json", KINDS, "--all-namespaces", check=True
            ).stdout
        )
        objects = [Object(obj) for obj in found["items"]]
        placement = candidates.scheduler(Snapshot(objects, ["*"])).place(
            next(pods.read(obj) for obj in objects if obj.name == pod)
        )

        with control_plane.scheduler():
            bound_to = eventually(lambda: decision(control_plane, pod))

    assert placement.undetermined == ()
    assert (bound_to != UNSCHEDULABLE) is schedulable
    if bound_to == UNSCHEDULABLE:
        assert placement.candidates == ()
    else:
        assert bound_to in placement.candidates


UNSCHEDULABLE = "Unschedulable"
KINDS = "namespaces,nodes,pods"


def decision(plane: ControlPlane, pod: str) -> str | None:
    """Return the node of a pod, ``Unschedulable``, or None if kube-scheduler has not decided."""
    text = plane.kubectl("get", "pods", "--output=json", "--all-namespaces", check=True).stdout
    found: dict[str, Any] = next(
        each for each in json.loads(text)["items"] if each["metadata"]["name"] == pod
    )
    conditions = found["status"].get("conditions", ())
    refused = any(each.get("reason") == UNSCHEDULABLE for each in conditions)
    return found["spec"].get("nodeName") or (UNSCHEDULABLE if refused else None)


@contextmanager
def created(plane: ControlPlane, cluster: RandomCluster) -> Iterator[str]:
    """Create a cluster and its first pod to place in the API server;
    yield the pod's name and delete all of it.
    """
    assert not cluster.features & STORAGE
    running = [pod for pod in cluster.pods if is_running(pod)]
    new = cluster.place[0]
    for node in cluster.nodes:
        node["status"]["capacity"] = node["status"]["allocatable"]
    for pod in (*running, new):
        pod["spec"].pop("overhead", None)  # demands a RuntimeClass
        del pod["spec"]["priority"], pod["spec"]["preemptionPolicy"]  # demand a PriorityClass
    namespaces, rest = (
        json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        for items in (cluster.namespaces, [*cluster.nodes, *running, new])
    )
    plane.kubectl("apply", "-f", "-", input=namespaces, check=True)
    try:
        plane.kubectl("create", "-f", "-", input=rest, check=True)
        for node in cluster.nodes:  # the API server adds it to each new node
            plane.kubectl("taint", "node", node["metadata"]["name"], NOT_READY, check=True)
        yield new["metadata"]["name"]
    finally:
        plane.kubectl("delete", "-f", "-", "--force", "--grace-period=0", input=rest, check=True)


def is_running(pod: dict[str, Any]) -> bool:
    return "deletionTimestamp" not in pod["metadata"] and pod["status"]["phase"] in (
        "Running",
        "Pending",
    )
