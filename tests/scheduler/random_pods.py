"""Random pods, as a user or KubeVirt would create them: valid for the API server, and with every
constraint that kube-scheduler's filters know.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

Manifest = dict[str, Any]

HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
RACK: Final = "example.com/rack"
SIZE: Final = "size"
TOPOLOGY: Final = (HOSTNAME, HOSTNAME, ZONE, ZONE, RACK)

NAMESPACES: Final = {
    "blue": {"team": "blue"},
    "green": {"team": "green", "shared": "yes"},
    "grey": {},
}
APPS: Final = ("web", "db", "cache")
DEVICE: Final = "example.com/gpu"
HUGE: Final = "hugepages-2Mi"
CREATED: Final = "2026-01-01T00:00:00Z"

FEATURES: Final = (
    "selector",
    "affinity",
    "taints",
    "room",
    "shapes",
    "devices",
    "pod affinity",
    "anti-affinity",
    "spread",
    "claims",
    "exclusive",
    "attach limits",
)
"""What a random cluster may be rich in; each has a few of them,
so that one refusal does not hide all others.
"""


@dataclass(frozen=True)
class Choice:
    """What decides about random objects: the source of chance, and the features of this cluster."""

    random: Random
    features: frozenset[str]

    def has(self, feature: str, chance: float = 0.6) -> bool:
        """Return whether an object uses a feature of its cluster."""
        return feature in self.features and self.random.random() < chance

    def maybe(self, chance: float) -> bool:
        return self.random.random() < chance

    def some(self, options: Sequence[Any], most: int) -> list[Any]:
        return self.random.sample(list(options), self.random.randint(1, min(most, len(options))))


def pod(
    choice: Choice, name: str, node: str, claims: Sequence[str], nodes: Sequence[str]
) -> Manifest:
    """Return a pod; ``node`` is empty for one that is not bound yet."""
    random = choice.random
    namespace = random.choice(list(NAMESPACES))
    spec: Manifest = containers(choice)
    if node:
        spec["nodeName"] = node
    if choice.has("selector"):
        spec["nodeSelector"] = _node_selector(choice)
    if affinity := _affinity(choice, nodes):
        spec["affinity"] = affinity
    if choice.has("taints", 0.7):
        spec["tolerations"] = [_toleration(choice) for _ in range(random.randint(1, 3))]
    if choice.has("spread"):
        spec["topologySpreadConstraints"] = list(_spread(choice))
    if claims and choice.maybe(0.7):
        spec["volumes"] = [
            {"name": f"v{index}", "persistentVolumeClaim": {"claimName": claim}}
            for index, claim in enumerate(choice.some(claims, 2))
        ]
    metadata: Manifest = {"name": name, "namespace": namespace, "labels": _labels(choice)}
    made: Manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    if node:
        made["status"] = {
            "phase": random.choice(["Running"] * 8 + ["Pending", "Succeeded", "Failed"])
        }
        if choice.has("shapes", 0.4):
            made["status"] |= _resize(choice, spec)
        if choice.maybe(0.1):
            metadata |= {"deletionTimestamp": CREATED, "deletionGracePeriodSeconds": 30}
    return made


def _labels(choice: Choice) -> Manifest:
    labels = {"app": choice.random.choice(APPS)}
    if choice.maybe(0.6):
        labels["version"] = choice.random.choice(("v1", "v2"))
    if choice.maybe(0.2):
        labels["tier"] = ""
    return labels


# --- resources ------------------------------------------------------------------------------------


def containers(choice: Choice) -> Manifest:
    """Return containers, init containers, overhead and resources of the whole pod."""
    random = choice.random
    spec: Manifest = {
        "terminationGracePeriodSeconds": 30,
        "containers": [
            _container(choice, f"c{index}") for index in range(random.choice((1, 1, 1, 2)))
        ],
    }
    if choice.has("shapes", 0.5):
        spec["initContainers"] = [
            _container(choice, f"i{index}", sidecar=choice.maybe(0.5))
            for index in range(random.randint(1, 3))
        ]
    if choice.has("shapes", 0.2):
        spec["overhead"] = {"cpu": "250m", "memory": random.choice(("120Mi", "1Gi"))}
    if choice.has("shapes", 0.15):
        spec["resources"] = {"requests": {"cpu": "16", "memory": random.choice(("40Gi", "60Gi"))}}
    return spec


def _container(choice: Choice, name: str, *, sidecar: bool = False) -> Manifest:
    random = choice.random
    requests: Manifest = {}
    limits: Manifest = {}
    for resource, sizes in _SIZES.items():
        if choice.has("room", 0.8) or choice.maybe(0.3):
            requests[resource] = random.choice(sizes)
    if choice.has("shapes", 0.4):  # a limit without a request is the request
        for resource in list(requests):
            if choice.maybe(0.5):
                limits[resource] = requests.pop(resource)
    if choice.has("devices", 0.5):
        limits[DEVICE] = random.choice((0, 1, "1", 2))
        if choice.maybe(0.5):
            requests[DEVICE] = limits[DEVICE]
    if choice.has("devices", 0.3):
        limits[HUGE] = requests[HUGE] = random.choice(("2Mi", "64Mi", "1Gi"))
        requests.setdefault("cpu", "10m")
    made: Manifest = {
        "name": name,
        "image": "example.com/image",
        "resources": {"requests": requests, "limits": limits},
    }
    if sidecar:
        made["restartPolicy"] = "Always"
    return made


_SIZES: Final = {
    "cpu": ("100m", "0.5", 1, "1500m", "3", "1.0005"),
    "memory": ("128Mi", "1G", "2Gi", "1.5Gi", "6e9", "7Gi"),
    "ephemeral-storage": ("1Gi", "20Gi", "100M"),
}


def _resize(choice: Choice, spec: Manifest) -> Manifest:
    """Return the status of a pod while its containers, or the pod as a whole, are resized."""

    def sizes() -> Manifest:
        return {resource: choice.random.choice(_SIZES[resource]) for resource in ("cpu", "memory")}

    def status() -> Manifest:
        made: Manifest = {"allocatedResources": sizes()} if choice.maybe(0.5) else {}
        return {**made, "resources": {"requests": sizes()}} if choice.maybe(0.7) else made

    made = status() if choice.maybe(0.5) else {}
    for kind, containers in (
        ("containerStatuses", "containers"),
        ("initContainerStatuses", "initContainers"),
    ):
        made[kind] = [{"name": each["name"], **status()} for each in spec.get(containers, ())]
    return made


# --- node selectors, taints -----------------------------------------------------------------------


def _node_selector(choice: Choice) -> Manifest:
    return {
        key: choice.random.choice(values)
        for key, values in choice.some(
            [(ZONE, "ab"), (RACK, ("r1", "r2")), ("disk", ("ssd", ""))], 2
        )
    }


def _node_requirement(choice: Choice) -> Manifest:
    random = choice.random
    operator = random.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
    if operator in ("Gt", "Lt"):
        return {
            "key": random.choice((SIZE, SIZE, ZONE)),
            "operator": operator,
            "values": [random.choice("2468")],
        }
    key, values = random.choice(
        [(ZONE, "abc"), (RACK, ("r1", "r2")), ("disk", ("ssd", "")), ("none", ("x",))]
    )
    made: Manifest = {"key": key, "operator": operator}
    if operator in ("In", "NotIn"):
        made["values"] = choice.some(values, 2)
    return made


def _node_term(choice: Choice, nodes: Sequence[str]) -> Manifest:
    term: Manifest = {}
    if choice.maybe(0.9):
        term["matchExpressions"] = [
            _node_requirement(choice) for _ in range(choice.random.randint(1, 2))
        ]
    if choice.maybe(0.25):
        operator = choice.random.choice(("In", "In", "NotIn"))
        term["matchFields"] = [
            {
                "key": "metadata.name",
                "operator": operator,
                "values": [choice.random.choice([*nodes, "gone"])],
            }
        ]
    return term


def node_affinity(choice: Choice, nodes: Sequence[str]) -> Manifest:
    """Return a node selector: of a pod's affinity, or of a volume."""
    return {
        "nodeSelectorTerms": [
            _node_term(choice, nodes) for _ in range(choice.random.choice((1, 1, 2, 3)))
        ]
    }


def _toleration(choice: Choice) -> Manifest:
    random = choice.random
    effect = random.choice(("", "NoSchedule", "NoExecute", "PreferNoSchedule"))
    key = random.choice(
        (
            "",
            "dedicated",
            "dedicated",
            "spot",
            "node.kubernetes.io/unschedulable",
            *NOT_READY.values(),
        )
    )
    made: Manifest = {"effect": effect} if effect else {}
    if not key or choice.maybe(0.4):
        return {**made, "operator": "Exists"} | ({"key": key} if key else {})
    made["key"] = key
    if choice.maybe(0.5):
        made["operator"] = "Equal"
    return {**made, "value": random.choice(("", "team-a", "true"))}


NOT_READY: Final = {
    "False": "node.kubernetes.io/not-ready",
    "Unknown": "node.kubernetes.io/unreachable",
}
"""The taint that the node lifecycle controller adds, by status of the condition Ready."""


# --- other pods -----------------------------------------------------------------------------------

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def _affinity(choice: Choice, nodes: Sequence[str]) -> Manifest:
    made: Manifest = {}
    if choice.has("affinity"):
        made["nodeAffinity"] = {REQUIRED: node_affinity(choice, nodes)}
    if choice.has("pod affinity", 0.4):
        made["podAffinity"] = {
            REQUIRED: [_pod_term(choice) for _ in range(choice.random.choice((1, 1, 2)))]
        }
    if choice.has("anti-affinity", 0.5):
        made["podAntiAffinity"] = {
            REQUIRED: [_pod_term(choice) for _ in range(choice.random.choice((1, 1, 2)))]
        }
    return made


def _label_selector(choice: Choice) -> Manifest | None:
    random = choice.random
    kind = random.random()
    if kind < 0.08:
        return None
    if kind < 0.14:
        return {}
    if kind < 0.6:
        return {"matchLabels": {"app": random.choice(APPS)}}
    operator = random.choice(("In", "NotIn", "Exists", "DoesNotExist"))
    requirement: Manifest = {"key": random.choice(("app", "tier")), "operator": operator}
    if operator in ("In", "NotIn"):
        requirement["values"] = choice.some((*APPS, ""), 2)
    return {"matchExpressions": [requirement]}


def _pod_term(choice: Choice) -> Manifest:
    random = choice.random
    selector = _label_selector(choice)
    term: Manifest = {"topologyKey": random.choice(TOPOLOGY)}
    if selector is not None:
        term["labelSelector"] = selector
        if choice.maybe(0.2):
            term[random.choice(("matchLabelKeys", "mismatchLabelKeys"))] = ["version"]
    if choice.maybe(0.25):
        term["namespaces"] = choice.some((*NAMESPACES, "unknown"), 2)
    if choice.maybe(0.25):
        term["namespaceSelector"] = random.choice(
            (
                {},
                {"matchLabels": {"shared": "yes"}},
                {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
            )
        )
    return term


def _spread(choice: Choice) -> Iterator[Manifest]:
    random = choice.random
    for key in choice.some((HOSTNAME, ZONE, RACK), 2):
        made: Manifest = {
            "topologyKey": key,
            "maxSkew": random.choice((1, 1, 2, 3)),
            "whenUnsatisfiable": random.choice(("DoNotSchedule",) * 4 + ("ScheduleAnyway",)),
        }
        selector = _label_selector(choice)
        if selector is not None:
            made["labelSelector"] = selector
            if choice.maybe(0.25):
                made["matchLabelKeys"] = ["version"]
        if made["whenUnsatisfiable"] == "DoNotSchedule" and choice.maybe(0.3):
            made["minDomains"] = random.randint(1, 4)
        if choice.maybe(0.3):
            made["nodeAffinityPolicy"] = random.choice(("Honor", "Ignore"))
        if choice.maybe(0.4):
            made["nodeTaintsPolicy"] = random.choice(("Honor", "Ignore"))
        yield made
