"""Random clusters that lose nodes: the pods of ``random_clusters`` become virtual machines,
Deployments and daemons.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from tests.scheduler.random_clusters import RandomCluster, random_cluster
from tests.scheduler.random_pods import REQUIRED, Manifest
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object

SCHEDULABLE: Final = "kubevirt.io/schedulable"
_NODE_HEALTH_CHECK: Final = "remediation.medik8s.io/v1alpha1"
_SELF_REMEDIATION: Final = "self-node-remediation.medik8s.io/v1alpha1"
_OBSOLETE: Final = "node-labeller.kubevirt.io/obsolete-host-model"
_KEPT: Final = ("nodeSelector", "affinity", "tolerations", "topologySpreadConstraints")
"""What a VMI hands on to its launcher pod as it is written."""


@dataclass(frozen=True)
class LossyCluster:
    """A cluster with virtual machines, whose nodes can be lost."""

    base: RandomCluster
    """As kube-scheduler sees it, before the loss."""
    more: tuple[Manifest, ...]
    """KubeVirt, the VMs and a health check that always acts."""
    fresh: dict[str, Manifest]
    """The pod with which each VM starts again, by ``namespace/name`` of the VMI."""
    returning: dict[str, Manifest]
    """The pod with which each other pod that has a controller starts again,
    by ``namespace/name``.
    """

    def snapshot(self) -> Snapshot:
        """Return the cluster as the forecast reads it."""
        return Snapshot(
            map(Object, (*self.base.objects, *self.more)), ["*"], server_version="v1.36.3"
        )

    def without(self, nodes: Collection[str]) -> RandomCluster:
        """Return what is left after the loss of nodes."""
        return replace(
            self.base,
            nodes=[each for each in self.base.nodes if each["metadata"]["name"] not in nodes],
            pods=[each for each in self.base.pods if each["spec"].get("nodeName") not in nodes],
        )


def lossy_cluster(seed: int) -> LossyCluster:
    """Return the cluster of a seed."""
    base = random_cluster(seed)
    chance = Random(f"virtual machines of {seed}")
    for node in base.nodes:
        node["metadata"]["labels"][SCHEDULABLE] = "true" if chance.random() < 0.9 else "false"
    pods: list[Manifest] = []
    more: list[Manifest] = list(_always_there())
    fresh: dict[str, Manifest] = {}
    returning: dict[str, Manifest] = {}
    for pod in base.pods:
        name = _full_name(pod)
        kind = (
            "none"
            if _has_ended(pod)
            else chance.choice(("vm", "vm", "vm", "ReplicaSet", "DaemonSet"))
        )
        if kind == "vm":
            made, running, fresh[name] = _vm(pod)
            more += made
            pods.append(running)
            continue
        pods.append(pod)
        if kind != "none":
            pod["metadata"]["ownerReferences"] = [_owner("apps/v1", kind, pod["metadata"]["name"])]
        if kind == "ReplicaSet":
            returning[name] = _unbound(pod)
    return LossyCluster(replace(base, pods=pods, place=[]), tuple(more), fresh, returning)


def _full_name(pod: Manifest) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _has_ended(pod: Manifest) -> bool:
    return (
        pod["status"]["phase"] in ("Succeeded", "Failed") or "deletionTimestamp" in pod["metadata"]
    )


def _owner(version: str, kind: str, name: str) -> Manifest:
    return {
        "apiVersion": version,
        "kind": kind,
        "name": name,
        "controller": True,
        "uid": f"{kind}-{name}",
    }


def _unbound(pod: Manifest) -> Manifest:
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    metadata = {key: pod["metadata"][key] for key in ("name", "namespace", "labels")}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _vm(pod: Manifest) -> tuple[list[Manifest], Manifest, Manifest]:
    """Return a VM that demands what a pod demands, its running launcher pod,
    and the one with which it starts again.
    """
    metadata, spec = pod["metadata"], pod["spec"]
    name, namespace, uid = (
        metadata["name"],
        metadata["namespace"],
        f"uid-{metadata['namespace']}-{metadata['name']}",
    )
    launcher = {
        "kubevirt.io": "virt-launcher",
        "kubevirt.io/created-by": uid,
        "vm.kubevirt.io/name": name,
    }
    demands = {key: spec[key] for key in (*_KEPT, "volumes") if key in spec}
    template = {"domain": {"devices": {}}, "evictionStrategy": "None", **demands}
    vmi = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid,
            "labels": metadata["labels"],
            "ownerReferences": [_owner("kubevirt.io/v1", "VirtualMachine", name)],
        },
        "spec": template,
        "status": {"phase": "Running", "nodeName": spec["nodeName"]},
    }
    vm = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"runStrategy": "Always", "template": {"spec": template}},
    }
    selector = {**spec.get("nodeSelector", {}), SCHEDULABLE: "true"}
    running = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"virt-launcher-{name}",
            "namespace": namespace,
            "labels": {**metadata["labels"], **launcher},
            "ownerReferences": [_owner("kubevirt.io/v1", "VirtualMachineInstance", name)],
        },
        "spec": {**spec, "nodeSelector": selector},
        "status": {"phase": "Running"},
    }
    fresh = _unbound(running)
    fresh["metadata"] = {**fresh["metadata"], "name": name}
    fresh["spec"]["affinity"] = _of_host_model(spec.get("affinity", {}))
    return [vmi, vm], running, fresh


def _of_host_model(affinity: Manifest) -> Manifest:
    """Return an affinity with what KubeVirt adds for the CPU model of the host: to each term,
    or as the only one.
    """
    required = affinity.get("nodeAffinity", {}).get(REQUIRED, {})
    usable = {"key": _OBSOLETE, "operator": "DoesNotExist"}
    terms = [
        {**term, "matchExpressions": [*term.get("matchExpressions", ()), usable]}
        for term in required.get("nodeSelectorTerms") or [{}]
    ]
    return {**affinity, "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}


def _always_there() -> Iterator[Manifest]:
    yield {
        "apiVersion": "kubevirt.io/v1",
        "kind": "KubeVirt",
        "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
        "spec": {"configuration": {}},
        "status": {"observedKubeVirtVersion": "v1.8.0"},
    }
    template = {"apiVersion": _SELF_REMEDIATION, "kind": "SelfNodeRemediationTemplate"}
    reference = template | {"name": "self", "namespace": "medik8s"}
    yield {
        "apiVersion": _NODE_HEALTH_CHECK,
        "kind": "NodeHealthCheck",
        "metadata": {"name": "all"},
        "spec": {"selector": {}, "minHealthy": 0, "remediationTemplate": reference},
    }
    yield template | {
        "metadata": {"name": "self", "namespace": "medik8s"},
        "spec": {"template": {"spec": {}}},
    }
