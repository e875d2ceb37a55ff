"""What updates the nodes has no ready pod: no node is updated."""

import pytest

from tests.builders import manifest, node
from virt_admit.forecasts.upgrade import rehearsal, rollouts
from virt_admit.forecasts.upgrade.pools import updater_pods
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


HARVESTER = {"harvesterhci.io/managed": "true"}


def of_harvester(*objects, nodes="abc"):
    own = [node(name, HARVESTER, runs_vms=False) for name in nodes]
    cluster = Snapshot([*own, *objects], complete=["*"], time=NOW)
    found = rehearsal.rehearse(cluster, Options(), forecast_only=True)
    return [stop.reason for stop in found.stops]


def controller(name, **fields):
    return pod(f"{name}-7c9d", on="a", namespace="harvester-system", **fields)


def harvester_upgrade(**conditions):
    said = [{"type": kind, "status": status} for kind, status in conditions.items()]
    metadata = {"labels": {"harvesterhci.io/latestUpgrade": "true"}}
    kind = ("harvesterhci.io/v1beta1", "Upgrade", "hvst", "harvester-system")
    return manifest(*kind, metadata=metadata, status={"conditions": said})


def changes_charts():
    kind = ("management.harvesterhci.io/v1beta1", "UpgradePlan", "hvst")
    return manifest(*kind, status={"currentPhase": "ClusterUpgrading"})


@pytest.mark.parametrize(
    ("name", "nodes"),
    [
        *((each, "abc") for each in ("harvester", "rancher", "fleet-controller")),
        *((each, "a") for each in ("harvester", "system-upgrade-controller")),
    ],
)
def test_an_upgrade_of_harvester_needs_its_controllers(name, nodes):
    assert of_harvester(controller(name), nodes=nodes) == [
        f"no node is updated, as {name} has no Ready pod (pod {name}-7c9d-a is not ready for "
        "60 min)"
    ]


def test_at_the_nodes_it_needs_harvester_and_rancher():
    begun = harvester_upgrade(SystemServicesUpgraded="True")
    found = (
        each
        for each in ("harvester", "rancher", "fleet-controller", "system-upgrade-controller")
        if of_harvester(begun, controller(each))
    )
    assert list(found) == ["harvester", "rancher"]


@pytest.mark.parametrize(
    ("objects", "nodes"),
    [
        ([controller("harvester"), pod("harvester-7c9d", on="b", ready="True")], "abc"),
        ([controller("harvester", since="11:58")], "abc"),
        ([controller("rancher")], "a"),
        ([controller("harvester"), harvester_upgrade(SystemServicesUpgraded="Unknown")], "abc"),
        ([controller("harvester"), changes_charts()], "abc"),
    ],
    ids=["another-runs", "young", "single-node", "charts-change", "charts-of-a-plan"],
)
def test_controllers_that_an_upgrade_of_harvester_does_not_wait_for(objects, nodes):
    assert of_harvester(*objects, nodes=nodes) == []


def test_other_clusters_do_not_need_them():
    assert stops(controller("harvester"), controller("rancher")) == []


TEMPLATES = {
    "bootstrap": {"configRef": {"kind": "KubeadmConfigTemplate", "name": "md"}},
    "infrastructureRef": {"kind": "Metal3MachineTemplate", "name": "md"},
}


def of_machines(*objects):
    labels = {"cluster.x-k8s.io/deployment-name": "md"}
    capi = "cluster.x-k8s.io/v1beta2"
    made = manifest(
        *(capi, "Machine", "m", "fleet"),
        metadata={"labels": labels},
        status={"nodeRef": {"name": "w"}},
    )
    spec = {"replicas": 1, "template": {"spec": TEMPLATES}}
    return stops(made, manifest(capi, "MachineDeployment", "md", "fleet", spec=spec), *objects)


@pytest.mark.parametrize(
    "name",
    [
        "capi-kubeadm-bootstrap-controller-manager",
        "capm3-controller-manager",
        "baremetal-operator-controller-manager",
    ],
)
def test_machines_need_their_providers(name):
    assert of_machines(pod(f"{name}-7c9d")) == [
        f"MachineDeployment fleet/md gets no new node, as {name} has no Ready pod (pod "
        f"{name}-7c9d-w is not ready for 60 min)"
    ]
    assert of_machines(deployment(0, name=name)) == [
        f"MachineDeployment fleet/md gets no new node, as Deployment {SPACE}/{name} is scaled to 0"
    ]


@pytest.mark.parametrize(
    "objects",
    [
        [pod("capv-controller-manager-7c9d")],
        [pod("capi-kubeadm-control-plane-controller-manager-7c9d")],
        [pod("capm3-controller-manager-7c9d", ready="True")],
        [pod("capm3-controller-manager-7c9d", since="11:58")],
    ],
    ids=["another-provider", "control-plane", "ready", "young"],
)
def test_machines_that_their_providers_make(objects):
    assert of_machines(*objects) == []


def release_doubts(*objects):
    cluster = Snapshot([*objects, node("w", runs_vms=False)], complete=["*"], time=NOW)
    return updater_pods.doubt(cluster)


@pytest.mark.parametrize("name", ["cluster-version-operator", "machine-config-operator"])
def test_another_release_needs_its_operators(name):
    assert release_doubts(pool(), pod(f"{name}-7c9d")) == (
        "whether another release reaches the nodes (a changed MachineConfig does), as "
        f"{name} has no Ready pod (pod {name}-7c9d-w is not ready for 60 min). Repair pod "
        f"{name}-7c9d-w: kubectl describe pod {name}-7c9d-w -n {SPACE}"
    )


def test_a_roll_out_goes_on_without_them():
    going = pool()
    going.data["spec"]["configuration"]["name"] = "rendered-2"
    going.data["status"]["conditions"] = [{"type": "Updating", "status": "True"}]
    own = node("w", {"kubernetes.io/os": "linux"}, runs_vms=False)
    own.data["metadata"]["annotations"] = {
        "machineconfiguration.openshift.io/currentConfig": "rendered-1",
        "machineconfiguration.openshift.io/desiredConfig": "rendered-1",
    }
    down = pod("cluster-version-operator-7c9d")
    cluster = Snapshot([going, own, down], complete=["*"], time=NOW)
    assert updater_pods.doubt(cluster) == ""
    assert release_doubts(pool(), pod("cluster-version-operator-7c9d", ready="True")) == ""
