"""What ends a refusal by the API server: each kind of refusal that names its cause, in the words of that API server."""

import pytest

from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.launcher import pod_refusals

VMI = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstance",
    "metadata": {"name": "db", "namespace": "shop", "ownerReferences": [{"kind": "VirtualMachine", "name": "db"}]},
}
FORBIDDEN = 'failed to create virtual machine pod: pods "virt-launcher-db-x2k4q" is forbidden: '


def priority_class(name):
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}


def remedy(said, *items):
    return pod_refusals.remedy(Object(VMI), said, Snapshot(list(map(Object, items)), ["*"]))


def test_a_priority_class_that_does_not_exist():
    said = f"{FORBIDDEN}no PriorityClass with name gold was found"
    others = map(priority_class, ("silver", "system-cluster-critical", "kubevirt-cluster-critical", "bronze"))

    assert remedy(said) == (
        "create PriorityClass gold, or correct priorityClassName of the VM and stop and start it: kubectl edit vm db -n shop"
    )
    assert "priorityClassName of the VM to one that exists (bronze, silver) and stop" in remedy(said, *others)


@pytest.mark.parametrize(
    ("said", "words", "command"),
    [
        (
            'pod rejected: RuntimeClass "kata" not found',
            "create RuntimeClass kata, or correct defaultRuntimeClass of KubeVirt",
            "",
        ),
        (
            'error looking up service account shop/reader: serviceaccount "reader" not found',
            "create the service account",
            "kubectl create serviceaccount reader -n shop",
        ),
        (
            'violates PodSecurity "restricted:latest": unrestricted capabilities (container "virtiofs-share")',
            "let namespace shop enforce Pod Security privileged",
            "kubectl label namespace shop pod-security.kubernetes.io/enforce=privileged --overwrite",
        ),
        (
            "unable to validate against any security context constraint: []",
            "let the service account kubevirt-controller use SecurityContextConstraints",
            "kubectl describe securitycontextconstraints kubevirt-controller",
        ),
        (
            "failed quota: small: must specify limits.cpu for: compute,guest-console-log; limits.memory for: compute",
            "set limits.cpu, limits.memory in the resources of the VM, which ResourceQuota small",
            "kubectl edit resourcequota small -n shop",
        ),
        (
            "maximum memory usage per Container is 4Gi, but limit is 5Gi",
            "change that limit in the LimitRange, or what the VM requests",
            "kubectl edit limitrange -n shop",
        ),
        (
            "unable to create new content in namespace shop because it is being terminated",
            "create the VM in another namespace",
            "kubectl describe namespace shop",
        ),
    ],
)
def test_a_refusal_that_names_its_cause(said, words, command):
    found = remedy(f"{FORBIDDEN}{said}")

    assert found.startswith(words)
    assert found.endswith(command)


def test_a_webhook_may_quote_another_refusal():
    said = 'admission webhook "pods.example.com" denied the request: no PriorityClass with name gold was found'

    assert remedy(said).startswith(
        "let webhook pods.example.com accept it in shop, or change in the VM what it rejects: "
    )
    assert remedy(said.replace("example.com", "kubevirt.io")) == (
        "correct in the VM what KubeVirt rejects: kubectl edit vm db -n shop"
    )


def test_the_runtime_class_is_a_setting_of_the_cluster():
    hco = {
        "apiVersion": "hco.kubevirt.io/v1beta1",
        "kind": "HyperConverged",
        "metadata": {"name": "kubevirt-hyperconverged", "namespace": "cnv"},
    }
    said = 'pod rejected: RuntimeClass "kata" not found'

    assert remedy(said, hco).endswith(": kubectl edit hyperconverged kubevirt-hyperconverged -n cnv")


@pytest.mark.parametrize("said", ["", "server error. command SyncVMI failed", "exceeded quota: small"])
def test_other_words_name_no_cause(said):
    assert remedy(said) == ""
