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


def _stretched(*, least=7, here="abcd", there="efgh", release="23.10.3", bare=(), annotation=""):
    """A StorageCluster of two sites, of which this cluster has the pods of one."""
    labels, owner = {"storage": "true"}, (f"{PX}/v1", "StorageCluster", "px")
    pods = [pod(f"px-{on}", "portworx", labels, on, owner="StorageCluster") for on in here]
    given = {"allowed": 0, "expected": len(here), "owner": owner, "minAvailable": least}
    notes = {"portworx.io/misc-args": "-cluster_domain dc1"}
    notes |= {"portworx.io/storage-pdb-min-available": annotation} if annotation else {}
    by = {"kind": "StorageCluster", "name": "px", "controller": True}
    stored = [
        manifest(
            f"{PX}/v1",
            "StorageNode",
            each,
            "portworx",
            metadata={"ownerReferences": [by]},
            status={"nodeAttributes": {"storage": each not in bare}},
        )
        for each in here + there
    ]
    spec = {"template": {"spec": {"containers": [{"image": f"docker.io/px-operator:{release}"}]}}}
    operator = manifest("apps/v1", "Deployment", "portworx-operator", "portworx", spec=spec)
    above = manifest(
        f"{PX}/v1", "StorageCluster", "px", "portworx", metadata={"annotations": notes}
    )
    written = budget("px-storage", "portworx", labels, **given)
    return [*map(node, here), *pods, written, above, operator, *stored]


def test_storage_nodes_of_another_site_are_counted():
    found = blocker(_stretched())
    assert not found["now"]
    assert found["reason"] == (
        "minAvailable is 7 for 4 pods, as its operator (23.10.3) takes all 8 StorageNodes of "
        "StorageCluster px but one, and 4 of them (e, f, g, h) are in another cluster; here 4 pods "
        "run, of cluster domain dc1"
    )
    assert found["remedy"].startswith(
        "Set annotation portworx.io/storage-pdb-min-available of StorageCluster px to 3, which "
        "lets one pod go: kubectl annotate storagecluster px -n portworx "
        "portworx.io/storage-pdb-min-available=3; or update the operator of Portworx to 24.1.0"
    )


@pytest.mark.parametrize(("release", "then"), [("23.10.3", "set anno"), ("23.10.1", "update the")])
def test_a_budget_that_is_not_written_for_two_storage_nodes(release, then):
    found = blocker(_stretched(least=3, here="ab", there="ef", release=release))
    assert found["remedy"].startswith(f"Let Portworx have storage on 3 nodes here and {then}")
    assert "kubectl annotate" not in found["remedy"]


def test_an_operator_that_does_not_know_the_annotation_is_updated():
    found = blocker(_stretched(release="23.10.1"))
    assert found["remedy"].startswith("Update the operator of Portworx to 24.1.0 or later")
    assert "annotat" not in found["remedy"]


@pytest.mark.parametrize(
    "given",
    [
        {"release": "24.1.0"},
        {"least": 6},
        {"least": 4, "there": "e", "here": "abcd", "bare": ("a",)},
        {"annotation": "2"},
        {"there": "", "least": 4},
    ],
    ids=["it counts its own", "another number", "a node without storage", "annotated", "one site"],
)
def test_a_budget_that_storage_nodes_elsewhere_do_not_explain(given):
    assert "StorageCluster px writes it, and whether it makes way is not known" in unknown(
        _stretched(**given)
    )
