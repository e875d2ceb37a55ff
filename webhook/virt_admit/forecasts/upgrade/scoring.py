"""Which node kube-scheduler would choose for a pod: its filters,
and the two scores that decide between nodes.

Sources: k8s.io/kubernetes pkg/scheduler/framework/plugins/noderesources/least_allocated.go,
balanced_allocation.go. Both are whole numbers up to 100, so many nodes are equal, and
kube-scheduler chooses among them by chance. The scores of images, preferred affinity and preferred
spread are left out: they do not change how often a VM moves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import takewhile
from random import Random
from typing import Final

from virt_admit.model.kubernetes.nodes import SCHEDULABLE
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.messages import names
from virt_admit.model.scheduler.filters import FilterPipeline
from virt_admit.model.scheduler.pods import Pod
from virt_admit.model.scheduler.resources import CPU, MEMORY, PODS, Resources

_NONE: Final = -1
"""The score of a node without room."""
_SIZES: Final = 256
"""Sizes of pods whose scores are kept."""


class Targets:
    """The nodes of a simulation with what they have left. Nodes that are being updated are closed.

    ``to_do``: those whose update has not ended. On all others a VM stays.
    """

    def __init__(
        self,
        scheduler: FilterPipeline,
        pods: Iterable[Pod],
        to_do: Collection[str] = (),
        *,
        favourable: bool = True,
        chance: Random | None = None,
    ) -> None:
        every = list(pods)
        self._favourable, self._chance = favourable, chance
        self._scheduler = scheduler.fork()
        self._simple = all(scheduler.is_simple(pod) for pod in every)
        self._accepting = {id(pod): scheduler.accepting(pod) for pod in every}
        self._free = {
            name: scheduler.state.free(node) for name, node in scheduler.state.nodes.items()
        }
        sizes = {name: node.allocatable or {} for name, node in scheduler.state.nodes.items()}
        self._size = {
            name: (size.get(CPU, 0) or 1, size.get(MEMORY, 0) or 1) for name, size in sizes.items()
        }
        for name, free in self._free.items():
            for resource in (CPU, MEMORY, PODS):
                free.setdefault(resource, -scheduler.state.used.get(name, {}).get(resource, 0))
        self._closed: set[str] = set()
        self._staying = self._free.keys() - to_do
        self._bound: dict[tuple[str, str], list[Pod]] = {}
        self._changes = 0
        self._changed: dict[str, int] = {}
        """The number of the last change of each node, the latest at the end."""
        self._scores: dict[frozenset[tuple[str, int]], tuple[dict[str, int], int]] = {}
        """By size of a pod the scores of all nodes,
        and the number of the last change that they follow.
        """

    def close(self, node: str) -> None:
        self._closed.add(node)
        self._change(node)

    def open(self, node: str) -> None:
        self._closed.discard(node)
        self._staying.add(node)
        self._change(node)

    def _change(self, node: str) -> None:
        """Note that the scores of a node may have changed,
        and keep the nodes in the order of their last change.
        """
        if node in self._free:
            self._changes += 1
            self._changed.pop(node, None)
            self._changed[node] = self._changes

    def enter(self, pod: Pod, node: str) -> None:
        """Bind a pod to a node."""
        self._add(pod, node, 1)
        if not self._simple:
            bound = replace(pod, node=node)
            self._scheduler.state.bind(bound)
            self._bound.setdefault((pod.full_name, node), []).append(bound)

    def leave(self, pod: Pod, node: str) -> None:
        """Remove a pod from a node."""
        self._add(pod, node, -1)
        if self._simple:
            return
        bound = self._bound.get((pod.full_name, node))
        if bound:
            self._scheduler.state.unbind(bound.pop())
            return
        uid = pod.labels.get(launcher_pod.CREATED_BY)
        for other in self._scheduler.state.pods.get(node, ()):
            if (
                other.namespace == pod.namespace
                and uid
                and other.labels.get(launcher_pod.CREATED_BY) == uid
            ):
                self._scheduler.state.unbind(other)
                return

    def _add(self, pod: Pod, node: str, sign: int) -> None:
        free = self._free.get(node)
        if free is None:
            return
        free[PODS] = free.get(PODS, 0) - sign
        for name, value in pod.requests.items():
            free[name] = free.get(name, 0) - sign * value
        self._change(node)

    def choose(self, pod: Pod) -> str:
        """Return the node that kube-scheduler would choose; empty if none takes the pod.

        Of equal nodes it is one where the VM stays, or one that is still to be updated, if chance
        is not favourable; or any.
        """
        scores, candidates = self._scores_for(pod.requests), self._candidates(pod)
        first = max(candidates, key=scores.__getitem__, default="")
        best = scores[first] if first else _NONE
        if best <= _NONE:
            return ""
        if self._chance is None:
            return first
        return self._chance.choice([node for node in candidates if scores[node] == best])

    def _scores_for(self, requests: Resources) -> Mapping[str, int]:
        """Return the score of each node for pods of one size.

        Only nodes that changed since the last call are looked at.

        Most VMs of a cluster have one of few sizes, and a move changes two nodes.
        """
        size = frozenset(requests.items())
        known = self._scores.get(size)
        if known is None:
            if len(self._scores) >= _SIZES:
                self._scores.clear()
            changed: Iterable[str] = self._free
            scores: dict[str, int] = {}
        else:
            scores, seen = known
            changed = takewhile(lambda node: self._changed[node] > seen, reversed(self._changed))
        scores.update((node, self._score(requests, node)) for node in changed)
        self._scores[size] = scores, self._changes
        return scores

    def _score(self, requests: Resources, node: str) -> int:
        free, (all_cpu, all_memory) = self._free[node], self._size[node]
        cpu_left = free[CPU] - requests.get(CPU, 0)
        memory_left = free[MEMORY] - requests.get(MEMORY, 0)
        if node in self._closed or cpu_left < 0 or memory_left < 0 or free[PODS] < 1:
            return _NONE
        if any(free.get(name, 0) < value for name, value in requests.items() if value > 0):
            return _NONE
        least = (cpu_left * 100 // all_cpu + memory_left * 100 // all_memory) // 2
        balanced = int(100 - 50 * abs(cpu_left / all_cpu - memory_left / all_memory))
        chosen_by_chance = self._chance is None and (node in self._staying) is self._favourable
        return 2 * (least + balanced) + chosen_by_chance

    def _candidates(self, pod: Pod) -> Collection[str]:
        """Return the nodes that let a pod in, whether they are closed or not."""
        if not self._simple and not self._scheduler.is_simple(pod):
            return self._scheduler.place(pod).candidates
        return self._accepting[id(pod)]

    def why(self, pod: Pod) -> str:
        """Return why no node takes the pod, in words."""
        causes: dict[str, None] = {}
        refusals = self._scheduler.place(pod).refusals
        serving = {
            node: why
            for node, why in refusals.items()
            if SCHEDULABLE in self._scheduler.state.nodes[node].labels
        }
        for node, why in sorted((serving or refusals).items()):
            causes.update(dict.fromkeys(f"{cause} on {node}" for cause in why.split("; ")))
        for node in sorted(set(self._scheduler.accepting(pod)) - refusals.keys()):
            lacking = [
                name
                for name, value in pod.requests.items()
                if self._free[node].get(name, 0) < value
            ]
            causes.update(dict.fromkeys(f"{name} missing on {node}" for name in lacking))
        return names(causes, 160) or "every other node is being updated"
