"""A sidecar that keeps the source pod: the setting that names its image, and its other VMs."""

import pytest

from tests.builders import kubevirt
from tests.forecasts.drain.vm_motion import cluster, launcher, vmi
from virt_admit.forecasts.drain.failed_migrations import old_sidecars

OLD = "quay.io/kubevirt/network-passt-binding:20231205"


def bound(name="db", **fields):
    interfaces = [{"name": "net", "binding": {"name": "passt"}}]
    return vmi(name, spec={"domain": {"devices": {"interfaces": interfaces}}}, **fields)


def settings(image=OLD, release="v1.2.0"):
    network = {"network": {"binding": {"passt": {"sidecarImage": image}}}}
    return kubevirt(network, status={"observedKubeVirtVersion": release})


def sidecar(*objects, image=OLD):
    states = [{"name": "hook-sidecar-0", "image": image, "state": {"running": {}}}]
    pod = launcher(containerStatuses=states)
    return old_sidecars.of(bound(), pod, "hook-sidecar-0", cluster(bound(), pod, *objects))


def test_the_setting_and_the_other_vms_are_named():
    found = sidecar(settings(), bound("web"), vmi("plain"))

    assert found.words == (
        f"{OLD} is its image by KubeVirt spec.configuration.network.binding.passt.sidecarImage, "
        "for shop/web as well"
    )
    assert "set sidecarImage to the build of KubeVirt 1.2.0" in found.further
    assert "kubectl edit kubevirt" in found.further


@pytest.mark.parametrize(
    "found",
    [
        sidecar(settings(image="quay.io/kubevirt/network-passt-binding:v1.2.0")),
        sidecar(settings(), image=""),
        sidecar(settings(), image="registry.example/other:1"),
    ],
    ids=["changed since", "no image is reported", "another sidecar"],
)
def test_a_sidecar_that_the_setting_does_not_name(found):
    assert found is None


def test_a_release_that_ends_no_sidecar_offers_no_other_image():
    assert sidecar(settings(release="v1.1.1")).further == ""
