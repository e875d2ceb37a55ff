"""Objects for tests, as small as the API allows, with the fields that a test names;
``.data`` is the plain map.

Keywords of ``manifest`` are top-level fields, and ``metadata=`` adds to the metadata. Keywords of
the others are fields of the spec, except where the docstring says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.nodes import SCHEDULABLE
from virt_admit.model.kubernetes.objects import Object

KUBEVIRT = "kubevirt.io/v1"
NAMESPACE = "shop"
"""The namespace of every namespaced object, unless a test names another."""

MASQUERADE = {
    "networks": [{"name": "default", "pod": {}}],
    "interfaces": [{"name": "default", "masquerade": {}}],
}
"""The network and the interface of a VM that can migrate."""


EVERY_NODE = {"matchExpressions": [{"key": "no-pool", "operator": "DoesNotExist"}]}
"""The selector of a MachineConfigPool with all nodes: an empty one selects none."""


def manifest(
    api_version: str, kind: str, name: str, namespace: str = "", /, **fields: Any
) -> Object:
    """Return an object of any kind; one of a cluster-scoped kind has no namespace."""
    metadata = (
        {"name": name}
        | ({"namespace": namespace} if namespace else {})
        | fields.pop("metadata", {})
    )
    return Object({"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields})


def node(
    name: str,
    labels: Mapping[str, str] | None = None,
    *,
    runs_vms: bool = True,
    ready: str = "True",
    allocatable: Mapping[str, str] | None = None,
    **spec: Any,
) -> Object:
    """Return a Node; unless it runs no VMs, it has the label that virt-handler sets."""
    labels = ({SCHEDULABLE: "true"} if runs_vms else {}) | dict(labels or {})
    status = {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": ready}]}
    return manifest("v1", "Node", name, metadata={"labels": labels}, spec=spec, status=status)


def kubevirt(
    configuration: Mapping[str, Any] | None = None,
    *,
    status: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Object:
    """Return the KubeVirt resource; ``configuration`` and other keywords are fields of its
    configuration.
    """
    spec = {"configuration": dict(configuration or {}) | settings}
    metadata = dict(metadata or {})
    return manifest(
        KUBEVIRT,
        "KubeVirt",
        "kubevirt",
        "kubevirt",
        metadata=metadata,
        spec=spec,
        status=status or {},
    )


def hyperconverged(
    spec: Mapping[str, Any] | None = None, version: str = "v1", **fields: Any
) -> Object:
    """Return the HyperConverged resource; keywords are top-level fields."""
    name = "kubevirt-hyperconverged"
    return manifest(
        f"hco.kubevirt.io/{version}", "HyperConverged", name, name, spec=spec or {}, **fields
    )


def instancetype(kind: str, name: str, spec: Any) -> Object:
    """Return an instance type or a preference;
    kinds with Cluster in their name have no namespace.
    """
    namespace = "" if "Cluster" in kind else NAMESPACE
    return manifest("instancetype.kubevirt.io/v1beta1", kind, name, namespace, spec=spec)


def claim(name: str, *modes: str) -> Object:
    """Return a PersistentVolumeClaim with these access modes."""
    return manifest(
        "v1", "PersistentVolumeClaim", name, NAMESPACE, spec={"accessModes": list(modes)}
    )


def vm(
    template: Mapping[str, Any] | None = None,
    *,
    name: str = "db",
    kind: str = "VirtualMachine",
    metadata: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Object:
    """Return a VirtualMachine; ``template`` has the metadata and the spec of its VMI."""
    spec["template"] = {"spec": {"domain": {"devices": {}}}} | dict(template or {})
    return manifest(
        KUBEVIRT,
        kind,
        name,
        NAMESPACE,
        metadata=dict(metadata or {}),
        spec=spec,
        status=status or {},
    )


def vmi(
    *,
    metadata: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Object:
    """Return a VirtualMachineInstance."""
    kind, metadata = "VirtualMachineInstance", dict(metadata or {})
    return manifest(
        KUBEVIRT, kind, "db", NAMESPACE, metadata=metadata, spec=spec, status=status or {}
    )


def owned_by(kind: str, name: str = "db") -> list[dict[str, Any]]:
    """Return the owner references of an object whose controller is this KubeVirt object."""
    return [{"apiVersion": KUBEVIRT, "kind": kind, "name": name, "controller": True}]


def warning(about: Object, reason: str, message: str, last: str, **fields: Any) -> Object:
    """Return the Warning event of an object that was seen last at a time; keywords are top-level
    fields.
    """
    name, namespace = f"{about.name}.{reason}.{last}", about.namespace
    involved = {"kind": about.kind, "namespace": namespace, "name": about.name}
    said = {"type": "Warning", "reason": reason, "message": message, "lastTimestamp": last}
    return manifest("v1", "Event", name, namespace, involvedObject=involved, **said, **fields)


def endpoint_slice(service: str, namespace: str, *endpoints: Mapping[str, Any]) -> Object:
    """Return the EndpointSlice of a Service with these endpoints."""
    return manifest(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        f"{service}-1",
        namespace,
        metadata={"labels": {"kubernetes.io/service-name": service}},
        endpoints=list(endpoints),
    )


def webhook_configuration(
    name: str, *hooks: Mapping[str, Any], kind: str = "Validating", **metadata: Any
) -> Object:
    """Return a configuration of these admission webhooks; other keywords are its metadata."""
    return manifest(
        "admissionregistration.k8s.io/v1",
        f"{kind}WebhookConfiguration",
        name,
        metadata=metadata,
        webhooks=list(hooks),
    )


def complete(*objects: Object) -> Snapshot:
    """Return a cluster of which everything can be read:
    an object that is not given does not exist.
    """
    return Snapshot(objects, complete=["*"])


def partial(*objects: Object) -> Snapshot:
    """Return a cluster of which only these objects could be read."""
    return Snapshot(objects)
