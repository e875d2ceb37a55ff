"""Objects as API servers return them, in the form that each upstream project writes."""

import datetime
from collections.abc import Iterable, Mapping
from typing import Any

Object = dict[str, Any]

TIME = datetime.datetime(2026, 11, 20, 12, 0, tzinfo=datetime.UTC)


def ago(**delta: float) -> str:
    return f"{TIME - datetime.timedelta(**delta):%Y-%m-%dT%H:%M:%SZ}"


def snapshot(items: Iterable[Object], **fields: object) -> Object:
    head: Object = {
        "apiVersion": "virt-admit.io/v1alpha1",
        "kind": "Snapshot",
        "serverVersion": "v1.33.4",
    }
    return (
        head | {"time": ago(), "complete": ["*"], "unreadable": [], "items": list(items)} | fields
    )


def obj(kind: str, version: str, name: str, namespace: str | None = None, **fields: Any) -> Object:
    metadata = {
        "name": name,
        "uid": f"uid-{kind}-{namespace}-{name}".lower(),
        "creationTimestamp": ago(days=30),
    }
    if namespace:
        metadata["namespace"] = namespace
    metadata |= fields.pop("metadata", {})
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


def owner(of: Object) -> list[Object]:
    meta = of["metadata"]
    owned: Object = {
        "apiVersion": of["apiVersion"],
        "kind": of["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
    }
    return [owned | {"controller": True, "blockOwnerDeletion": True}]


def conditions(**statuses: str | bool) -> list[Object]:
    return [
        {
            "type": name,
            "status": str(status),
            "lastTransitionTime": ago(days=2),
            "lastProbeTime": None,
        }
        for name, status in statuses.items()
    ]


KVM = {
    "devices.kubevirt.io/kvm": "1k",
    "devices.kubevirt.io/tun": "1k",
    "devices.kubevirt.io/vhost-net": "1k",
}


def kubevirt_labels(release: tuple[int, int], *, cpu_manager: bool = False) -> dict[str, str]:
    """Labels of pkg/virt-handler/node-labeller and heartbeat.go, by release."""
    labels = {
        "kubevirt.io/schedulable": "true",
        "cpumanager": str(cpu_manager).lower(),
        "kubevirt.io/ksm-enabled": "false",
        "cpu-model.node.kubevirt.io/Skylake-Server": "true",
        "cpu-model.node.kubevirt.io/Haswell": "true",
        "cpu-model-migration.node.kubevirt.io/Skylake-Server": "true",
        "cpu-feature.node.kubevirt.io/vmx": "true",
        "cpu-feature.node.kubevirt.io/avx2": "true",
        "cpu-vendor.node.kubevirt.io/Intel": "true",
        "host-model-cpu.node.kubevirt.io/Skylake-Server": "true",
        "host-model-required-features.node.kubevirt.io/avx2": "true",
        "hyperv.node.kubevirt.io/base": "true",
        "cpu-timer.node.kubevirt.io/tsc-frequency": "2593906000",
        "cpu-timer.node.kubevirt.io/tsc-scalable": "true",
        "scheduling.node.kubevirt.io/tsc-frequency-2593906000": "true",
    }
    if release >= (1, 6):
        labels |= {
            f"machine-type.node.kubevirt.io/{name}": "true"
            for name in ("q35", "pc-q35-rhel9.6.0", "pc-q35-9.2")
        }
    if release >= (1, 8):
        labels["kubevirt.io/cpumanager"] = str(cpu_manager).lower()
    return labels


def _taint(key: str, minutes: float) -> Object:
    """Return a taint that Kubernetes itself puts on a node."""
    since = ago(minutes=minutes)
    return {"key": f"node.kubernetes.io/{key}", "effect": "NoSchedule", "timeAdded": since}


SIZE = {"pods": "250", "ephemeral-storage": "400Gi", "hugepages-1Gi": "0", "hugepages-2Mi": "0"}


def node(
    name: str,
    release: tuple[int, int] | None = (1, 6),
    *,
    roles: Iterable[str] = ("worker",),
    labels: Mapping[str, str] = {},
    annotations: Mapping[str, str] = {},
    taints: Iterable[Object] = (),
    memory: str = "128Gi",
    cpu: str = "32",
    extra: Mapping[str, str] = {},
    cpu_manager: bool = False,
    unschedulable: bool = False,
    ready: str = "True",
    heartbeat: str | None = None,
) -> Object:
    own = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
    }
    own |= {f"node-role.kubernetes.io/{role}": "" for role in roles} | dict(labels)
    notes = {"volumes.kubernetes.io/controller-managed-attach-detach": "true"} | dict(annotations)
    size = SIZE | {"cpu": cpu, "memory": memory}
    if release is not None:
        own = kubevirt_labels(release, cpu_manager=cpu_manager) | own
        notes |= {
            "kubevirt.io/heartbeat": ago(seconds=30),
            "kubevirt.io/ksm-handler-managed": "false",
        }
        size |= KVM
    spec: Object = {"podCIDR": "10.244.0.0/24", "providerID": f"metal3://{name}"}
    stains = [dict(taint) for taint in taints]
    if unschedulable:
        spec["unschedulable"] = True
        stains.append(_taint("unschedulable", minutes=4))
    if ready != "True":
        stains.append(_taint("not-ready", minutes=2))
    if stains:
        spec["taints"] = stains
    state = conditions(MemoryPressure=False, DiskPressure=False, PIDPressure=False, Ready=ready)
    if ready != "True":
        state[-1]["lastTransitionTime"] = ago(minutes=2)
    for condition in state:
        condition["lastHeartbeatTime"] = heartbeat or ago(seconds=40)
    status = {
        "conditions": state,
        "capacity": size | dict(extra),
        "allocatable": size | dict(extra),
        "nodeInfo": {
            "kubeletVersion": "v1.33.4",
            "architecture": "amd64",
            "operatingSystem": "linux",
        },
        "addresses": [{"type": "Hostname", "address": name}],
    }
    return obj(
        "Node", "v1", name, metadata={"labels": own, "annotations": notes}, spec=spec, status=status
    )


TOLERATED = [
    {
        "key": f"node.kubernetes.io/{what}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    for what in ("not-ready", "unreachable")
]
CONTROL_PLANE = [
    {"key": f"node-role.kubernetes.io/{role}", "operator": "Exists", "effect": "NoSchedule"}
    for role in ("control-plane", "master")
]


def pod(
    name: str,
    namespace: str,
    on: str,
    labels: Mapping[str, str],
    of: Object | None,
    *,
    requests: Mapping[str, str] = {"cpu": "10m", "memory": "64Mi"},
    spec: Mapping[str, Any] = {},
    annotations: Mapping[str, str] = {},
) -> Object:
    metadata: Object = {"labels": dict(labels), "annotations": dict(annotations)}
    if of is not None:
        metadata["ownerReferences"] = owner(of)
    container = {
        "name": "main",
        "image": "registry/main:1",
        "resources": {"requests": dict(requests)},
    }
    body = {
        "nodeName": on,
        "containers": [container],
        "tolerations": TOLERATED,
        "priority": 0,
        "restartPolicy": "Always",
    } | dict(spec)
    state = conditions(Initialized=True, Ready=True, ContainersReady=True, PodScheduled=True)
    status = {
        "phase": "Running",
        "conditions": state,
        "startTime": ago(days=20),
        "qosClass": "Burstable",
    }
    status["containerStatuses"] = [
        {
            "name": "main",
            "ready": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": ago(days=20)}},
        }
    ]
    return obj("Pod", "v1", name, namespace, metadata=metadata, spec=body, status=status)


def deployment(
    name: str,
    namespace: str,
    on: Iterable[str],
    labels: Mapping[str, str],
    *,
    spec: Mapping[str, Any] = {},
    kind: str = "Deployment",
) -> list[Object]:
    """Return a Deployment with its ReplicaSet, or a StatefulSet or DaemonSet,
    and a ready pod on each node.
    """
    places = list(on)
    template = {
        "metadata": {"labels": dict(labels)},
        "spec": {"containers": [{"name": "main", "image": "registry/main:1"}], **spec},
    }
    body = {
        "replicas": len(places),
        "selector": {"matchLabels": dict(labels)},
        "template": template,
    }
    count = len(places)
    status = dict.fromkeys(
        ("replicas", "readyReplicas", "availableReplicas", "updatedReplicas"), count
    )
    if kind == "DaemonSet":
        del body["replicas"]
        status = dict.fromkeys(("desiredNumberScheduled", "numberReady", "numberAvailable"), count)
    top = obj(
        kind,
        "apps/v1",
        name,
        namespace,
        metadata={"labels": dict(labels)},
        spec=body,
        status=status,
    )
    found, parent = [top], top
    if kind == "Deployment":
        parent = obj(
            "ReplicaSet",
            "apps/v1",
            f"{name}-5d8f",
            namespace,
            metadata={"labels": dict(labels), "ownerReferences": owner(top)},
        )
        parent |= {"spec": body, "status": status}
        found.append(parent)
    names = [
        f"{name}-{index}" if kind == "StatefulSet" else f"{parent['metadata']['name']}-x{index}"
        for index in range(count)
    ]
    return found + [
        pod(each, namespace, place, labels, parent, spec=spec)
        for each, place in zip(names, places, strict=True)
    ]


def service(
    name: str, namespace: str, selector: Mapping[str, str], on: Iterable[str]
) -> list[Object]:
    ports = [{"name": "https", "port": 443, "targetPort": 8443, "protocol": "TCP"}]
    found = obj(
        "Service",
        "v1",
        name,
        namespace,
        spec={"selector": dict(selector), "ports": ports, "type": "ClusterIP"},
    )
    ready = [
        {
            "addresses": [f"10.0.0.{index}"],
            "conditions": {"ready": True, "serving": True},
            "nodeName": at,
        }
        for index, at in enumerate(on)
    ]
    labels = {"kubernetes.io/service-name": name}
    slice_ = obj(
        "EndpointSlice",
        "discovery.k8s.io/v1",
        f"{name}-abc",
        namespace,
        metadata={"labels": labels},
        addressType="IPv4",
    )
    return [found, slice_ | {"endpoints": ready, "ports": [{"port": 8443, "protocol": "TCP"}]}]


def budget(
    name: str,
    namespace: str,
    selector: Mapping[str, str],
    pods: int,
    *,
    available: int | str | None = None,
    unavailable: int | str | None = None,
    of: Object | None = None,
    labels: Mapping[str, str] = {},
) -> Object:
    """Return a budget whose status is what the disruption controller computes with all pods
    healthy.
    """
    spec: Object = {"selector": {"matchLabels": dict(selector)}}
    if available is not None:
        spec["minAvailable"] = available
        desired = int(available)
    else:
        spec["maxUnavailable"] = unavailable
        share = str(unavailable)
        desired = pods - (-(-pods * int(share[:-1]) // 100) if share.endswith("%") else int(share))
    status = {
        "currentHealthy": pods,
        "desiredHealthy": desired,
        "disruptionsAllowed": max(0, pods - desired),
        "expectedPods": pods,
    }
    metadata: Object = {"labels": dict(labels), "generation": 1}
    if of is not None:
        metadata["ownerReferences"] = owner(of)
    allowed = {
        "type": "DisruptionAllowed",
        "status": str(pods > desired),
        "reason": "SufficientPods",
        "lastTransitionTime": ago(days=3),
    }
    status |= {"observedGeneration": 1, "conditions": [allowed]}
    return obj(
        "PodDisruptionBudget",
        "policy/v1",
        name,
        namespace,
        metadata=metadata,
        spec=spec,
        status=status,
    )


def webhook(
    kind: str,
    name: str,
    target: tuple[str, str],
    rules: Mapping[str, tuple[str, Iterable[str], Iterable[str]]],
    *,
    policy: str = "Fail",
    **more: Any,
) -> Object:
    """Return a webhook configuration: for each entry its API group, resources and operations."""
    entries = [
        {
            "name": entry,
            "clientConfig": {
                "service": {
                    "namespace": target[0],
                    "name": target[1],
                    "path": f"/{entry}",
                    "port": 443,
                }
            },
            "rules": [
                {
                    "apiGroups": [group],
                    "apiVersions": ["*"],
                    "resources": list(what),
                    "operations": list(operations),
                    "scope": "*",
                }
            ],
            "failurePolicy": policy,
            "sideEffects": "None",
            "timeoutSeconds": 10,
            "admissionReviewVersions": ["v1"],
            "matchPolicy": "Equivalent",
            "namespaceSelector": {},
            "objectSelector": {},
        }
        | more
        for entry, (group, what, operations) in rules.items()
    ]
    return obj(
        f"{kind}WebhookConfiguration", "admissionregistration.k8s.io/v1", name, webhooks=entries
    )


def api_service(version: str, group: str, target: tuple[str, str]) -> Object:
    spec = {
        "group": group,
        "version": version,
        "service": {"namespace": target[0], "name": target[1], "port": 443},
    }
    status = {
        "conditions": [
            {
                "type": "Available",
                "status": "True",
                "reason": "Passed",
                "message": "all checks passed",
            }
        ]
    }
    return obj(
        "APIService", "apiregistration.k8s.io/v1", f"{version}.{group}", spec=spec, status=status
    )


def namespaces(*names: str) -> list[Object]:
    labels = "kubernetes.io/metadata.name"
    return [
        obj(
            "Namespace", "v1", name, metadata={"labels": {labels: name}}, status={"phase": "Active"}
        )
        for name in names
    ]
