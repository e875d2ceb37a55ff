"""VMs of node pools of HyperShift, which sets their eviction strategy."""

import pytest

from tests.builders import kubevirt
from tests.forecasts.drain.test_control_path import drained, machine
from tests.forecasts.drain.test_external_movers import HOSTED, LABELS, capi, deployment, hosted


def of_pool(vmi, default="LiveMigrate"):
    made = capi()
    made[0].data["metadata"]["annotations"] = {"hypershift.openshift.io/nodePool": "clusters/np"}
    known = drained(
        vmi, machine("db"), *made, deployment(*HOSTED), kubevirt(evictionStrategy=default)
    )
    return " ".join(each for each in known.notes if "HyperShift" in each)


def test_external_of_a_node_pool_is_not_the_default_of_the_cluster():
    said = of_pool(hosted())

    assert "each NodePool (clusters/np), so in shop/db, where the cluster has LiveMigrate" in said
    assert said.endswith("; an edit of the VM lasts until its Machine is replaced")
    assert "virtctl migrate db -n shop" in said
    assert "annotation hypershift.openshift.io/kubevirt-vm-jsonpatch of the NodePool" in said


@pytest.mark.parametrize(
    ("vmi", "default"),
    [
        (hosted(LABELS), "LiveMigrate"),
        (hosted(strategy="LiveMigrate"), "LiveMigrate"),
        (hosted(migratable="False"), "LiveMigrate"),
        (hosted(), "None"),
    ],
    ids=["not of HyperShift", "it migrates", "it cannot migrate", "no default to migrate"],
)
def test_external_that_is_not_told(vmi, default):
    assert not of_pool(vmi, default)
