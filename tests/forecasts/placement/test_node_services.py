"""A service of a node that a driver of a volume names as not running."""

from __future__ import annotations

import pytest

from tests.builders import manifest
from tests.forecasts.placement import test_fenced_volumes
from virt_admit.forecasts.placement.components.drivers import node_services
from virt_admit.forecasts.placement.components.drivers.node_services import MissingService
from virt_admit.model.kubernetes.cluster import Snapshot

TRIDENT, STAGED = "csi.trident.netapp.io", "failed to stage volume: multipathd is not running"
GROUP = "machineconfiguration.openshift.io"


def missing(
    said: str = STAGED,
    driver: str = TRIDENT,
    *,
    units: list[dict] | None = None,
    pool: bool = True,
    system: str = "Red Hat Enterprise Linux CoreOS",
) -> MissingService | None:
    labels = {"node-role.kubernetes.io/worker": ""}
    meta = {"labels": labels, "annotations": {f"{GROUP}/currentConfig": "rendered-worker-1"}}
    status = {"nodeInfo": {"osImage": system}}
    objects = [manifest("v1", "Node", name, metadata=meta, status=status) for name in "ab"]
    if pool:
        spec = {"nodeSelector": {"matchLabels": labels}}
        objects.append(manifest(f"{GROUP}/v1", "MachineConfigPool", "worker", spec=spec))
    if units is not None:
        config = {"config": {"systemd": {"units": units}}}
        objects.append(manifest(f"{GROUP}/v1", "MachineConfig", "rendered-worker-1", spec=config))
    return node_services.missing(said, driver, "a", Snapshot(objects, complete=["*"]))


def test_no_machine_config_of_the_pool_enables_the_service() -> None:
    found = missing(units=[{"name": "iscsid.service", "enabled": True}])
    assert found == MissingService(
        "multipathd does not run on a, which driver csi.trident.netapp.io needs there: "
        "MachineConfig rendered-worker-1 of MachineConfigPool worker (2 nodes) does not enable "
        "multipathd.service",
        f"let a MachineConfig with the label {GROUP}/role: worker enable multipathd.service and "
        'write /etc/multipath.conf with find_multipaths "no", without which it does not start: '
        f"kubectl get machineconfig -l {GROUP}/role=worker; its nodes are then drained and "
        "rebooted one after another",
        of_node=False,
    )


def test_the_service_is_enabled_and_has_failed() -> None:
    found = missing(units=[{"name": "multipathd.service", "enabled": True}])
    assert found is not None
    assert found.what.endswith("although MachineConfig rendered-worker-1 enables it")
    assert found.remedy.startswith("see on the host why multipathd.service has failed")


@pytest.mark.parametrize(
    ("said", "system", "remedy"),
    [
        (STAGED, "Ubuntu 24.04", "enable and start multipathd.service on the host a and write"),
        ("iscsiadm: can not connect to iSCSI daemon (111)!", "Talos (v1.9)", "add the system ext"),
        (
            "mount.nfs: rpc.statd is not running but is required for remote locking.",
            "Ubuntu 24.04",
            "enable and start rpc-statd.service on the host a, and on each other node",
        ),
    ],
)
def test_a_node_that_an_administrator_configures(said: str, system: str, remedy: str) -> None:
    found = missing(said, "san.example.org", system=system, pool=False)
    assert found is not None
    assert found.of_node
    assert found.remedy.startswith(remedy)
    assert "find_multipaths" not in found.remedy


def test_what_other_nodes_have_is_not_known_without_their_machine_config() -> None:
    found = missing()
    assert found is not None
    assert (found.of_node, "does not enable" in found.what) == (True, False)


@pytest.mark.parametrize("said", ["pod is not running", "multipath device not found"])
def test_an_error_that_names_no_service(said: str) -> None:
    assert missing(said) is None


def test_the_start_of_a_pod_says_it() -> None:
    fault = test_fenced_volumes.start(STAGED)
    assert fault.brief.startswith("multipathd does not run on a, which driver rook-ceph.rbd")
    assert fault.words.endswith(f"{STAGED}. {fault.brief}")
