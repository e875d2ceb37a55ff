"""What may remediate a node and is not read."""

import pytest

from tests.builders import complete, manifest
from virt_admit.forecasts.remediation import outside_checks


@pytest.mark.parametrize(("space", "outside"), [("fleet-default", 1), ("fleet-local", 0)])
def test_rancher_manages_its_own_cluster_from_within(space, outside):
    notes = {"cluster.x-k8s.io/machine": "m", "cluster.x-k8s.io/cluster-namespace": space}
    cluster = complete(manifest("v1", "Node", "a", metadata={"annotations": notes}))
    assert len(list(outside_checks.outside("a", cluster))) == outside
