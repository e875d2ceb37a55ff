"""The source pod of a migration that has succeeded and that its kubelet cannot kill:
the guest is not there.
"""

import pytest

from tests.advice import risky
from tests.builders import NAMESPACE, manifest
from tests.forecasts.drain import test_longhorn_migrations as longhorn
from tests.forecasts.drain.test_target_pods import BLOCKS, warning
from tests.forecasts.drain.test_vm_states import row
from tests.forecasts.drain.vm_motion import ago, cluster, launcher, migration, vm, vmi
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.drain.states import dying_pods, stuck_starts
from virt_admit.model.kubernetes.kinds import NODE, POD, VMI

KILL = (
    'error killing pod: [failed to "KillContainer" for "compute" with KillContainerError: "rpc '
    'error: code = DeadlineExceeded desc = context deadline exceeded", failed to "KillPodSandbox" '
    'for "uid" with KillPodSandboxError: "rpc error: code = DeadlineExceeded desc = failed to stop '
    'container"]'
)
CLAIM = manifest("v1", "PersistentVolumeClaim", "disk", NAMESPACE, spec={"volumeName": "pv-disk"})
CSI = {"driver": "driver.longhorn.io", "volumeHandle": "v1"}
VOLUME = manifest("v1", "PersistentVolume", "pv-disk", spec={"csi": CSI})
DONE = migration(phase="Succeeded", age=8000)


def old_pod(on="a", late=3600):
    found = launcher(
        on=on,
        suffix="0",
        metadata={"deletionTimestamp": ago(late), "deletionGracePeriodSeconds": 60},
    )
    found.data["spec"]["volumes"] = [
        {"name": "root", "persistentVolumeClaim": {"claimName": "disk"}}
    ]
    return found


def migrating(source="a", target="b"):
    (volume, *_) = longhorn.volume(source, target)
    volume.data["spec"] |= {"migrationNodeID": target}
    return volume


def world(*objects, pod=None, both=("a", "b"), **state):
    pod = pod or old_pod()
    attachments = [longhorn.attached(on) for on in both]
    return cluster(*longhorn.guest(**state), DONE, pod, CLAIM, VOLUME, *attachments, *objects)


def test_the_kubelet_cannot_kill_it_and_the_volume_stays_attached_to_both_nodes():
    pod = old_pod()
    snapshot = world(migrating(), warning(pod, "FailedKillPod", KILL), pod=pod)
    (found,) = drain_plan.plan(snapshot, "a").nodes
    (blocker,) = found.pods.blockers
    (left,) = found.visitors

    assert (found.drainable, left.outcome) == (False, BLOCKS)
    assert blocker.reason == (
        "it should have ended 60 min ago, but the kubelet of a cannot kill it (FailedKillPod: "
        "DeadlineExceeded: context deadline exceeded); its guest runs on b, as its migration has "
        "succeeded. Volume pv-disk is still attached to a and b, and Longhorn has not ended its "
        "migration to b"
    )
    assert blocker.remedy.startswith(
        "Restart the container runtime of a, or reboot a once its VMs have left; delete "
        "VolumeAttachment csi-a of a only if"
    )
    assert "second guest" not in left.reason
    assert "cannot kill it (FailedKillPod" in left.reason
    assert not risky(f"{blocker.reason}. {blocker.remedy}. {left.reason}. {left.remedy}")


NO_NETWORK = (
    'error killing pod: failed to "KillPodSandbox" for "uid" with KillPodSandboxError: "rpc error: '
    'code = Unknown desc = failed to destroy network for sandbox \\"1f\\": plugin type=\\"{}\\" '
    'failed (delete): {}"'
)
AGENT = manifest("v1", "Pod", "calico-node-1", "kube-system", spec={"nodeName": "a"})
OWNER = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "calico-node", "controller": True}
AGENT.data["metadata"] |= {"labels": {"k8s-app": "calico-node"}, "ownerReferences": [OWNER]}


@pytest.mark.parametrize(
    ("plugin", "error", "remedy"),
    [
        (
            "calico",
            "connection is unauthorized: Unauthorized",
            "restart pod kube-system/calico-node-1, which then gives",
        ),
        (
            "calico",
            "connection refused",
            "repair the network plugin calico on a, or restart its pod there",
        ),
        ("cilium-cni", "connection refused", "repair the network plugin cilium-cni on a"),
    ],
)
def test_a_network_plugin_that_keeps_a_pod_from_its_end_is_repaired_not_the_runtime(
    plugin, error, remedy
):
    pod = old_pod()
    snapshot = world(
        AGENT, warning(pod, "FailedKillPod", NO_NETWORK.format(plugin, error)), pod=pod
    )
    found = dying_pods.of_pod(pod, snapshot)

    assert found.remedy.startswith(remedy)
    assert ": kubectl " in found.remedy
    assert found.remedy.endswith(
        "; delete VolumeAttachment csi-a of a only if it is still there 10 min after that pod is "
        "gone"
    )
    assert "runtime" not in found.remedy
    assert "reboot" not in found.remedy


@pytest.mark.parametrize(
    ("objects", "both", "absent"),
    [
        ([], ("a", "b"), "Longhorn"),
        ([migrating(target="")], ("a", "b"), "Longhorn"),
        ([migrating()], ("b",), "attached"),
        ([migrating()], ("a",), "attached"),
    ],
    ids=["no Longhorn", "the migration has ended", "it is detached", "it is not there yet"],
)
def test_what_is_not_seen_of_the_volume_is_not_said(objects, both, absent):
    found = dying_pods.of_pod(old_pod(), world(*objects, both=both))

    assert found.why == "the kubelet has not reported its end"
    assert found.keeps.startswith("; its guest runs on b")
    assert absent not in found.keeps


@pytest.mark.parametrize(("ended", "is_left"), [(0, False), (300, False), (900, True)])
def test_kubernetes_has_the_time_to_detach_after_the_old_pod_has_ended(ended, is_left):
    state = {"terminated": {"exitCode": 0, "finishedAt": ago(ended)}}
    pod = launcher(
        suffix="0", phase="Succeeded", containerStatuses=[{"name": "compute", "state": state}]
    )
    snapshot = world(migrating(), pod=pod)
    for each in snapshot.known(POD):
        each.data["spec"]["volumes"] = old_pod().data["spec"]["volumes"]
    (guest,) = snapshot.known(VMI)

    assert (dying_pods.left_over(guest, snapshot) is not None) is is_left


@pytest.mark.parametrize(
    "state",
    [{"failed": True}, {"completed": False}, {"targetNode": "c"}],
    ids=["failed", "runs", "elsewhere"],
)
def test_only_a_migration_that_has_succeeded_tells_where_the_guest_is(state):
    _, vmi, _ = longhorn.guest()
    assert (dying_pods.target(vmi, "a"), dying_pods.target(vmi, "b")) == ("b", "")

    vmi.data["status"]["migrationState"] |= state
    assert dying_pods.target(vmi, "a") == ""


def test_a_pod_that_has_just_been_deleted_ends_in_time():
    (found,) = drain_plan.plan(world(migrating(), pod=old_pod(late=-20)), "a").nodes

    assert found.pods.blockers == ()
    assert found.drainable


@pytest.mark.parametrize("said", [KILL, "error killing pod: context deadline exceeded", ""])
def test_the_pod_of_a_vm_that_is_stopped(said):
    stopped = vmi(metadata={"deletionTimestamp": ago(7200)})
    pod = launcher(metadata={"deletionTimestamp": ago(3600)})
    found = row(cluster(stopped, pod, *([warning(pod, "FailedKillPod", said)] if said else [])))

    assert found.outcome == BLOCKS
    assert found.reason.startswith("it is being stopped, and should have ended 119 min ago")
    assert ("the kubelet of a cannot kill it (FailedKillPod: " in found.reason) is bool(said)
    assert ("restart the container runtime of a" in found.remedy) is bool(said)


def test_a_vm_that_starts_anew_waits_for_a_pod_that_is_not_killed():
    ended = vmi(phase="Failed")
    pod = launcher(metadata={"deletionTimestamp": ago(3600)})
    found = stuck_starts.of_vm(
        vm(), ended, cluster(ended, pod, warning(pod, "FailedKillPod", KILL))
    )

    assert (
        "should have ended 60 min ago: the kubelet of a cannot kill it (FailedKillPod: "
        "DeadlineExceeded"
    ) in found.reason
    assert found.remedy.startswith("restart the container runtime of a")


def after_power_cycle(kubelet="v1.25.13+rke2r1", mode="Block", code=255, ready="True"):
    """Return a VMI that has failed, whose pod stays on a node that was off."""
    pod, ended = old_pod(), vmi(phase="Failed")
    state = {"terminated": {"exitCode": code, "reason": "Unknown" if code else "Completed"}}
    pod.data["status"] |= {"containerStatuses": [{"name": "compute", "state": state}]}
    claim = manifest("v1", "PersistentVolumeClaim", "disk", NAMESPACE, spec={"volumeMode": mode})
    found = cluster(ended, pod, claim)
    node = found.get(NODE, "", "a")
    node.data["status"]["nodeInfo"] = {"kubeletVersion": kubelet}
    node.data["status"]["conditions"] = [{"type": "Ready", "status": ready}]
    return stuck_starts.of_vm(vm(), ended, found)


def test_a_block_volume_that_a_kubelet_cannot_unmap_after_a_power_cycle():
    found = after_power_cycle()
    assert found.reason.endswith(
        "its containers ended with exit code 255 when a was off, so nothing of it runs, and most "
        "likely kubelet v1.25.13 cannot unmap the block volume of claim disk since then"
    )
    assert found.remedy.startswith("restart the kubelet of a; if the pod stays, update Kubernetes")
    assert "to one of 1.26.13, 1.27.10, 1.28.6, 1.29.1 or later" in found.remedy
    assert ", the servers before a: no kubelet may be newer than its API" in found.remedy
    assert not risky(f"{found.reason}. {found.remedy}")


@pytest.mark.parametrize(
    "given",
    [
        {"kubelet": "v1.28.6"},
        {"kubelet": "v1.30.0"},
        {"kubelet": ""},
        {"mode": "Filesystem"},
        {"code": 0},
        {"ready": "False"},
    ],
)
def test_another_pod_that_stays_has_another_cause(given):
    assert "block volume" not in after_power_cycle(**given).reason
