"""Charts that Fleet does not get applied, as another manager owns a field of their objects."""

import pytest

from tests.builders import manifest
from tests.model.node_updates.test_managed_charts import order
from virt_admit.kube.field_filter import WHOLE
from virt_admit.model.evidence.writes import field_owners, fleet_objects
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.node_updates.rancher import apply_conflicts

METHODS = {"f:workloadUpdateStrategy": {"f:workloadUpdateMethods": {}}}
PATCHED = "2027-03-01T10:55:00Z"


def chart(message="", **mask):
    entry = {"bundleState": "WaitApplied", "name": "fleet-local/local"}
    entry |= {"message": message} if message else {}
    ready = {"type": "Ready", "status": "False", "lastUpdateTime": "2027-03-01T11:00:00Z"}
    ready["message"] = message or "WaitApplied(1) [Cluster fleet-local/local]"
    status = {"summary": {"ready": 0, "nonReadyResources": [entry]}, "conditions": [ready]}
    spec = {"diff": {"comparePatches": [mask]}} if mask else {}
    about = "management.cattle.io/v3", "ManagedChart", "harvester", "fleet-local"
    return manifest(*about, spec=spec, status=status)


MASK = {
    "kind": "KubeVirt",
    "name": "kubevirt",
    "namespace": "harvester-system",
    "jsonPointers": ["/spec/workloadUpdateStrategy/workloadUpdateMethods"],
}


def kubevirt(manager="kubectl-patch", shared=None, operation="Update", time="2027-01-01T00:00:00Z"):
    helm = {"f:annotations": {"f:meta.helm.sh/release-name": {}}}
    own = {
        "manager": "fleetagent",
        "operation": operation,
        "time": time,
        "fieldsV1": {"f:metadata": helm, "f:spec": {"f:configuration": {}, **(shared or {})}},
    }
    other = {"manager": manager, "operation": "Update", "time": PATCHED}
    other["fieldsV1"] = {"f:spec": METHODS}
    metadata = {"managedFields": [own, other]}
    spec = {"workloadUpdateStrategy": {"workloadUpdateMethods": []}}
    about = "kubevirt.io/v1", "KubeVirt", "kubevirt", "harvester-system"
    return manifest(*about, metadata=metadata, spec=spec)


def agent(version):
    spec = {"template": {"spec": {"containers": [{"image": f"rancher/fleet-agent:{version}"}]}}}
    return manifest("apps/v1", "Deployment", "fleet-agent", "cattle-fleet-local-system", spec=spec)


def test_the_field_its_manager_and_the_same_value_for_the_chart():
    reason, remedy = order(chart(), kubevirt(), agent("v0.15.2"))
    assert reason.endswith(
        "is WaitApplied for 60 min: Fleet's agent retries and reports no cause, probably as "
        "kubectl-patch owns spec.workloadUpdateStrategy.workloadUpdateMethods ([]) of KubeVirt "
        f"harvester-system/kubevirt since {PATCHED} (managedFields): server-side apply of another "
        "value is a conflict"
    )
    assert (
        "kubectl patch managedchart harvester -n fleet-local --type=merge -p "
        '\'{"spec":{"values":{"kubevirt":{"spec":{"workloadUpdateStrategy":'
        '{"workloadUpdateMethods":[]}}}}}}\'; when that value is to go again, first take the entry '
        "of kubectl-patch out of metadata.managedFields of KubeVirt kubevirt"
    ) in remedy
    reason, _ = order(chart(**MASK), kubevirt("harvester"))
    assert "harvester owns" in reason
    assert "which the chart writes too (spec.diff.comparePatches)" in reason


@pytest.mark.parametrize(
    "objects",
    [
        (chart(), kubevirt("harvester")),  # a controller writes what the chart may not have
        (chart(), kubevirt(shared=METHODS)),
        (chart(), kubevirt(operation="Apply", time="2027-03-01T10:58:00Z")),
        (chart(), kubevirt(), agent("v0.14.3")),
        (chart("helm upgrade failed"), kubevirt()),
        (chart(),),
    ],
)
def test_fields_that_are_no_conflict_and_charts_whose_cause_is_reported(objects):
    reason, remedy = order(*objects)
    assert "owns" not in reason
    assert remedy.startswith("Remove the cause that Fleet reports")


def test_who_owns_the_list_of_methods():
    path = ("spec", "workloadUpdateStrategy", "workloadUpdateMethods")
    assert apply_conflicts.owner_of(kubevirt(), path) == "kubectl-patch"
    assert not apply_conflicts.owner_of(kubevirt(shared=METHODS), path)


def test_who_owns_a_field_is_known_from_a_cluster():
    found = kubevirt()
    found.data["metadata"]["annotations"] = {
        fleet_objects.MARK: "default-mcc-harvester-cattle-fleet-local-system",
        field_owners.HELM: "harvester",
    }
    kept = Object(WHOLE.filter(found.data))
    assert [each.manager for each in field_owners.foreign(kept)] == ["kubectl-patch"]
