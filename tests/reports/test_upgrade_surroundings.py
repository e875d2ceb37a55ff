"""What objects report beside the verdict of an upgrade."""

import pytest

from tests.builders import manifest, node
from virt_admit.forecasts.upgrade import rehearsal
from virt_admit.forecasts.upgrade.rehearsal import Options
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.reports import platform_objects
from virt_admit.reports.upgrade import text
from virt_admit.reports.upgrade.surroundings import with_reported


@pytest.mark.parametrize(
    ("group", "kind", "reported"),
    [("hypershift", "HostedCluster", 0), ("operator", "IngressController", 1)],
)
def test_hosted_clusters_are_not_part_of_the_upgrade(group, kind, reported):
    condition = {
        "type": "ClusterVersionUpgradeable",
        "status": "False",
        "message": "APIs are removed",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    status = {"conditions": [condition]}
    obj = manifest(f"{group}.openshift.io/v1beta1", kind, "guest1", "clusters", status=status)
    cluster = Snapshot([node("a"), obj], ["*"], time="2026-01-02T00:00:00Z")
    found = with_reported(rehearsal.rehearse(cluster, Options(), forecast_only=True), cluster)
    assert len(found.reported) == reported


def _failed(kind, name, namespace):
    condition = {
        "type": "Failed",
        "status": "True",
        "reason": "BackoffLimitExceeded",
        "message": "Job has reached the specified backoff limit",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    return manifest("batch/v1", kind, name, namespace, status={"conditions": [condition]})


def test_what_the_platform_reports_stands_beside_a_yes():
    """Another update has failed: no node waits for it, but an administrator wants to know."""
    objects = [
        node("a"),
        manifest("apps/v1", "DaemonSet", "longhorn-manager", "longhorn-system"),
        _failed("Job", "longhorn-uninstall", "longhorn-system"),
        _failed("Job", "nightly-report", "shop"),  # an application
        _failed("VirtualMachineInstance", "db", "longhorn-system"),  # judged as a VM
    ]
    cluster = Snapshot(objects, ["*"], time="2026-01-02T00:00:00Z")
    found = with_reported(rehearsal.rehearse(cluster, Options(), forecast_only=True), cluster)
    assert [each.name for each in found.reported] == ["longhorn-uninstall"]
    printed = text.text(found)
    assert text.PLATFORM in printed
    assert "Job longhorn-system/longhorn-uninstall reports: " in printed


def test_webhooks_and_api_services_make_a_namespace_one_of_the_platform():
    service = {"clientConfig": {"service": {"namespace": "guards", "name": "guard"}}}
    hooks = manifest("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "guard")
    hooks.data["webhooks"] = [service]
    spec = {"service": {"namespace": "metrics", "name": "metrics"}}
    api = manifest("apiregistration.k8s.io/v1", "APIService", "v1.metrics", spec=spec)
    jobs = [_failed("Job", f"j-{each}", each) for each in ("guards", "metrics", "shop")]
    cluster = Snapshot([hooks, api, *jobs], ["*"], time="2026-01-02T00:00:00Z")
    names = {each.namespace for each in platform_objects.reporting(cluster, ())}
    assert names <= {"guards", "metrics"}
    assert names
    assert platform_objects.reporting(cluster, ["Jobs j-guards and j-metrics failed"]) == ()


@pytest.mark.parametrize(
    ("kind", "state", "scheduled", "told"),
    [
        ("longhorn.io/v1beta2", "degraded", "True", False),  # the migrations of VMs wait for it
        ("longhorn.io/v1beta2", "degraded", "False", True),  # nothing rebuilds it
        ("longhorn.io/v1beta2", "faulted", "True", True),
        ("another.io/v1", "degraded", "True", True),
    ],
)
def test_a_volume_that_longhorn_rebuilds_is_judged_with_its_vm(kind, state, scheduled, told):
    since = "2026-01-01T00:00:00Z"
    condition = {"type": "Scheduled", "status": scheduled, "lastTransitionTime": since}
    status = {"robustness": state, "state": "attached", "lastDegradedAt": since}
    volume = manifest(kind, "Volume", "v", "longhorn-system", status=status)
    volume.data["status"]["conditions"] = [condition]
    manager = manifest("apps/v1", "DaemonSet", "longhorn-manager", "longhorn-system")
    cluster = Snapshot([manager, volume], ["*"], time="2026-01-02T00:00:00Z")
    assert bool(platform_objects.reporting(cluster, ())) is told
