"""Random clusters in motion: migrations under way, KubeVirt's components, operators' budgets, and
nodes that do not report.

They are the clusters of ``random_vms.random_cluster`` with more objects. Each seed gives the same
cluster again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Final

from tests.random_vms import Manifest, manifest, random_cluster

START: Final = "2026-01-01T11:59:00Z"
CREATED: Final = ("2026-01-01T11:59:40Z", "2026-01-01T11:50:00Z")
PHASES: Final = (
    "Pending",
    "Pending",
    "Scheduling",
    "PreparingTarget",
    "TargetReady",
    "Running",
    "Running",
    "Running",
)


def moving_cluster(seed: int) -> list[Manifest]:
    """Return the objects of a small cluster in motion."""
    chance = Random(f"motion {seed}")
    made = random_cluster(seed)
    nodes = [each["metadata"]["name"] for each in made if each["kind"] == "Node"]
    instances = [each for each in made if each["kind"] == "VirtualMachineInstance"]
    made += [each for vmi in instances for each in _moves(chance, vmi, nodes)]
    made += _components(chance, nodes)
    made += _operators(chance, nodes)
    for each in made:
        if each["kind"] == "KubeVirt":
            each["status"]["conditions"] = [
                {"type": kind, "status": chance.choice(("True", "False"))}
                for kind in ("Available", "Progressing")
            ]
            each["status"]["observedKubeVirtVersion"] = chance.choice(("v1.6.0", "v1.9.0"))
    return made


def _moves(chance: Random, vmi: Manifest, nodes: Sequence[str]) -> Iterator[Manifest]:
    """Yield a migration of a VMI with its target pod, and mark the VMI; nothing for some VMIs."""
    name, namespace, here = (
        vmi["metadata"]["name"],
        vmi["metadata"]["namespace"],
        vmi["status"]["nodeName"],
    )
    if chance.random() < 0.5:
        return
    if chance.random() < 0.5:
        vmi["status"]["evacuationNodeName"] = chance.choice((here, here, here, nodes[0]))
    if chance.random() < 0.3:
        return
    phase, to, uid = (
        chance.choice(PHASES),
        chance.choice([node for node in nodes if node != here]),
        f"uid-m-{name}",
    )
    drain = (
        {"annotations": {"kubevirt.io/evacuationMigration": here}} if chance.random() < 0.7 else {}
    )
    yield manifest(
        "kubevirt.io/v1",
        "VirtualMachineInstanceMigration",
        f"m-{name}",
        namespace,
        metadata={"uid": uid, "creationTimestamp": chance.choice(CREATED)} | drain,
        spec={"vmiName": name},
        status={"phase": phase},
    )
    if phase == "Pending" and chance.random() < 0.7:
        return
    if phase == "Running":
        state = {"migrationUid": uid, "sourceNode": here, "targetNode": to, "startTimestamp": START}
        vmi["status"]["migrationState"] = state | chance.choice(
            ({}, {"mode": "PostCopy"}, {"abortStatus": "Aborting"})
        )
    yield _target_pod(chance, vmi, to, uid)


def _target_pod(chance: Random, vmi: Manifest, to: str, uid: str) -> Manifest:
    name = vmi["metadata"]["name"]
    labels = {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": f"uid-{name}", "vm": name}
    metadata = {
        "uid": f"pod-{uid}",
        "creationTimestamp": START,
        "labels": labels | {"kubevirt.io/migrationJobUID": uid},
        "annotations": {"kubevirt.io/domain": name},
        "ownerReferences": [{"kind": "VirtualMachineInstance", "name": name, "controller": True}],
    }
    requests = {"cpu": "100m", "memory": vmi["spec"]["domain"]["memory"]["guest"]}
    spec = {
        "nodeName": to,
        "priority": 0,
        "containers": [{"name": "compute", "resources": {"requests": requests}}],
    }
    ready = [{"type": "Ready", "status": chance.choice(("True", "True", "False"))}]
    return manifest(
        "v1",
        "Pod",
        f"virt-launcher-{name}-2",
        vmi["metadata"]["namespace"],
        metadata=metadata,
        spec=spec,
        status={"phase": "Running", "conditions": ready},
    )


def _components(chance: Random, nodes: Sequence[str]) -> Iterator[Manifest]:
    """Yield the pods of virt-api and virt-controller: healthy, on one node alone, or not ready."""
    for component in ("virt-api", "virt-controller"):
        yield manifest("apps/v1", "Deployment", component, "kubevirt", spec={}, status={})
        for on in chance.sample(list(nodes), k=chance.choice((1, 2, 2, 2))):
            status = chance.choice(("True",) * 7 + ("False",))
            owner = {"kind": "ReplicaSet", "name": component, "controller": True}
            yield manifest(
                "v1",
                "Pod",
                f"{component}-{on}",
                "kubevirt",
                metadata={"labels": {"kubevirt.io": component}, "ownerReferences": [owner]},
                spec={"nodeName": on, "priority": 0, "containers": []},
                status={"phase": "Running", "conditions": [{"type": "Ready", "status": status}]},
            )


def _operators(chance: Random, nodes: Sequence[str]) -> Iterator[Manifest]:
    """Yield Longhorn's instance managers with their budgets and the replicas of one volume."""
    if chance.random() < 0.6:
        return
    space = "longhorn-system"
    setting = chance.choice(
        ("block-if-contains-last-replica", "always-allow", "allow-if-replica-is-stopped")
    )
    yield manifest("longhorn.io/v1beta2", "Setting", "node-drain-policy", space, value=setting)
    for on in nodes:
        labels = {"longhorn.io/component": "instance-manager", "longhorn.io/node": on}
        owner = {"kind": "InstanceManager", "name": f"im-{on}", "controller": True}
        yield manifest(
            "v1",
            "Pod",
            f"im-{on}",
            space,
            metadata={"labels": labels, "ownerReferences": [owner]},
            spec={"nodeName": on, "priority": 0, "containers": []},
            status={"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        )
        counts = {
            "expectedPods": 1,
            "desiredHealthy": 1,
            "currentHealthy": 1,
            "disruptionsAllowed": 0,
        }
        budget = {"selector": {"matchLabels": labels}, "minAvailable": 1}
        yield manifest(
            "policy/v1", "PodDisruptionBudget", f"im-{on}", space, spec=budget, status=counts
        )
    for on in chance.sample(list(nodes), k=chance.randint(1, len(nodes))):
        spec = {
            "volumeName": "vol",
            "nodeID": on,
            "healthyAt": START,
            "failedAt": "",
            "desireState": "running",
        }
        yield manifest("longhorn.io/v1beta2", "Replica", f"vol-r-{on}", space, spec=spec)
