"""Resources that no node has: huge pages and devices, with what asks for them and what ends it."""

from tests.forecasts.drain.test_start_obstacles import stuck
from tests.healthy.clusters import plain
from tests.healthy.parts import ago, namespaces, obj, pod
from tests.incidents.machines import event, find
from tests.incidents.starts import GPU, gpu, starting, with_gpu

PAGES = "hugepages-2Mi"
NEED = {PAGES: "16Gi", "memory": "400Mi"}
GUEST = {"memory": {"guest": "16Gi", "hugepages": {"pageSize": "2Mi"}}}
CARD = "example.com/CARD"


def of_type(name, **memory):
    api, kind = "instancetype.kubevirt.io/v1beta1", "VirtualMachineClusterInstancetype"
    return obj(
        kind, api, name, "", spec={"cpu": {"guest": 2}, "memory": {"guest": "16Gi", **memory}}
    )


def waiting(items, *, instancetype="", revision=""):
    own = starting("web", "Scheduling", domain=GUEST, requests=NEED)
    spec = find(own, "VirtualMachine", "web")["spec"]
    if instancetype:
        spec["instancetype"] = {"name": instancetype} | (
            {"revisionName": revision} if revision else {}
        )
        spec["template"]["spec"]["domain"].pop("memory", None)
        find(own, "VirtualMachineInstance", "web")["metadata"]["ownerReferences"] = [
            {"kind": "VirtualMachine", "name": "web", "controller": True}
        ]
    return stuck(items + own, "web")


def test_an_instance_type_asks_for_huge_pages():
    types = [of_type("big", hugepages={"pageSize": "2Mi"}), of_type("plain")]

    found = waiting(plain(extra={PAGES: "0"}) + types, instancetype="big")

    assert found.reason == (
        f"no node with KubeVirt has any {PAGES} (allocatable is 0), and instance type big of the "
        "VM asks for 16Gi. Waiting does not help"
    )
    assert found.remedy.startswith(
        "give the VM an instance type without huge pages, such as plain and restart it, or "
    )
    assert (
        "reserve at least 8192 huge pages of 2Mi on a node by its kernel arguments" in found.remedy
    )
    assert "kubectl edit vm web" in found.remedy


def test_the_vm_itself_asks_for_huge_pages():
    found = waiting(plain())

    assert "the VM asks for 16Gi (spec.template.spec.domain.memory.hugepages)" in found.reason
    assert found.remedy.startswith("remove huge pages from the VM and restart it, or reserve")


def test_huge_pages_that_are_in_use_or_too_few_are_a_matter_of_room():
    items = plain(extra={PAGES: "0"})
    find(items, "Node", "w2")["status"]["allocatable"][PAGES] = "8Gi"

    assert "It starts by itself once there is room" in waiting(items).reason


def test_huge_pages_that_a_node_has_are_no_obstacle():
    assert waiting(plain(extra={PAGES: "32Gi"})) is None


def test_a_device_that_no_node_ever_had():
    device = {"devices": {"hostDevices": [{"name": "card", "deviceName": CARD}]}}
    own = starting("web", "Scheduling", domain=device, requests={CARD: "1"})

    found = stuck(plain() + own, "web")

    assert found.reason.startswith(
        f"no node with KubeVirt has any {CARD} (allocatable is 0), and the VM asks for 1 ("
    )
    assert f"or add a node that has {CARD}, with the device plugin that offers it" in found.remedy


def test_a_device_whose_plugin_offers_none_is_a_matter_of_the_plugin():
    device = {"devices": {"hostDevices": [{"name": "card", "deviceName": CARD}]}}
    items = plain()
    find(items, "Node", "w1")["status"]["allocatable"][CARD] = "0"

    found = stuck(items + starting("web", "Scheduling", domain=device, requests={CARD: "1"}), "web")

    assert found.reason.startswith(f"w1 offers 0 of {CARD}")


def test_a_device_plugin_that_works_finds_no_device_after_a_reboot():
    """kubevirt-gpu-device-plugin offers a card only while that is bound to vfio-pci (its issue
    18).
    """
    items = (
        gpu("0", external=True)
        + starting("cad", "Scheduling", **with_gpu())
        + namespaces("kube-system")
    )
    plugin = pod("nvidia-kubevirt-gpu-dp-daemonset-x", "kube-system", "w1", {}, None)
    plugin["status"]["conditions"] = [
        {"type": "Ready", "status": "True", "lastTransitionTime": ago(minutes=50)}
    ]
    rebooted = event(
        find(items, "Node", "w1"), "Rebooted", "Node w1 has been rebooted", "kubelet", late=52 * 60
    )
    found = stuck([*items, plugin, rebooted], "cad")

    assert found.reason == (
        f"w1 offers 0 of {GPU} (its device plugin kube-system/nvidia-kubevirt-gpu-dp-daemonset-x "
        "runs there, and offers none); w1 was rebooted 52 min ago"
    )
    assert found.remedy.startswith(
        "see on w1 whether the device (10de:1bb0) is bound to the driver"
    )
    assert (
        "then restart nvidia-kubevirt-gpu-dp-daemonset-x; no other node can run it" in found.remedy
    )


def sriov(selector, name="fast", resource="fast"):
    spec = {"resourceName": resource, "nodeSelector": selector, "numVfs": 8}
    api = "sriovnetwork.openshift.io/v1"
    return obj("SriovNetworkNodePolicy", api, name, "sriov", spec=spec)


def without_nic(*policies):
    device = {"devices": {"hostDevices": [{"name": "nic", "deviceName": "openshift.io/fast"}]}}
    own = starting("web", "Scheduling", domain=device, requests={"openshift.io/fast": "1"})
    return stuck(plain() + own + list(policies), "web")


def test_the_policy_of_a_device_selects_no_node():
    found = without_nic(sriov({"nic": "x710"}), sriov({"nic": "e810"}, "other", "slow"))

    assert found.reason.endswith(
        "Waiting does not help: SriovNetworkNodePolicy sriov/fast, which offers it, selects no "
        "node: none has label nic=x710"
    )
    assert found.remedy.startswith(
        "let the nodeSelector of SriovNetworkNodePolicy sriov/fast select another node, if its "
        "cards fit, or give that node its labels: kubectl edit sriovnetworknodepolicy fast -n "
        "sriov; or remove openshift.io/fast from the VM"
    )


def test_a_policy_for_the_nodes_is_not_the_cause():
    assert "Policy" not in without_nic(sriov({})).reason
    assert "Policy" not in without_nic(sriov({"nic": "e810"}, "other", "slow")).reason
