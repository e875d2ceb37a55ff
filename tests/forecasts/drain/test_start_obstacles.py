"""VMs that do not start: which device, webhook, quota or pod keeps each,
and what ends it.
"""

import pytest

from tests.healthy.clusters import plain
from tests.healthy.parts import ago, namespaces, pod
from tests.incidents.machines import event, find, guest, launcher_of
from tests.incidents.rejections import rejected
from tests.incidents.starts import CALLED, GPU, gpu, policy_engine, refused, starting, with_gpu
from virt_admit.forecasts.drain.starts import rejected_pods, start_obstacles
from virt_admit.forecasts.drain.starts.devices import missing_devices, unreported_devices
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import VMI
from virt_admit.model.kubernetes.objects import Object


def stuck(items, name):
    """Return what keeps a VM of a cluster from starting."""
    cluster = Snapshot(list(map(Object, items)), ["*"], time=ago())
    found = {(each["kind"], each["metadata"]["name"]): Object(each) for each in items}
    vm, vmi = found["VirtualMachine", name], found.get(("VirtualMachineInstance", name))
    return start_obstacles.of_vm(vm, vmi, cluster)


# --- devices --------------------------------------------------------------------------------------


def test_virt_handler_offers_the_devices_that_no_one_else_provides():
    found = stuck(gpu("0", external=False) + starting("cad", "Scheduling", **with_gpu()), "cad")

    assert found.reason == f"w1 offers 0 of {GPU} (its device plugin offers none)"
    assert f"see why virt-handler on w1 offers no {GPU}" in found.remedy
    assert "kubectl logs virt-handler-x" in found.remedy


KVM = "devices.kubevirt.io/kvm"


@pytest.mark.parametrize(
    ("tun", "why", "remedy"),
    [
        (
            "1k",
            "virt-handler offers other devices there, but finds no /dev/kvm",
            "nested in the hypervisor below",
        ),
        ("0", "virt-handler offers none", f"see why virt-handler on w1 offers no {KVM}"),
    ],
)
def test_a_node_without_dev_kvm(tun, why, remedy):
    """Its kubelet reports 0 of a device that is not healthy (kubevirt/kubevirt#4748)."""
    items = gpu("1", external=False) + starting(
        "cad", "Scheduling", **with_gpu() | {"requests": {KVM: "1"}}
    )
    others = dict.fromkeys(("devices.kubevirt.io/tun", "devices.kubevirt.io/vhost-net"), tun)
    find(items, "Node", "w1")["status"]["allocatable"] |= {KVM: "0"} | others
    found = stuck(items, "cad")

    assert found.reason.startswith(f"w1 offers 0 of {KVM} ({why})")
    assert remedy in found.remedy
    assert ("useEmulation" in found.remedy) is (tun == "1k")


def test_a_device_plugin_that_is_not_known_has_to_be_found():
    found = stuck(gpu("0", external=True) + starting("cad", "Scheduling", **with_gpu()), "cad")

    assert f"find the device plugin for {GPU} on w1" in found.remedy
    assert "--field-selector=spec.nodeName=w1" in found.remedy


@pytest.mark.parametrize(
    ("plugins", "named"),
    [
        (("sriov-device-plugin-x", "nvidia-device-plugin-y"), "nvidia-device-plugin-y"),
        (("generic-device-plugin-z", "virt-launcher-cad"), "generic-device-plugin-z"),
        (("sriov-device-plugin-x",), "find the device plugin"),  # the device is of no network
    ],
)
def test_the_device_plugin_of_the_vendor_is_named(plugins, named):
    items = (
        gpu("0", external=True)
        + starting("cad", "Scheduling", **with_gpu())
        + namespaces("devices")
    )
    items += [pod(each, "devices", "w1", {}, None) for each in plugins]

    assert named in stuck(items, "cad").remedy


def test_devices_in_use_are_not_called_absent():
    items = gpu("1", external=True) + starting("cad", "Scheduling", **with_gpu())
    items += guest("render", "w1", **with_gpu())
    found = stuck(items, "cad")

    assert found.reason == f"the only {GPU} of w1 is in use by VM vms/render"
    assert found.remedy == "stop VM vms/render, or add a node that has one more"


def harvester(kind, name, node, **status):
    return {
        "apiVersion": "devices.harvesterhci.io/v1beta1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"nodeName": node},
        "status": {"nodeName": node, "resourceName": GPU} | status,
    }


def anywhere(items, *names):
    """Let VMs run on each node."""
    for kind in ("VirtualMachine", "VirtualMachineInstance"):
        for name in names:
            spec = find(items, kind, name)["spec"]
            spec.get("template", {}).get("spec", spec).pop("nodeSelector", None)
    for name in names:
        launcher_of(items, name)["spec"].pop("nodeSelector", None)


@pytest.mark.parametrize("named", [True, False])
def test_two_vms_may_name_one_device_of_harvester_and_other_nodes_are_not_to_blame(named):
    items = gpu("1", external=True) + starting("cad", "Scheduling", **with_gpu())
    items += guest("render", "w1", **with_gpu()) + namespaces("devices")
    items += [pod(f"pcidevices-{on}", "devices", on, {}, None) for on in ("w1", "w2", "w3")]
    items += [harvester("PCIDevice", "gpu", "w1")] * named
    anywhere(items, "cad", "render")
    found = stuck(items, "cad")

    same = ", and both VMs name the same device, PCIDevice gpu" if named else ""
    assert (
        found.reason == f"the only {GPU} of w1 is in use by VM vms/render{same}; w2, w3 have none"
    )
    assert found.remedy.startswith("stop VM vms/render, or ")
    cluster = Snapshot(list(map(Object, items)), ["*"], time=ago())
    note = missing_devices.note(Object(find(items, "VirtualMachine", "render")), cluster)
    assert note.startswith("VM vms/cad names PCIDevice gpu, which this VM uses") is named
    assert bool(note) is named
    assert ("give one of the two VMs another device" in found.remedy) is named


@pytest.mark.parametrize(
    ("device", "enabled"),
    [("USBDevice", True), ("USBDevice", False), ("PCIDevice", True), ("PCIDevice", False)],
)
def test_a_device_of_harvester_that_no_node_reports_is_repaired_where_it_is(device, enabled):
    items = gpu("1", external=True) + starting("cad", "Scheduling", **with_gpu())
    items += [*namespaces("devices"), pod("pcidevices-w2", "devices", "w2", {}, None)]
    items += [harvester(device, "w2-a", "w2", enabled=enabled)]
    if device == "PCIDevice":
        items += [harvester("PCIDeviceClaim", "w2-a", "w2", passthroughEnabled=enabled)]
    anywhere(items, "cad")
    for each in ("allocatable", "capacity"):
        find(items, "Node", "w1")["status"].get(each, {}).pop(GPU, None)
    found = stuck(items, "cad")

    assert found.reason.startswith(f"w2 offers 0 of {GPU}") is enabled
    assert ("restart the device plugin pcidevices-w2 on w2" in found.remedy) is enabled
    assert ("from the VM" in found.remedy) is not enabled


@pytest.mark.parametrize("passed", [True, False])
def test_a_node_whose_device_is_passed_through_should_offer_it(passed):
    items = gpu("1", external=True) + starting("cad", "Scheduling", **with_gpu())
    items += guest("render", "w1", **with_gpu()) + namespaces("devices")
    items += [pod("pcidevices-w2", "devices", "w2", {}, None), harvester("PCIDevice", "w2-a", "w2")]
    items += [harvester("PCIDeviceClaim", "w2-a", "w2", passthroughEnabled=passed)]
    anywhere(items, "cad", "render")
    found = stuck(items, "cad")

    assert (f"w2 offers 0 of {GPU} (its device plugin offers none)" in found.reason) is passed
    assert "is in use by VM vms/render" in found.reason
    assert ("restart the device plugin pcidevices-w2" in found.remedy) is passed
    assert ("or stop a VM that uses one" in found.remedy) is passed


@pytest.mark.parametrize(
    ("external", "plugin", "restarted"),
    [
        (False, "virt-handler", "virt-handler-x"),
        (True, "the device plugin", "nvidia-device-plugin-y"),
    ],
)
def test_a_node_that_reports_less_than_its_pods_use_has_lost_its_device_plugin(
    external, plugin, restarted
):
    items = (
        gpu("0", external=external)
        + starting("cad", "Scheduling", **with_gpu())
        + namespaces("devices")
    )
    items += [
        *guest("render", "w1", **with_gpu()),
        pod("nvidia-device-plugin-y", "devices", "w1", {}, None),
    ]
    found = stuck(items, "cad")

    lost = (
        f"w1 offers 0 of {GPU}, of which VM vms/render uses 1: {plugin} there no longer reports "
        "them"
    )
    assert found.reason == lost
    assert found.remedy.startswith(f"restart {restarted}")
    assert "kubectl delete pod" in found.remedy
    cluster = Snapshot(list(map(Object, items)), ["*"], time=ago())
    assert lost in unreported_devices.note("w1", cluster)
    assert unreported_devices.note("w2", cluster) == ""


def lost(change=lambda items: None, reported="0", **parts):
    """Return what is said of w1, which reports fewer devices than a VM there uses."""
    items = (
        gpu(reported, external=True) + namespaces("devices") + guest("render", "w1", **with_gpu())
    )
    items += [pod("nvidia-device-plugin-y", "devices", "w1", {}, None), *parts.get("more", ())]
    change(items)
    return unreported_devices.note("w1", Snapshot(list(map(Object, items)), ["*"], time=ago()))


def young(items):
    find(items, "Pod", "nvidia-device-plugin-y")["metadata"]["creationTimestamp"] = ago(seconds=20)


def back(items):
    ready = find(items, "Node", "w1")["status"]["conditions"]
    next(each for each in ready if each["type"] == "Ready")["lastTransitionTime"] = ago(minutes=2)


@pytest.mark.parametrize("change", [young, back])
def test_what_offers_devices_gets_time_to_start(change):
    assert lost()
    assert lost(change) == ""


def test_a_device_plugin_that_is_not_ready_is_not_deleted():
    def failing(items):
        ready = {"type": "Ready", "status": "False", "lastTransitionTime": ago(minutes=30)}
        find(items, "Pod", "nvidia-device-plugin-y")["status"]["conditions"] = [ready]

    said = lost(failing)
    assert "kubectl logs nvidia-device-plugin-y" in said
    assert "delete" not in said


def test_a_device_that_is_not_healthy_does_not_need_a_restart_of_its_plugin():
    def broken(items):
        find(items, "Node", "w1")["status"].setdefault("capacity", {})[GPU] = "2"

    assert lost(broken, more=guest("paint", "w1", **with_gpu()), reported="1").startswith(
        f"w1 offers 1 of {GPU}, of which VM vms/paint, VM vms/render use 2: 1 device is not "
        "healthy. "
    )
    assert "restart" not in lost(broken)
    assert "2 devices are not healthy" in lost(broken)


def test_a_node_that_never_had_a_device_is_not_to_blame():
    asked = with_gpu() | {"spec": {}}
    found = stuck(gpu("0", external=False) + starting("cad", "Scheduling", **asked), "cad")

    assert found.reason == f"w1 offers 0 of {GPU} (its device plugin offers none)"


def test_a_vm_that_needs_more_devices_than_a_node_has():
    asked = with_gpu() | {"requests": {GPU: "2"}}
    found = stuck(gpu("1", external=True) + starting("cad", "Scheduling", **asked), "cad")

    assert found.reason == f"w1 offers 1 of {GPU}, and it needs 2"


def test_a_bridge_has_to_be_made():
    resource = "bridge.network.kubevirt.io/br1"
    device = {"devices": {"hostDevices": [{"name": "lan", "deviceName": resource}]}}
    items = plain() + starting("cad", "Scheduling", domain=device, requests={resource: "1"})
    found = stuck(items, "cad")

    assert found.reason == f"w1, w2, w3 offer 0 of {resource} (this bridge does not exist there)"
    assert found.remedy == "make bridge br1 on w1 or w2 or w3; waiting does not help"


def test_a_node_with_a_device_is_no_obstacle():
    assert (
        stuck(gpu("1", external=True) + starting("cad", "Scheduling", **with_gpu()), "cad") is None
    )


def test_a_stopped_vm_has_no_node_with_its_device_either():
    items = gpu("0", external=True) + guest("cad", "w2", run="Halted", **with_gpu())
    off = [
        each
        for each in items
        if not each["metadata"]["name"].startswith("virt-launcher") and each["kind"] != VMI.kind
    ]
    cluster = Snapshot(list(map(Object, off)), ["*"], time=ago())
    found = start_obstacles.of_stopped(Object(find(items, "VirtualMachine", "cad")), cluster)

    assert found.reason == f"w1 offers 0 of {GPU} (its device plugin offers none)"


# --- pods that the API server refuses -------------------------------------------------------------


def test_webhooks_whose_own_pods_start_have_to_be_repaired():
    items = plain() + refused(starting("web", "Pending"), "web", CALLED)
    policy_engine(items, excluded=True)
    found = stuck(items, "web")

    assert (
        "kyverno-resource-mutate refuse it, because Service kyverno/kyverno-svc has no ready "
        "endpoint"
    ) in found.reason
    assert "by itself" not in found.reason
    assert found.remedy.startswith(
        "repair the pods of Service kyverno/kyverno-svc: kubectl describe service"
    )


def test_a_webhook_that_no_configuration_has_leaves_the_words_of_kubevirt():
    found = stuck(plain() + refused(starting("web", "Pending"), "web", CALLED), "web")

    assert found.reason.startswith(
        "virt-controller cannot create its pod: failed to create virtual machine pod"
    )


def test_a_quota_that_refuses_the_first_pod_is_named():
    text = (
        'pods "virt-launcher-web-4hx8k" is forbidden: exceeded quota: compute, requested: '
        "limits.memory=4416Mi"
    )
    found = stuck(plain() + refused(starting("web", "Pending"), "web", text), "web")

    assert found.reason == (
        "virt-controller cannot create its pod: exceeded quota: compute. It goes on by itself "
        "once that fits, and not before"
    )
    assert found.remedy == "raise ResourceQuota compute: kubectl edit resourcequota compute -n vms"


@pytest.mark.parametrize(
    ("phase", "reason", "who"),
    [
        (
            "Scheduled",
            "Synchronizing with the Domain failed.",
            "virt-handler cannot start its guest",
        ),
        ("Scheduling", "FailedGuaranteeResources", "virt-controller cannot start it"),
    ],
)
def test_the_controller_that_fails_is_named(phase, reason, who):
    items = plain() + refused(starting("web", phase), "web", "no such file")
    find(items, "VirtualMachineInstance", "web")["status"]["conditions"][-1]["reason"] = reason

    assert stuck(items, "web").reason.startswith(who)


@pytest.mark.parametrize(
    ("serial", "why"),
    [
        ("d" * 43, "QEMU refuses a serial number longer than 36 characters, and that of disk data"),
        ("short", "device ua-data: The serial number can't be longer than 36 characters. This is"),
    ],
    ids=["too long", "not the cause"],
)
def test_the_disk_that_qemu_refuses_is_named(serial, why):
    """kubevirt/kubevirt#13858."""
    text = "qemu-kvm: device ua-data: The serial number can't be longer than 36 characters"
    items = plain() + refused(starting("web", "Scheduled"), "web", text)
    vmi = find(items, "VirtualMachineInstance", "web")
    vmi["status"]["conditions"][-1]["reason"] = "Synchronizing with the Domain failed."
    disk = {"name": "data", "disk": {"bus": "scsi"}, "serial": serial}
    vmi["spec"]["domain"].setdefault("devices", {}).setdefault("disks", []).append(disk)

    assert why in stuck(items, "web").reason
    assert "disk data (bus scsi)" in stuck(items, "web").reason


# --- VMIs that have failed ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "domain", "why"),
    [
        (
            {"reason": "NodeUnresponsive"},
            {},
            " (NodeUnresponsive: virt-handler on its node no longer reported)",
        ),
        (
            {},
            {"rebootPolicy": "Terminate"},
            " (a reboot of its guest ends it, too: rebootPolicy is Terminate)",
        ),
        ({}, {}, ""),
    ],
)
def test_a_vmi_that_failed_says_why(status, domain, why):
    items = plain() + guest("db", "w1", run="Manual", domain=domain)
    find(items, "VirtualMachineInstance", "db")["status"] |= {"phase": "Failed"} | status
    cluster = Snapshot(list(map(Object, items)), ["*"], time=ago())
    vm, vmi = (
        Object(find(items, kind, "db")) for kind in ("VirtualMachine", "VirtualMachineInstance")
    )
    found = start_obstacles.stays_off(vm, vmi, cluster)

    assert (
        found.reason
        == f"it is not running: its VMI is Failed{why}, and Manual does not start it again"
    )


@pytest.mark.parametrize(
    ("strategy", "then"),
    [
        ("Always", True),
        ("RerunOnFailure", True),
        ("Once", True),
        ("Manual", False),
        ("Halted", False),
    ],
)
def test_rejected_pods_matter_only_for_a_vm_that_should_run(strategy, then):
    items = plain() + rejected(
        "TopologyAffinityError", "Resources cannot be allocated with Topology locality", "w2"
    )
    find(items, "VirtualMachine", "dpdk")["spec"]["runStrategy"] = strategy
    found = stuck(items, "dpdk")

    assert (
        found is not None and "KubeVirt starts it again after 5 min at most" in found.reason
    ) is then


@pytest.mark.parametrize(
    ("host", "minutes", "is_cause"), [("w2", 94, True), ("w1", 94, False), ("w2", 30, False)]
)
def test_a_rejection_counts_on_its_own_node_at_its_end(host, minutes, is_cause):
    """A target pod of a migration may be rejected on another node,
    while the guest goes on to run.
    """
    items = plain() + guest("db", "w2", run="Manual")
    vmi = find(items, "VirtualMachineInstance", "db")
    vmi["status"]["phase"] = "Failed"
    vmi["status"]["phaseTransitionTimestamps"].append(
        {"phase": "Failed", "phaseTransitionTimestamp": ago(minutes=95)}
    )
    made = event(
        launcher_of(items, "db"),
        "OutOfcpu",
        "Node didn't have enough resource",
        "kubelet",
        late=60 * minutes,
    )
    made["source"] |= {"host": host}
    cluster = Snapshot(list(map(Object, [*items, made])), ["*"], time=ago())

    assert (rejected_pods.of_running(Object(vmi), cluster) is not None) is is_cause


def test_devices_that_the_same_pods_use_are_told_together():
    lost = [
        unreported_devices.UnreportedDevice(f"devices.kubevirt.io/{name}", 0, 2, ("VM shop/db",))
        for name in ("kvm", "tun")
    ]
    said = unreported_devices.words("w1", lost, Snapshot([], complete=["*"]))

    assert said.count("VM shop/db") == 1
    assert "devices.kubevirt.io/kvm" in said
    assert "of which VM shop/db uses 2 of each" in said
