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
from tests.apiserver.kubectl_requests import KubectlRequests
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
    api = KubectlRequests(control_plane)
    with created(api, random_cluster(seed)) as pod:
        found = json.loads(
            control_plane.kubectl(
                "get", "--output=json", KINDS, "--all-namespaces", check=True
            ).stdout
        )
        objects = [Object(obj) for obj in found["items"]]
        placement = candidates.scheduler(Snapshot(objects, ["*"])).place(
            next(pods.read(obj) for obj in objects if obj.name == pod["metadata"]["name"])
        )

        with control_plane.scheduler():
            bound_to = eventually(lambda: decision(api, pod))

    assert placement.undetermined == ()
    assert (bound_to != UNSCHEDULABLE) is schedulable
    if bound_to == UNSCHEDULABLE:
        assert placement.candidates == ()
    else:
        assert bound_to in placement.candidates


UNSCHEDULABLE = "Unschedulable"
KINDS = "namespaces,nodes,pods"


def decision(api: KubectlRequests, pod: dict[str, Any]) -> str | None:
    """Return the node of a pod, ``Unschedulable``, or None if kube-scheduler has not decided."""
    found = api.get(pod)
    assert found is not None
    conditions = found["status"].get("conditions", ())
    refused = any(each.get("reason") == UNSCHEDULABLE for each in conditions)
    return found["spec"].get("nodeName") or (UNSCHEDULABLE if refused else None)


@contextmanager
def created(api: KubectlRequests, cluster: RandomCluster) -> Iterator[dict[str, Any]]:
    """Create a cluster and its first pod to place in the API server;
    yield the pod and delete all of it.
    """
    assert not cluster.features & STORAGE
    running = [pod for pod in cluster.pods if is_running(pod)]
    new = cluster.place[0]
    for node in cluster.nodes:
        node["status"]["capacity"] = node["status"]["allocatable"]
    for pod in (*running, new):
        pod["spec"].pop("overhead", None)  # demands a RuntimeClass
        del pod["spec"]["priority"], pod["spec"]["preemptionPolicy"]  # demand a PriorityClass
    for namespace in cluster.namespaces:  # an earlier cluster may have left it
        assert api.send("create", namespace)[0] or api.send("replace", namespace)[0]
    objects = [*cluster.nodes, *running, new]
    try:
        for obj in objects:
            done, said = api.send("create", obj, fieldValidation="Strict")
            assert done, said
        for node in cluster.nodes:  # the API server adds a taint to each new node
            taints = {"spec": {"taints": node["spec"].get("taints")}}
            done, said = api.send("patch", node, change=taints)
            assert done, said
        yield new
    finally:
        for obj in objects:
            api.send("delete", obj, gracePeriodSeconds="0")


def is_running(pod: dict[str, Any]) -> bool:
    return "deletionTimestamp" not in pod["metadata"] and pod["status"]["phase"] in (
        "Running",
        "Pending",
    )
