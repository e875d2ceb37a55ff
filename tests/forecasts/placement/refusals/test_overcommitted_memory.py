"""A memory request that KubeVirt has divided by its ratio, so that it is above the limit."""

import pytest

from tests.builders import manifest
from virt_admit.forecasts.placement.refusals import overcommitted_memory
from virt_admit.model.kubernetes.cluster import Snapshot

SAID = (
    'Error creating pod: Pod "virt-launcher-db-7qbjj" is invalid: '
    'spec.containers[0].resources.requests: Invalid value: "{}": must be less than or equal to '
    "memory limit of 65806Mi"
)
DIVIDED = SAID.format(86182461440)


def vmi(name="db", request="64Gi", limit="64Gi"):
    resources = {
        kind: {"memory": amount}
        for kind, amount in (("requests", request), ("limits", limit))
        if amount
    }
    spec = {"domain": {"resources": resources}}
    return manifest("kubevirt.io/v1", "VirtualMachineInstance", name, "erp", spec=spec)


def told(said=DIVIDED, ratio=80, release="v1.6.2", own=None, hco=()):
    developer = {"memoryOvercommit": ratio} if ratio else {}
    kubevirt = manifest(
        "kubevirt.io/v1",
        "KubeVirt",
        "kubevirt",
        "kubevirt",
        spec={"configuration": {"developerConfiguration": developer}},
        status={"observedKubeVirtVersion": release, "phase": "Deployed"},
    )
    own = own or vmi()
    others = [vmi("app", "32Gi", "32Gi"), vmi("dns", "4Gi", None), vmi("wide", "4Gi", "8Gi")]
    return overcommitted_memory.of(own, said, Snapshot([kubevirt, own, *others, *hco], ["*"]))


def test_the_setting_is_named_with_the_vms_that_it_concerns():
    found = told()
    assert found.reason == (
        f"{DIVIDED.removeprefix('Error creating pod: ')}. KubeVirt 1.6.2 divides the 64Gi of "
        "memory that the VM itself requests by memoryOvercommit 80%. The next pods of erp/app are "
        "refused alike"
    )
    assert found.remedy == (
        "set memoryOvercommit of KubeVirt kubevirt/kubevirt (developerConfiguration) to 100: "
        "kubectl edit kubevirt kubevirt -n kubevirt; or update KubeVirt to 1.6.3 or later; or take "
        "the memory limit out of these VMs"
    )


def test_hyperconverged_writes_the_setting():
    hco = manifest("hco.kubevirt.io/v1beta1", "HyperConverged", "kubevirt-hyperconverged", "cnv")
    assert "memoryOvercommitPercentage of HyperConverged cnv/kubevirt-hyp" in told(hco=[hco]).remedy


@pytest.mark.parametrize(
    "given",
    [
        {"ratio": 100},
        {"ratio": 150},
        {"ratio": None},
        {"ratio": 90},
        {"said": SAID.format(86182461441)},
        {"own": vmi(request=None)},
        {"own": vmi(limit=None)},
        {"said": "exceeded quota: q"},
    ],
    ids=["none", "over", "unset", "another", "figures", "no request", "no limit", "words"],
)
def test_a_request_that_the_ratio_does_not_explain(given):
    assert told(**given) is None


def test_a_release_that_has_it_again_is_not_to_be_updated():
    assert "update KubeVirt" not in told(release="v1.7.0").remedy
