"""Upgrades of Harvester that wait for a chart, and objects that Fleet writes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.builders import manifest, node
from tests.cli.test_upgrade import kubevirt
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.model.evidence.writes import fleet_objects
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import command_of
from virt_admit.model.node_updates import harvester_upgrades
from virt_admit.model.node_updates.rancher import managed_charts

NOW = "2027-03-01T12:00:00Z"


def upgrade(since: str = "2027-03-01T10:00:00Z") -> Object:
    conditions = [
        {"type": "NodesPrepared", "status": "True", "lastUpdateTime": since},
        {"type": "SystemServicesUpgraded", "status": "Unknown"},
        {"type": "Completed", "status": "Unknown"},
    ]
    metadata = {
        "labels": {"harvesterhci.io/latestUpgrade": "true"},
        "creationTimestamp": "2027-03-01T09:00:00Z",
    }
    status = {"conditions": conditions}
    return manifest(
        "harvesterhci.io/v1beta1",
        "Upgrade",
        "hvst",
        "harvester-system",
        metadata=metadata,
        status=status,
    )


def chart(patch: str, name: str = "harvester") -> Object:
    modified = {
        "apiVersion": "example.com/v1",
        "kind": "Thing",
        "name": "a",
        "namespace": "b",
        "patch": patch,
    }
    summary = {
        "ready": 0,
        "nonReadyResources": [{"bundleState": "Modified", "modifiedStatus": [modified]}],
    }
    ready = {"type": "Ready", "status": "False", "lastUpdateTime": "2027-03-01T11:00:00Z"}
    status = {"summary": summary, "conditions": [ready]}
    return manifest("management.cattle.io/v3", "ManagedChart", name, "fleet-local", status=status)


def definition(**schema: Any) -> Object:
    versions = [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]
    spec = {"group": "example.com", "names": {"kind": "Thing"}, "versions": versions}
    return manifest(
        "apiextensions.k8s.io/v1", "CustomResourceDefinition", "things.example.com", spec=spec
    )


def order(*objects: Object) -> tuple[str, str]:
    (found,) = managed_charts.standing(Snapshot([upgrade(), *objects], ("*",), time=NOW))
    return found.reason, found.remedy


BUNDLE = manifest(
    "fleet.cattle.io/v1alpha1",
    "Bundle",
    "mcc-harvester",
    "fleet-local",
    spec={"forceSyncGeneration": 4},
)


@pytest.mark.parametrize(
    ("schema", "dropped"),
    [
        ({"properties": {"spec": {"properties": {"old": {"type": "string"}}}}}, True),
        ({"properties": {"spec": {"properties": {"new": {"type": "string"}}}}}, False),
        ({"properties": {"spec": {"x-kubernetes-preserve-unknown-fields": True}}}, False),
        ({"properties": {"spec": {"additionalProperties": {"type": "string"}}}}, False),
        ({"properties": {"spec": {"type": "object"}}}, False),
        ({}, False),
    ],
    ids=["old", "known", "preserved", "any name", "no properties", "no schema"],
)
def test_a_field_that_the_api_server_drops(schema: dict[str, Any], dropped: bool) -> None:
    reason, remedy = order(chart('{"spec":{"new":"x"}}'), definition(**schema), BUNDLE)

    assert ("does not have, so that the API server drops it" in reason) is dropped
    assert (
        remedy.startswith(
            "Apply the CustomResourceDefinitions" if dropped else "If it was edited by hand"
        )
        is True
    )
    sync, write = '{"spec":{"forceSyncGeneration":5}}', "kubectl patch thing a -n b --type=merge"
    assert (sync if dropped else write) in command_of(remedy)


def test_the_old_definition_of_kubevirt_is_named_with_its_file() -> None:
    modified = chart('{"spec":{"configuration":{"vmStateStorageClass":"x"}}}')
    said = modified.data["status"]["summary"]["nonReadyResources"][0]["modifiedStatus"][0]
    said |= {"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "name": "kubevirt"}
    properties = {"spec": {"properties": {"configuration": {"properties": {"other": {}}}}}}
    versions = [{"name": "v1", "schema": {"openAPIV3Schema": {"properties": properties}}}]
    spec = {"group": "kubevirt.io", "names": {"kind": "KubeVirt"}, "versions": versions}
    crd = "CustomResourceDefinition"
    old = manifest("apiextensions.k8s.io/v1", crd, "kubevirts.kubevirt.io", spec=spec)
    _, remedy = order(modified, old, BUNDLE)

    assert remedy.startswith("Apply dependency_charts/kubevirt-operator/crds and other CRDs of the")


@pytest.mark.parametrize("patch", ["{}", "[]", "null", "{", '{"spec":{}}'])
def test_a_patch_that_changes_nothing(patch: str) -> None:
    thing = manifest("example.com/v1", "Thing", "a", "b", spec={"new": "x"})
    reason, remedy = order(chart(patch), thing, BUNDLE)

    assert "ManagedChart" in reason
    assert remedy


CHANGED = '{"spec":{"level":"info"}}'


def harvester(*objects: Object) -> Snapshot:
    """Return a cluster of Harvester at rest with a chart that is ready, and these objects."""
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    own = manifest(
        "management.cattle.io/v3", "ManagedChart", "harvester", "fleet-local", status=ready
    )
    return Snapshot([own, *objects], ("*",), time=NOW)


def test_a_chart_that_is_not_ready_refuses_an_upgrade() -> None:
    thing = manifest("example.com/v1", "Thing", "a", "b", spec={"level": "debug"})
    (found,) = managed_charts.refusals(harvester(chart(CHANGED, "monitoring"), thing))

    assert found.certain
    assert found.reason.startswith(
        "Harvester refuses to start an upgrade while a chart is not ready"
    )
    assert "ManagedChart fleet-local/monitoring is Modified for 60 min: Thing b/a" in found.reason
    assert "differs in spec.level ('debug', in the chart 'info')" in found.reason
    assert command_of(found.remedy) == f"kubectl patch thing a -n b --type=merge -p '{CHANGED}'"


def test_an_object_of_a_kind_that_helm_compares_is_written_by_fleet() -> None:
    found = chart(CHANGED, "monitoring")
    (status,) = found.at("status", "summary", "nonReadyResources").items()
    (modified,) = status["modifiedStatus"].items()
    modified.value.update(apiVersion="apps/v1", kind="Deployment")
    bundle = manifest(
        "fleet.cattle.io/v1alpha1", "Bundle", "mcc-monitoring", "fleet-local", spec={}
    )
    (order_,) = managed_charts.refusals(harvester(found, bundle))

    assert '{"spec":{"forceSyncGeneration":1}}' in command_of(order_.remedy)


LOG = {"harvesterhci.io/upgradeLog": "hvst-upgrade-1-upgradelog"}


def of_log(labels: dict[str, str] = LOG) -> Object:
    late = chart(CHANGED, "hvst-upgrade-1-upgradelog-operator")
    late.metadata.value["labels"] = labels
    return late


def test_a_chart_that_is_left_of_a_deleted_upgrade() -> None:
    (found,) = managed_charts.refusals(harvester(of_log()))

    assert found.certain
    assert "is left of Upgrade hvst-upgrade-1, which does not exist any more (label" in found.reason
    assert command_of(found.remedy) == (
        "kubectl delete managedchart hvst-upgrade-1-upgradelog-operator -n fleet-local"
    )


def test_charts_that_are_left_of_nothing() -> None:
    ended = manifest("harvesterhci.io/v1beta1", "Upgrade", "hvst-upgrade-1", "harvester-system")
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    own = manifest(
        "management.cattle.io/v3", "ManagedChart", "harvester", "fleet-local", status=ready
    )
    blind = Snapshot([own, of_log()], (), time=NOW)

    for there in (harvester(of_log({})), harvester(of_log(), ended), blind):
        (found,) = managed_charts.refusals(there)
        assert "is left of" not in found.reason


def test_charts_that_refuse_no_upgrade() -> None:
    late = chart(CHANGED, "monitoring")
    other = Snapshot([late], ("*",), time=NOW)  # Rancher alone has such charts too
    soon = chart(CHANGED, "monitoring")
    soon.condition("Ready").value["lastUpdateTime"] = "2027-03-01T11:55:00Z"

    assert list(managed_charts.refusals(harvester())) == []
    assert list(managed_charts.refusals(harvester(upgrade(), late))) == []
    assert list(managed_charts.refusals(other)) == []
    assert [each.certain for each in managed_charts.refusals(harvester(soon))] == [False]


def test_a_rehearsal_before_an_upgrade_stops_at_the_chart() -> None:
    nodes = [node(name, {"harvesterhci.io/managed": "true"}) for name in "abc"]
    late = harvester(*nodes, kubevirt(), chart(CHANGED, "monitoring"))
    ready = harvester(*nodes, kubevirt())

    assert rehearse(late, Options()).possible is False
    assert rehearse(ready, Options()).possible is True
    unread = Snapshot(ready, ("*",), ("managedcharts.management.cattle.io",), time=NOW)
    assert rehearse(unread, Options()).possible is None


@pytest.mark.parametrize("patch", ["", "no JSON", "[]", "[" * 5000])
def test_a_patch_that_is_not_an_object(patch: str) -> None:
    reason, _ = order(chart(patch))

    assert reason.endswith("ManagedChart fleet-local/harvester is Modified for 60 min")


def test_charts_for_which_the_upgrade_does_not_wait() -> None:
    found = Snapshot([upgrade(), chart("{}", "my-own")], ("*",), time=NOW)

    assert list(managed_charts.standing(found)) == []


def test_a_rehearsal_stops_at_the_chart() -> None:
    nodes = [node(name, {"harvesterhci.io/managed": "true"}) for name in "abc"]
    objects = [*nodes, kubevirt(), upgrade(), chart('{"spec":{"new":"x"}}')]
    result = rehearse(Snapshot(objects, ("*",), time=NOW), Options())

    assert result.possible is False
    assert [str(stop.problem) for stop in result.stops] == [
        "UpdateOrderStands:harvester-system/hvst"
    ]
    assert result.unseen == ()


@pytest.mark.parametrize(
    ("mark", "name"),
    [
        ("default-mcc-harvester-cattle-fleet-local-system", "harvester"),
        ("default-mcc-rancher-monitoring-crd-cattle-fleet-local-system", "rancher-monitoring-crd"),
        ("default-my-repo-cattle-fleet-system", ""),
        ("", "harvester"),
    ],
)
def test_the_chart_that_writes_an_object(mark: str, name: str) -> None:
    annotations = {"objectset.rio.cattle.io/id": mark} if mark else {}
    obj = manifest(
        "kubevirt.io/v1",
        "KubeVirt",
        "kubevirt",
        "harvester-system",
        metadata={"annotations": annotations},
    )

    assert fleet_objects.chart_of(obj) == name


def storage_class(name: str, mark: str) -> Object:
    metadata = {"annotations": {"storageclass.kubernetes.io/is-default-class": mark}}
    return manifest("storage.k8s.io/v1", "StorageClass", name, metadata=metadata)


def refused(named: str, chosen: str = "harvester-longhorn") -> Object:
    found = chart("{}")
    said = (
        f'cannot patch "{chosen}" with kind StorageClass: admission webhook "v" denied '
        f"the request: default storage class {named} already exists, please reset it first"
    )
    found.data["status"]["summary"]["nonReadyResources"] = [
        {"bundleState": "ErrApplied", "message": said}
    ]
    return found


@pytest.mark.parametrize("named", ["%!s(MISSING)", "fast"])
def test_a_second_default_class_is_named(named: str) -> None:
    given = (storage_class("fast", "true"), storage_class("harvester-longhorn", "false"))
    reason, remedy = order(refused(named), *given)
    assert "default storage class fast already exists" in reason
    assert command_of(remedy) == (
        "kubectl patch managedchart harvester -n fleet-local --type=merge -p "
        """'{"spec":{"values":{"storageClass":{"defaultStorageClass":false}}}}'"""
    )


def test_a_second_default_class_that_no_value_of_the_chart_leaves_alone() -> None:
    reason, remedy = order(refused("fast", "other"), storage_class("fast", "true"))
    assert "default storage class fast already exists" in reason
    assert remedy.endswith("to mark it again, first unmark other")
    assert (
        "kubectl annotate storageclass fast storageclass.kubernetes.io/is-default-class=false "
        "--overwrite" in remedy
    )


def test_a_second_default_class_that_is_none_any_more() -> None:
    given = (storage_class("fast", "false"), storage_class("harvester-longhorn", "true"))
    reason, remedy = order(refused("%!s(MISSING)"), *given)
    assert "MISSING" in reason
    assert command_of(remedy) == "kubectl describe managedchart harvester -n fleet-local"


def test_the_age_of_a_stage_is_that_of_its_condition() -> None:
    begun = upgrade()
    begun.data["status"]["conditions"][1]["lastTransitionTime"] = "2027-03-01T11:20:00Z"
    assert harvester_upgrades.stage(begun) == (
        "SystemServicesUpgraded",
        clock.instant("2027-03-01T11:20:00Z"),
    )


def test_the_pods_of_a_deployment_that_is_not_ready_say_why() -> None:
    found = chart("{}")
    state = {"state": "in-progress", "message": ["Available: 0/1"]}
    told = {"kind": "Deployment", "namespace": "b", "name": "a", "summary": state}
    found.data["status"]["summary"]["nonReadyResources"] = [
        {"bundleState": "NotReady", "nonReadyStatus": [told]}
    ]
    owners = [
        [{"kind": kind, "name": "a", "controller": True}] for kind in ("Deployment", "ReplicaSet")
    ]
    placed = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
    objects = [
        manifest("apps/v1", "Deployment", "a", "b", spec={"replicas": 1}),
        manifest("apps/v1", "ReplicaSet", "a", "b", metadata={"ownerReferences": owners[0]}),
        manifest(
            "v1",
            "Pod",
            "a-x",
            "b",
            metadata={"ownerReferences": owners[1]},
            status={"phase": "Pending", "conditions": [placed]},
        ),
    ]
    reason, remedy = order(found, *objects)

    assert reason.endswith(
        "Deployment b/a is in-progress (Available: 0/1): 0 of 1 ready, pod a-x reports "
        "FailedScheduling: 0/3 nodes are available"
    )
    assert command_of(remedy) == "kubectl describe deployment a -n b"
    reason, remedy = order(found, *objects[:1])
    assert reason.endswith("Deployment b/a is in-progress (Available: 0/1)")


def missing(*, exists: bool = False, state: str = "Modified") -> Object:
    found = chart("")
    entry = found.data["status"]["summary"]["nonReadyResources"][0]
    entry["bundleState"] = state
    entry["modifiedStatus"][0] |= {"missing": True, "exist": exists}
    return found


def test_an_object_that_was_never_made_is_made_by_another_sync() -> None:
    late = definition()
    late.data["metadata"]["creationTimestamp"] = "2027-03-01T10:59:20Z"
    reason, remedy = order(missing(), late, BUNDLE)
    assert (
        "Thing b/a is missing (its CustomResourceDefinition things.example.com was made" in reason
    )
    assert "made only 40 s before that), and Fleet does not apply a release again" in reason
    assert remedy == (
        "Have Fleet apply the Bundle again, after which the upgrade goes on by itself: kubectl "
        "patch bundles.fleet.cattle.io mcc-harvester -n fleet-local --type=merge -p "
        """'{"spec":{"forceSyncGeneration":5}}'; if it is deleted again, remove what deletes it"""
    )


DIFFERS = {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "b", "name": "other"}
ALSO = "this may also set back what differs in Deployment b/other"


@pytest.mark.parametrize("first", [missing(), chart(CHANGED)])
@pytest.mark.parametrize(("patch", "named"), [(CHANGED, True), ("", False)])
def test_another_sync_sets_back_what_else_differs(first: Object, patch: str, named: bool) -> None:
    found = Object(json.loads(json.dumps(first.data)))
    (entry,) = found.data["status"]["summary"]["nonReadyResources"]
    if not entry["modifiedStatus"][0].get("missing"):
        entry["modifiedStatus"][0] |= {"apiVersion": "apps/v1", "kind": "DaemonSet"}
    entry["modifiedStatus"].append(DIFFERS | {"patch": patch})
    _, remedy = order(found, BUNDLE)
    assert "forceSyncGeneration" in command_of(remedy)
    assert (f"'; {ALSO}; if " in remedy) is named
    assert "; if " in remedy.partition(command_of(remedy))[2]


def test_another_sync_for_a_new_definition_sets_back_what_else_differs() -> None:
    found = chart('{"spec":{"new":"x"}}')
    (entry,) = found.data["status"]["summary"]["nonReadyResources"]
    entry["modifiedStatus"].append(DIFFERS | {"patch": CHANGED})
    old = definition(properties={"spec": {"properties": {"old": {"type": "string"}}}})
    assert order(found, old, BUNDLE)[1].endswith(f"'; {ALSO}")


def test_a_merge_patch_sets_back_one_object() -> None:
    found = chart(CHANGED, "monitoring")
    (entry,) = found.data["status"]["summary"]["nonReadyResources"]
    entry["modifiedStatus"].append(DIFFERS | {"patch": CHANGED})
    thing = manifest("example.com/v1", "Thing", "a", "b", spec={"level": "debug"})
    (held,) = managed_charts.refusals(harvester(found, thing))
    command = f"kubectl patch thing a -n b --type=merge -p '{CHANGED}'"
    assert held.remedy.startswith(
        f"If it was edited by hand, set what the chart has: {command}; if a controller writes"
    )
    assert "also" not in held.remedy


def test_an_old_definition_did_not_come_too_late() -> None:
    old = definition()
    old.data["metadata"]["creationTimestamp"] = "2026-03-01T10:59:20Z"
    assert "was made only" not in order(missing(), old, BUNDLE)[0]


@pytest.mark.parametrize(
    ("found", "spec", "remedy"),
    [
        (missing(), {"correctDrift": {"enabled": True}}, "Remove what deletes it or refuses it"),
        (missing(exists=True), {}, "Let Fleet own it"),
        (missing(state="NotReady"), {}, "Have Fleet make it"),
    ],
    ids=["Fleet corrects drift", "another owner", "not applied"],
)
def test_an_object_that_no_sync_makes(found: Object, spec: dict[str, Any], remedy: str) -> None:
    said = order(found, Object(BUNDLE.data | {"spec": spec}))
    assert said[1].startswith(remedy)
    assert "forceSyncGeneration" not in said[1]
