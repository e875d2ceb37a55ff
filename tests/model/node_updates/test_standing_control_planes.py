"""Control planes whose roll-outs stand: what holds them, which Machine it is about, and when a
Machine may be deleted by hand."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest

from tests.healthy.parts import ago
from virt_admit.forecasts.drain.control import held_operators
from virt_admit.forecasts.drain.control.held_operators import StuckOperator
from virt_admit.model.evidence import complaints
from virt_admit.model.kubernetes.cluster import Snapshot, Unseen
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, DEPLOYMENT, POD, Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.node_updates.operators import standing_control_planes

GROUP = "controlplane.cluster.x-k8s.io/v1alpha3"
ROLLS = {"type": "MachinesSpecUpToDate", "status": "False", "lastTransitionTime": ago(hours=5)}
SCALES = {
    "type": "Ready",
    "status": "False",
    "reason": "ScalingDown",
    "message": "Scaling down",
    "lastTransitionTime": ago(hours=5),
}


def etcd(said: str = "cp-b: expected to have 3 members, got 2", **more: str) -> dict[str, str]:
    return {
        "type": "EtcdClusterHealthyCondition",
        "status": "False",
        "message": said,
        "lastTransitionTime": ago(hours=4),
        **more,
    }


def owner(*conditions: dict[str, str]) -> dict[str, Any]:
    labels = {"cluster.x-k8s.io/cluster-name": "edge"}
    return {
        "apiVersion": GROUP,
        "kind": "TalosControlPlane",
        "metadata": {"name": "cp", "namespace": "team", "labels": labels},
        "spec": {"version": "v1.34.3"},
        "status": {"conditions": list(conditions or (ROLLS, SCALES, etcd()))},
    }


def machine(name: str, age: int, version: str = "v1.33.7", **annotations: str) -> dict[str, Any]:
    of = {"apiVersion": GROUP, "kind": "TalosControlPlane", "name": "cp", "controller": True}
    return {
        "apiVersion": "cluster.x-k8s.io/v1beta1",
        "kind": "Machine",
        "metadata": {
            "name": name,
            "namespace": "team",
            "creationTimestamp": ago(hours=age),
            "annotations": annotations,
            "ownerReferences": [of],
        },
        "spec": {"clusterName": "edge", "version": version},
        "status": {"nodeRef": {"name": name}},
    }


def node(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


def api(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"kube-apiserver-{name}",
            "namespace": "kube-system",
            "labels": {"k8s-app": "kube-apiserver"},
        },
        "spec": {"nodeName": name},
        "status": {"phase": "Running"},
    }


def provider(version: str) -> dict[str, Any]:
    image = f"ghcr.io/siderolabs/cluster-api-control-plane-talos-controller:{version}"
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "cacppt", "namespace": "cacppt-system"},
        "spec": {"template": {"spec": {"containers": [{"name": "manager", "image": image}]}}},
    }


OLD, SECOND, NEW = machine("cp-a", 900), machine("cp-b", 800), machine("cp-c", 5, "v1.34.3")
MACHINES = [OLD, SECOND, NEW]
NODES = [node(name) for name in ("cp-a", "cp-b", "cp-c")]
DELETE = "kubectl delete machines.cluster.x-k8s.io cp-a -n team --wait=false"


def held(*objects: dict[str, Any]) -> list[StuckOperator]:
    cluster = Snapshot(map(Object, objects), ["*"], time=ago())
    found = held_operators.of_cluster(cluster)
    return [each for each in found if each.kind == "TalosControlPlane"]


def test_a_machine_that_left_etcd_is_deleted_once_the_members_show_it() -> None:
    (found,) = held(owner(), *MACHINES, *NODES, api("cp-b"), api("cp-c"), provider("v0.5.12"))
    assert found.holds is True
    assert "roll-out to v1.34.3, which lasts for 5 h: Etcd" in found.reason
    assert "is False for 4 h (cp-b: expected to have 3 members, got 2)" in found.reason
    assert "Of 3 Machines, cp-a, cp-b are outdated" in found.reason
    assert "cp-a has left etcd, but is not being deleted: its node runs no kube-api" in found.reason
    assert "once talosctl etcd members and etcd status show the other 2 as healthy" in found.remedy
    assert DELETE in found.remedy
    assert "to 0.5.13 or later (0.5.12 runs)" in found.remedy


def test_the_only_machine_of_a_control_plane_left_etcd() -> None:
    two = etcd("cp-c: expected to have 2 members, got 1")
    (found,) = held(owner(ROLLS, two), OLD, NEW, *NODES, api("cp-c"))
    assert "unlike that of the other one" in found.reason
    assert "show the other one as a healthy member, and cp-a not, delete that" in found.remedy


def test_the_nodes_of_another_cluster_are_not_known() -> None:
    (found,) = held(owner(), *MACHINES)
    assert found.holds is False
    assert "takes the oldest outdated one, cp-a, out of etcd before" in found.reason
    assert "has left etcd" not in found.reason
    assert "Only if that is cp-a" in found.remedy
    assert "kubectl delete" not in found.remedy
    assert "to 0.5.13 or later, if it is older" in found.remedy


def test_a_release_without_the_fault_is_not_updated() -> None:
    (found,) = held(owner(), *MACHINES, *NODES, api("cp-b"), api("cp-c"), provider("v0.5.13"))
    assert DELETE in found.remedy
    assert "Update" not in found.remedy


LEAVING = machine("cp-a", 900, **{"controlplane.cluster.x-k8s.io/etcd-leaving": "true"})
CERTIFICATE = {
    "type": "CertificatesAvailable",
    "status": "False",
    "message": "no CA",
    "lastTransitionTime": ago(hours=4),
}


@pytest.mark.parametrize(
    ("objects", "says"),
    [
        pytest.param([*MACHINES, *NODES, api("cp-a"), api("cp-b")], "etcd does not run on cp-c"),
        pytest.param([LEAVING, SECOND, NEW, *NODES, api("cp-b"), api("cp-c")], "of Machine cp-b"),
        pytest.param([OLD, SECOND, *NODES, api("cp-b")], "of Machine cp-b", id="other numbers"),
    ],
)
def test_no_machine_is_deleted_that_may_be_a_member(objects: list[Any], says: str) -> None:
    (found,) = held(owner(), *objects)
    assert "delete" not in found.remedy
    assert says in found.remedy


def test_a_machine_that_is_marked_goes_first() -> None:
    marked = machine("cp-b", 800, **{"cluster.x-k8s.io/delete-machine": ""})
    (found,) = held(owner(), OLD, marked, NEW, *NODES, api("cp-a"), api("cp-c"))
    assert "the one that is marked for deletion, cp-b" in found.reason
    assert "kubectl delete machines.cluster.x-k8s.io cp-b" in found.remedy


def test_another_condition_may_hold_a_roll_out() -> None:
    (found,) = held(owner(ROLLS, CERTIFICATE), *MACHINES, *NODES)
    assert "CertificatesAvailable is False for 4 h (no CA)" in found.reason
    assert found.holds is None
    assert "as the roll-out may wait for that: kubectl describe taloscontrol" in found.remedy


def test_the_only_machine_is_never_offered_for_deletion() -> None:
    (found,) = held(owner(ROLLS, etcd("cp-a: expected to have 1 members, got 0")), OLD, *NODES)
    assert "delete" not in found.reason + found.remedy


def test_no_login_or_query_of_an_address_is_quoted() -> None:
    said = etcd('Get "https://root:hunter2@10.0.0.1:6443/x?token=abc": timeout')
    (found,) = held(owner(ROLLS, said), *MACHINES, *NODES)
    assert '(Get "https://10.0.0.1:6443/x": timeout)' in found.reason


PAUSED = {
    "apiVersion": "cluster.x-k8s.io/v1beta1",
    "kind": "Cluster",
    "metadata": {"name": "edge", "namespace": "team"},
    "spec": {"paused": True},
}
GONE, JOINS = machine("cp-a", 900), machine("cp-c", 5, "v1.34.3")
JOINS["status"] = {}
ENDS = owner()
ENDS["metadata"] |= {"deletionTimestamp": ago(hours=3), "finalizers": ["x"]}
JOINED, MADE = machine("cp-c", 4, "v1.34.3"), machine("cp-c", 0, "v1.34.3")
JOINED["status"] |= {"phase": "Running", "lastUpdated": ago(hours=0.1)}
GONE["metadata"] |= {"deletionTimestamp": ago(hours=1), "finalizers": ["x"]}


@pytest.mark.parametrize(
    "objects",
    [
        pytest.param([owner(etcd()), *MACHINES], id="no roll-out"),
        pytest.param([owner(ROLLS, SCALES), *MACHINES], id="it only scales"),
        pytest.param([owner(ROLLS, etcd(severity="Info")), *MACHINES], id="no fault"),
        pytest.param(
            [owner(ROLLS, etcd(lastTransitionTime=ago(hours=0.5))), *MACHINES], id="young"
        ),
        pytest.param([owner(), GONE, SECOND, NEW], id="a Machine is being deleted"),
        pytest.param([owner(), OLD, SECOND, JOINS], id="a Machine has no Node"),
        pytest.param([owner(), OLD, SECOND, JOINED], id="a slow server has just joined"),
        pytest.param([owner(), OLD, SECOND, MADE], id="a Machine has just been made"),
        pytest.param([ENDS, *MACHINES], id="its Cluster is being deleted"),
        pytest.param([owner(), PAUSED, *MACHINES], id="the Cluster is paused"),
        pytest.param([owner()], id="no Machine"),
    ],
)
def test_a_roll_out_that_goes_on_or_waits_for_another_cause(objects: list[Any]) -> None:
    assert not held(*objects, *NODES, api("cp-b"), api("cp-c"))


def test_a_condition_of_etcd_says_why_a_control_plane_scales() -> None:
    there = Snapshot([own := Object(owner())], ["*"], time=ago())
    (found,) = complaints.lasting(own, there)
    assert found.about == "EtcdClusterHealthyCondition is False"
    scaling = Object(owner(SCALES))
    (alone,) = complaints.lasting(scaling, Snapshot([scaling], ["*"], time=ago()))
    assert alone.about == "Ready is False (ScalingDown)"


@pytest.mark.parametrize("more", [{"message": ""}, {"reason": "DrainInProgress"}])
def test_a_condition_that_says_no_cause_hides_no_other(more: dict[str, str]) -> None:
    scaling = Object(owner(SCALES, etcd(**more)))
    (found,) = complaints.lasting(scaling, Snapshot([scaling], ["*"], time=ago()))
    assert found.about == "Ready is False (ScalingDown)"


class _Counted(Snapshot):
    look_ups = 0

    def known(self, kind: Kind, namespace: str | None = None) -> Sequence[Object]:
        self.look_ups += kind in (CAPI_MACHINE, DEPLOYMENT, POD)
        return super().known(kind, namespace)


def test_the_machines_are_gone_through_once_for_all_control_planes() -> None:
    items = [*NODES, *map(api, ("cp-b", "cp-c")), provider("v0.5.12")]
    for number in range(60):
        one, own = owner(), copy.deepcopy(MACHINES)
        one["metadata"]["name"] = f"cp{number}"
        for each in own:
            each["metadata"]["ownerReferences"][0]["name"] = f"cp{number}"
            each["metadata"]["name"] += f"-{number}"
        items += [one, *own]
    cluster = _Counted(map(Object, items), ["*"], time=ago())

    assert len(standing_control_planes.held(cluster)) == 60
    assert cluster.look_ups < 20


@pytest.mark.parametrize("has_machines", [True, False])
def test_machines_that_could_not_be_read_may_be_those_that_are_made(has_machines: bool) -> None:
    objects = [owner(), *(MACHINES if has_machines else ())]
    cluster = Snapshot(map(Object, objects), ["nodes"], time=ago())

    with pytest.raises(Unseen):
        standing_control_planes.of(Object(owner()), cluster)
    assert standing_control_planes.held(cluster) == ()
