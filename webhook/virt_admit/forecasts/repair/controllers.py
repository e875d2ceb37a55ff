"""What KubeVirt and the controllers of Kubernetes make of a change,
as far as a drain depends on it.

A patched object is not a repaired cluster: the running VMI keeps its frozen fields, and the
condition ``LiveMigratable`` its old value. Sources:
kubevirt/kubevirt:pkg/virt-controller/watch/vm/vm.go#syncRestartRequired,
#handleAffinityChangeRequest, #handleTolerationsChangeRequest, #handleVolumeUpdateRequest;
pkg/virt-handler/vm.go#calculateLiveMigrationCondition.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from virt_admit.forecasts.drain.budgets import pod_budgets
from virt_admit.forecasts.placement import running_launchers
from virt_admit.forecasts.repair.repair_plan import REMOVED, DiskCopy, FieldEdit
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubevirt.instances import migratability, vms
from virt_admit.model.kubevirt.instances.expand import expand
from virt_admit.model.kubevirt.instances.migratability import Migratable

TEMPLATE: Final = ("spec", "template", "spec")
"""The path of the VMI spec in a VirtualMachine."""
LIVE_FIELDS: Final = ("nodeSelector", "affinity", "tolerations")
"""Fields of the template that KubeVirt copies into the running VMI at once."""
_OF_THE_VM: Final = (
    *LIVE_FIELDS,
    "evictionStrategy",
    "topologySpreadConstraints",
    "priorityClassName",
    "volumes",
)
"""Fields that a VMI has from its VM alone: what the VM lacks is gone after a restart."""
_REPORTED: Final = "LiveMigratable"
_MIGRATION_STATE: Final = ("migrationState", "evacuationNodeName")


# --- without a restart ----------------------------------------------------------------------------


def live(vmi: Object, vm: Object) -> Object:
    """Return the running VMI after placement fields of its VM were changed."""
    spec, given = dict(vmi["spec"].map), vms.vmi_spec(vm).map
    for key in LIVE_FIELDS:
        spec.pop(key, None)
        if key in given:
            spec[key] = given[key]
    return _with(vmi, spec=spec)


def copied(vmi: Object, vm: Object, cluster: Cluster) -> Object:
    """Return the running VMI after its volumes were copied to those that the VM names now.

    ``cluster`` has the new claims.
    """
    changed = _with(vmi, spec={**vmi["spec"].map, "volumes": vms.vmi_spec(vm)["volumes"].value})
    return reported(changed, vmi, cluster)


def copy_objects(found: DiskCopy, source: Object | None, terms: list[Any]) -> Iterator[Object]:
    """Yield the bound claim and the volume into which a disk is copied.

    Args:
        found: the copy.
        source: the old claim.
        terms: the topologies that the storage class allows: the node affinity of the new volume.
    """
    volume = f"pv-{found.namespace}-{found.copy}"
    metadata = {"name": found.copy, "namespace": found.namespace}
    spec = {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": found.storage_class,
        "volumeMode": found.volume_mode,
        "volumeName": volume,
        "resources": {"requests": {"storage": str(found.size)}},
    }
    labels = source.metadata["labels"].map if source is not None else {}
    yield Object(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {**metadata, "labels": dict(labels)},
            "spec": spec,
            "status": {"phase": "Bound", "capacity": {"storage": str(found.size)}},
        }
    )
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}} if terms else {}
    yield Object(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": volume},
            "spec": {"csi": {"volumeHandle": volume}, "accessModes": ["ReadWriteMany"], **affinity},
        }
    )


# --- a restart ------------------------------------------------------------------------------------


def restarted(vmi: Object, vm: Object, edits: Iterable[FieldEdit], cluster: Cluster) -> Object:
    """Return the VMI that KubeVirt makes of a VM at its next start, on the same node.

    What an instance type, a preference or a default gave to the running VMI stays; ``edits`` are
    those of the VM, because a field that they remove must not stay.
    """
    given, running = copy.deepcopy(dict(vms.vmi_spec(vm).map)), vmi["spec"].map
    spec = _merged({key: value for key, value in running.items() if key not in _OF_THE_VM}, given)
    selector = expand(vm, cluster).node_selector.field
    if selector.is_map:
        spec["nodeSelector"] = dict(selector.map)
    metadata = dict(vmi.metadata.map)
    if cluster.time:  # failed migrations of the VMI before do not count
        metadata["creationTimestamp"] = cluster.time
    for key in ("labels", "annotations"):
        metadata[key] = {**vmi.metadata[key].map, **vms.vmi_template(vm).at("metadata", key).map}
    made = _with(vmi, spec=spec, metadata=metadata)
    for path, value in edits:
        if value is REMOVED and path[: len(TEMPLATE)] == TEMPLATE:
            _remove(made.data["spec"], path[len(TEMPLATE) :])
    return reported(made, vmi, cluster)


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the new map with what only the old one has; lists are taken as a whole."""
    result = copy.deepcopy(dict(old))
    for key, value in new.items():
        before = result.get(key)
        result[key] = (
            _merged(before, value)
            if isinstance(before, dict) and isinstance(value, dict)
            else value
        )
    return result


def _remove(data: Any, path: tuple[str | int, ...]) -> None:
    for step in path[:-1]:
        data = data.get(step) if isinstance(data, dict) else None
    if isinstance(data, dict):
        data.pop(path[-1], None)


def new_launcher(vmi: Object, cluster: Cluster) -> Object | None:
    """Return the launcher pod of a VMI after a restart: its size stays, its placement is new."""
    pod = running_launchers.launchers(cluster).on_node(vmi)
    if pod is None:
        return None
    spec = {
        key: value for key, value in pod["spec"].map.items() if key not in (*LIVE_FIELDS, "volumes")
    }
    spec |= {key: vmi["spec"].map[key] for key in LIVE_FIELDS if key in vmi["spec"].map}
    labels = {**pod.metadata["labels"].map, **vmi.metadata["labels"].map}
    return Object(
        {**pod.data, "metadata": {**pod.metadata.map, "labels": labels}, "spec": spec},
        pod.namespace,
    )


# --- the condition LiveMigratable -----------------------------------------------------------------


def reported(vmi: Object, before: Object, cluster: Cluster) -> Object:
    """Return a changed VMI with the condition ``LiveMigratable`` that KubeVirt would publish.

    A published reason that the VMI before does not explain stays: nothing says that the change ends
    it.
    """
    published = before.condition("LiveMigratable")["reason"].text or ""
    explained = {
        reason.name
        for reason in migratability.assess(without_condition(before, _REPORTED), cluster).reasons
    }
    found = migratability.assess(without_condition(vmi, _REPORTED), cluster)
    was = before.condition("LiveMigratable")["status"].text
    if found.reasons:
        return _condition(vmi, "False", found.reasons[0].name)
    if was == "False" and published not in explained:
        return _condition(vmi, "False", published)
    if found.migratable is Migratable.YES or was == "True":
        return _condition(vmi, "True", "")
    return _condition(vmi, "Unknown", "")


def _condition(vmi: Object, status: str, reason: str) -> Object:
    found: dict[str, Any] = {"type": "LiveMigratable", "status": status}
    if reason:
        found["reason"] = reason
    others = other_conditions(vmi, _REPORTED)
    kept = {key: value for key, value in vmi["status"].map.items() if key not in _MIGRATION_STATE}
    return _with(vmi, status={**kept, "conditions": [*others, found]})


def other_conditions(obj: Object, name: str) -> list[Any]:
    """Return the conditions of an object but for one."""
    found = obj.at("status", "conditions").items()
    return [item.value for item in found if item["type"].text != name]


def without_condition(obj: Object, name: str) -> Object:
    """Return an object without one of its conditions."""
    return _with(obj, status={**obj["status"].map, "conditions": other_conditions(obj, name)})


def without_mark(vmi: Object) -> Object:
    """Return a VMI whose evacuation was cancelled."""
    status = vmi["status"].map.items()
    return _with(vmi, status={key: value for key, value in status if key != "evacuationNodeName"})


def tainted(node: Object, keeps: Callable[[Field], bool], *without: str) -> dict[str, Any]:
    """Return the spec of a node with those of its taints alone that it keeps, and without these
    fields.
    """
    taints = [taint.value for taint in node.at("spec", "taints").items() if keeps(taint)]
    spec = {key: value for key, value in node["spec"].map.items() if key not in without}
    spec.pop("taints", None)
    return spec | ({"taints": taints} if taints else {})


def _with(obj: Object, **fields: Any) -> Object:
    return Object({**obj.data, **fields}, obj.namespace)


# --- quotas and budgets ---------------------------------------------------------------------------


def counted_quota(quota: Object) -> Object:
    """Return a quota whose controller has taken over its new limits."""
    hard = quota.at("spec", "hard").map
    return _with(quota, status={**quota["status"].map, "hard": dict(hard)})


def one_more_pod(pod: Object, name: str) -> Object:
    """Return the pod that one replica more runs, not bound to a node."""
    spec = {key: value for key, value in pod["spec"].map.items() if key != "nodeName"}
    return Object(
        {**pod.data, "metadata": {**pod.metadata.map, "name": name}, "spec": spec}, pod.namespace
    )


def counted_budget(budget: Object, expected: int, more: int) -> Object:
    """Return a budget that counts more healthy pods than the ``expected`` ones
    (disruption.go#updatePdbStatus).
    """
    least = budget.at("spec", "minAvailable")
    number = expected + more
    healthy = (budget.at("status", "currentHealthy").integer or 0) + more
    desired = (
        least.integer if least.integer is not None else pod_budgets.share(least.text or "", number)
    )
    status = {"expectedPods": number, "currentHealthy": healthy, "desiredHealthy": desired}
    allowed = {"disruptionsAllowed": max(0, healthy - desired)}
    return _with(budget, status={**budget["status"].map, **status, **allowed})


# --- migrations -----------------------------------------------------------------------------------


def tried_again(migration: Object, time: str | None) -> Object:
    """Return a migration whose target pod was refused, as KubeVirt begins it again: what it
    recorded before is past.

    A changed quota puts the migrations of its namespace into the queue at once
    (migration.go#updateResourceQuota).
    """
    metadata = {
        key: value for key, value in migration.metadata.map.items() if key != "creationTimestamp"
    }
    born = {"creationTimestamp": time} if time else {}
    status = {key: value for key, value in migration["status"].map.items() if key not in _RECORDED}
    return _with(migration, metadata={**metadata, **born}, status=status)


def given_up(migration: Object) -> Object:
    """Return a migration that has failed, as that of a VM which is restarted."""
    return _with(migration, status={**migration["status"].map, "phase": "Failed"})


def ended(pod: Object) -> Object:
    return _with(pod, status={**pod["status"].map, "phase": "Succeeded"})


def asked_again(vmi: Object) -> Object:
    """Return a VMI whose evacuation is asked for since a moment."""
    return without_condition(vmi, "EvictionRequested")


_RECORDED: Final = ("conditions", "phaseTransitionTimestamps")
