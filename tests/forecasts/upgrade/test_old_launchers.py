"""What an upgrade says of VMs whose launchers are older than KubeVirt."""

import pytest

from tests.forecasts.outage.losses import manifest, node, snapshot, vm
from virt_admit.forecasts.upgrade import rehearsal
from virt_admit.forecasts.upgrade.rehearsal import Options
from virt_admit.reports.upgrade import report, text

NEW = "v1.6.3"
STATUS = {
    "phase": "Deployed",
    "observedKubeVirtVersion": NEW,
    "targetKubeVirtVersion": NEW,
    "operatorVersion": NEW,
}


def vmi(name, tag="v1.5.2"):
    """Return a VM with its pod; without a tag its launcher is named by a digest."""
    image = f"quay.io/kubevirt/virt-launcher:{tag}" if tag else "quay.io/kubevirt/x@sha256:1"
    found, *others = vm(name, "a", evictionStrategy="LiveMigrate")
    found["metadata"]["labels"] = {"kubevirt.io/outdatedLauncherImage": ""} if tag != NEW else {}
    found["status"]["launcherContainerImageVersion"] = image
    return [found, *others]


def rehearse(number, methods, *vmis, **more):
    updates = {} if methods is None else {"workloadUpdateMethods": methods}
    kubevirt = manifest(
        "kubevirt.io/v1",
        "KubeVirt",
        "kubevirt",
        "kubevirt",
        spec={"workloadUpdateStrategy": updates},
        status=STATUS | {"outdatedVirtualMachineInstanceWorkloads": number} | more,
    )
    cluster = snapshot([node("a"), node("b"), kubevirt], *vmis)
    return rehearsal.rehearse(cluster, Options(), forecast_only=True)


@pytest.mark.parametrize(
    ("tag", "methods", "words"),
    [
        (
            "v1.5.2",
            None,
            (
                "2 VMs (shop/app, shop/db) run launchers of 1.5.2 (KubeVirt is 1.6.3): "
                "workloadUpdateMethods of KubeVirt lists no method, so KubeVirt moves none of "
                "them. A drain that migrates or restarts such a VM updates it too. List "
                "LiveMigrate in workloadUpdateMethods, or use virtctl migrate for single VMs."
            ),
        ),
        ("", [], "2 VMs (shop/app, shop/db) run old launchers (KubeVirt is 1.6.3): workload"),
        ("v1.5.2", ["LiveMigrate"], "KubeVirt updates them by itself with LiveMigrate"),
    ],
)
def test_vms_that_an_update_of_kubevirt_left(tag, methods, words):
    found = rehearse(2, methods, vmi("app", tag), vmi("db", tag), vmi("wiki", NEW))
    assert words in found.old_launchers
    assert found.old_launchers in text.text(found)
    assert report.report(found).old_launchers == found.old_launchers
    # the answer about the nodes stays
    new = rehearse(0, methods, vmi("app", NEW), vmi("db", NEW), vmi("wiki", NEW))
    assert found.possible is True
    assert (found.possible, found.duration) == (new.possible, new.duration)


@pytest.mark.parametrize(
    ("number", "more"),
    [
        (0, {}),
        (2, {"phase": "Deploying"}),
        (
            2,
            {
                "conditions": [
                    {"type": "Progressing", "status": "True", "reason": "UpdateInProgress"}
                ]
            },
        ),
    ],
    ids=["none is old", "not deployed", "an update is under way"],
)
def test_nothing_is_said(number, more):
    assert not rehearse(number, None, vmi("app"), **more).old_launchers
