"""What updates the nodes has no ready pod: no node is updated."""

import pytest

from tests.builders import manifest, node
from virt_admit.forecasts.upgrade import rehearsal, rollouts
from virt_admit.forecasts.upgrade.rehearsal import Options
from virt_admit.forecasts.upgrade.rollouts import Driver
from virt_admit.model.kubernetes.cluster import Snapshot

NOW = "2026-01-01T12:00:00Z"
SPACE = "openshift-machine-config-operator"
CONTROLLER = "machine-config-controller-7c9d"
CAPI = "capi-controller-manager-7c9d"


def pod(owner, kind="ReplicaSet", on="w", ready="False", since="11:00", namespace=SPACE):
    condition = {
        **{"type": "Ready", "status": ready},
        "lastTransitionTime": f"2026-01-01T{since}:00Z",
    }
    owners = [{"kind": kind, "name": owner, "controller": True}]
    return manifest(
        *("v1", "Pod", f"{owner}-{on}", namespace),
        metadata={"ownerReferences": owners},
        spec={"nodeName": on},
        status={"phase": "Running", "conditions": [condition]},
    )


def beside(found, *down):
    """Return the same pod, of whose containers these alone are not ready."""
    boxes = {"kube-rbac-proxy", "machine-config-daemon", *down}
    found.data["status"]["containerStatuses"] = [
        {"name": each, "ready": each not in down} for each in sorted(boxes)
    ]
    return found


def pool():
    labels = {"matchLabels": {"kubernetes.io/os": "linux"}}
    kind = ("machineconfiguration.openshift.io/v1", "MachineConfigPool", "worker")
    configuration = {"configuration": {"name": "rendered-1"}}
    return manifest(*kind, spec={"nodeSelector": labels, **configuration}, status=configuration)


def stops(*objects):
    own = node("w", runs_vms=False)
    own.data["metadata"].setdefault("labels", {})["kubernetes.io/os"] = "linux"
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T01:00:00Z"}
    own.data["status"] = {**own.data.get("status", {}), "conditions": [ready]}
    cluster = Snapshot([*objects, own], complete=["*"], time=NOW)
    found = rehearsal.rehearse(cluster, Options(), forecast_only=True)
    return [stop.reason for stop in found.stops]


def test_without_the_controller_of_the_pools_no_node_is_updated():
    assert stops(pool(), pod(CONTROLLER)) == [
        "no node is updated, as machine-config-controller has no Ready pod (pod "
        f"{CONTROLLER}-w is not ready for 60 min)"
    ]


def test_without_its_daemon_a_node_is_not_updated():
    assert stops(pool(), pod("machine-config-daemon", "DaemonSet")) == [
        "w is not updated, as machine-config-daemon has no Ready pod on w (pod "
        "machine-config-daemon-w is not ready for 60 min)"
    ]


def test_a_daemon_beside_its_helper_is_down():
    daemon = beside(pod("machine-config-daemon", "DaemonSet"), "machine-config-daemon")
    assert len(stops(pool(), daemon)) == 1


@pytest.mark.parametrize(
    "pods",
    [
        [pod(CONTROLLER), pod(CONTROLLER, on="v", ready="True")],
        [pod(CONTROLLER, since="11:58")],
        [pod("machine-config-daemon", "DaemonSet", on="v")],
        [pod(CONTROLLER), pod(CONTROLLER, on="v", namespace="hosted")],
        [pod(CAPI)],
        [beside(pod("machine-config-daemon", "DaemonSet"), "kube-rbac-proxy")],
        [beside(pod(CONTROLLER), "kube-rbac-proxy")],
    ],
    ids=[
        *("another-runs", "young", "other-node", "several-clusters", "other-updater"),
        *("helper-of-a-daemon", "helper"),
    ],
)
def test_an_updater_that_may_work_stops_nothing(pods):
    assert stops(pool(), *pods) == []


def deployment(replicas, namespace=SPACE, name="machine-config-controller"):
    return manifest("apps/v1", "Deployment", name, namespace, spec={"replicas": replicas})


def test_a_controller_that_is_scaled_to_0_updates_no_node():
    assert stops(pool(), deployment(0)) == [
        f"no node is updated, as Deployment {SPACE}/machine-config-controller is scaled to 0"
    ]


@pytest.mark.parametrize(
    "objects",
    [
        [deployment(1)],
        [deployment(0), deployment(1, "hosted")],
        [deployment(0), pod(CONTROLLER, ready="True")],
        [deployment(0, name="capi-controller-manager")],
    ],
    ids=["one", "another", "still-there", "other-updater"],
)
def test_a_controller_that_is_not_scaled_to_0_stops_nothing(objects):
    assert stops(pool(), *objects) == []


@pytest.mark.parametrize(
    ("objects", "unread"),
    [([], ["deployments.apps"]), ([deployment(1)], []), ([pod(CONTROLLER, ready="True")], [])],
)
def test_a_controller_that_may_be_scaled_to_0_unseen_leaves_it_open(objects, unread):
    cluster = Snapshot([pool(), *objects], complete=["*"], unreadable=["deployments.apps"])
    found = rollouts.unread(cluster, Driver.MACHINE_CONFIG)
    assert [each.what for each in found] == unread
