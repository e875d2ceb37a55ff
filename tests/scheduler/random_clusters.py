"""Random clusters for kube-scheduler and for our model of it:
each seed gives the same cluster again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from tests.scheduler.random_pods import (
    CREATED,
    DEVICE,
    FEATURES,
    HOSTNAME,
    HUGE,
    NAMESPACES,
    NOT_READY,
    RACK,
    REGION,
    SIZE,
    ZONE,
    Choice,
    Manifest,
    node_affinity,
    pod,
)

DRIVERS: Final = ("csi.example.com", "block.example.com")


@dataclass(frozen=True)
class RandomCluster:
    """Objects of one cluster, and pods that look for a node in it."""

    seed: int
    features: frozenset[str]
    namespaces: list[Manifest] = field(default_factory=list)
    nodes: list[Manifest] = field(default_factory=list)
    pods: list[Manifest] = field(default_factory=list)
    volumes: list[Manifest] = field(default_factory=list)
    claims: list[Manifest] = field(default_factory=list)
    csi_nodes: list[Manifest] = field(default_factory=list)
    storage_classes: list[Manifest] = field(default_factory=list)
    place: list[Manifest] = field(default_factory=list)

    @property
    def objects(self) -> Iterator[Manifest]:
        """Yield what exists in the cluster, without the pods to place."""
        yield from (*self.namespaces, *self.nodes, *self.pods, *self.volumes, *self.claims)
        yield from (*self.csi_nodes, *self.storage_classes)

    def question(self, **more: Any) -> Manifest:
        """Return the line of input that the oracle reads."""
        return {
            "namespaces": self.namespaces,
            "nodes": self.nodes,
            "pods": self.pods,
            "volumes": self.volumes,
            "claims": self.claims,
            "csiNodes": self.csi_nodes,
            "storageClasses": self.storage_classes,
            **more,
        }


def random_cluster(seed: int) -> RandomCluster:
    """Return the cluster of a seed."""
    random = Random(seed)
    features = frozenset(random.sample(FEATURES, random.randint(1, 5)))
    choice = Choice(random, features)
    made = RandomCluster(seed, features)
    made.namespaces.extend(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        for name, labels in NAMESPACES.items()
    )
    names = [f"n{index}" for index in range(random.randint(1, 7))]
    made.nodes.extend(_node(choice, name) for name in names)
    if features & {"claims", "exclusive", "attach limits"}:
        _storage(choice, made, names)
    claims = sorted({claim["metadata"]["name"] for claim in made.claims})
    for index in range(random.randint(0, 12)):
        bound_to = random.choice(names) if choice.maybe(0.98) else "gone"
        made.pods.append(pod(choice, f"bound-{index}", bound_to, claims, names))
    wanted = [*claims, "missing"] if "claims" in features and choice.maybe(0.2) else claims
    made.place.extend(
        pod(choice, f"new-{index}", "", wanted, names) for index in range(random.randint(2, 4))
    )
    _prioritize(Random(f"priorities of {seed}"), (*made.pods, *made.place))
    return made


def _prioritize(random: Random, pods: Iterable[Manifest]) -> None:
    """Set priorities, as the admission plugin of the API server does.

    They come from a source of chance of their own, so that each seed still gives the cluster that
    it gave before there were priorities.
    """
    for each in pods:
        each["spec"]["priority"] = random.choice((-10, 0, 0, 0, 100, 1000, 2000001000))
        each["spec"]["preemptionPolicy"] = (
            "Never" if random.random() < 0.1 else "PreemptLowerPriority"
        )


# --- nodes ----------------------------------------------------------------------------------------


def _node(choice: Choice, name: str) -> Manifest:
    random = choice.random
    spec: Manifest = {"taints": list(_taints(choice))} if "taints" in choice.features else {}
    status: Manifest = {"allocatable": _allocatable(choice)}
    # the node lifecycle controller adds the taint; for a moment it is not there yet
    if choice.has("taints", 0.25):
        spec["unschedulable"] = True
        if choice.maybe(0.8):
            spec["taints"].append(
                {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
            )
    ready = random.choice(("False", "Unknown")) if choice.has("taints", 0.15) else "True"
    status["conditions"] = [{"type": "Ready", "status": ready}]
    if ready != "True":
        spec["taints"] += [
            {"key": NOT_READY[ready], "effect": effect} for effect in ("NoSchedule", "NoExecute")
        ]
    metadata = {"name": name, "labels": _node_labels(choice, name)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }


def _node_labels(choice: Choice, name: str) -> Manifest:
    random = choice.random
    labels = {HOSTNAME: name} if choice.maybe(0.97) else {}
    if choice.maybe(0.9):
        labels[ZONE] = random.choice("abc")
    if choice.maybe(0.3):
        labels[REGION] = "west"
    if choice.maybe(0.7):
        labels[RACK] = random.choice(("r1", "r2"))
    if choice.maybe(0.6):
        labels[SIZE] = random.choice(("1", "3", "5", "10", "large"))
    if choice.maybe(0.5):
        labels["disk"] = random.choice(("ssd", "", "hdd"))
    return labels


def _taints(choice: Choice) -> Iterator[Manifest]:
    for key in choice.some(("dedicated", "spot"), 2) if choice.maybe(0.6) else ():
        taint = {
            "key": key,
            "effect": choice.random.choice(("NoSchedule", "NoExecute", "PreferNoSchedule")),
        }
        value = choice.random.choice(("", "team-a", "true"))
        yield {**taint, "value": value} if value else taint


def _allocatable(choice: Choice) -> Manifest:
    random = choice.random
    roomy = "room" not in choice.features
    made: Manifest = {
        "cpu": "64" if roomy else random.choice(("2", "3900m", "8", "15.5")),
        "memory": "256Gi" if roomy else random.choice(("4Gi", "7999000Ki", "16Gi", "33e9")),
        "pods": "110" if roomy or choice.maybe(0.7) else random.choice(("2", "4", "0")),
    }
    if roomy or choice.maybe(0.9):
        made["ephemeral-storage"] = (
            "900Gi" if roomy else random.choice(("10Gi", "50Gi", "47093746742"))
        )
    if "devices" in choice.features and choice.maybe(0.7):
        made[DEVICE] = random.choice(("0", "1", "4"))
    if "devices" in choice.features and choice.maybe(0.6):
        made[HUGE] = random.choice(("0", "64Mi", "2Gi"))
    return made


# --- storage --------------------------------------------------------------------------------------


def _storage(choice: Choice, made: RandomCluster, nodes: Sequence[str]) -> None:
    """Add claims with the same names in all namespaces, volumes,
    classes and the limits of drivers.
    """
    made.storage_classes.extend(
        _object(
            "storage.k8s.io/v1",
            "StorageClass",
            name,
            provisioner=DRIVERS[0],
            volumeBindingMode=mode,
        )
        for name, mode in (("now", "Immediate"), ("later", "WaitForFirstConsumer"))
    )
    for index in range(choice.random.randint(1, 4)):
        for namespace in NAMESPACES:
            _claim(choice, made, nodes, namespace, f"claim-{index}")
    for name in nodes:
        if choice.maybe(0.8):
            made.csi_nodes.append(_csi_node(choice, name))


def _object(version: str, kind: str, name: str, namespace: str = "", **fields: Any) -> Manifest:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


def _csi_node(choice: Choice, name: str) -> Manifest:
    drivers: list[Manifest] = []
    for driver in DRIVERS:
        entry: Manifest = {"name": driver, "nodeID": name, "topologyKeys": None}
        if choice.has("attach limits", 0.8):
            entry["allocatable"] = {"count": choice.random.choice((0, 1, 2, 3))}
        elif choice.maybe(0.2):
            entry["allocatable"] = {}
        if choice.maybe(0.9):
            drivers.append(entry)
    return _object("storage.k8s.io/v1", "CSINode", name, spec={"drivers": drivers})


def _claim(
    choice: Choice, made: RandomCluster, nodes: Sequence[str], namespace: str, name: str
) -> None:
    random = choice.random
    healthy = "claims" not in choice.features
    state = "bound" if healthy else random.choice(("bound",) * 8 + _FAULTS)
    modes = ["ReadWriteOncePod"] if choice.has("exclusive", 0.7) else ["ReadWriteMany"]
    claim = _object(
        "v1", "PersistentVolumeClaim", name, namespace, spec={"accessModes": modes}, status={}
    )
    made.claims.append(claim)
    claim["spec"]["storageClassName"] = "later" if state == "unbound later" else "now"
    if state.startswith("unbound"):
        claim["status"]["phase"] = "Pending"
        return
    claim["spec"]["volumeName"] = volume_name = f"pv-{namespace}-{name}"
    claim["status"]["phase"] = "Lost" if state == "lost" else "Bound"
    if state == "binding":
        claim["status"]["phase"] = "Pending"
    else:
        claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    if state == "deleting":
        claim["metadata"] |= {
            "deletionTimestamp": CREATED,
            "finalizers": ["kubernetes.io/pvc-protection"],
        }
    if state not in ("lost", "without volume"):
        made.volumes.append(_volume(choice, nodes, volume_name, claim))


_FAULTS: Final = ("unbound now", "unbound later", "binding", "lost", "deleting", "without volume")


def _volume(choice: Choice, nodes: Sequence[str], name: str, claim: Manifest) -> Manifest:
    random = choice.random
    handle = random.choice((name, "shared-handle"))
    source = (
        {"csi": {"driver": random.choice(DRIVERS), "volumeHandle": handle}}
        if choice.maybe(0.8)
        else {"nfs": {"server": "nfs.example.com", "path": "/"}}
    )
    metadata = claim["metadata"]
    spec: Manifest = {
        "accessModes": claim["spec"]["accessModes"],
        "storageClassName": "now",
        "claimRef": {
            "kind": "PersistentVolumeClaim",
            "namespace": metadata["namespace"],
            "name": metadata["name"],
        },
        **source,
    }
    if choice.has("claims", 0.5):
        spec["nodeAffinity"] = {"required": node_affinity(choice, nodes)}
    made = _object("v1", "PersistentVolume", name, spec=spec, status={"phase": "Bound"})
    if choice.has("claims", 0.3):
        made["metadata"]["labels"] = {
            random.choice(
                (ZONE, ZONE, "failure-domain.beta.kubernetes.io/zone", REGION)
            ): random.choice(("a", "b", "a__b", "west", ""))
        }
    return made
