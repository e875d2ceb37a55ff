"""Harvester drains no node before its image is there and volumes are healthy; what a degraded
MachineConfigPool says.
"""

import pytest

from tests.builders import manifest, node
from tests.cli.test_upgrade import kubevirt
from tests.forecasts.drain.test_failing_probes import unready
from virt_admit.forecasts.upgrade import rollouts
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.forecasts.upgrade.rollouts import Driver
from virt_admit.model.kubernetes.cluster import Snapshot

HARVESTER = [node(name, {"harvesterhci.io/managed": "true"}) for name in "abc"]


def volume(state="attached", robustness="degraded", scheduled="False"):
    conditions = [{"type": "Scheduled", "status": scheduled, "reason": "ReplicaSchedulingFailure"}]
    status = {"state": state, "robustness": robustness, "conditions": conditions}
    spec = {"numberOfReplicas": 3}
    return manifest(
        "longhorn.io/v1beta2", "Volume", "pvc-1", "longhorn-system", spec=spec, status=status
    )


def obstacle(*objects, driver=Driver.PLAIN):
    cluster = Snapshot(objects, complete=["*"])
    (pool,) = rollouts.pools(driver, cluster, None, ["a", "b", "c"])
    return pool.obstacle


def test_a_volume_that_cannot_be_rebuilt_holds_the_upgrade():
    found = obstacle(*HARVESTER, volume())
    assert "pvc-1 stays degraded: no node takes a further one of its 3 replicas" in found.reason
    assert "kubectl edit" in found.remedy
    assert str(found.problem) == "VolumeDegraded:longhorn-system/pvc-1"


@pytest.mark.parametrize(
    "other",
    [volume(state="detached"), volume(robustness="healthy"), volume(scheduled="True")],
    ids=["detached", "healthy", "rebuilding"],
)
def test_volumes_that_do_not_hold_it(other):
    assert obstacle(*HARVESTER, other) is None


def test_harvester_does_not_wait_on_two_nodes_and_others_never_do():
    assert obstacle(*HARVESTER[:2], volume()) is None
    assert obstacle(*map(node, "abc"), volume()) is None


@pytest.mark.parametrize(
    ("nodes", "asked"), [(HARVESTER, 1), ([*map(node, "abc")], 0)], ids=["harvester", "other"]
)
def test_volumes_that_were_not_read(nodes, asked):
    cluster = Snapshot(nodes, complete=["*"], unreadable=["volumes.longhorn.io"])
    assert len(list(rollouts.unread(cluster, Driver.PLAIN))) == asked


def test_a_degraded_pool_quotes_the_condition_that_names_the_node():
    conditions = [
        {
            "type": "NodeDegraded",
            "status": "True",
            "message": 'Node a is reporting: "content mismatch for file"',
        },
        {"type": "Degraded", "status": "True", "message": ""},
    ]
    spec = {"nodeSelector": {"matchLabels": {"kubevirt.io/schedulable": "true"}}}
    pool = manifest(
        "machineconfiguration.openshift.io/v1",
        "MachineConfigPool",
        "worker",
        spec=spec,
        status={"conditions": conditions},
    )
    workers = [node(name, {"node-role.kubernetes.io/worker": ""}) for name in "abc"]
    found = obstacle(*workers, pool, driver=Driver.MACHINE_CONFIG)
    assert "worker is degraded: Node a is reporting: content mismatch for file" in found.reason


NOW = "2027-03-01T12:00:00Z"


def upgrade(since="2027-03-01T09:06:00Z", image="Unknown", **states):
    conditions = [{"type": "LogReady", "status": "True", "lastUpdateTime": since}]
    conditions += [
        {"type": "ImageReady", "status": image},
        {"type": "Completed", "status": "Unknown"},
    ]
    status = {"conditions": conditions, "imageID": "harvester-system/hvst", "nodeStatuses": states}
    metadata = {
        "labels": {"harvesterhci.io/latestUpgrade": "true"},
        "creationTimestamp": "2027-03-01T09:00:00Z",
    }
    return manifest(
        "harvesterhci.io/v1beta1",
        "Upgrade",
        "hvst",
        "harvester-system",
        metadata=metadata,
        status=status,
    )


def imported(restarts, running="False", phase="ImportInProgress"):
    said = {
        "type": "Running",
        "status": running,
        "reason": "Error",
        "message": "unlinkat: read-only file system",
    }
    status = {"phase": phase, "restartCount": restarts, "conditions": [said]}
    return manifest(
        "cdi.kubevirt.io/v1beta1", "DataVolume", "hvst", "harvester-system", status=status
    )


def upgraded(*objects, **known):
    return rehearse(
        Snapshot([*HARVESTER, kubevirt(), *objects], complete=["*"], time=NOW, **known), Options()
    )


def repo(network=None, ready="False", since="2027-03-01T10:00:00Z"):
    """The VM with the repository, whose probe fails, and the upgrade that waits for it."""
    found = upgrade(image="True")
    conditions = found.data["status"]["conditions"]
    conditions[0] |= {"status": "False", "reason": "Disabled"}
    conditions.append({"type": "RepoReady", "status": "Unknown"})
    return found, unready("upgrade-repo-hvst", "harvester-system", network, ready, since)


def test_a_repository_that_is_not_ready_stops_the_upgrade():
    (stop,) = upgraded(*repo()).stops
    assert (
        "Upgrade hvst waits for 2 h 54 for the VM with its repository, "
        "harvester-system/upgrade-repo-hvst (RepoReady): it runs and is not ready: its readiness "
        "probe (port 80, /release.yaml) has not succeeded for 2 h"
    ) in stop.reason
    assert str(stop.problem) == "UpdateOrderStands:harvester-system/hvst"


def test_a_log_that_is_switched_off_is_not_what_an_upgrade_waits_for():
    result = upgraded(repo()[0])
    assert result.stops == ()
    assert any("its condition RepoReady has not been True for" in each for each in result.unseen)
    assert not any("LogReady" in each for each in result.unseen)


def test_an_image_that_cannot_be_imported_stops_the_upgrade():
    result = upgraded(upgrade(), imported(33))
    (stop,) = result.stops

    assert (result.possible, str(stop.problem)) == (
        False,
        "UpgradeImageFails:harvester-system/hvst",
    )
    assert (
        "Upgrade hvst waits for its image, whose import has failed 33 times: unlinkat: read-only"
        in stop.reason
    )
    assert "kubectl describe datavolume hvst -n harvester-system" in stop.remedy
    assert result.progress.next == ()


def test_the_image_is_too_large_for_what_an_interrupted_attempt_has_left():
    disk = imported(33)
    disk.metadata.map["creationTimestamp"] = "2027-03-01T09:10:00Z"
    disk.at("status", "conditions").value[0]["message"] = (
        "virtual image size 3000000000 is larger than the reported available storage 2000000000. A "
        "larger PVC is required"
    )
    claim = manifest(
        "v1",
        "PersistentVolumeClaim",
        "hvst",
        "harvester-system",
        spec={"volumeName": "pv", "resources": {"requests": {"storage": "4G"}}},
        status={"phase": "Bound", "capacity": {"storage": "4G"}},
    )
    driver = {"csi": {"driver": "driver.longhorn.io"}}
    volume = manifest("v1", "PersistentVolume", "pv", spec=driver)
    (stop,) = upgraded(upgrade(), disk, claim, volume).stops

    assert "whose import has failed 33 times in 2 h 50: " in stop.reason
    assert "although claim hvst has 4000000000: the rest of it is used" in stop.reason
    assert stop.remedy.startswith("Delete Upgrade hvst (its image and claims go with it), give")
    assert stop.remedy.endswith(
        ": kubectl delete upgrades.harvesterhci.io hvst -n harvester-system"
    )


@pytest.mark.parametrize(
    "image", [[], [imported(3)], [imported(33, "True")]], ids=["unknown", "retries", "runs"]
)
def test_an_image_that_takes_long_has_no_known_end(image):
    result = upgraded(upgrade(), *image)

    assert (result.possible, result.stops) == (None, ())
    assert result.unseen == (
        "when Upgrade hvst goes on: its condition ImageReady has not been True for 2 h 54",
    )


@pytest.mark.parametrize(
    "objects",
    [
        [upgrade("2027-03-01T11:30:00Z"), imported(2)],
        [upgrade(image="True"), imported(0, phase="Succeeded")],
        [upgrade(image="True", a={"state": "Pre-draining"})],
    ],
    ids=["downloads", "imported", "nodes"],
)
def test_an_upgrade_that_goes_on_is_not_held(objects):
    assert upgraded(*objects).possible


def test_a_data_volume_that_cannot_be_read_is_not_taken_for_good():
    result = upgraded(upgrade("2027-03-01T11:30:00Z"), unreadable=["datavolumes.cdi.kubevirt.io"])

    assert result.possible is None
    assert "datavolumes" in result.unseen[0]


def test_the_node_that_comes_next_is_updated_first():
    """Not the one with the fewest VMs, which is the guess where nothing tells the order."""
    cluster = Snapshot([*HARVESTER, upgrade(image="True")], complete=["*"])
    begun = rollouts.in_flight(Driver.PLAIN, cluster)
    (pool,) = rollouts.pools(Driver.PLAIN, cluster, None, ["c", "b", "a"], begun)

    assert (begun[0].nodes["a"].phase, pool.nodes) == ("next", ("a", "c", "b"))


# --- Rancher, which updates Kubernetes on the nodes -----------------------------------------------


def services_upgraded(since, **states):
    found = upgrade(image="True", **states)
    found.data["status"]["conditions"] += [
        {"type": kind, "status": "True", "lastUpdateTime": since}
        for kind in ("RepoReady", "NodesPrepared", "SystemServicesUpgraded")
    ]
    return found


def bundle(since, state="WaitApplied", message="WaitApplied(1) [Cluster fleet-local/local]"):
    ready = {"type": "Ready", "status": "False", "lastUpdateTime": since, "message": message}
    status = {"conditions": [ready], "display": {"state": state}}
    return manifest("fleet.cattle.io/v1alpha1", "Bundle", "suc", "fleet-local", status=status)


def rancher(since, namespace="fleet-local"):
    said = {
        "type": "Updated",
        "status": "Unknown",
        "lastUpdateTime": since,
        "message": "waiting for the bundle",
    }
    spec, status = {"kubernetesVersion": "v1.25.9+rke2r1"}, {"conditions": [said]}
    return manifest(
        "provisioning.cattle.io/v1", "Cluster", "local", namespace, spec=spec, status=status
    )


def agent(replicas, ready=0, name="fleet-agent", space="cattle-fleet-local-system"):
    status = {"readyReplicas": ready} if ready else {}
    return manifest(
        "apps/v1", "Deployment", name, space, spec={"replicas": replicas}, status=status
    )


EARLY, JUST, MIDDLE = "2027-03-01T11:10:00Z", "2027-03-01T11:52:00Z", "2027-03-01T11:40:00Z"


def test_a_controller_without_replicas_stops_the_upgrade():
    result = upgraded(services_upgraded(EARLY), rancher(EARLY), bundle(EARLY), agent(0))
    (stop,) = result.stops

    assert (result.possible, str(stop.problem)) == (
        False,
        "UpdateOrderStands:harvester-system/hvst",
    )
    for words in (
        "it has not moved for 50 min",
        "Cluster fleet-local/local is not updated: waiting for the bundle",
        "Bundle fleet-local/suc is WaitApplied for 50 min",
        (
            "Nothing applies it, because Deployment cattle-fleet-local-system/fleet-agent has 0 "
            "replicas"
        ),
    ):
        assert words in stop.reason
    assert stop.remedy.endswith(
        "kubectl scale deployment fleet-agent -n cattle-fleet-local-system --replicas=1"
    )


@pytest.mark.parametrize(
    ("objects", "words"),
    [
        (
            [rancher(EARLY), agent(1, 1)],
            "Cluster fleet-local/local is not updated: waiting for the bundle",
        ),
        (
            [bundle(EARLY), agent(1)],
            "Deployment cattle-fleet-local-system/fleet-agent has no ready pod",
        ),
        (
            [bundle(EARLY, "ErrApplied", "no space left"), agent(1, 1)],
            "suc is ErrApplied for 50 min: no space left",
        ),
        ([rancher(EARLY), agent(0)], "Cluster fleet-local/local is not updated"),
    ],
    ids=["rancher waits", "no ready agent", "error", "nothing to apply"],
)
def test_an_upgrade_that_has_not_moved_for_long_has_no_known_end(objects, words):
    result = upgraded(services_upgraded(EARLY), *objects)

    assert (result.possible, result.stops) == (None, ())
    assert any(
        "whether Upgrade harvester-system/hvst goes on" in each and words in each
        for each in result.unseen
    )


@pytest.mark.parametrize(
    "objects",
    [
        [services_upgraded(JUST), rancher(JUST), bundle(JUST), agent(0)],
        [services_upgraded(MIDDLE), rancher(MIDDLE), bundle(MIDDLE), agent(1, 1)],
        [services_upgraded(EARLY), agent(0)],
        [services_upgraded(EARLY), rancher(EARLY, "fleet-default"), agent(1, 1)],
        [
            services_upgraded(EARLY, a={"state": "Pre-draining"}),
            rancher(EARLY),
            bundle(EARLY),
            agent(1, 1),
        ],
        [rancher(EARLY), bundle(EARLY), agent(0)],
    ],
    ids=[
        "scaled down a moment ago",
        "a few minutes",
        "nothing waits",
        "another cluster",
        "drains",
        "no upgrade",
    ],
)
def test_an_upgrade_that_rancher_does_not_hold(objects):
    assert upgraded(*objects).possible


def test_what_was_so_before_the_upgrade_does_not_hold_it():
    young = services_upgraded(JUST)
    young.data["metadata"]["creationTimestamp"] = "2027-03-01T11:58:00Z"
    rancher_itself = agent(0, name="rancher", space="cattle-system")

    assert upgraded(young, bundle("2027-02-09T11:00:00Z", "NotReady"), rancher_itself).possible


@pytest.mark.parametrize(
    ("charts", "condition"),
    [(JUST, EARLY), (EARLY, JUST)],
    ids=["its charts were just changed", "just scaled down"],
)
def test_a_controller_that_the_upgrade_may_have_scaled_down_is_no_certain_stop(charts, condition):
    off = agent(0)
    off.data["status"] = {
        "conditions": [{"type": "Available", "status": "True", "lastTransitionTime": condition}]
    }
    result = upgraded(services_upgraded(charts), rancher(EARLY), bundle(EARLY), off)

    assert (result.possible, result.stops) == (None, ())
    assert any(
        "Scale it up if the upgrade does not do so by itself" in each for each in result.unseen
    )


def test_services_that_are_upgraded_for_long():
    said = services_upgraded("2027-03-01T10:20:00Z")
    said.data["status"]["conditions"][-1] |= {"status": "Unknown"}
    result = upgraded(said)

    assert result.possible is None
    assert "its condition SystemServicesUpgraded has not been True" in result.unseen[0]


def test_bundles_that_cannot_be_read():
    assert (
        upgraded(services_upgraded(EARLY), unreadable=["bundles.fleet.cattle.io"]).possible is None
    )


LOG = {"harvesterhci.io/upgradeLog": "hvst-log"}


def logger(ready="False", made="2027-03-01T09:06:00Z", labels=LOG):
    said = 'Failed to pull image "fluentd:v1": rpc error: code = Unknown desc = failed to do ' + (
        'request: Head "https://ghcr.io/v2/": dial tcp: i/o timeout'
    )
    waiting = {
        "reason": "ImagePullBackOff",
        "message": f'Back-off pulling image "fluentd:v1": {said}',
    }
    owner = {"kind": "StatefulSet", "name": "fluentd", "controller": True}
    return manifest(
        "v1",
        "Pod",
        "fluentd-0",
        "harvester-system",
        metadata={"labels": labels, "ownerReferences": [owner], "creationTimestamp": made},
        spec={"nodeName": "b", "containers": [{"name": "fluentd"}]},
        status={
            "phase": "Pending",
            "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": made}],
            "containerStatuses": [
                {"name": "fluentd", "image": "fluentd:v1", "state": {"waiting": waiting}}
            ],
        },
    )


def waiting_for_its_log():
    found = upgrade()
    found.at("status", "conditions").value[0]["status"] = "Unknown"
    found["status"].value["upgradeLog"] = "hvst-log"
    return found


def test_the_pods_of_the_log_cannot_pull_their_images():
    owner = {"kind": "Logging", "name": "infra", "controller": True}
    made = manifest(
        "apps/v1",
        "StatefulSet",
        "fluentd",
        "harvester-system",
        metadata={"ownerReferences": [owner]},
    )
    (stop,) = upgraded(waiting_for_its_log(), logger(), made).stops

    assert stop.reason == (
        "Upgrade harvester-system/hvst waits for its log (UpgradeLog hvst-log): pod fluentd-0 is "
        'not ready for 2 h 54: ImagePullBackOff: Back-off pulling image "fluentd:v1": failed to do '
        'request: Head "https://ghcr.io/v2/": dial tcp: i/o timeout'
    )
    assert stop.remedy == (
        "In Logging infra, name images that the nodes have or can pull, or load these onto each "
        "node: kubectl get pods -n harvester-system -l harvesterhci.io/upgradeLog=hvst-log -o wide"
    )


@pytest.mark.parametrize(
    ("order", "pod"),
    [
        (waiting_for_its_log(), logger(ready="True")),
        (waiting_for_its_log(), logger(made="2027-03-01T11:55:00Z")),
        (waiting_for_its_log(), logger(labels={})),
        (upgrade(), logger()),
    ],
    ids=["ready", "new", "another pod", "past its log"],
)
def test_a_log_that_does_not_hold_the_upgrade(order, pod):
    assert upgraded(order, pod).stops == ()
