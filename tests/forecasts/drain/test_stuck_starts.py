"""VMs that are being started and get no further: the cause is named,
and waiting is advised only while it helps.
"""

import pytest

from tests import builders
from tests.forecasts.drain.test_target_pods import warning
from tests.forecasts.drain.test_vm_states import row
from tests.forecasts.drain.vm_motion import NOW, ago, cluster, launcher, node, vm, vmi
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.drain.states import stuck_starts
from virt_admit.forecasts.placement.components import node_pods
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object

IMAGE = {"volumes": [{"name": "disk", "containerDisk": {"image": "quay.io/disks/ubuntu:24.04"}}]}
DISK = {"volumes": [{"name": "disk", "dataVolume": {"name": "disk"}}]}
HANDLER = builders.manifest(
    "v1",
    "Pod",
    "virt-handler-x",
    "kubevirt",
    metadata={"labels": {"kubevirt.io": "virt-handler"}},
    spec={"nodeName": "a"},
    status={"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
)


def starting(phase="Scheduled", age=2600, spec=DISK, **fields):
    stamps = [{"phase": phase, "phaseTransitionTimestamp": ago(age)}]
    return vmi(phase=phase, reported=False, spec=spec, phaseTransitionTimestamps=stamps, **fields)


@pytest.mark.parametrize(
    ("found", "late"),
    [
        (starting(), True),
        (starting(age=200), False),  # virt-launcher may still give up
        (starting(phase="Scheduling"), False),
    ],
)
def test_a_guest_that_virt_handler_does_not_report_is_not_waited_for(found, late):
    seen = row(cluster(found, launcher(age=2600), HANDLER))

    assert (
        "virt-handler on a has had its pod for 43 min and reports no guest" in seen.reason
    ) is late
    assert ("kubectl logs virt-handler-x -n kubevirt" in seen.remedy) is late
    assert seen.remedy.startswith("wait until") is not late


def test_a_pod_that_is_not_ready_is_not_handed_over():
    assert "reports no guest" not in row(cluster(starting(), launcher(ready=False), HANDLER)).reason


@pytest.mark.parametrize(
    ("spec", "kubevirt", "server", "named"),
    [
        (IMAGE, "v1.8.3", "v1.36.0", True),
        ({"domain": {"firmware": {"kernelBoot": {"container": {}}}}}, "v1.7.4", "v1.37.1", True),
        (DISK, "v1.8.3", "v1.36.0", False),
        (IMAGE, "v1.8.4", "v1.36.0", False),
        (IMAGE, "v1.8.3", "v1.35.9", False),
        (IMAGE, "v1.8.3", None, False),
    ],
)
def test_a_checksum_that_newer_api_servers_reject_is_named_where_the_releases_do_not_fit(
    spec, kubevirt, server, named
):
    running = builders.kubevirt(status={"observedKubeVirtVersion": kubevirt})
    objects = [
        node("a"),
        node("b"),
        vm(),
        running,
        starting(spec=spec),
        launcher(age=2600),
        HANDLER,
    ]
    seen = row(Snapshot(objects, ["*"], server_version=server, time=NOW))

    assert ("rejects most likely the checksum of its container disk" in seen.reason) is named
    assert ("update KubeVirt to 1.8.4" in seen.remedy) is named


PLUGIN = (
    "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for "
    'sandbox "2abdf": plugin type="multus-shim" name="multus-cni-network" failed (add): CNI '
    'request failed with status 400: Multus: error waiting for pod: pod "virt-launcher-db-1" not '
    "found"
)
MULTUS = builders.manifest(
    "v1",
    "Pod",
    "kube-multus-ds-7",
    "kube-system",
    metadata={
        "ownerReferences": [
            {
                "apiVersion": "apps/v1",
                "kind": "DaemonSet",
                "name": "kube-multus-ds",
                "controller": True,
            }
        ]
    },
    spec={"nodeName": "a"},
)


def without_network(strategy="LiveMigrate", age=10):
    """Return a VMI without a node whose pod gets no network on node a."""
    found = starting(phase="Scheduling", spec={**DISK, "evictionStrategy": strategy}, nodeName=None)
    pod = launcher(phase="Pending", ready=False, age=1600)
    return found, pod, warning(pod, "FailedCreatePodSandBox", PLUGIN, age)


@pytest.mark.parametrize(
    ("objects", "drainable"),
    [
        (without_network(), False),
        (without_network(age=900), None),  # an old event: the pod may start in a moment
        (without_network("None"), None),
    ],
)
def test_a_drain_does_not_end_while_a_pod_that_must_migrate_cannot_start(objects, drainable):
    plan = drain_plan.plan(cluster(*objects, MULTUS), "a").nodes[0]

    assert plan.drainable is drainable
    for blocker in plan.pods.blockers:
        assert blocker.now
        assert (
            "its pod on a has not started for 26 min: Failed to create pod sandbox"
            in blocker.reason
        )
        assert "kubectl logs kube-multus-ds-7 -n kube-system" in blocker.remedy


@pytest.mark.parametrize(
    ("reason", "said", "remedy"),
    [
        (
            "FailedCreatePodSandBox",
            PLUGIN,
            "repair the network plugin multus-shim on a, or restart its pod there",
        ),
        (
            "FailedCreatePodSandBox",
            'plugin type="bridge" failed',
            "kubectl get pods -A -o wide --field-selector=",
        ),
        (
            "FailedAttachVolume",
            'AttachVolume.Attach failed for volume "pv-1" : timed out',
            (
                "see what the controller of driver csi.example logs about it: kubectl describe "
                "persistentvolume pv-1"
            ),
        ),
        (
            "FailedMount",
            'MountVolume.SetUp failed for volume "init" : secret "x" not found',
            "find the webhook that adds it",
        ),
        (
            "FailedAttachVolume",
            'Multi-Attach error for volume "pv-1" Volume is already used',
            "see in the events of the pod",
        ),
    ],
)
def test_the_part_of_the_cluster_that_fails_is_named(reason, said, remedy):
    found, pod, _ = without_network()
    volume = builders.manifest(
        "v1", "PersistentVolume", "pv-1", spec={"csi": {"driver": "csi.example"}}
    )
    seen = stuck_starts.problem(
        found, cluster(found, pod, warning(pod, reason, said), MULTUS, volume)
    )

    assert remedy in seen.remedy


def test_a_mount_without_a_driver_points_to_its_volume() -> None:
    found, pod, _ = without_network()
    volume = builders.manifest("v1", "PersistentVolume", "pv-1", spec={"nfs": {"server": "s"}})
    said = 'MountVolume.SetUp failed for volume "pv-1" : mount.nfs: Connection timed out'
    seen = stuck_starts.problem(
        found, cluster(found, pod, warning(pod, "FailedMount", said), MULTUS, volume)
    )

    assert "correct what the error names, in the storage of the volume or on a" in seen.remedy
    assert seen.remedy.endswith(": kubectl describe persistentvolume pv-1")


def test_a_refused_node_is_cordoned_until_the_server_lets_it_in() -> None:
    found, pod, _ = without_network()
    said = (
        'MountVolume.SetUp failed for volume "pv-1" : mount.nfs: access denied by server while '
        "mounting s:/x"
    )
    claim = [{"name": "d", "persistentVolumeClaim": {"claimName": "other"}}]
    served = builders.manifest(
        "v1",
        "Pod",
        "other",
        "shop",
        spec={"nodeName": "b", "volumes": claim},
        status={"phase": "Running"},
    )
    bound = builders.manifest(
        "v1", "PersistentVolumeClaim", "other", "shop", spec={"volumeName": "pv-2"}
    )
    source = {"nfs": {"server": "s", "path": "/x"}}
    volume = builders.manifest("v1", "PersistentVolume", "pv-2", spec=source)
    given = (found, pod, warning(pod, "FailedMount", said), MULTUS)
    seen = stuck_starts.problem(found, cluster(*given, served, bound, volume))
    alone = stuck_starts.problem(found, cluster(*given))

    assert "NFS server s refuses a, while b has a volume of this export mounted" in seen.reason
    assert "until then cordon a" in seen.remedy
    assert alone.remedy == "on s, export /x to a"


@pytest.mark.parametrize(
    ("plugin", "daemon"),
    [
        ("aws-cni", "aws-node"),
        ("calico", "calico-node"),
        ("multus", "rke2-multus-ds"),
        ("cilium-cni", "cilium"),
    ],
)
def test_the_pod_of_a_plugin_has_the_name_of_its_daemon_set(plugin: str, daemon: str) -> None:
    names = ("aws-ebs-csi-node", "calico-typha", "multus-admission", "cilium-envoy", daemon)
    found = node_pods.of_plugin(plugin, [of_daemon(each) for each in names])
    assert found is not None
    assert node_pods.daemon(found) == daemon
    assert node_pods.of_plugin(plugin, [of_daemon(each) for each in names[:-1]]) is None


def of_daemon(name: str) -> Object:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "controller": True}
    return Object(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-x", "ownerReferences": [owner]},
        }
    )
