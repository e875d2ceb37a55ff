"""Components of KubeVirt and CDI that are ended for their memory again and again.

Between two ends their pods are ready, so that their operator reports nothing. A migration goes
through virt-handler of both nodes, and fails if one of them ends. Sources:
kubernetes/kubernetes:pkg/kubelet/kuberuntime/kuberuntime_manager.go (restartCount counts every
end; only the last one has a reason), kubevirt/kubevirt:pkg/virt-handler/migration-proxy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.placement.components.operands import component_patches
from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import CDI, DAEMON_SET, KUBEVIRT, POD, REPLICA_SET
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubernetes.workloads import CONTAINERS, container_statuses
from virt_admit.model.messages import names, sentence

READS: Final[Reads] = union(
    clock.READS,
    component_patches.READS,
    {
        POD: (
            *("metadata.labels", "metadata.ownerReferences", "spec.nodeName", "spec.containers"),
            *(f"status.{kind}" for kind in CONTAINERS),
        )
    },
)
KINDS: Final = (KUBEVIRT, CDI)
_KILLED: Final = "OOMKilled"
_AGAIN: Final = 3
"""Restarts: one or two may come from a single peak, or from an update."""
_RECENT: Final = timedelta(days=1)
_HANDLER: Final = "virt-handler"


class KilledComponent(NamedTuple):
    """A component that is ended for its memory again and again."""

    obj: Object
    """KubeVirt or CDI."""
    why: str
    """``container virt-handler was OOMKilled at its limit of 1600Mi on a (74 restarts)``."""
    remedy: str
    nodes: tuple[str, ...]

    @property
    def note(self) -> str:
        """What is said of it beside a drain of one of its nodes."""
        return f"{sentence(self.why)} {sentence(self.remedy)}"


class _Kill(NamedTuple):
    pod: Object
    container: str
    limit: str
    restarts: int

    @property
    def node(self) -> str:
        return self.pod.at("spec", "nodeName").text or ""


def of(obj: Object, cluster: Cluster) -> Iterator[KilledComponent]:
    """Yield the components of KubeVirt or CDI that are ended for their memory again and again."""
    found: dict[tuple[str, str], list[_Kill]] = {}
    for pod in cluster.known(POD):
        made = pod.owned_by(DAEMON_SET.kind) or pod.owned_by(REPLICA_SET.kind)
        if made and component_patches.is_of(pod, obj):
            for kill in _kills(pod, cluster):
                found.setdefault((kill.container, kill.limit), []).append(kill)
    for (container, limit), kills in sorted(found.items()):
        kills.sort(key=lambda each: (-each.restarts, each.pod.name))
        if kills[0].restarts >= _AGAIN:
            yield _component(obj, container, limit, kills, cluster)


def notes(cluster: Cluster) -> Mapping[str, Sequence[str]]:
    """Return what is said of such components of KubeVirt beside the drain of each node."""
    found: dict[str, list[str]] = {}
    for installed in cluster.known(KUBEVIRT):
        for killed in of(installed, cluster):
            for node in killed.nodes:
                found.setdefault(node, []).append(killed.note)
    return found


def _kills(pod: Object, cluster: Cluster) -> Iterator[_Kill]:
    """Yield the containers of a pod that were last ended at their own limit, within a day."""
    for status in container_statuses(pod):
        name, restarts = status["name"].text or "", status["restartCount"].integer or 0
        last = [status.at(each, "terminated") for each in ("state", "lastState")]
        end = next((each for each in last if each["reason"].text), last[0])
        age = clock.since(end["finishedAt"].text, cluster)
        own = pod.at("spec", "containers").named(name)
        limit = own.at("resources", "limits", "memory").text or ""
        recent = age is not None and age < _RECENT
        if end["reason"].text == _KILLED and recent and limit and restarts:
            yield _Kill(pod, name, limit, restarts)


def _component(
    obj: Object, container: str, limit: str, kills: list[_Kill], cluster: Cluster
) -> KilledComponent:
    first = kills[0].pod
    patch = component_patches.of_limit(first, container, limit, cluster)
    set_by = f", which {component_patches.FIELD} sets," if patch is not None else ""
    where = names([_where(each) for each in kills], 160)
    what = f"container {container} was {_KILLED} at its limit of {limit}{set_by}"
    why = f"{what} on {where}{_effect(container)}"
    remedy = patch.remedy if patch is not None else _unpatched(first, container, limit)
    nodes = tuple(sorted({each.node for each in kills if each.node}))
    return KilledComponent(obj, why, remedy, nodes)


def _where(kill: _Kill) -> str:
    times = f"{kill.restarts} restart{'s' * (kill.restarts > 1)}"
    down = "" if kill.pod.is_true("Ready") else ", not ready now"
    return f"{kill.node or kill.pod.name} ({times}{down})"


def _effect(container: str) -> str:
    if container != _HANDLER:
        return ""
    return (
        ". While it is down, the VMs of its node can be neither migrated nor stopped, and a "
        "migration that runs fails"
    )


def _unpatched(pod: Object, container: str, limit: str) -> str:
    words = (
        f"raise the limit of container {container} above {limit} where it comes from: its "
        "operator, or a LimitRange of its namespace"
    )
    return typed(words, about("describe", pod, POD))
