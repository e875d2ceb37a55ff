"""A node at which an upgrade stands: since when, what its objects say, and how it goes on."""

import pytest

from tests.builders import kubevirt, manifest
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.placement.components import longhorn_starts
from virt_admit.forecasts.upgrade import pool_obstacles
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.node_updates.operators import cordons
from virt_admit.reports.drain import surroundings

NOW = "2027-03-01T12:00:00Z"
SYSTEM = "harvester-system"


def node(name, version="v1.29.9", created="2025-01-01T00:00:00Z", cordoned=""):
    taint = {"key": "node.kubernetes.io/unschedulable", "timeAdded": cordoned}
    spec = {"unschedulable": True, "taints": [taint]} if cordoned else {}
    status = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "nodeInfo": {"kubeletVersion": version},
    }
    labels = {"kubevirt.io/schedulable": "true"}
    metadata = {"labels": labels, "creationTimestamp": created}
    return manifest("v1", "Node", name, metadata=metadata, spec=spec, status=status)


def upgrade(state, **states):
    done = ("LogReady", "ImageReady", "RepoReady", "NodesPrepared", "SystemServicesUpgraded")
    conditions = [{"type": each, "status": "True"} for each in done]
    nodes = {"a": {"state": state}, "b": {"state": "Images preloaded"}}
    nodes |= {name: {"state": each} for name, each in states.items()}
    status = {"conditions": conditions, "nodeStatuses": nodes}
    metadata = {
        "labels": {"harvesterhci.io/latestUpgrade": "true"},
        "creationTimestamp": "2027-03-01T06:00:00Z",
    }
    of = "harvesterhci.io/v1beta1"
    return manifest(of, "Upgrade", "hvst", SYSTEM, metadata=metadata, status=status)


def machine(words, since="2027-03-01T09:00:00Z", status="Unknown"):
    condition = {
        "type": "Reconciled",
        "status": status,
        "reason": "Waiting",
        "message": words,
        "lastTransitionTime": since,
    }
    state = {"nodeRef": {"name": "a"}, "conditions": [condition]}
    return manifest("cluster.x-k8s.io/v1beta1", "Machine", "m", "fleet-local", status=state)


def rancher(words, since="2027-03-01T09:00:00Z"):
    words = f"configuring bootstrap node(s) m: {words}"
    updated = {"type": "Updated", "status": "Unknown", "message": words, "lastUpdateTime": since}
    status = {"conditions": [updated]}
    return manifest("provisioning.cattle.io/v1", "Cluster", "local", "fleet-local", status=status)


def pod(name, namespace, ready="True", labels=None, **waiting):
    status = {
        "phase": "Running" if ready == "True" else "Pending",
        "conditions": [
            {"type": "Ready", "status": ready, "lastTransitionTime": "2027-03-01T10:00:00Z"}
        ],
        "containerStatuses": [{"name": "c", "state": {"waiting": waiting}}] if waiting else [],
    }
    spec, metadata = {"nodeName": "a", "containers": [{"name": "c"}]}, {"labels": labels or {}}
    return manifest("v1", "Pod", name, namespace, metadata=metadata, spec=spec, status=status)


def job(kind="post-drain", start="2027-03-01T10:00:00Z", **status):
    labels = {"harvesterhci.io/upgrade": "hvst", "harvesterhci.io/node": "a"}
    status = {"startTime": start, **(status or {"active": 1})}
    metadata = {"labels": labels}
    return manifest("batch/v1", "Job", f"hvst-{kind}-a", SYSTEM, metadata=metadata, status=status)


def repository(available="False", since="2027-03-01T10:00:00Z"):
    status = {
        "readyReplicas": 1,
        "conditions": [{"type": "Available", "status": available, "lastTransitionTime": since}],
    }
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "repo"}}}
    return manifest("apps/v1", "Deployment", "upgrade-repo-hvst", SYSTEM, spec=spec, status=status)


def run(*objects, a=None, b=None):
    nodes = [a or node("a", cordoned="2027-03-01T06:30:00Z"), b or node("b", "v1.28.1")]
    cluster = Snapshot([*nodes, kubevirt(), *objects], complete=["*"], time=NOW)
    return rehearse(cluster, Options()), pool_obstacles.standing_orders(cluster)


PROBES = "waiting for probes: kube-controller-manager, kube-scheduler"
RUNNING = [pod(f"{each}-a", "kube-system") for each in PROBES[20:].split(", ")]


def test_probes_that_never_pass_stop_the_upgrade():
    result, (order,) = run(upgrade("Pre-drained"), machine(PROBES), rancher(PROBES), *RUNNING)
    (stop,) = result.stops

    assert (result.possible, stop.node, result.waves) == (False, "a", ())
    assert stop.reason.startswith(
        "Upgrade harvester-system/hvst stands at a (Pre-drained, for 5 h 30): Rancher (Cluster "
        "fleet-local/local, Machine m) has waited for 3 h for probes of a: kube-controller-manager"
    )
    assert "certificates, which last a year, have expired" in stop.reason
    assert "/var/lib/rancher/rke2/server/tls/kube-controller-manager/" in stop.remedy
    assert order.node == "a"
    assert result.progress.in_flight[0].phase == "updating"  # its kubelet has the new release


@pytest.mark.parametrize(
    ("since", "stands"), [("2027-03-01T09:00:00Z", True), ("2027-03-01T11:50:00Z", False)]
)
def test_probes_that_never_pass_stop_it_before_its_nodes(since, stands):
    order = upgrade("Images preloaded")
    services = order.at("status", "conditions").value[-1]
    services |= {"status": "Unknown", "lastUpdateTime": "2027-03-01T07:00:00Z"}
    a, said = node("a"), (machine(PROBES), rancher(PROBES, since))
    result, orders = run(order, *said, *RUNNING, a=a)

    assert result.possible is (False if stands else None)
    assert [each.node for each in orders if each.certain] == ["a"] * stands
    for each in orders if stands else ():
        assert "waits at a before it begins with the nodes: Rancher (Cluster" in each.reason
        assert "its condition" not in " ".join(result.unseen)


def test_the_time_is_that_of_the_last_words():
    said = rancher(PROBES, "2027-03-01T11:50:00Z")
    result, orders = run(upgrade("Pre-drained"), machine(PROBES), said, job(), *RUNNING)

    assert not [each for each in orders if each.certain]
    assert result.possible is None  # for two hours, of which those words are ten minutes


def test_a_young_node_has_valid_certificates():
    a = node("a", created="2027-01-01T00:00:00Z", cordoned="2027-03-01T06:30:00Z")
    said = machine(PROBES), rancher(PROBES)
    _, (order,) = run(upgrade("Pre-drained"), *said, *RUNNING, a=a)

    assert order.certain
    assert "expired" not in order.reason


def test_a_pod_behind_a_probe_is_the_cause():
    broken = pod("etcd-a", "kube-system", "False", reason="CrashLoopBackOff")
    said = machine(""), rancher("waiting for probes: etcd")
    _, (order,) = run(upgrade("Pre-drained"), *said, broken)

    assert "pod etcd-a is not ready for 2 h: CrashLoopBackOff" in order.reason.replace("Pod", "pod")
    assert "etcd-a" in order.remedy


def test_another_probe_is_asked_on_its_node():
    _, (order,) = run(upgrade("Pre-drained"), machine(""), rancher("waiting for probes: kubelet"))

    assert order.certain
    assert "journalctl -u rancher-system-agent" in order.remedy


def test_a_job_waits_for_the_files_of_the_release():
    labels = {"app": "repo"}
    pods = [
        pod("r-1", SYSTEM, labels=labels),
        pod("r-2", SYSTEM, "False", labels, reason="ErrImagePull"),
    ]
    result, (order,) = run(upgrade("Post-draining"), job(), repository(), *pods)

    assert result.possible is False
    assert order.reason == (
        "Upgrade harvester-system/hvst stands at a (Post-draining, for 2 h): its Job "
        "hvst-post-drain-a waits for Deployment harvester-system/upgrade-repo-hvst (1 of 2 "
        "ready): pod r-2 on a is not ready for 2 h: ErrImagePull"
    )


def test_a_mount_that_fails_is_told_with_its_cause():
    labels = {"app": "repo"}
    waits = pod("r-2", SYSTEM, "False", labels, reason="ContainerCreating")
    said = 'MountVolume.SetUp failed for volume "tls" : secret "repo-tls" not found'
    event = manifest(
        "v1",
        "Event",
        "r-2.1",
        SYSTEM,
        type="Warning",
        reason="FailedMount",
        message=said,
        lastTimestamp="2027-03-01T11:58:00Z",
        involvedObject={"kind": "Pod", "name": "r-2", "namespace": SYSTEM},
    )
    _, (order,) = run(upgrade("Post-draining"), job(), repository(), waits, event)

    assert "Secret harvester-system/repo-tls of volume tls does not exist" in order.reason
    assert "repo-tls" in order.remedy


@pytest.mark.parametrize(("state", "waits"), [("Stopped", True), ("Running", False)])
def test_a_job_may_wait_for_the_vm_of_an_older_release(state, waits):
    status = {"printableStatus": state}
    own = manifest("kubevirt.io/v1", "VirtualMachine", "upgrade-repo-hvst", SYSTEM, status=status)
    _, (order,) = run(upgrade("Post-draining"), job(), own)

    assert not order.certain
    assert ("may wait for VM harvester-system/upgrade-repo-hvst" in order.reason) is waits


def _longhorn(kind, name, spec, **status):
    return manifest("longhorn.io/v1beta2", kind, name, "longhorn-system", spec=spec, status=status)


def _repository_on(node_name, manager="stopped"):
    """Return the VM with the files, whose disk has one replica, on this node."""
    volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": "upgrade-repo-hvst-disk-0"}}]
    spec = {"template": {"spec": {"domain": {}, "volumes": volumes}}}
    status, name = {"printableStatus": "Starting"}, "upgrade-repo-hvst"
    csi = {"driver": "driver.longhorn.io", "volumeHandle": "v1"}
    used = {"kubernetesStatus": {"namespace": SYSTEM, "pvcName": "upgrade-repo-hvst-disk-0"}}
    data = {"volumeName": "v1", "nodeID": node_name, "healthyAt": NOW}
    default = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    return (
        manifest("kubevirt.io/v1", "VirtualMachine", name, SYSTEM, spec=spec, status=status),
        manifest(
            "v1", "PersistentVolumeClaim", f"{name}-disk-0", SYSTEM, spec={"volumeName": "pv"}
        ),
        manifest("v1", "PersistentVolume", "pv", spec={"csi": csi}),
        _longhorn("Volume", "v1", {"numberOfReplicas": 1}, state="attaching", **used),
        _longhorn("Replica", "v1-r-1", data, currentState="stopped"),
        _longhorn("InstanceManager", "im", {"nodeID": node_name}, currentState=manager),
        manifest(
            "storage.k8s.io/v1",
            "StorageClass",
            "simple",
            metadata=default,
            parameters={"numberOfReplicas": "1"},
        ),
    )


def test_the_only_replica_of_the_files_is_on_the_drained_node():
    result, (order,) = run(upgrade("Post-draining"), job(), *_repository_on("a"))

    assert result.possible is False
    assert "its only replica (…-r-1, numberOfReplicas 1) is on a, where" in order.reason
    assert order.remedy.startswith("Uncordon a until that VM runs, then cordon it again")
    assert order.remedy.endswith("simple has numberOfReplicas 1")


@pytest.mark.parametrize(
    ("objects", "keep", "says"),
    [
        (_repository_on("a"), False, "Uncordon a until that VM runs"),
        ([job(), repository(), pod("r-2", SYSTEM, "False", {"app": "repo"})], True, "It stands at"),
        ([], True, ""),
    ],
    ids=["its only replica is there", "another cause", "no cause"],
)
def test_a_drain_says_of_the_cordon_what_the_upgrade_says(objects, keep, says):
    found = [node("a", cordoned="2027-03-01T06:30:00Z"), kubevirt(), upgrade("Post-draining")]
    cluster = Snapshot([*found, job(), *objects], complete=["*"], time=NOW)
    (drained,) = surroundings.with_reported(drain_plan.plan(cluster, "a"), cluster).nodes
    (note,) = (each for each in drained.notes if "cordoned by Upgrade hvst" in each)

    assert (cordons.KEEP in note) is keep
    assert says in note


@pytest.mark.parametrize(("name", "waits"), [("hvst", True), ("other", False)])
def test_the_volume_of_the_files_waits_for_no_end_of_the_upgrade(name, waits):
    order = upgrade("Post-draining")
    order.data["metadata"]["name"] = name
    there = [node("a", cordoned="2027-03-01T06:30:00Z"), order, *_repository_on("a")]
    held = longhorn_starts.stranded("pv", Snapshot(there, complete=["*"], time=NOW)).held

    assert ("and cordon it again once VM harvester-system/upgrade" in held.remedy) is waits
    assert ("once what it was cordoned for has ended" in held.remedy) is not waits


@pytest.mark.parametrize(
    "objects",
    [
        pytest.param(_repository_on("b"), id="it is on another node"),
        pytest.param(_repository_on("a", "running"), id="its instance manager runs"),
    ],
)
def test_the_files_do_not_wait_for_the_drained_node(objects):
    _, (order,) = run(upgrade("Post-draining"), job(), *objects)

    assert not order.certain
    assert "replica" not in order.reason


@pytest.mark.parametrize(
    ("objects", "says"),
    [
        ([job(), repository("True")], "its Job hvst-post-drain-a has not ended"),
        (
            [machine("waiting for plan to be applied")],
            "Rancher (Machine fleet-local/m) says waiting",
        ),
        ([], "nothing that is known of it has moved since"),
    ],
    ids=["job", "planner", "nothing"],
)
def test_a_step_that_lasts_for_hours_is_no_yes(objects, says):
    result, (order,) = run(upgrade("Post-draining"), *objects)

    assert (result.possible, order.certain) == (None, False)
    assert any(says in each for each in result.unseen)


@pytest.mark.parametrize(
    "objects",
    [
        [job(start="2027-03-01T11:20:00Z"), repository("True")],
        [job(start="2027-03-01T11:50:00Z"), repository("False", "2027-03-01T11:45:00Z")],
        [job(start="2027-03-01T11:20:00Z"), machine(PROBES, status="True")],
        [
            job(start="2027-03-01T11:20:00Z"),
            machine(PROBES),
            rancher(PROBES, "2027-03-01T11:40:00Z"),
        ],
        # it is not reconciled for hours, of which the last words may be seconds
        [job(start="2027-03-01T11:20:00Z"), machine(PROBES)],
    ],
    ids=["runs", "waits a moment", "reconciled", "probes a moment", "since when"],
)
def test_a_young_step_goes_on(objects):
    result, orders = run(upgrade("Post-draining"), *objects)

    assert (orders, result.possible) == ((), True)


def test_a_node_with_the_old_kubelet_is_still_drained():
    a = node("a", "v1.28.1", cordoned="2027-03-01T11:30:00Z")
    result, _ = run(upgrade("Pre-drained"), a=a)

    assert result.progress.in_flight[0].phase == "draining"


# --- the nodes of other updaters ------------------------------------------------------------------


def plan(since):
    status = {"latestHash": "new", "latestVersion": "v2", "applying": ["a"]}
    spec = {"nodeSelector": {"matchLabels": {"kubevirt.io/schedulable": "true"}}}
    own = manifest("upgrade.cattle.io/v1", "Plan", "os", "suc", spec=spec, status=status)
    labels = {"upgrade.cattle.io/plan": "os", "upgrade.cattle.io/node": "a"}
    step = {"name": "drain", "state": {"running": {"startedAt": since}}}
    states = {"phase": "Pending", "initContainerStatuses": [step]}
    metadata = {"labels": labels, "creationTimestamp": since}
    job = manifest("v1", "Pod", "j", "suc", metadata=metadata, spec={}, status=states)
    return own, job


def hosted(name, **fields):
    found = node(name, **fields)
    found.data["metadata"]["labels"]["kubernetes.io/hostname"] = name
    return found


@pytest.mark.parametrize(
    ("since", "possible"), [("2027-03-01T09:00:00Z", None), ("2027-03-01T11:30:00Z", True)]
)
def test_a_drain_without_anything_left_has_no_known_end_after_hours(since, possible):
    a = hosted("a", cordoned=since)
    result, _ = run(*plan(since), a=a, b=hosted("b"))

    assert result.possible is possible
    expected = (
        "when Plan os goes on with a: it has been draining for 3 h, and 10 min were expected",
    )
    assert result.unseen == (() if possible else expected)


@pytest.mark.parametrize("of", ["another", "os"])
def test_the_name_of_a_node_in_words_about_another_plan(of):
    """Only what is said of the Plan that updates the node tells why it stands."""
    since = "2027-03-01T09:00:00Z"
    own, job = plan(since)
    labels = {"upgrade.cattle.io/plan": of, "upgrade.cattle.io/node": "a"}
    image = {"reason": "ImagePullBackOff", "message": "a file is missing"}
    other = manifest("upgrade.cattle.io/v1", "Plan", "another", "suc", spec={}, status={})
    held = pod("image", "suc", "False", labels, **image)
    held.data["metadata"]["creationTimestamp"] = since
    result, _ = run(own, job, other, held, a=hosted("a", cordoned=since), b=hosted("b"))

    assert any(f"Plan suc/{of} waits: its pod image" in each for each in result.unseen)
    told = [each for each in result.unseen if "goes on with a" in each]
    assert bool(told) is (of == "another")


@pytest.mark.parametrize("complete", [["*"], ["nodes", "pods", "virtualmachineinstances"]])
def test_a_node_that_is_late_stops_an_upgrade_of_which_not_all_is_known(complete):
    """No other object changes that."""
    pool = {"nodeSelector": {"matchLabels": {"kubevirt.io/schedulable": "true"}}}
    status = {"configuration": {"name": "new"}}
    api = "machineconfiguration.openshift.io/v1"
    own = manifest(api, "MachineConfigPool", "worker", spec=pool, status=status)
    current = "machineconfiguration.openshift.io"
    a = node("a", cordoned="2027-03-01T09:00:00Z")
    marks = {"currentConfig": "old", "desiredConfig": "new", "state": "Working"}
    a.data["metadata"]["annotations"] = {f"{current}/{key}": each for key, each in marks.items()}
    unknown = {"type": "Ready", "status": "Unknown", "lastTransitionTime": "2027-03-01T09:00:00Z"}
    a.data["status"]["conditions"] = [unknown]
    cluster = Snapshot([a, node("b"), kubevirt(), own], complete, time=NOW)
    result = rehearse(cluster, Options())

    assert ([stop.node for stop in result.stops], result.possible) == (["a"], False)
    assert bool(result.unseen) is (complete != ["*"])


def test_a_node_that_has_begun_is_in_a_wave_of_its_own():
    since = "2027-03-01T11:50:00Z"
    young = job(start=since)
    result, _ = run(upgrade("Post-draining"), young, a=node("a", cordoned=since))

    assert [wave.nodes for wave in result.waves] == [("a",), ("b",)]
