"""What ends a refusal by the API server: each kind of refusal that names its cause,
in the words of that API server.
"""

import pytest

from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.launcher import pod_refusals

VMI = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstance",
    "metadata": {
        "name": "db",
        "namespace": "shop",
        "ownerReferences": [{"kind": "VirtualMachine", "name": "db"}],
    },
}
FORBIDDEN = 'failed to create virtual machine pod: pods "virt-launcher-db-x2k4q" is forbidden: '


def priority_class(name):
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
    }


def remedy(said, *items):
    return pod_refusals.remedy(Object(VMI), said, Snapshot(list(map(Object, items)), ["*"]))


def test_a_priority_class_that_does_not_exist():
    said = f"{FORBIDDEN}no PriorityClass with name gold was found"
    others = map(
        priority_class, ("silver", "system-cluster-critical", "kubevirt-cluster-critical", "bronze")
    )

    assert remedy(said) == (
        "create PriorityClass gold, or correct priorityClassName of the VM and stop and start it: "
        "kubectl edit vm db -n shop"
    )
    assert "priorityClassName of the VM to one that exists (bronze, silver) and stop" in remedy(
        said, *others
    )


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
            (
                'violates PodSecurity "restricted:latest": unrestricted capabilities (container '
                '"virtiofs-share")'
            ),
            "let namespace shop enforce Pod Security privileged",
            (
                "kubectl label namespace shop pod-security.kubernetes.io/enforce=privileged "
                "--overwrite; or remove from the VM what is named"
            ),
        ),
        (
            (
                'violates PodSecurity "baseline:latest": non-default capabilities (container '
                '"compute" must not include "SYS_X" in securityContext.capabilities.add)'
            ),
            "let namespace shop enforce Pod Security privileged",
            (
                "kubectl label namespace shop pod-security.kubernetes.io/enforce=privileged "
                "--overwrite; or run the VM in a namespace that does"
            ),
        ),
        (
            "unable to validate against any security context constraint: []",
            "let the service account kubevirt-controller use SecurityContextConstraints",
            "kubectl describe securitycontextconstraints kubevirt-controller",
        ),
        (
            (
                "failed quota: small: must specify limits.cpu for: compute,guest-console-log; "
                "limits.memory for: compute"
            ),
            (
                "add a LimitRange to shop with default limits as large as its VMs need; or set "
                "limits.cpu, limits.memory in the resources of the VM, which ResourceQuota small "
                "demands"
            ),
            "kubectl edit vm db -n shop; then stop and start the VM",
        ),
        (
            "failed quota: small: must specify requests.cpu for: compute",
            "set requests.cpu in the resources of the VM, which ResourceQuota small demands",
            "kubectl edit vm db -n shop; then stop and start the VM",
        ),
        (
            "maximum memory usage per Container is 4Gi, but limit is 5Gi",
            "change that limit in the LimitRange: kubectl edit limitrange -n shop",
            "; or change what the VM requests",
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


LIMITS = "failed quota: small: must specify limits.cpu for: compute; limits.memory for: compute"


def kubevirt(release, *gates):
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "KubeVirt",
        "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
        "spec": {"configuration": {"developerConfiguration": {"featureGates": list(gates)}}},
        "status": {"observedKubeVirtVersion": release},
    }


def test_kubevirt_may_set_the_limits_that_a_quota_demands():
    found = remedy(LIMITS, kubevirt("v1.3.1"))

    assert found.startswith(
        "enable feature gate AutoResourceLimitsGate of KubeVirt kubevirt/kubevirt, so that"
    )
    assert ": kubectl edit kubevirt kubevirt -n kubevirt; or add a LimitRange" in found
    hco = {
        "apiVersion": "hco.kubevirt.io/v1beta1",
        "kind": "HyperConverged",
        "metadata": {"name": "hco", "namespace": "cnv"},
    }
    assert remedy(LIMITS, kubevirt("v1.3.1"), hco).startswith(
        "enable feature gate autoResourceLimits of HyperConverged"
    )


@pytest.mark.parametrize(
    "cluster", [kubevirt("v1.3.1", "AutoResourceLimitsGate"), kubevirt("v1.5.0"), kubevirt("")]
)
def test_kubevirt_that_sets_limits_already_or_may(cluster):
    assert "AutoResourceLimitsGate" not in remedy(LIMITS, cluster)


def test_an_instance_type_leaves_no_limits_to_the_vm():
    vmi = {
        **VMI,
        "metadata": {
            **VMI["metadata"],
            "annotations": {"kubevirt.io/cluster-instancetype-name": "u1.large"},
        },
    }
    found = pod_refusals.remedy(Object(vmi), LIMITS, Snapshot([], ["*"]))

    assert "(its own resources cannot have limits, as it uses instance type u1.large)" in found
    assert "or set limits.cpu" not in found
    assert found.endswith("kubectl describe resourcequota small -n shop")


def test_a_webhook_may_quote_another_refusal():
    said = (
        'admission webhook "pods.example.com" denied the request: no PriorityClass with name gold '
        "was found"
    )

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

    assert remedy(said, hco).endswith(
        ": kubectl edit hyperconverged kubevirt-hyperconverged -n cnv"
    )


@pytest.mark.parametrize(
    "said", ["", "server error. command SyncVMI failed", "exceeded quota: small"]
)
def test_other_words_name_no_cause(said):
    assert remedy(said) == ""


GUEST = (
    'admission webhook "virtualmachineinstances-create-validator.kubevirt.io" denied the request: '
    "spec.domain.memory.guest '8Gi' must be equal to or less than the memory limit "
    "spec.domain.resources.limits.memory '2Gi'"
)
GREATER = (
    'admission webhook "virtualmachineinstances-create-validator.kubevirt.io" denied the request: '
    "spec.domain.resources.requests.memory '8Gi' is greater than "
    "spec.domain.resources.limits.memory '2Gi'"
)
POD = (
    'Pod "virt-launcher-db-x" is invalid: spec.containers[0].resources.requests: Invalid value: '
    '"8Gi": must be less than or equal to memory limit'
)


def limit_range(name, **item):
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"limits": [{"type": "Container", **item}]},
    }


def limited(said, *items, **annotations):
    metadata = {**VMI["metadata"], "annotations": annotations}
    spec = {"domain": {"memory": {"guest": "8Gi"}, "resources": {}}}
    vmi = Object({**VMI, "metadata": metadata, "spec": spec})
    return pod_refusals.remedy(vmi, said, Snapshot(list(map(Object, items)), ["*"]))


@pytest.mark.parametrize("said", [GUEST, GREATER, POD, f"{POD} of 2Gi"])
@pytest.mark.parametrize("key", ["default", "max"])
def test_a_default_limit_is_below_what_the_vm_asks_for(said, key):
    found = limited(said, limit_range("small", **{key: {"memory": "2Gi"}}))

    assert found == (
        "raise the default memory limit 2Gi of LimitRange shop/small, which the VM gets because it "
        "sets none: kubectl edit limitrange small -n shop; or set limits.memory of the VM "
        "(domain.resources) to at least what its guest has"
    )


def test_another_limit_range_is_not_the_cause():
    others = (
        limit_range("large", default={"memory": "64Gi"}),
        limit_range("cpu", default={"cpu": 1}),
    )
    found = limited(GUEST, *others)

    assert found == (
        "set limits.memory of the VM (domain.resources) to at least what its guest has, as it sets "
        "none: kubectl edit vm db -n shop"
    )
    small = limit_range("small", default={"memory": "2Gi"})
    assert "LimitRange shop/small, which" in limited(GUEST, *others, small)


def test_a_vm_with_an_instance_type_gets_no_limit_of_its_own():
    small = limit_range("small", default={"memory": "2Gi"})
    found = limited(GUEST, small, **{"kubevirt.io/cluster-instancetype-name": "u1.large"})

    assert found.startswith("raise the default memory limit 2Gi of LimitRange shop/small")
    assert "or set" not in found


def test_the_limit_of_the_vm_itself_is_too_small():
    spec = {"domain": {"resources": {"limits": {"memory": "2Gi"}}}}
    cluster = Snapshot([Object(limit_range("small", default={"memory": "2Gi"}))], ["*"])
    found = pod_refusals.remedy(Object({**VMI, "spec": spec}), GUEST, cluster)

    assert found == "correct in the VM what KubeVirt rejects: kubectl edit vm db -n shop"
