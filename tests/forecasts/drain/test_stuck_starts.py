"""VMs that are being started and get no further: the cause is named, and waiting is advised only while it helps."""

import pytest

from tests import builders
from tests.forecasts.drain.test_vm_states import row
from tests.forecasts.drain.vm_motion import NOW, ago, cluster, launcher, node, vm, vmi
from virt_admit.model.kubernetes.cluster import Snapshot

IMAGE = {"volumes": [{"name": "disk", "containerDisk": {"image": "quay.io/disks/ubuntu:24.04"}}]}
DISK = {"volumes": [{"name": "disk", "dataVolume": {"name": "disk"}}]}
HANDLER = builders.manifest(
    "v1",
    "Pod",
    "virt-handler-x",
    "kubevirt",
    metadata={"labels": {"kubevirt.io": "virt-handler"}},
    spec={"nodeName": "a"},
    status={"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
)


def starting(phase="Scheduled", age=2600, spec=DISK, **fields):
    stamps = [{"phase": phase, "phaseTransitionTimestamp": ago(age)}]
    return vmi(phase=phase, reported=False, spec=spec, phaseTransitionTimestamps=stamps, **fields)


@pytest.mark.parametrize(
    ("found", "late"),
    [
        (starting(), True),
        (starting(age=200), False),  # virt-launcher may still give up
        (starting(phase="Scheduling"), False),
    ],
)
def test_a_guest_that_virt_handler_does_not_report_is_not_waited_for(found, late):
    seen = row(cluster(found, launcher(age=2600), HANDLER))

    assert ("virt-handler on a has its pod since 43 min and reports no guest" in seen.reason) is late
    assert ("kubectl logs virt-handler-x -n kubevirt" in seen.remedy) is late
    assert seen.remedy.startswith("wait until") is not late


def test_a_pod_that_is_not_ready_is_not_handed_over():
    assert "reports no guest" not in row(cluster(starting(), launcher(ready=False), HANDLER)).reason


@pytest.mark.parametrize(
    ("spec", "kubevirt", "server", "named"),
    [
        (IMAGE, "v1.8.3", "v1.36.0", True),
        ({"domain": {"firmware": {"kernelBoot": {"container": {}}}}}, "v1.7.4", "v1.37.1", True),
        (DISK, "v1.8.3", "v1.36.0", False),
        (IMAGE, "v1.8.4", "v1.36.0", False),
        (IMAGE, "v1.8.3", "v1.35.9", False),
        (IMAGE, "v1.8.3", None, False),
    ],
)
def test_a_checksum_that_newer_api_servers_reject_is_named_where_the_releases_do_not_fit(spec, kubevirt, server, named):
    running = builders.kubevirt(status={"observedKubeVirtVersion": kubevirt})
    objects = [node("a"), node("b"), vm(), running, starting(spec=spec), launcher(age=2600), HANDLER]
    seen = row(Snapshot(objects, ["*"], server_version=server, time=NOW))

    assert ("rejects most likely the checksum of its container disk" in seen.reason) is named
    assert ("update KubeVirt to 1.8.4" in seen.remedy) is named
