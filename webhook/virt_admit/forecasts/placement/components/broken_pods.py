"""What is wrong with a pod that others rely on, in words, and what repairs it.

It declares no fields: the webhook, which keeps few fields of pods, says less.

Sources: kubernetes/kubernetes:pkg/kubelet/kuberuntime/kuberuntime_manager.go (CrashLoopBackOff),
:pkg/kubelet/kubelet_pods.go#convertToAPIContainerStatuses.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from virt_admit.model.commands import argument, kubectl, logs_of, typed
from virt_admit.model.kubernetes import clock, node_health
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE, POD
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut, scheduler_words
from virt_admit.model.scheduler.pods import CONTAINERS, FINISHED

_STARTING: Final = frozenset(("ContainerCreating", "PodInitializing"))
_KILLED: Final = "OOMKilled"
_LONGEST: Final = 100


class BrokenPod(NamedTuple):
    """A pod that is not ready: why, since when, and what repairs it."""

    pod: Object
    why: str
    """``CrashLoopBackOff, container manager OOMKilled at its limit of 300Mi``; empty: nothing says so."""
    since: str
    """`` for 312 min``; empty: not known."""
    remedy: str

    @property
    def words(self) -> str:
        """Return the pod with its fault, as ``pod NAME is not ready for 5 min: CrashLoopBackOff``."""
        return f"pod {self.pod.name} is not ready{self.since}{f': {self.why}' if self.why else ''}"


def first(pods: Iterable[Object], cluster: Cluster) -> BrokenPod | None:
    """Return the first of these pods that is not ready, one whose cause is known before others; None: all are."""
    found = [broken for pod in pods if (broken := of_pod(pod, cluster)) is not None]
    return next((each for each in found if each.why), found[0] if found else None)


def of_pod(pod: Object, cluster: Cluster) -> BrokenPod | None:
    """Return what is wrong with a pod; None: it is ready, has ended, or does not say whether it is."""
    ready = pod.condition("Ready")
    if ready["status"].text == "True" or pod.at("status", "phase").text in FINISHED:
        return None
    if not ready.present and not any(True for _ in pod.at("status", "conditions").items()):
        return None
    node = find(cluster, NODE, "", pod.at("spec", "nodeName").text or "")
    age = node_health.pod_unready_for(pod, node, cluster)
    since = f" for {clock.duration(age)}" if age is not None else ""
    why, container = _fault(pod)
    return BrokenPod(pod, why, since, _remedy(pod, why, container))


def why(pod: Object, cluster: Cluster) -> str:
    """Return why a pod is not ready; empty: it is, or nothing says so."""
    broken = of_pod(pod, cluster)
    return broken.why if broken is not None else ""


def _fault(pod: Object) -> tuple[str, str]:
    """Return why a pod is not ready, and which container; empty: nothing says so."""
    for kind in CONTAINERS:
        for status in pod.at("status", kind).items():
            name, waiting = status["name"].text or "?", status.at("state", "waiting")
            ended = next((each for each in _ends(status) if each["exitCode"].integer), None)
            reason = waiting["reason"].text or ""
            if reason and reason not in _STARTING:
                return _waits(reason, waiting, _end(pod, name, ended)), name
            if ended is not None and not status.at("state", "running").present:
                return _end(pod, name, ended), name
    placed = pod.condition("PodScheduled")
    if not pod.at("spec", "nodeName").text and placed["status"].text == "False":
        return f"it has no node: {scheduler_words(placed['message'].text or '?', _LONGEST)}", ""
    return "", ""


def _waits(reason: str, waiting: Field, end: str) -> str:
    """Return why a container waits: how it ended, which says more than a time between restarts, else the kubelet's words."""
    said = cut(" ".join((waiting["message"].text or "").replace(";", ",").split()), _LONGEST)
    return f"{reason}, {end}" if end else f"{reason}: {said}" if said else reason


def _ends(status: Field) -> tuple[Field, Field]:
    return status.at("state", "terminated"), status.at("lastState", "terminated")


def _end(pod: Object, name: str, ended: Field | None) -> str:
    """Return how a container ended."""
    if ended is None:
        return ""
    if ended["reason"].text == _KILLED:
        limit = limit_of(pod, name)
        return f"container {name} {_KILLED}{f' at its limit of {limit}' if limit else ''}"
    single = len(list(pod.at("spec", "containers").items())) == 1
    return f"{'it' if single else f'container {name}'} ends with exit code {ended['exitCode'].integer}"


def limit_of(pod: Object, name: str) -> str:
    """Return the memory that a container may use; empty: it has no limit."""
    containers = (each for each in pod.at("spec", "containers").items() if each["name"].text == name)
    return next((each.at("resources", "limits", "memory").text or "" for each in containers), "")


def _remedy(pod: Object, why: str, container: str) -> str:
    described = kubectl("describe", POD, pod.name, pod.namespace)
    if not container or (not why.startswith("CrashLoop") and " ends with " not in why and _KILLED not in why):
        return typed(f"repair pod {pod.name}", described)
    choice = ("-c", argument(container)) if len(list(pod.at("spec", "containers").items())) > 1 else ()
    logs = logs_of(pod, *choice, "--previous")
    if _KILLED in why:
        return typed(f"give container {container} of pod {pod.name} more memory, and see what it did last", logs)
    return typed(f"repair pod {pod.name}, whose last log says why it ends", logs)
