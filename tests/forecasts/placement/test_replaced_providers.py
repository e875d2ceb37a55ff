"""Providers of Cluster API that an upgrade has scaled to 0, and those that something else has."""

import pytest

from tests.builders import manifest, node
from tests.work import measured
from virt_admit.forecasts.placement.components.controllers import (
    replaced_providers,
    stopped_workloads,
)
from virt_admit.forecasts.placement.components.controllers.replaced_providers import (
    ReplacementStage,
)
from virt_admit.forecasts.upgrade import rehearsal
from virt_admit.forecasts.upgrade.rehearsal import Options
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.reports.upgrade import text

NOW = "2026-01-10T12:00:00Z"
OLD = "2025-06-01T00:00:00Z"
CAPI = "cluster.x-k8s.io"
NAME = "capmox-controller-manager"


def at(time):
    """Return a time of this day, ``11:59``, or the whole one that is given."""
    return f"2026-01-10T{time}:00Z" if len(time) == 5 else time


def provider(name, space, label, created=OLD, replicas=1):
    metadata = {"labels": {f"{CAPI}/provider": label}, "creationTimestamp": at(created)}
    ready = {"readyReplicas": replicas}
    spec = {"replicas": replicas}
    return manifest(
        "apps/v1", "Deployment", name, space, metadata=metadata, spec=spec, status=ready
    )


def space(name, created=OLD):
    return manifest("v1", "Namespace", name, metadata={"creationTimestamp": at(created)})


def scale_down(name, space, time, said=""):
    """Return the event of a Deployment that was scaled to 0."""
    told = manifest("v1", "Event", "scaled", space)
    told.data |= {
        "involvedObject": {"kind": "Deployment", "namespace": space, "name": name},
        "reason": "ScalingReplicaSet",
        "message": said or DOWN,
        "lastTimestamp": at(time),
    }
    return told


def core(created, since=OLD, label="cluster-api", ended=""):
    """Return the core provider, as it was installed at this time, and scaled to 0 before."""
    name = "capi-controller-manager"
    told = [scale_down(name, "capi", ended)] if ended else []
    return [provider(name, "capi", label, created), space("capi", since), *told]


def stopped(time="", manager="", event=""):
    """Return a provider with 0 replicas, and what shows when it was scaled."""
    found = provider(NAME, "capmox", "infrastructure-proxmox", replicas=0)
    if manager:
        fields = {"f:spec": {"f:replicas": {}}}
        found.data["metadata"]["managedFields"] = [
            {"manager": "clusterctl", "time": OLD, "fieldsV1": {"f:metadata": {}}},
            {"manager": manager, "time": at(time), "fieldsV1": fields},
        ]
    return [found, *([scale_down(NAME, "capmox", time, event)] if event else [])]


DOWN = f"Scaled down replica set {NAME}-7c from 1 to 0"
STEP = {"time": "11:58", "event": DOWN}


def cluster(*groups):
    return Snapshot([each for group in groups for each in group], complete=["*"], time=NOW)


def stage(*groups):
    found = cluster(*groups)
    own = next(each for each in groups[0] if each.name == NAME)
    replaced = replaced_providers.of(own, found)
    return replaced.stage if replaced is not None else None


@pytest.mark.parametrize(
    ("scaled", "others", "expected"),
    [
        (STEP, core("11:59", ended="11:57"), ReplacementStage.RUNS),
        ({"time": "11:58", "manager": "clusterctl"}, core(OLD), ReplacementStage.RUNS),
        ({"time": "11:30", "event": DOWN}, core("11:44", ended="11:30"), ReplacementStage.LEFT),
        ({"time": "11:30", "event": DOWN}, core("11:44"), ReplacementStage.MAY_BE_LEFT),
        (
            {"time": "2026-01-07T12:00:00Z", "manager": "clusterctl"},
            core(OLD),
            ReplacementStage.LEFT,
        ),
        ({}, core("11:59"), ReplacementStage.MAY_RUN),
        (STEP, core("11:59"), ReplacementStage.RUNS),
        ({"time": "11:50", "event": DOWN}, core("11:59"), ReplacementStage.MAY_RUN),
        ({"time": "11:45", "event": DOWN}, core("11:55", ended="11:54"), ReplacementStage.MAY_RUN),
        ({"time": "11:58", "manager": "kubectl"}, core("11:59"), ReplacementStage.BESIDE),
        (
            {"time": "2026-01-07T12:00:00Z", "manager": "kubectl"},
            core("11:59"),
            ReplacementStage.BESIDE,
        ),
        ({"time": "11:20", "event": DOWN}, core("11:59"), ReplacementStage.BESIDE),
        ({"time": "11:58", "manager": "kubectl"}, core(OLD), None),
        ({"time": "2026-01-07T12:00:00Z", "manager": "kubectl"}, core(OLD), None),
        (STEP, core("11:40"), None),
        (STEP, core("11:59", since="11:59"), None),
        (STEP, core("11:59", label="infrastructure-proxmox"), None),
        ({}, core("11:30"), None),
        ({"time": "11:58", "event": DOWN.replace("to 0", "to 1")}, core(OLD), None),
    ],
    ids=[
        *("runs", "first-step", "left", "may-be-left", "left-for-days", "unknown-time"),
        *("at-once", "unknown-writer", "scaled-before-the-other", "by-hand-beside"),
        *("three-days-ago-beside", "long-before", "by-hand", "three-days-ago", "before-it"),
        *("first-installation", "same-provider", "over", "one-less"),
    ],
)
def test_the_stage_of_an_upgrade_that_may_have_scaled_a_provider_to_0(scaled, others, expected):
    assert stage(stopped(**scaled), others) is expected


def test_other_workloads_are_not_of_an_upgrade():
    found = stopped(**STEP)
    found[0].data["metadata"]["labels"] = {}
    assert stage(found, core("11:59")) is None
    assert stage([provider(NAME, "capmox", "infrastructure-proxmox")], core("11:59")) is None


@pytest.mark.parametrize(
    ("scaled", "others", "words", "remedy"),
    [
        (STEP, core("11:59"), None, None),
        ({}, core("11:59"), None, None),
        ({"time": "11:58", "manager": "kubectl"}, core(OLD), "is scaled to 0", "is done, scale"),
        (
            {"time": "11:58", "manager": "kubectl"},
            core("11:59"),
            "is scaled to 0",
            "and clusterctl has ended (",
        ),
        (
            {"time": "11:30", "event": DOWN},
            core("11:44"),
            "a clusterctl upgrade may have done that 30 min ago",
            "clusterctl upgrade plan",
        ),
    ],
)
def test_the_old_version_is_not_started_while_clusterctl_works(scaled, others, words, remedy):
    found = stopped_workloads.of((NAME,), cluster(stopped(**scaled), others))
    assert (found is None) is (words is None)
    assert found is None or (words in found.words and remedy in found.remedy)


def machines():
    """Return two MachineDeployments and the control plane of one Cluster."""
    template = {"infrastructureRef": {"kind": "ProxmoxMachineTemplate", "name": "t"}}
    owner = {"kind": "Cluster", "name": "tl", "controller": True}
    spec = {"clusterName": "tl", "replicas": 1, "template": {"spec": template}}
    api = f"{CAPI}/v1beta1"
    found = [manifest(api, "MachineDeployment", name, "tl", spec=spec) for name in ("md-0", "md-1")]
    for name in ("md-0", "md-1"):
        labels = {f"{CAPI}/deployment-name": name}
        ref = {"nodeRef": {"name": name}}
        found += [manifest(api, "Machine", name, "tl", metadata={"labels": labels}, status=ref)]
    plane = manifest(
        *(f"controlplane.{api}", "KubeadmControlPlane", "cp", "tl"),
        metadata={"ownerReferences": [owner]},
        spec={"machineTemplate": template},
    )
    return [*found, plane, *(node(name, runs_vms=False) for name in ("md-0", "md-1"))]


def rehearsed(*groups):
    return rehearsal.rehearse(cluster(*groups, machines()), Options(), forecast_only=True)


def test_an_upgrade_of_the_providers_is_waited_for():
    found = rehearsed(stopped(**STEP), core("11:59", ended="11:57"))
    assert found.possible
    assert found.before_nodes.startswith(
        "clusterctl has been replacing the controllers of Cluster API for 2 min: Deployment "
        f"capmox/{NAME} is scaled to 0"
    )
    assert "after that" in text.text(found)


@pytest.mark.parametrize("scaled", [{}, {"time": "11:50", "event": DOWN}])
def test_an_upgrade_of_the_providers_that_may_run_leaves_it_open(scaled):
    found = rehearsed(stopped(**scaled), core("11:59"))
    assert found.possible is None
    assert any(f"installs Deployment capmox/{NAME} again" in each for each in found.unseen)


def test_a_provider_without_replicas_is_one_cause_for_all_that_wait_for_it():
    found = rehearsed(stopped(), core(OLD))
    assert [each.reason for each in found.stops] == [
        "MachineDeployments tl/md-0, tl/md-1 and KubeadmControlPlane tl/cp get no new node, as "
        f"Deployment capmox/{NAME} is scaled to 0"
    ]
    assert found.before_nodes == ""


def test_many_providers_are_compared_in_time():
    spaces = [space(f"s{each}") for each in range(4000)]
    made = [provider(NAME, f"s{each}", f"p{each}", OLD, each % 2) for each in range(4000)]
    for each in made[1::2]:
        each.data["metadata"]["creationTimestamp"] = at("11:55")
    down = [scale_down(NAME, f"s{each}", "11:50") for each in range(0, 4000, 2)]
    seen = Snapshot([*spaces, *made, *down], complete=["*"], time=NOW)
    with measured() as work:
        assert len(replaced_providers.awaited(seen)) == 2000
    assert work.seconds < 1
