"""The types of the fields that decide a forecast, as every API server stores them.

A field of another type was not read from a cluster: a user changed the snapshot. Read as if it did
not exist, it would hide a budget, a taint or a guest, and the answer would be "yes". Only fields
with a schema are here: KubeVirt has none for the metadata of a template, so a user may store
anything there.

Sources: the OpenAPI schema of Kubernetes, and the definitions of custom resources of KubeVirt,
OpenShift and Cluster API.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Object

Type = tuple[type, ...] | dict[str, Any] | list[Any]
"""Types of JSON; a map of fields, ``*`` for all other keys;
or a list with the type of its items.
"""

_TEXT: Final = (str,)
_FLAG: Final = (bool,)
_INT: Final = (int,)
_AMOUNT: Final = (str, int, float)
"""A quantity, a percentage, or a number."""

_TEXTS: Final = {"*": _TEXT}
_AMOUNTS: Final = {"*": _AMOUNT}
_CONDITIONS: Final = [{"type": _TEXT, "status": _TEXT, "reason": _TEXT, "message": _TEXT}]
_RESOURCES: Final = {"requests": _AMOUNTS, "limits": _AMOUNTS}
_EXPRESSIONS: Final = [{"key": _TEXT, "operator": _TEXT, "values": [_TEXT]}]
_SELECTOR: Final = {"matchLabels": _TEXTS, "matchExpressions": _EXPRESSIONS}
_NODES: Final = {
    "nodeSelectorTerms": [{"matchExpressions": _EXPRESSIONS, "matchFields": _EXPRESSIONS}]
}
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_TERMS: Final = {
    _REQUIRED: [
        {
            "labelSelector": _SELECTOR,
            "namespaceSelector": _SELECTOR,
            "namespaces": [_TEXT],
            "topologyKey": _TEXT,
        }
    ]
}
_PLACED: Final = {
    "nodeSelector": _TEXTS,
    "affinity": {
        "nodeAffinity": {_REQUIRED: _NODES},
        "podAffinity": _TERMS,
        "podAntiAffinity": _TERMS,
    },
    "tolerations": [{"key": _TEXT, "operator": _TEXT, "value": _TEXT, "effect": _TEXT}],
    "topologySpreadConstraints": [
        {
            "maxSkew": _INT,
            "topologyKey": _TEXT,
            "whenUnsatisfiable": _TEXT,
            "labelSelector": _SELECTOR,
        }
    ],
    "priorityClassName": _TEXT,
    "schedulerName": _TEXT,
}
_CLAIM: Final = {"claimName": _TEXT}
_VMI: Final = _PLACED | {
    "evictionStrategy": _TEXT,
    "domain": {
        "cpu": {
            "model": _TEXT,
            "dedicatedCpuPlacement": _FLAG,
            "features": [{"name": _TEXT, "policy": _TEXT}],
        },
        "memory": {"guest": _AMOUNT, "hugepages": {"pageSize": _AMOUNT}},
        "resources": _RESOURCES,
        "devices": {
            "disks": [{"name": _TEXT}],
            "interfaces": [{"name": _TEXT}],
            "hostDevices": [{"deviceName": _TEXT}],
            "gpus": [{"deviceName": _TEXT}],
            "filesystems": [{"name": _TEXT}],
        },
    },
    "networks": [{"name": _TEXT, "pod": {}, "multus": {"networkName": _TEXT}}],
    "volumes": [
        {
            "name": _TEXT,
            "persistentVolumeClaim": _CLAIM,
            "dataVolume": {"name": _TEXT},
            "ephemeral": {"persistentVolumeClaim": _CLAIM},
            "hostDisk": {"path": _TEXT, "shared": _FLAG},
        }
    ],
}
_VM: Final = {
    "running": _FLAG,
    "runStrategy": _TEXT,
    "instancetype": _TEXTS,
    "preference": _TEXTS,
    "dataVolumeTemplates": [{}],
    "template": {"spec": _VMI},
}
_MIGRATION: Final = {
    **dict.fromkeys(
        ("migrationUid", "sourceNode", "targetNode", "mode", "startTimestamp", "endTimestamp"),
        _TEXT,
    ),
    **dict.fromkeys(("completed", "failed", "abortRequested"), _FLAG),
}
_CONTAINERS: Final = [{"name": _TEXT, "resources": _RESOURCES}]
_METADATA: Final = {
    **dict.fromkeys(("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp"), _TEXT),
    "labels": _TEXTS,
    "annotations": _TEXTS,
    "finalizers": [_TEXT],
    "ownerReferences": [
        {"apiVersion": _TEXT, "kind": _TEXT, "name": _TEXT, "uid": _TEXT, "controller": _FLAG}
    ],
}
_OBJECT: Final = {"metadata": _METADATA, "spec": {}, "status": {}}
_REPLICAS: Final = {"spec": {"replicas": _INT, "paused": _FLAG, "selector": {}}}
_MACHINE: Final = {
    "spec": {"providerID": _TEXT},
    "status": {"nodeRef": {"name": _TEXT}, "phase": _TEXT},
}
_VOLUME: Final = {
    "accessModes": [_TEXT],
    "volumeMode": _TEXT,
    "storageClassName": _TEXT,
    "volumeName": _TEXT,
}

TYPES: Final[Mapping[Kind, dict[str, Any]]] = {
    kinds.NODE: {
        "spec": {
            "unschedulable": _FLAG,
            "providerID": _TEXT,
            "taints": [{"key": _TEXT, "value": _TEXT, "effect": _TEXT}],
        },
        "status": {"allocatable": _AMOUNTS, "capacity": _AMOUNTS, "conditions": _CONDITIONS},
    },
    kinds.POD: {
        "spec": _PLACED
        | {
            "nodeName": _TEXT,
            "priority": _INT,
            "containers": _CONTAINERS,
            "initContainers": _CONTAINERS,
            "overhead": _AMOUNTS,
            "volumes": [{"name": _TEXT, "persistentVolumeClaim": _CLAIM}],
        },
        "status": {"phase": _TEXT, "conditions": _CONDITIONS},
    },
    kinds.PDB: {
        "spec": {"selector": _SELECTOR, "minAvailable": _AMOUNT, "maxUnavailable": _AMOUNT},
        "status": dict.fromkeys(
            ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"), _INT
        ),
    },
    kinds.RESOURCE_QUOTA: {
        "spec": {"hard": _AMOUNTS},
        "status": {"hard": _AMOUNTS, "used": _AMOUNTS},
    },
    kinds.LIMIT_RANGE: {
        "spec": {
            "limits": [
                {"type": _TEXT}
                | dict.fromkeys(
                    ("min", "max", "default", "defaultRequest", "maxLimitRequestRatio"), _AMOUNTS
                )
            ]
        }
    },
    kinds.PVC: {
        "spec": _VOLUME | {"resources": _RESOURCES},
        "status": {"phase": _TEXT, "accessModes": [_TEXT]},
    },
    kinds.PV: {
        "spec": _VOLUME
        | {
            "nodeAffinity": {"required": _NODES},
            "claimRef": {"name": _TEXT},
            "csi": {"driver": _TEXT},
            "hostPath": _TEXTS,
            "local": _TEXTS,
        }
    },
    kinds.CSI_NODE: {"spec": {"drivers": [{"name": _TEXT, "allocatable": {"count": _INT}}]}},
    kinds.DEPLOYMENT: _REPLICAS,
    kinds.STATEFUL_SET: _REPLICAS,
    kinds.REPLICA_SET: _REPLICAS,
    kinds.VM: {"spec": _VM, "status": {"conditions": _CONDITIONS, "printableStatus": _TEXT}},
    kinds.POOL: {"spec": {"replicas": _INT, "virtualMachineTemplate": {"spec": _VM}}},
    kinds.VMI: {
        "spec": _VMI,
        "status": {
            **dict.fromkeys(("phase", "nodeName", "evacuationNodeName"), _TEXT),
            "conditions": _CONDITIONS,
            "activePods": _TEXTS,
            "migrationState": _MIGRATION,
        },
    },
    kinds.VMIM: {
        "spec": {"vmiName": _TEXT},
        "status": {"phase": _TEXT, "conditions": _CONDITIONS, "migrationState": _MIGRATION},
    },
    kinds.KUBEVIRT: {
        "spec": {
            "configuration": {
                "evictionStrategy": _TEXT,
                "cpuModel": _TEXT,
                "migrations": dict.fromkeys(
                    ("parallelMigrationsPerCluster", "parallelOutboundMigrationsPerNode"), _INT
                ),
                "developerConfiguration": {
                    "featureGates": [_TEXT],
                    "nodeSelectors": _TEXTS,
                    "cpuAllocationRatio": _INT,
                    "memoryOvercommit": _INT,
                },
            },
            "workloadUpdateStrategy": {"workloadUpdateMethods": [_TEXT]},
        },
        "status": {"observedKubeVirtVersion": _TEXT, "conditions": _CONDITIONS},
    },
    kinds.MACHINE: _MACHINE,
    kinds.CAPI_MACHINE: _MACHINE,
    kinds.MACHINE_DEPLOYMENT: _REPLICAS,
    kinds.MACHINE_CONFIG_POOL: {
        "spec": {"paused": _FLAG, "nodeSelector": _SELECTOR, "maxUnavailable": _AMOUNT},
        "status": {"conditions": _CONDITIONS},
    },
    kinds.LONGHORN_REPLICA: {
        "spec": dict.fromkeys(("volumeName", "nodeID", "healthyAt", "failedAt"), _TEXT)
    },
}


def wrong_type(obj: Object, kind: Kind) -> str:
    """Return a field of an object that no API server stores like this, and what it must be;
    empty if none.
    """
    types = (_OBJECT, TYPES.get(kind, {}))
    # almost always: without the paths it takes a third of the time
    if all(_fits(obj.data, each) for each in types):
        return ""
    return min(
        (path for each in types for path in _wrong(obj.data, each, "")), default=""
    ).removeprefix(".")


def _fits(value: Any, expected: Type) -> bool:
    """Return whether ``_wrong`` yields nothing."""
    if value is None:
        return True
    if isinstance(expected, dict):
        if not isinstance(value, dict):
            return False
        every = expected.get("*")
        for key, item in value.items():
            wanted = every or expected.get(key)
            if wanted is None or type(item) in wanted:  # most are of a simple type: no call
                continue
            if not _fits(item, wanted):
                return False
        return True
    if isinstance(expected, list):
        return isinstance(value, list) and (
            not expected or all(_fits(item, expected[0]) for item in value)
        )
    return isinstance(value, expected) and (bool in expected or not isinstance(value, bool))


def _wrong(value: Any, expected: Type, path: str) -> Iterator[str]:
    if value is None:
        return
    if isinstance(expected, dict):
        if not isinstance(value, dict):
            yield f"{path} must be a map"
        elif "*" in expected:
            for key, item in value.items():
                yield from _wrong(item, expected["*"], f"{path}.{key}")
        else:
            for key in expected.keys() & value.keys():
                yield from _wrong(value[key], expected[key], f"{path}.{key}")
    elif isinstance(expected, list):
        if not isinstance(value, list):
            yield f"{path} must be a list"
        elif expected:
            for number, item in enumerate(value):
                yield from _wrong(item, expected[0], f"{path}[{number}]")
    elif not isinstance(value, expected) or (isinstance(value, bool) and bool not in expected):
        yield f"{path} must be {_NAMES[expected]}"


_NAMES: Final = {
    _TEXT: "text",
    _FLAG: "true or false",
    _INT: "a whole number",
    _AMOUNT: "a quantity",
}
