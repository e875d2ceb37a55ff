"""VMs for which no pod is created: a device that is not permitted, or a webhook that denies it."""

import pytest

from tests.forecasts.drain.test_start_obstacles import stuck
from tests.healthy.clusters import plain
from tests.healthy.machines import storage_class
from tests.healthy.parts import namespaces, obj, pod
from tests.incidents.machines import find
from tests.incidents.starts import GPU, gpu, refused, starting, with_gpu
from virt_admit.forecasts.drain.starts.devices import unpermitted_devices

# --- devices that are not permitted ---------------------------------------------------------------

PLAYER = "acme.com/PLAYER"


def not_permitted(*more, offered="1", permitted=(PLAYER,), config="KubeVirt"):
    items = gpu(offered, external=True) + starting("cad", "Pending", **with_gpu()) + list(more)
    refused(
        items,
        "cad",
        f"failed to render launch manifest: GPU {GPU} is not permitted in permittedHostDevices "
        "configuration",
    )
    entries = [{"pciVendorSelector": "1:2", "resourceName": each} for each in permitted]
    spec = find(items, "KubeVirt", "kubevirt")["spec"]["configuration"]
    spec["permittedHostDevices"] = {"pciHostDevices": entries} if permitted else None
    return stuck(items, "cad")


def test_a_device_that_kubevirt_does_not_permit():
    found = not_permitted()
    assert found.reason == (
        f"KubeVirt creates no pod for it, because its GPU {GPU} is not permitted, though w1 has it "
        "allocatable: spec.configuration.permittedHostDevices of KubeVirt kubevirt/kubevirt lists "
        f"only {PLAYER}"
    )
    assert "externalResourceProvider: true since a device plugin offers it" in found.remedy
    assert found.remedy.endswith(
        ": kubectl edit kubevirt kubevirt -n kubevirt; or remove it from the VM"
    )


def test_the_patch_has_the_ids_that_are_known():
    ids = {"vendorId": "10de", "deviceId": "1bb0", "resourceName": GPU, "nodeName": "w1"}
    known = obj("PCIDevice", "devices.harvesterhci.io/v1beta1", "w1-1", status=ids)
    assert '"value":{"pciVendorSelector":"10de:1bb0"' in not_permitted(known).remedy
    alone = not_permitted(known, permitted=(), offered="0")
    assert "lists no device" in alone.reason
    assert "allocatable" not in alone.reason
    assert (
        '{"spec":{"configuration":{"permittedHostDevices":{"pciHostDevices":[{"pciVendorSelector"'
        in alone.remedy
    )
    assert "externalResourceProvider" not in alone.remedy


def test_harvester_writes_the_entry_when_its_controller_starts():
    name, space = "harvester-pcidevices-controller-8bd17", "harvester-system"
    found = not_permitted(*namespaces(space), pod(name, space, "w1", {}, None))
    assert found.remedy.startswith(f"restart {name} on w1, which writes the entry again")
    assert found.remedy.endswith(f"kubectl delete pod {name} -n {space}")


@pytest.mark.parametrize(
    ("version", "path"),
    [("v1beta1", "spec.permittedHostDevices"), ("v1", "spec.virtualization.permittedHostDevices")],
)
def test_hyperconverged_holds_the_list_where_there_is_one(version, path):
    hco = obj("HyperConverged", f"hco.kubevirt.io/{version}", "own", "kubevirt", spec={})
    found = not_permitted(hco)
    assert f"{path} of HyperConverged kubevirt/own lists no device" in found.reason
    assert "pciDeviceSelector" in found.remedy
    assert found.remedy.endswith(
        ": kubectl edit hyperconverged own -n kubevirt; or remove it from the VM"
    )


def test_a_list_that_hyperconverged_writes_is_not_patched(monkeypatch):
    monkeypatch.setattr(unpermitted_devices, "may_be_managed", lambda *_: True)
    ids = {"vendorId": "10de", "deviceId": "1bb0", "resourceName": GPU, "nodeName": "w1"}
    found = not_permitted(obj("PCIDevice", "devices.harvesterhci.io/v1beta1", "w1-1", status=ids))
    assert found.remedy.startswith(
        "add it to permittedHostDevices of HyperConverged if one writes this KubeVirt"
    )
    assert ": kubectl get hyperconvergeds -A; or remove it" in found.remedy


# --- webhooks that deny ---------------------------------------------------------------------------

HOOK = "pods.example.com"
LONG = (
    f"the pod has {', '.join(f'a field {number} that is not allowed' for number in range(40))}, so "
    "there"
)


def denying(words, *more, name="web"):
    items = (
        plain((1, 6))
        + storage_class("block", "rbd.csi.ceph.com")
        + starting(name, "Pending")
        + list(more)
    )
    return stuck(
        refused(items, name, f'admission webhook "{HOOK}" denied the request: {words}'), name
    )


def configuration():
    kind, version = "ValidatingWebhookConfiguration", "admissionregistration.k8s.io/v1"
    return obj(kind, version, "own-hooks", webhooks=[{"name": HOOK, "failurePolicy": "Ignore"}])


def test_the_name_of_the_webhook_is_never_cut():
    found = denying(LONG, configuration())
    known = f"{HOOK} (ValidatingWebhookConfiguration own-hooks)"
    begin = f"virt-controller cannot create its pod: webhook {known} denied it: the pod"
    assert found.reason.startswith(begin)
    assert found.brief.startswith(begin)
    assert found.reason.endswith("so there")
    assert f"let webhook {HOOK} accept it" in found.remedy
    assert f"webhook {HOOK} denied it" in denying("").reason  # its configuration is not known


def ip(vm, namespace="vms"):
    spec = {
        "podName": vm,
        "namespace": namespace,
        "podType": "VirtualMachine",
        "ipAddress": "10.0.0.15",
    }
    return obj("IP", "kubeovn.io/v1", "web.vms", spec=spec)


CONFLICT = "annotation static-ip 10.0.0.15 is conflict with ip crd web.vms, ip 10.0.0.15"


def test_an_address_of_the_vm_itself_is_no_conflict():
    found = denying(CONFLICT, configuration(), ip("web"))
    assert "IP web.vms is of this VM itself (podName web), so there is no conflict" in found.reason
    assert found.remedy.startswith(
        "keep IP web.vms, and let that webhook accept pods of VMs: update Kube-OVN"
    )
    assert found.remedy.endswith("kubectl edit validatingwebhookconfiguration own-hooks")


@pytest.mark.parametrize("other", [ip("db"), ip("web", "test")])
def test_an_address_of_another_vm(other):
    found = denying(CONFLICT, configuration(), other)
    spec = other["spec"]
    assert f"IP web.vms is of VirtualMachine {spec['namespace']}/{spec['podName']}" in found.reason
    assert found.remedy.startswith("give the VM another address, or free IP web.vms")


def test_an_address_that_is_not_known():
    assert "is of" not in denying(CONFLICT).reason


# --- Pod Security ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("why", "tells"),
    [
        (
            'non-default capabilities (container "compute" must not include "SYS_X" in '
            "securityContext.capabilities.add)",
            "The VM does not ask for it: KubeVirt or MutatingWebhookConfiguration devices adds it",
        ),
        ('hostPath volumes (volume "data")', ""),
    ],
)
def test_who_adds_what_pod_security_forbids(why, tells):
    items = starting("cad", "Pending")
    rules = [{"apiGroups": [""], "operations": ["CREATE"], "resources": ["pods"]}]
    hooks = [{"name": "pods.devices.example.com", "rules": rules, "failurePolicy": "Ignore"}]
    kind = "MutatingWebhookConfiguration"
    items.append(obj(kind, "admissionregistration.k8s.io/v1", "devices") | {"webhooks": hooks})
    said = (
        f'it needs a privileged namespace: pods "x" is forbidden: violates PodSecurity "b:l": {why}'
    )
    refused(items, "cad", said)
    found = stuck(items, "cad")
    assert f'it violates PodSecurity "b:l": {why[:20]}' in found.reason
    assert found.reason.endswith(tells)
    assert ("The VM does not ask" in found.reason) is bool(tells)
