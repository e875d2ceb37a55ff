"""Deployments, StatefulSets and ReplicaSets: the pods that they will have, before there are any."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import (
    AUTOSCALER,
    DEPLOYMENT,
    POD,
    REPLICA_SET,
    SCALED_OBJECT,
    STATEFUL_SET,
    Kind,
)
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubernetes.selectors import Selector

CONTAINERS: Final = ("initContainerStatuses", "containerStatuses")
"""The fields in the status of a pod with the states of its containers."""

_KINDS: Final = (DEPLOYMENT, STATEFUL_SET, REPLICA_SET)

READS: Final[Reads] = {
    **dict.fromkeys(
        _KINDS, ("metadata.ownerReferences", "spec.replicas", "spec.template.metadata.labels")
    ),
    **dict.fromkeys((AUTOSCALER, SCALED_OBJECT), ("spec.scaleTargetRef",)),
}


def container_statuses(pod: Object) -> Iterator[Field]:
    """Yield the states of the containers of a pod, those that run first before others."""
    for kind in CONTAINERS:
        yield from pod.at("status", kind).items()


def image_tags(pod_spec: Field) -> Iterator[str]:
    """Yield the tags of the images of a pod's containers; empty: an image without a tag."""
    for container in pod_spec["containers"].items():
        yield image_tag(container["image"].text or "")


def image_tag(image: str) -> str:
    """Return the tag of an image such as ``registry:5000/team/tool:v1.2@sha256:…``; empty: it has
    none.
    """
    return image.rpartition("/")[2].partition("@")[0].partition(":")[2]


def scaled_down(names: Collection[str], cluster: Cluster) -> Object | None:
    """Return a Deployment or StatefulSet of these names if each known one has no replicas; None:
    one has, or none is known.
    """
    found = named(names, cluster)
    return found[0] if found and not any(map(_may_have_pods, found)) else None


def named(names: Collection[str], cluster: Cluster) -> Sequence[Object]:
    """Return the known Deployments and StatefulSets of these names."""
    known = cluster.cached(_controllers_by_name)
    return [each for name in sorted(names) for each in known.get(name, ())]


def is_known(names: Collection[str], cluster: Cluster) -> bool:
    """Return whether a Deployment or StatefulSet of one of these names is known."""
    return not cluster.cached(_controllers_by_name).keys().isdisjoint(names)


def _may_have_pods(workload: Object) -> bool:
    return workload.at("spec", "replicas").integer != 0


def _controllers_by_name(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    found: dict[str, list[Object]] = {}
    for each in (*cluster.known(DEPLOYMENT), *cluster.known(STATEFUL_SET)):
        found.setdefault(each.name, []).append(each)
    return found


class Workload(NamedTuple):
    """An object that creates pods."""

    kind: Kind
    name: str
    replicas: int | None
    """None: an autoscaler decides, or it is not written,
    as manifests of autoscaled workloads leave it out.
    """

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.name}"


def selected(selector: Selector, namespace: str, cluster: Cluster) -> Iterator[Workload]:
    """Yield the known workloads with pods that a selector matches,
    without those that another object owns.
    """
    for kind in _KINDS:
        for obj in cluster.known(kind, namespace):
            replicas = obj.at("spec", "replicas").integer
            labels = obj.at("spec", "template", "metadata", "labels").texts
            if obj.controller is None and replicas != 0 and selector.matches(labels):
                yield Workload(
                    kind, obj.name, None if is_autoscaled(obj, kind, cluster) else replicas
                )


def siblings(pod: Object, cluster: Cluster) -> Iterator[Object]:
    """Yield the known pods of the controller of a pod, with itself; none where it has none."""
    owner = pod.controller
    for each in cluster.known(POD, pod.namespace) if owner is not None else ():
        own = each.controller
        if owner is not None and own is not None and own["uid"].text == owner["uid"].text:
            yield each


def is_autoscaled(obj: Object, kind: Kind, cluster: Cluster) -> bool:
    """Return whether an autoscaler is known that sets the replicas."""
    return autoscaler(kind.kind, obj.namespace, obj.name, cluster) is not None


def autoscaler(kind: str, namespace: str, name: str, cluster: Cluster) -> Object | None:
    """Return the known autoscaler that sets the replicas of an object.

    One of KEDA scales a Deployment by default.
    """
    for scaler in (AUTOSCALER, SCALED_OBJECT):
        for found in cluster.known(scaler, namespace or "default"):
            target = found.at("spec", "scaleTargetRef")
            if target["name"].text == name and (target["kind"].text or DEPLOYMENT.kind) == kind:
                return found
    return None
