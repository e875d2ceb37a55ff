"""Machines of Cluster API that do not become Nodes because a controller of Cluster API does not
run.

Where the last node for such controllers is replaced, one that does not tolerate the taints of
control-plane nodes waits for the node that it has to make itself. Sources:
kubernetes-sigs/cluster-api:cmd/clusterctl/api/v1alpha3/provider_type.go #ManifestLabel (the label
of all objects of a provider), :api/ipam/v1beta2/ipaddressclaim_types.go;
kubernetes-sigs/cluster-api-ipam-provider-in-cluster#418.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

from virt_admit.forecasts.placement.components import broken_pods
from virt_admit.forecasts.placement.components.controllers import (
    replaced_providers,
    stopped_workloads,
)
from virt_admit.forecasts.placement.components.operands import cordoned_homes
from virt_admit.model import machine_nodes
from virt_admit.model.commands import about, json_patch, typed
from virt_admit.model.kubernetes import clock, nodes
from virt_admit.model.kubernetes.cluster import Cluster, cached, unlisted
from virt_admit.model.kubernetes.json_patch import Patch
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, DEPLOYMENT, IP_CLAIM, NODE, POD
from virt_admit.model.kubernetes.objects import Object, Path
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.kubernetes.workloads import CONTAINERS
from virt_admit.model.remediation import machine_starts
from virt_admit.model.remediation.machine_starts import OverdueMachine
from virt_admit.model.scheduler.node_selectors import tolerates

_PROVIDER: Final = replaced_providers.PROVIDER
_TOLERATIONS: Final = ("spec", "template", "spec", "tolerations")

READS: Final[Reads] = union(
    machine_starts.READS,
    cordoned_homes.READS,
    stopped_workloads.READS,
    {
        DEPLOYMENT: (
            "metadata.labels",
            "metadata.ownerReferences",
            "spec.replicas",
            "status.readyReplicas",
            ".".join(_TOLERATIONS),
        ),
        POD: (
            "metadata.creationTimestamp",
            "metadata.labels",
            "spec.nodeName",
            "spec.tolerations",
            "status.phase",
            *(f"status.{kind}" for kind in CONTAINERS),
            "status.conditions.lastTransitionTime",
            "status.conditions.message",
            *CONDITIONS,
        ),
        NODE: ("spec.taints", "metadata.labels"),
        CAPI_MACHINE: (
            "spec.clusterName",
            "spec.infrastructureRef.kind",
            "spec.infrastructureRef.name",
        ),
        IP_CLAIM: ("metadata.ownerReferences", "spec.poolRef", "status.addressRef.name"),
    },
)
_PATIENCE: Final = timedelta(minutes=10)
"""A controller that is updated or moved runs again by then."""
_CORE: Final = "cluster-api"
_STEPS: Final = {
    "bootstrap-": ("BootstrapConfigReady", "BootstrapReady"),
    "infrastructure-": ("InfrastructureReady",),
}
"""The conditions of a Machine that a provider of each type makes True."""


class IdleController(NamedTuple):
    """A Deployment of a provider without a pod that is ready."""

    deployment: Object
    provider: str
    """``ipam-in-cluster``: the type and the name."""
    why: str
    """As a clause: ``it does not tolerate taint X, which every node left has``."""
    remedy: str

    @property
    def title(self) -> str:
        """Kind and full name."""
        return f"{DEPLOYMENT.kind} {self.deployment.full_name}"


class StalledMachine(NamedTuple):
    """A Machine without a node, and the controller that does not act on it."""

    machine: Object
    why: str
    """``Machine fleet/m-1 has no node for 43 min: IPAddressClaim ...``,
    and the controller with its fault.
    """
    remedy: str


@cached
def of_cluster(cluster: Cluster) -> Mapping[str, StalledMachine]:
    """Return the Machines that wait for a controller which does not run, by ``namespace/name``."""
    idle = cluster.cached(_idle)
    found: dict[str, StalledMachine] = {}
    for machine in sorted(
        cluster.known(CAPI_MACHINE) if idle else (), key=lambda each: each.full_name
    ):
        age = clock.age(machine, cluster)
        if (
            machine.deleted
            or machine_nodes.node_name(machine, cluster)
            or age is None
            or age < _PATIENCE
        ):
            continue
        cause = next(_causes(machine, idle, cluster), None)
        if cause is not None:
            lasts = f"Machine {machine.full_name} has no node for {clock.duration(age)}"
            found[machine.full_name] = StalledMachine(
                machine, f"{lasts}: {cause.words}", cause.controller.remedy
            )
    return found


def here(cluster: Cluster) -> Sequence[StalledMachine]:
    """Return those of them that are to become nodes of this cluster:
    its Cluster has Machines with nodes here.
    """
    own = cluster.cached(clusters)
    return [each for each in of_cluster(cluster).values() if cluster_of(each.machine) in own]


def waiting(cluster: Cluster) -> Sequence[OverdueMachine]:
    """Return the Machines that are to become nodes of this cluster and have none for some time, or
    have failed, the oldest first.
    """
    own = cluster.cached(clusters)
    found = [
        (age, machine)
        for machine in cluster.known(CAPI_MACHINE)
        if not machine.deleted
        and cluster_of(machine) in own
        and not machine_nodes.node_name(machine, cluster)
        if (age := clock.age(machine, cluster)) is not None
        and (age >= _PATIENCE or machine_starts.failure(machine))
    ]
    found.sort(key=lambda each: (-each[0], each[1].full_name))
    return [machine_starts.described(machine, cluster) for _, machine in found]


def clusters(cluster: Cluster) -> frozenset[tuple[str, str]]:
    """Return namespace and name of the Clusters that have Machines with nodes of this cluster."""
    known = {node.name for node in cluster.known(NODE)}
    machines = cluster.known(CAPI_MACHINE)
    return frozenset(
        cluster_of(each) for each in machines if machine_nodes.node_name(each, cluster) in known
    )


def cluster_of(machine: Object) -> tuple[str, str]:
    """Return namespace and name of the Cluster of a Machine, or of what makes Machines."""
    return machine.namespace, machine.at("spec", "clusterName").text or ""


class _Cause(NamedTuple):
    """What a Machine waits for, and the controller that would act on it."""

    waits: str
    controller: IdleController

    @property
    def words(self) -> str:
        why = f"because {self.controller.title} does not run: {self.controller.why}"
        return f"{self.waits}, {why}"


def _causes(machine: Object, idle: Sequence[IdleController], cluster: Cluster) -> Iterator[_Cause]:
    """Yield what a Machine waits for, the most certain first."""
    for claim in _claims(machine, cluster):
        kind = claim.at("spec", "poolRef", "kind").text or ""
        serving = (each for each in idle if _serves(each, "ipam-", kind, cluster))
        yield from (
            _Cause(f"{IP_CLAIM.kind} {claim.name} gets no address", each) for each in serving
        )
    infrastructure = machine.at("spec", "infrastructureRef", "kind").text or ""
    for kind, steps in _STEPS.items():
        if machine_starts.is_open(machine, *steps):
            serving = (each for each in idle if _serves(each, kind, infrastructure, cluster))
            yield from (
                _Cause(f"its condition {steps[0]} does not become True", each) for each in serving
            )
    yield from (_Cause("nothing acts on it", each) for each in idle if each.provider == _CORE)


def _claims(machine: Object, cluster: Cluster) -> Iterator[Object]:
    """Yield the claims for addresses of a Machine that have none.

    Their owner is made for the Machine.
    """
    own = {machine.name, machine.at("spec", "infrastructureRef", "name").text}
    waiting = cluster.cached(_waiting_claims)
    found = {
        claim.name: claim
        for owner in own
        for claim in waiting.get((machine.namespace, owner or ""), ())
    }
    yield from (found[name] for name in sorted(found))


def _waiting_claims(cluster: Cluster) -> Mapping[tuple[str, str], list[Object]]:
    """Return the claims without an address, by namespace and name of each owner."""
    found: dict[tuple[str, str], list[Object]] = {}
    for claim in cluster.known(IP_CLAIM):
        if not claim.at("status", "addressRef", "name").text and not claim.deleted:
            for owner in claim.metadata["ownerReferences"].items():
                found.setdefault((claim.namespace, owner["name"].text or ""), []).append(claim)
    return found


def _serves(controller: IdleController, kind: str, named: str, cluster: Cluster) -> bool:
    """Return whether a controller is the only one of its type,
    or its provider has the name of a kind of object.

    ``in-cluster`` serves an ``InClusterIPPool``, ``vsphere`` a ``VSphereMachine``.
    """
    if not controller.provider.startswith(kind):
        return False
    name = controller.provider.removeprefix(kind).replace("-", "")
    same = {
        each.labels[_PROVIDER]
        for each in cluster.cached(_controllers)
        if each.labels[_PROVIDER].startswith(kind)
    }
    return len(same) == 1 or (bool(name) and name in named.lower())


def _controllers(cluster: Cluster) -> list[Object]:
    found = (each for each in cluster.known(DEPLOYMENT) if each.labels.get(_PROVIDER))
    return sorted(found, key=lambda each: each.full_name)


def _idle(cluster: Cluster) -> list[IdleController]:
    """Return the controllers of Cluster API that have not run for long."""
    return [
        found
        for each in cluster.cached(_controllers)
        if (found := _fault(each, cluster)) is not None
    ]


def _fault(deployment: Object, cluster: Cluster) -> IdleController | None:
    provider = deployment.labels[_PROVIDER]
    if deployment.at("status", "readyReplicas").integer:
        return None
    if deployment.at("spec", "replicas").integer == 0:
        stopped = stopped_workloads.of_podless(deployment, cluster)
        if stopped is None:  # an upgrade installs it again
            return None
        replaced = replaced_providers.of(deployment, cluster)
        why = f"it has 0 replicas{f' ({replaced.words})' if replaced is not None else ''}"
        scale = typed(
            f"scale it to 1 ({deployment.name})",
            about("scale", deployment, DEPLOYMENT, "--replicas=1"),
        )
        remedy = stopped.remedy if replaced is not None else scale
        return IdleController(deployment, provider, why, remedy)
    pods = [
        each
        for each in cluster.known(POD, deployment.namespace)
        if each.labels.get(_PROVIDER) == provider
    ]
    if not pods or any(each.is_true("Ready") for each in pods):
        return None
    pod = min(pods, key=lambda each: (bool(each.at("spec", "nodeName").text), each.name))
    age = clock.age(pod, cluster)
    if age is None or age < _PATIENCE:
        return None
    if (taint := _closed_by(pod, cluster)) is not None:
        key = taint["key"]
        why = f"it does not tolerate taint {key}, which every node left has"
        return IdleController(deployment, provider, why, _tolerate(deployment, taint))
    broken = broken_pods.of_pod(pod, cluster)
    if broken is None or not broken.why:
        return None
    return IdleController(deployment, provider, broken.words, broken.remedy)


def _closed_by(pod: Object, cluster: Cluster) -> dict[str, Any] | None:
    """Return the taint of control-plane nodes if it alone keeps a pod off all nodes; None:
    that is not so.
    """
    if pod.at("spec", "nodeName").text or pod.condition("PodScheduled")["status"].text != "False":
        return None
    found = None
    for node in cluster.known(NODE):
        taints = [
            each.value
            for each in node.at("spec", "taints").items()
            if each["effect"].text in _CLOSING
        ]
        refused = [
            each for each in taints if not tolerates(pod.at("spec", "tolerations").value, each)
        ]
        if not refused or any(each.get("key") not in nodes.CONTROL_PLANE for each in refused):
            return None
        found = found or refused[0]
    return found if isinstance(found, dict) and not unlisted(cluster, NODE) else None


_CLOSING: Final = ("NoSchedule", "NoExecute")


def _tolerate(deployment: Object, taint: Mapping[str, Any]) -> str:
    """Return how a controller tolerates a taint.

    What installed the provider may own the Deployment.
    """
    key = taint["key"]
    owner = deployment.controller
    if owner is not None:
        title = f"{owner['kind'].text} {owner['name'].text}"
        words = (
            f"add that toleration to spec.deployment.tolerations of {title}, which owns the "
            "Deployment"
        )
        return typed(words, about("describe", deployment, DEPLOYMENT))
    toleration = {"key": key, "operator": "Exists", "effect": taint["effect"]}
    own = deployment.at(*_TOLERATIONS)
    path = Path(*_TOLERATIONS, *(("-",) if own.is_list else ()))
    change = Patch("add", path, toleration if own.is_list else [toleration])
    command = json_patch(DEPLOYMENT, deployment.name, deployment.namespace, [change])
    return typed("add that toleration to the Deployment", command)
