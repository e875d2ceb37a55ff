"""Budgets whose operator takes their number of pods from an annotation."""

import pytest

from tests.builders import manifest
from tests.forecasts.drain.operator_clusters import budget, node, pod
from tests.forecasts.drain.test_operator_budgets import blocker, drained, unknown

PX = "core.libopenstorage.org"


def portworx(annotation, *, least=3, name="px-storage"):
    """Three storage nodes, the budget of their pods, and the annotation that may have set it."""
    labels, owner = {"storage": "true"}, (f"{PX}/v1", "StorageCluster", "px")
    pods = [pod(f"px-{on}", "portworx", labels, on, owner="StorageCluster") for on in "abc"]
    allowed = max(0, 3 - least)
    given = {"allowed": allowed, "expected": 3, "owner": owner, "minAvailable": least}
    meta = {"annotations": {"portworx.io/storage-pdb-min-available": annotation}}
    above = manifest(f"{PX}/v1", "StorageCluster", "px", "portworx", metadata=meta)
    return [*map(node, "abc"), *pods, budget(name, "portworx", labels, **given), above]


def test_an_annotation_of_portworx_demands_all_storage_nodes():
    found = blocker(portworx("3"))
    assert not found["now"]
    assert found["reason"] == (
        "minAvailable is 3 for 3 pods, as annotation portworx.io/storage-pdb-min-available of "
        "StorageCluster px is 3, from which its operator takes minAvailable"
    )
    assert found["remedy"].startswith(
        "Remove that annotation of StorageCluster px: kubectl annotate storagecluster px -n "
        "portworx portworx.io/storage-pdb-min-available-; or set it to 2; the operator then"
    )


@pytest.mark.parametrize("given", [{"annotation": "2"}, {"annotation": "3", "name": "px-kvdb"}])
def test_what_the_annotation_of_portworx_has_not_set(given):
    assert "StorageCluster px writes it, and whether it makes way is not known" in unknown(
        portworx(**given)
    )


def test_a_budget_that_portworx_leaves_room_in():
    assert drained(portworx("2", least=2))["drainable"]
