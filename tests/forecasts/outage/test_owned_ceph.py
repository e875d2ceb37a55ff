"""Remedies about a CephCluster that an operator writes from its owner."""

from __future__ import annotations

from tests.forecasts.outage.test_lost_storage import THREE, after_the_loss, ceph


def test_the_number_of_monitors_is_set_in_the_owner():
    parts = ceph(*THREE[:1], wanted=1)
    (cluster,) = (
        each for each in parts if isinstance(each, dict) and each["kind"] == "CephCluster"
    )
    ocs = {"apiVersion": "ocs.openshift.io/v1", "kind": "StorageCluster", "name": "odf"}
    cluster["metadata"]["ownerReferences"] = [{**ocs, "controller": True}]

    (row,) = after_the_loss(*parts).outages[0].vms

    assert "spec.managedResources.cephCluster.monCount of StorageCluster odf" in row.remedy
    assert row.remedy.endswith("kubectl edit storagecluster odf -n rook-ceph")
