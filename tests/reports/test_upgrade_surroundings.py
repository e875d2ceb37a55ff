"""What objects report beside the verdict of an upgrade."""

import pytest

from tests.builders import manifest, node
from virt_admit.forecasts.upgrade import rehearsal
from virt_admit.forecasts.upgrade.rehearsal import Options
from virt_admit.model.kubernetes.cluster import Snapshot
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
