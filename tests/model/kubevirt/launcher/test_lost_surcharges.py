"""A quota whose limits Rancher has written back while Harvester's surcharge was outstanding."""

import pytest

from tests.builders import manifest
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubevirt.launcher import lost_surcharges

BASE = '{"limit":{"limitsCpu":"26000m","limitsMemory":"52971Mi"}}'
SURCHARGE = '{"limits.cpu":"4","limits.memory":"8880039936"}'
OF_RANCHER = {"resourcequota.management.cattle.io/default-resource-quota": "true"}
WRITTEN = {"fieldsV1": {"f:spec": {"f:hard": {}}}, "manager": "agent"}


def told(*, labels=OF_RANCHER, cpu="26", base=BASE, surcharge=SURCHARGE, **annotations):
    metadata = {
        "labels": labels,
        "annotations": {"harvesterhci.io/migrating-db": surcharge, **annotations},
        "managedFields": [
            {**WRITTEN, "manager": "harvester", "time": "2024-12-17T09:31:12Z"},
            {**WRITTEN, "time": "2024-12-17T09:32:41Z"},
            {"manager": "kube-controller-manager", "time": "2024-12-17T09:40:00Z"},
        ],
    }
    hard = {"limits.cpu": cpu, "pods": "9"}
    quota = manifest("v1", "ResourceQuota", "q", "shop", metadata=metadata, spec={"hard": hard})
    annotated = {"annotations": {"field.cattle.io/resourceQuota": base}}
    namespace = manifest("v1", "Namespace", "shop", metadata=annotated)
    vmi = manifest("kubevirt.io/v1", "VirtualMachineInstance", "db", "shop")
    return lost_surcharges.of(vmi, quota, Snapshot([namespace, quota]))


def test_what_was_added_is_gone_with_who_wrote_it():
    found = told()
    assert found.reason == (
        ". Rancher's agent wrote spec.hard back to the limits of Namespace shop (limits.cpu 26) at "
        "2024-12-17 09:32 UTC, after Harvester had raised it for migrations (annotation "
        "harvesterhci.io/migrating-db), and Harvester before 1.4.2 does not raise it again"
    )
    assert "(limits.cpu 30), as Harvester refuses other limits" in found.remedy
    assert found.command == (
        "kubectl patch resourcequota q -n shop --type=merge -p "
        """'{"spec":{"hard":{"limits.cpu":"30"}}}'"""
    )


def test_what_was_added_for_all_migrations_is_given_back():
    other = {"harvesterhci.io/migrating-web": '{"limits.cpu":"1500m","limits.memory":"1"}'}
    assert '"limits.cpu":"31500m"' in told(**other).command


@pytest.mark.parametrize(
    "other",
    [
        {"cpu": "30"},
        {"labels": {}},
        {"base": '{"limit":{"limitsMemory":"52971Mi"}}'},
        {"base": "none"},
        {"base": "[" * 100_000},
        {"surcharge": "[" * 100_000},
        {"surcharge": '{"limits.memory":"8880039936"}'},
        {"surcharge": "[]"},
        {"harvesterhci.io/skipResourceQuotaAutoScaling": "true"},
    ],
)
def test_a_quota_that_has_it_or_never_had(other):
    assert not told(**other)
