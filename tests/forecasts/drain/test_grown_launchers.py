"""A launcher that has grown above the limit of its namespace, whose quota Harvester has raised."""

import json

import pytest

from tests import builders
from tests.builders import NAMESPACE, manifest
from tests.forecasts.drain.vm_motion import cluster, migration, vmi
from virt_admit.forecasts.placement.refusals import exceeded_quotas, grown_launchers

SAID = (
    "exceeded quota: default-x, requested: limits.memory=6Gi, used: limits.memory=6Gi, limited: "
    "limits.memory=11Gi"
)


def quota(raised=True):
    labels = {"resourcequota.management.cattle.io/default-resource-quota": "true"}
    added = {"harvesterhci.io/migratingUID-u": json.dumps({"limits.memory": "6Gi"})}
    metadata = {"labels": labels, "annotations": added if raised else {}}
    return manifest("v1", "ResourceQuota", "default-x", NAMESPACE, metadata=metadata)


def project(limit="5Gi"):
    said = {"field.cattle.io/resourceQuota": json.dumps({"limit": {"limitsMemory": limit}})}
    return manifest("v1", "Namespace", NAMESPACE, "", metadata={"annotations": said})


ASKED = migration("next", drain=False)


def grown(*objects, ratio="8", waits=ASKED):
    setting = {"additionalGuestMemoryOverheadRatio": ratio} if ratio else {}
    limits = {"limits": {"memory": "4Gi"}}
    guest = vmi(spec={"domain": {"devices": {}, "resources": limits}})
    labels = {"harvesterhci.io/managed": "true"}
    world = cluster(guest, builders.kubevirt(setting), builders.node("a", labels), *objects)
    exceeded = exceeded_quotas.of(SAID, NAMESPACE, cluster=world)
    return grown_launchers.of(guest, waits, exceeded, world)


def test_what_grew_and_the_limit_that_is_enough():
    """6Gi are used and 6Gi asked for, of 11Gi: the limit of 5Gi lacks 1Gi."""
    found = grown(quota(), project())

    assert "2Gi of these are what virt-launcher needs besides the VM" in found.reason
    assert "additionalGuestMemoryOverheadRatio 8 (KubeVirt spec.configuration by " in found.reason
    assert "larger than the 5Gi of namespace shop" in found.reason
    assert "kubectl delete vmim next -n shop" in found.remedy
    assert "from 5Gi to at least 6144Mi" in found.remedy
    assert "as a decision, put that ratio back" in found.remedy


def test_a_migration_of_a_drain_is_not_deleted_as_it_comes_back():
    remedy = grown(quota(), project(), waits=migration("next")).remedy
    assert "delete" not in remedy
    assert remedy.startswith("once no migration of the namespace is open")


@pytest.mark.parametrize(
    "found",
    [
        grown(quota(), project("7Gi")),
        grown(quota(), project(), ratio=""),
        grown(quota(raised=False), project()),
        grown(quota()),
    ],
    ids=["the limit has room for one", "no ratio", "nothing was added", "the limit is unseen"],
)
def test_a_quota_that_is_short_for_another_reason(found):
    assert found is None
