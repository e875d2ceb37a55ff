"""Claims on Longhorn's v2 engine, for which another access mode does not help."""

from __future__ import annotations

import pytest

from tests.builders import manifest
from tests.healthy.storage import HARVESTER, harvester, harvester_vm
from tests.incidents_platform.case import only
from virt_admit.forecasts.drain import vm_outcomes
from virt_admit.forecasts.placement.components.longhorn import engine_limits
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object

SPACE, API = "longhorn-system", "longhorn.io/v1beta2"


@pytest.mark.parametrize(
    ("engine", "release", "limited"),
    [
        ({"backendStoreDriver": "v2"}, "v1.5.2", True),
        ({"dataEngine": "v2"}, "v1.7.2", True),
        ({"dataEngine": "v2"}, "v1.8.0", False),
        ({"dataEngine": "v1"}, "v1.5.2", False),
        ({}, "v1.5.2", False),
    ],
)
def test_which_volumes_do_not_migrate(
    engine: dict[str, str], release: str, *, limited: bool
) -> None:
    csi = {"csi": {"driver": "driver.longhorn.io", "volumeHandle": "pvc-1"}}
    items = [
        manifest("v1", "PersistentVolumeClaim", "root", "vms", spec={"volumeName": "pv"}),
        manifest("v1", "PersistentVolume", "pv", spec=csi),
        manifest(API, "Volume", "pvc-1", SPACE, spec=engine),
        manifest(API, "Setting", "current-longhorn-version", SPACE, value=release),
    ]
    found = engine_limits.of_claim("vms", "root", Snapshot(items, complete=["*"]))
    assert bool(found) is limited


@pytest.mark.parametrize(
    ("engine", "said", "remedy"),
    [
        ("v1", "ReadWriteOnce claim 'root')", "copy ReadWriteOnce claim 'root' to a ReadWriteMany"),
        ("v2", "claim 'root', a volume of Longhorn's v2 engine", "let drains shut the guest down"),
    ],
)
def test_a_claim_that_exists_is_not_made_shared(engine: str, said: str, remedy: str) -> None:
    items = harvester_vm("root", "h1", (1, 3))
    only(items, "PersistentVolumeClaim", "root")["spec"]["accessModes"] = ["ReadWriteOnce"]
    only(items, "Volume", "pvc-vms-root")["spec"]["dataEngine"] = engine
    vmi = only(items, "VirtualMachineInstance", "root")
    vmi["spec"]["evictionStrategy"] = "LiveMigrate"
    vmi["status"]["conditions"] = [
        {"type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable"}
    ]
    cluster = Snapshot(map(Object, [*harvester((1, 3), HARVESTER, "x"), *items]), ["*"])
    found = vm_outcomes.forecast(Object(vmi), cluster)
    assert said in found.reason
    assert found.remedy.startswith(remedy)
    assert "make ReadWriteOnce" not in found.remedy
