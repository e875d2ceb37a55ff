"""A definition whose stored versions keep an update of OpenShift from being applied."""

from __future__ import annotations

import pytest

from tests.healthy.parts import Object as Raw
from tests.healthy.parts import obj
from tests.incidents_platform.cluster_updates import at_rest, condition
from tests.model.node_updates.test_cluster_updates import BEHIND, applying, stops
from virt_admit.model.messages import command_of

PLUGINS = "consoleplugins.console.openshift.io"
INVALID = (
    f'Could not update customresourcedefinition "{PLUGINS}" (595 of 917): the object is invalid, '
    "possibly due to local cluster configuration"
)


def definition(*stored: str) -> Raw:
    names = {"plural": "consoleplugins", "kind": "ConsolePlugin"}
    versions = [{"name": "v1", "storage": True}, {"name": "v1alpha1", "storage": False}]
    spec = {"group": "console.openshift.io", "names": names, "versions": versions}
    status = {"storedVersions": list(stored)}
    of = "apiextensions.k8s.io/v1"
    return obj("CustomResourceDefinition", of, PLUGINS, spec=spec, status=status)


def migration(version: str = "v1", status: bool = True) -> Raw:
    resource = {"group": "console.openshift.io", "resource": "consoleplugins", "version": version}
    done = {"conditions": [condition("Succeeded", status)]}
    of = "migration.k8s.io/v1alpha1"
    return obj("StorageVersionMigration", of, "m", spec={"resource": resource}, status=done)


PLUGIN = obj("ConsolePlugin", "console.openshift.io/v1", "p")
AGAIN = f"Write all {PLUGINS} again unchanged, so that each is stored as v1"
PATCH = "patch customresourcedefinition consoleplugins.console.openshift.io --subresource=status"


@pytest.mark.parametrize(
    ("objects", "begins"),
    [
        ([PLUGIN, migration()], f"{AGAIN} (StorageVersionMigration m wrote them before, when"),
        ([migration()], "Take v1alpha1 out of status.storedVersions, as no such object exists"),
        ([], "Take v1alpha1 out of status.storedVersions, as no such object exists"),
        ([PLUGIN], f"{AGAIN}: "),
        ([PLUGIN, migration("v1alpha1")], f"{AGAIN}: "),
        ([PLUGIN, migration(status=False)], f"{AGAIN}: "),
    ],
    ids=[
        "migrated",
        "migrated and gone",
        "none exists",
        "not migrated",
        "another version",
        "failed",
    ],
)
def test_a_stored_version_that_the_release_no_longer_has(objects: list[Raw], begins: str) -> None:
    failing = condition("Failing", True, "UpdatePayloadResourceInvalid", INVALID, hours=2)
    (stop,) = stops([*at_rest(), applying(failing), BEHIND, definition("v1alpha1", "v1"), *objects])

    assert "has v1alpha1, v1 in status.storedVersions and storage version v1" in stop.reason
    assert stop.remedy.startswith(begins)
    assert PATCH in stop.remedy
    assert command_of(stop.remedy).startswith(f"kubectl {PATCH}") is begins.startswith("Take")


@pytest.mark.parametrize("objects", [[definition("v1")], []], ids=["none is left", "unknown"])
def test_a_definition_that_is_invalid_for_another_cause(objects: list[Raw]) -> None:
    failing = condition("Failing", True, "UpdatePayloadResourceInvalid", INVALID, hours=2)
    (stop,) = stops([*at_rest(), applying(failing), BEHIND, *objects])

    assert "storedVersions" not in stop.reason + stop.remedy
