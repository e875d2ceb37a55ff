"""Where kube-scheduler would make room for a pod:
preemption deletes pods of lower priority from one node.

Sources: k8s.io/kubernetes pkg/scheduler/framework/preemption/preemption.go#findCandidates;
plugins/defaultpreemption/default_preemption.go#SelectVictimsOnNode, #PodEligibleToPreemptOthers. A
node is tried if its filters refuse the pod for something that other pods cause. The pod must fit
there after all pods of lower priority on that node are gone. Then as many of them as possible stay,
and budgets count only in the choice of the node.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from virt_admit.model.kubernetes.cluster import check_time
from virt_admit.model.scheduler.filters import FilterPipeline
from virt_admit.model.scheduler.packing import Item, pack
from virt_admit.model.scheduler.pod_placement import Placement
from virt_admit.model.scheduler.pods import Pod
from virt_admit.model.scheduler.snapshot import SchedulerSnapshot

HIGHEST: Final = 2**31 - 1
"""The priority, as of one that preempts, where it is not known: no pod has a higher one."""
LOWEST: Final = -(2**31)
"""The priority of a pod whose priority is not known, as one that is preempted."""


class Preemption:
    """What preemption could do in one state of a cluster.

    It costs nothing where all pods have the same priority.
    """

    def __init__(self, scheduler: FilterPipeline) -> None:
        self.scheduler = scheduler
        self._lowest = scheduler.state.lowest_priority(HIGHEST)
        self._emptied = functools.cache(self._without_lower)
        self.victims = functools.cache(self._lower_on)

    def weigh(self, pod: Pod, placement: Placement, gone: Sequence[Pod] = ()) -> Placement:
        """Return the placement of a pod with a node where kube-scheduler would preempt others for
        it, if it must.
        """
        if not _outranks(pod, self._lowest) or placement.certain != ():
            return placement
        node = next(self.nodes(pod, placement, gone), "")
        return replace(placement, preempting=node) if node else placement

    def nodes(self, pod: Pod, placement: Placement, gone: Sequence[Pod] = ()) -> Iterator[str]:
        """Yield the nodes that refuse the pod only for their pods of lower priority."""
        if not _outranks(pod, self._lowest):
            return
        emptied = self._emptied(pod.priority)
        short = emptied.lacking(pod.requests)
        for name in placement.by_labels.accepting:
            check_time()
            if not placement.judged.get(name) or name in short:
                continue
            victims = self.victims(name, pod.priority)
            if victims and not emptied.refuses(pod, name, (*gone, *victims), self.scheduler):
                yield name

    def may_help(self, pods: Iterable[Pod]) -> bool:
        """Return whether one of these pods could preempt another one, or a pod that runs now."""
        return self._highest(pods) is not None

    def outranks_running(self, pods: Iterable[Pod]) -> bool:
        """Return whether one of these pods could preempt a pod that runs now."""
        return any(_outranks(pod, self._lowest) for pod in pods)

    def may_fit(self, items: Sequence[Item]) -> bool:
        """Return whether pods that do not fit at the same time might do so after preemption.

        That is not possible if those which nothing preempts do not even fit next to pods that
        cannot be preempted. The other pods count no more: each of them may be among the victims.
        """
        highest = self._highest(item.pod for item in items)
        if highest is None or any(_fits_nowhere(item, items) for item in items):
            return False
        emptied = self._emptied(highest)
        lasting: list[Item] = []
        for item in items:
            if item.pod.priority >= highest:
                lasting.append(_relaxed(item, emptied))
                if not (lasting[-1].nodes or lasting[-1].uncertain):
                    return False
        return pack(lasting, emptied).fits is not False

    def _highest(self, pods: Iterable[Pod]) -> int | None:
        """Return the highest priority of those pods that could preempt another one of them,
        or a pod that runs now.
        """
        every = list(pods)
        lowest = min((self._lowest, *(pod.priority for pod in every)))
        return max((pod.priority for pod in every if _outranks(pod, lowest)), default=None)

    def _lower_on(self, node: str, priority: int) -> tuple[Pod, ...]:
        """Return the pods of a node that a pod of this priority may preempt."""
        return tuple(
            pod for pod in self.scheduler.state.pods.get(node, ()) if pod.priority < priority
        )

    def _without_lower(self, priority: int) -> FilterPipeline:
        """Return the filters over the cluster without all pods of lower priority."""
        state = self.scheduler.state
        kept = (pod for pod in state.all_pods() if pod.priority >= priority)
        return self.scheduler.fork(
            SchedulerSnapshot.of(state.nodes.values(), kept, state.namespaces)
        )


def _fits_nowhere(item: Item, items: Sequence[Item]) -> bool:
    """Return whether a pod finds no node, with preemption or without,
    and no other one of the items can open one.
    """
    opened_by_others = len(items) > 1 and bool(item.pod.affinity or item.pod.spread)
    return not (item.nodes or item.uncertain or opened_by_others)


def _outranks(pod: Pod, lowest: int) -> bool:
    return pod.priority > lowest and not pod.never_preempts


def _relaxed(item: Item, emptied: FilterPipeline) -> Item:
    """Return an item without what other pods could open to it, and with the nodes left then."""
    pod = replace(item.pod, affinity=(), spread=())
    placement = emptied.place(pod, without=item.source, gone=item.gone)
    return replace(item, pod=pod, nodes=placement.candidates, uncertain=not placement.is_certain)
