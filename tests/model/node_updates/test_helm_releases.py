"""Releases of Helm that an interrupted operation has left."""

from __future__ import annotations

import pytest

from tests.builders import manifest
from tests.model.node_updates.test_managed_charts import NOW, upgrade
from virt_admit.forecasts.upgrade import pool_obstacles
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import command_of
from virt_admit.model.node_updates.update_orders import StandingOrder

BUSY = "another operation (install/upgrade/rollback) is in progress"
OLD, JUST_NOW = "2027-03-01T11:00:00Z", "2027-03-01T11:55:00Z"


def record(
    number: int, status: str, made: str = OLD, of: str = "crds", space: str = "system"
) -> Object:
    labels = {"owner": "helm", "name": of, "status": status, "version": str(number)}
    metadata = {"labels": labels, "creationTimestamp": made}
    return manifest("v1", "Secret", f"sh.helm.release.v1.{of}.v{number}", space, metadata=metadata)


def chart(message: str = BUSY) -> list[Object]:
    """Return a chart that Fleet does not apply, and its bundle, whose release has another name."""
    entry = {"bundleState": "ErrApplied", "message": message}
    said = {"type": "Ready", "status": "False", "lastUpdateTime": OLD, "message": f"[{message}]"}
    own = {"summary": {"ready": 0, "nonReadyResources": [entry]}, "conditions": [said]}
    shown = {"conditions": [said], "display": {"state": "ErrApplied"}}
    spec = {"defaultNamespace": "system", "helm": {"releaseName": "crds"}}
    kind = ("management.cattle.io/v3", "ManagedChart", "harvester-crd", "fleet-local")
    bundle = ("fleet.cattle.io/v1alpha1", "Bundle", "mcc-harvester-crd", "fleet-local")
    return [manifest(*kind, status=own), manifest(*bundle, spec=spec, status=shown)]


def orders(*objects: Object, complete: tuple[str, ...] = ("*",)) -> list[StandingOrder]:
    return list(pool_obstacles.standing_orders(Snapshot([upgrade(), *objects], complete, time=NOW)))


@pytest.mark.parametrize("status", ["pending-upgrade", "pending-rollback"])
def test_the_last_deployed_revision_is_named(status: str) -> None:
    older = [record(9, "superseded"), record(10, "deployed"), record(2, "failed")]
    (found,) = orders(*chart(), record(11, status), *older)

    left = f"{BUSY}. Helm release system/crds was left in {status} (revision 11) for 60 min"
    assert left in found.reason
    assert command_of(found.remedy) == "helm rollback crds 10 -n system"


def test_a_first_installation_has_no_revision_to_go_back_to() -> None:
    (found,) = orders(*chart(), record(1, "pending-install"))

    assert command_of(found.remedy) == "kubectl delete secret sh.helm.release.v1.crds.v1 -n system"


@pytest.mark.parametrize(
    ("objects", "complete"),
    [
        ([record(7, "pending-upgrade")], ()),
        ([record(6, "deployed"), record(7, "pending-upgrade")], ()),
        ([record(6, "failed"), record(7, "pending-upgrade")], ("*",)),
        ([record(1, "pending-install")], ()),
    ],
    ids=["one was read", "some were read", "none was deployed", "the others were not read"],
)
def test_no_record_is_deleted_that_may_be_needed(
    objects: list[Object], complete: tuple[str, ...]
) -> None:
    (found,) = orders(*chart(), *objects, complete=complete)

    assert "was left in pending-" in found.reason
    assert command_of(found.remedy) == "helm history crds -n system"


def test_an_operation_of_unknown_age_may_go_on() -> None:
    (found,) = orders(*chart(), record(6, "deployed"), record(7, "pending-upgrade", ""))

    assert "was left in" not in found.reason
    assert "Unless a pod still works on it" in found.remedy
    fleet = ("", "fleet", "cattle-fleet-system")
    assert not orders(record(8, "deployed", *fleet), record(9, "pending-upgrade", *fleet))


def test_without_the_secrets_the_history_is_to_be_read() -> None:
    (found,) = orders(*chart())

    assert "An earlier operation with Helm release system/crds has not ended" in found.reason
    assert "roll it back to its last deployed revision" in found.remedy
    assert command_of(found.remedy) == "helm history crds -n system"


@pytest.mark.parametrize(
    "objects",
    [
        [*chart(), record(1, "superseded"), record(2, "deployed")],
        [*chart(), record(1, "deployed"), record(2, "pending-upgrade", JUST_NOW)],
        [*chart("quota exceeded"), record(1, "deployed"), record(2, "pending-upgrade")],
    ],
    ids=["ended", "just begun", "another cause"],
)
def test_other_causes_are_not_this_one(objects: list[Object]) -> None:
    (found,) = orders(*objects)

    assert "was left in" not in found.reason
    assert not command_of(found.remedy).startswith("helm rollback")


def test_a_release_that_rancher_changes_is_awaited_too() -> None:
    """harvester/harvester#9738: no bundle reports it."""
    fleet = ("fleet", "cattle-fleet-system")
    (found,) = orders(record(8, "deployed", OLD, *fleet), record(9, "pending-upgrade", OLD, *fleet))

    left = "Helm release cattle-fleet-system/fleet was left in pending-upgrade (revision 9)"
    assert left in found.reason
    assert command_of(found.remedy) == "helm rollback fleet 8 -n cattle-fleet-system"
    assert not orders(record(8, "superseded", OLD, *fleet), record(9, "deployed", OLD, *fleet))
    assert not orders(record(1, "deployed"), record(2, "pending-upgrade"))


def test_a_bundle_of_rancher_that_is_not_applied() -> None:
    """The job does not wait for it, but Rancher may."""
    (found,) = orders(*chart()[1:], record(3, "deployed"), record(4, "pending-upgrade"))

    assert found.certain
    assert "Helm release system/crds was left in pending-upgrade (revision 4)" in found.reason
    (unknown,) = orders(*chart()[1:])
    assert not unknown.certain
    assert command_of(unknown.remedy) == "helm history crds -n system"
