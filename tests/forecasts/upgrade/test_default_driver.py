"""Who updates the nodes where MachineDeployments exist, those of tenants included."""

import pytest

from tests.builders import manifest
from tests.cli.test_upgrade import node
from virt_admit.forecasts.upgrade.rollouts import Driver, default_driver
from virt_admit.model.kubernetes.cluster import Snapshot

CAPI = "cluster.x-k8s.io/v1beta2"
ALL = ["*"]
NO_MACHINES = ["nodes", "machinedeployments.cluster.x-k8s.io", "machineconfigpools"]


def machine(ref="", provider_id="", deployment="md"):
    return manifest(
        CAPI,
        "Machine",
        f"m-{ref or 'new'}",
        "tenants",
        metadata={"labels": {"cluster.x-k8s.io/deployment-name": deployment}},
        spec={"clusterName": "prod", "providerID": provider_id},
        status={"nodeRef": {"name": ref}} if ref else {},
    )


@pytest.mark.parametrize(
    ("machines", "complete", "driver"),
    [
        ([machine("tenant-1"), machine("tenant-2")], ALL, Driver.PLAIN),
        ([machine("a", "kubevirt://tenant")], ALL, Driver.PLAIN),  # a node of the same name
        ([machine("tenant-1"), machine()], ALL, Driver.PLAIN),
        ([machine("a", "metal3://a")], ALL, Driver.CLUSTER_API),
        ([machine("tenant-1"), machine("a", "metal3://a")], ALL, Driver.CLUSTER_API),
        ([machine()], ALL, Driver.CLUSTER_API),  # it may become a node of this cluster
        ([], ALL, Driver.CLUSTER_API),
        ([machine("tenant-1")], NO_MACHINES, Driver.CLUSTER_API),  # others may exist
    ],
)
def test_machines_of_tenants_decide_nothing(machines, complete, driver):
    host = node("a")
    host.data["spec"]["providerID"] = "metal3://a"
    deployment = manifest(CAPI, "MachineDeployment", "md", "tenants")

    assert default_driver(Snapshot([host, deployment, *machines], complete)) is driver
