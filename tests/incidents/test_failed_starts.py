"""Starts that fail before a guest runs: what is left of them says why."""

import json

import pytest

from tests.healthy.clusters import plain
from tests.healthy.parts import ago, obj
from virt_admit.forecasts.drain.failures import start_errors
from virt_admit.model.kubevirt.instances.vmis import OUTDATED

from .machines import event, find, guest, launcher_of

BINARY = "/container-disk-binary/usr/bin/container-disk"
NO_FILE = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: "
    "runc create failed: unable to start container process: error during container init: exec: "
    f'"{BINARY}": stat {BINARY}: no such file or directory'
)
LABEL = (
    "failed to configure vmi network: setup failed, err: Critical network error: could not "
    "retrieve pid 199735 selinux label: getxattr /proc/199735/attr/current: operation not supported"
)
OWN = {"osImage": "Talos (v1.8.4)", "kernelVersion": "6.6.64-talos"}
LOST = obj("Pod", "v1", "virt-launcher-one-nr947", "vms")
UPDATED = {"osImage": "Talos (v1.9.1)", "kernelVersion": "6.12.6-talos"}


def cluster(release=(1, 9), updated="", **fields):
    """Return a cluster with one node that has another system than the others."""
    items = plain(release, **fields)
    for each in items:
        if each["kind"] == "Node":
            info = {"containerRuntimeVersion": "containerd://2.2.3-k3s1"}
            info |= UPDATED if each["metadata"]["name"] == updated else OWN
            each["status"]["nodeInfo"] = each["status"].get("nodeInfo", {}) | info
    return items


def failing(name, node, times=7, phase="Scheduling"):
    """Return a VM whose last start failed after this phase."""
    items = guest(name, node, run="Always")
    vm, vmi = find(items, "VirtualMachine", name), find(items, "VirtualMachineInstance", name)
    failure = {"consecutiveFailCount": times, "retryAfterTimestamp": ago(minutes=-4)}
    vm["status"] |= {"printableStatus": "CrashLoopBackOff", "startFailure": failure}
    vm["status"]["ready"] = False
    stamps = {phase: 70, "Failed": 60}
    vmi["status"] |= {
        "phase": "Failed",
        "phaseTransitionTimestamps": [
            {"phase": each, "phaseTransitionTimestamp": ago(seconds=late)}
            for each, late in stamps.items()
        ],
    }
    launcher_of(items, name)["status"] |= {"phase": "Failed", "containerStatuses": []}
    return items


def unstarted(name, node, *, image=True, reason="StartError", message=NO_FILE):
    items = failing(name, node)
    launcher = launcher_of(items, name)
    ended = {"reason": reason, "exitCode": 128, "message": message, "finishedAt": ago(seconds=60)}
    launcher["status"] |= {
        "initContainerStatuses": [{"name": "volumeroot", "state": {"terminated": ended}}],
        "containerStatuses": [
            {"name": "compute", "state": {"waiting": {"reason": "PodInitializing"}}}
        ],
    }
    mount = {"name": "launcher-volume", "mountPath": "/container-disk-binary"}
    launcher["spec"]["initContainers"] = [{"name": "volumeroot", "volumeMounts": [mount]}]
    source = {"image": {"reference": "quay.io/kubevirt/virt-launcher:v1.9.0"}}
    volume = {"name": "launcher-volume", **(source if image else {"emptyDir": {}})}
    launcher["spec"]["volumes"] = [*launcher["spec"].get("volumes", []), volume]
    return items


def gone(items, name):
    """Return what is left of a VM whose VMI and pod are gone."""
    kinds = ("VirtualMachineInstance", "Pod")
    return [each for each in items if each["kind"] not in kinds]


def told(ask, items, name="one"):
    return " ".join(ask(items, "explain", f"vm/{name}", "-n", "vms").split())


def test_an_init_container_whose_image_volume_is_empty(ask):
    items = cluster() + unstarted("one", "w1")
    said = told(ask, items)

    assert (
        "container volumeroot of virt-launcher-one-k2x7q on w1 could not be started: exec: "
        f'"{BINARY}"'
    ) in said
    assert (
        f"{BINARY} comes from an image volume (volume launcher-volume of "
        "quay.io/kubevirt/virt-launcher:v1.9.0), which containerd://2.2.3-k3s1 on w1 mounts empty. "
        "KubeVirt 1.9.0 uses it by feature gate ImageVolume, which is on by default since 1.9.0"
    ) in said
    assert "until w1, w2, w3 have a runtime with image volumes (k3s 1.36.2" in said
    assert "write ImageVolume into disabledFeatureGates of KubeVirt kubevirt/kubevirt" in said
    assert "kubectl logs" not in said

    scanned = " ".join(ask(items, "scan").split())
    assert "its last 7 starts failed, the last on w1: " in scanned
    assert "mounts empty" in scanned


def test_a_pod_that_is_gone_is_told_by_its_event(ask):
    items = cluster() + gone(failing("one", "w1"), "one")
    failed = event(LOST, "Failed", f"Error: {NO_FILE}", "kubelet")
    failed["source"] = {"component": "kubelet", "host": "w2"}
    said = told(ask, [*items, failed])

    assert (
        "its last 7 starts failed: a container of virt-launcher-one-nr947 on w2, which is gone, "
        f'could not be started: exec: "{BINARY}"'
    ) in said
    assert "comes from an image volume, which containerd://2.2.3-k3s1 on w2 mounts empty" in said
    assert "-c compute" not in said


@pytest.mark.parametrize("message", ["Error: ErrImagePull", "Back-off pulling image"])
def test_an_event_of_an_image_does_not_say_why_a_start_failed(ask, message):
    items = cluster() + gone(failing("one", "w1"), "one")
    said = told(ask, [*items, event(LOST, "Failed", message, "kubelet")])

    assert "no pod of them is left to say why" in said
    assert "kubectl describe pods -n vms -l vm.kubevirt.io/name=one" in said


def test_another_file_is_missing(ask):
    """The path is in the image of the container itself."""
    said = told(ask, cluster() + unstarted("one", "w1", image=False))
    assert "could not be started: exec: " in said
    assert "image volume" not in said
    assert "kubectl describe pod virt-launcher-one-k2x7q -n vms" in said


def test_an_init_container_that_ended_with_an_error_has_a_log(ask):
    items = cluster() + unstarted("one", "w1", reason="Error", message="")
    assert "kubectl logs virt-launcher-one-k2x7q -n vms -c volumeroot" in told(ask, items)


# --- one node alone -------------------------------------------------------------------------------


def unlabelled(name, node, message=LABEL):
    """Return a VM for whose guest virt-handler finds no SELinux label."""
    items = failing(name, node, times=11, phase="Scheduled")
    find(items, "VirtualMachineInstance", name)["status"]["conditions"] = [
        {
            "type": "Synchronized",
            "status": "False",
            "reason": "Synchronizing with the Domain failed.",
            "message": message,
        }
    ]
    return items


def test_starts_that_fail_on_one_node_alone(ask):
    items = cluster((1, 3), "w3") + unlabelled("one", "w3") + unlabelled("two", "w3")
    items += guest("web", "w1")
    said = told(ask, items)

    assert "its last 11 starts failed: virt-handler on w3 could not start its guest" in said
    assert "KubeVirt 1.3.0 takes the node for one with SELinux" in said
    assert (
        "Guests run on w1, and starts fail on w3 alone, which alone has osImage Talos (v1.9.1) "
        "(the others Talos (v1.8.4)), kernelVersion 6.12.6-talos"
    ) in said
    assert "could start on w1, w2, after the steps to do below" in said
    assert "cordon w3, so that it starts on w1, w2: kubectl cordon w3; then hide /sys/fs" in said
    assert "Each known start of a VM fails here, that of vms/one, vms/two" in " ".join(
        ask(items, "explain", "node/w3").split()
    )
    assert "on w3 alone" in ask(items, "scan")


def test_an_unknown_error_of_two_vms_on_one_node(ask):
    items = cluster((1, 3), "w3") + guest("web", "w1")
    items += unlabelled("one", "w3", "it fails") + unlabelled("two", "w3", "it fails")
    said = told(ask, items)

    assert "starts fail on w3 alone, which alone has osImage Talos (v1.9.1)" in said
    assert "could start on w1, w2, after" in said


@pytest.mark.parametrize(
    "others",
    [
        (guest("web", "w1"),),
        (guest("web", "w1"), unlabelled("two", "w2", "it fails")),
        (guest("web", "w1"), guest("new", "w3"), unlabelled("two", "w3", "it fails")),
        (unlabelled("two", "w3", "it fails"),),
    ],
    ids=["one VM alone", "two nodes", "another started there", "no guest runs"],
)
def test_a_failed_start_that_may_not_be_the_fault_of_its_node(ask, others):
    items = cluster((1, 3), "w3") + unlabelled("one", "w3", "it fails")
    for own in others:
        if any(each["metadata"]["name"] == "new" for each in own):
            stamps = [{"phase": "Running", "phaseTransitionTimestamp": ago(minutes=10)}]
            vmi = find(own, "VirtualMachineInstance", "new")
            vmi["status"]["phaseTransitionTimestamps"] = stamps
        items += own
    said = told(ask, items)

    assert "virt-handler on w3 could not start its guest: it fails" in said
    assert "alone" not in said
    assert "could start on w1, w2, w3" in said


# --- what it means for other VMs ------------------------------------------------------------------


def image_disk(items, name):
    """Give a VM a container disk."""
    disk = {"name": "image", "containerDisk": {"image": "quay.io/containerdisks/fedora:43"}}
    vmi = find(items, "VirtualMachineInstance", name)
    vmi["spec"]["volumes"] = [*vmi["spec"].get("volumes", []), disk]
    return items


@pytest.mark.parametrize(
    ("disk", "off", "doubted"), [(True, False, True), (False, False, False), (True, True, False)]
)
def test_a_vm_that_leaves_its_node_needs_an_image_volume(ask, disk, off, doubted):
    own = guest("web", "w1")
    items = cluster() + unstarted("one", "w3") + (image_disk(own, "web") if disk else own)
    kubevirt = find(items, "KubeVirt", "kubevirt")
    configuration = kubevirt["spec"].setdefault("configuration", {})
    if off:
        configuration["developerConfiguration"] = {"disabledFeatureGates": ["ImageVolume"]}
    drained = " ".join(ask(items, "drain", "w1").split())

    assert ("its next pod would fail as that of vms/one does" in drained) is doubted
    assert ("A drain of w1 ends" in drained) is not doubted
    assert ("ImageVolume is off by now, so the next start has none" in told(ask, items)) is off


@pytest.mark.parametrize("disk", [True, False])
def test_outdated_vms_are_not_migrated_while_their_next_pod_would_fail(ask, disk):
    own = guest("web", "w1")
    find(own, "VirtualMachineInstance", "web")["metadata"].setdefault("labels", {})[OUTDATED] = ""
    items = cluster() + unstarted("one", "w3") + (image_disk(own, "web") if disk else own)
    kubevirt = find(items, "KubeVirt", "kubevirt")
    kubevirt["status"]["outdatedVirtualMachineInstanceWorkloads"] = 1
    kubevirt["spec"]["workloadUpdateStrategy"] = {}
    rows = json.loads(ask(items, "scan", "-o", "json"))["results"]
    said = next(row["message"] for row in rows if row["rule"] == "workload-outdated")

    later = "List LiveMigrate once vms/web can migrate: now its next pod would fail as that of"
    assert (later in said) is disk
    assert ("List LiveMigrate in workloadUpdateMethods" in said) is not disk


def test_a_vm_may_go_to_the_node_where_starts_fail(ask):
    items = cluster((1, 3), "w3") + unlabelled("one", "w3") + unlabelled("two", "w3")
    items += guest("web", "w1")
    drained = ask(items, "drain", "w1")
    assert "kube-scheduler may choose w3, where each known start fails" in drained
    assert "to do: cordon w3 until that is repaired: kubectl cordon w3" in drained

    find(items, "Node", "w3")["spec"]["unschedulable"] = True
    assert "A drain of w1 ends" in ask(items, "drain", "w1")


def test_the_runtimes_of_the_nodes_are_read_once_for_all_vms(ask, monkeypatch):
    read, seen = start_errors.runtime, []
    monkeypatch.setattr(start_errors, "runtime", lambda *each: seen.append(1) or read(*each))
    own = [part for name in "abcd" for part in image_disk(guest(name, "w1"), name)]

    ask(cluster() + own, "drain", "w1")
    assert not seen  # no start fails
    ask(cluster() + unstarted("one", "w3") + own[: len(own) // 4], "drain", "w1")
    once = len(seen)
    ask(cluster() + unstarted("one", "w3") + own, "drain", "w1")
    assert len(seen) == 2 * once
