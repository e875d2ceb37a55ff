"""Whether the virtual machines of lost nodes find a place:
``outage`` against kube-scheduler's real filters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.scheduler.comparison import is_misread
from tests.scheduler.lossy_clusters import LossyCluster, lossy_cluster
from tests.scheduler.oracle import Answer, ask
from tests.scheduler.random_pods import Manifest
from virt_admit.forecasts.outage import outages
from virt_admit.forecasts.outage.outages import Outage
from virt_admit.forecasts.outage.restarts.fates import LossOutcome
from virt_admit.model.messages import names

BATCH: Final = 100
"""Clusters of one call of the oracle."""
_IN_VAIN: Final = ("allows one pod", "topology spread")
"""Reasons for which kube-scheduler may preempt pods without making room (docs/verification.md)."""
SAID: Final = {True: "survives", False: "no room", None: "cannot be determined"}


@dataclass(frozen=True)
class Loss:
    """The loss of nodes, and the forecast about it."""

    cluster: LossyCluster
    found: Outage

    @property
    def title(self) -> str:
        return f"seed {self.cluster.base.seed}, loss of {names(self.found.nodes)}"

    @property
    def fresh(self) -> list[Manifest]:
        """The pods of the VMs that start again and have some node that may ever run them."""
        gone = (LossOutcome.NODE, LossOutcome.LOST, LossOutcome.OFF)
        return [
            self.cluster.fresh[vm.vmi.full_name] for vm in self.found.vms if vm.outcome not in gone
        ]

    @property
    def pods(self) -> dict[str, Manifest]:
        """All pods that start again, by ``namespace/name``."""
        return {**self.cluster.returning, **self.cluster.fresh}

    @property
    def misread(self) -> bool:
        """Whether kube-scheduler 1.36 lets some term select pods of namespaces that it does not
        name.
        """
        return any(is_misread(pod, "podAffinity", "podAntiAffinity") for pod in self.pods.values())

    @property
    def lacks_driver(self) -> bool:
        """Whether a kubelet would not start a VM, as its CSI driver is not registered there.
        kube-scheduler binds it.
        """
        return any("is not registered on" in vm.reason for vm in self.found.vms)

    def rivals(self) -> list[Manifest]:
        """Return the other pods that start first,
        where the forecast says that they take the room.
        """
        if not self.found.room.because.startswith("pods of higher priority"):
            return []
        highest = max(pod["spec"]["priority"] for pod in self.fresh)
        others = [self.cluster.returning[pod.full_name] for pod in self.found.loss.others]
        return [pod for pod in others if pod["spec"]["priority"] > highest]

    def question(self) -> Manifest:
        """Return what the oracle is asked: can all be placed,
        or does each node of our packing accept its pod?
        """
        room, left = self.found.room, self.cluster.without(self.found.nodes)
        bound = (
            [_bound(self.pods[name], node) for name, node in room.placed.items()]
            if room.fits
            else []
        )
        alone = [self.cluster.fresh[vm.vmi.full_name] for vm in self.found.vms]
        together = None if room.fits else [*self.fresh, *self.rivals()]
        return left.question(place=alone, bind=bound, together=together)


def _bound(pod: Manifest, node: str) -> Manifest:
    return {**pod, "spec": {**pod["spec"], "nodeName": node}}


@dataclass
class Result:
    """What was compared, and the disagreements."""

    losses: int = 0
    said: Counter[str] = field(default_factory=Counter)
    """Losses by what the forecast and kube-scheduler say about room."""
    words: Counter[str] = field(default_factory=Counter)
    """VMs by their word."""
    causes: Counter[str] = field(default_factory=Counter)
    """Losses of which it cannot be determined, by the reason."""
    failures: list[str] = field(default_factory=list)
    invalid: list[str] = field(default_factory=list)

    def report(self) -> Iterator[str]:
        """Yield the figures."""
        wrong = len(self.failures)
        yield f"{self.losses} losses of one or two nodes: {wrong} disagree"
        yield (
            f"room: {', '.join(f'{said}: {number}' for said, number in sorted(self.said.items()))}"
        )
        yield (
            f"VMs: {', '.join(f'{word}: {number}' for word, number in sorted(self.words.items()))}"
        )
        for cause, number in self.causes.most_common():
            yield f"  not determined: {number:>5} {cause}"


def compare(program: Path, seeds: Sequence[int]) -> Result:
    """Return how far the forecasts of losses agree with kube-scheduler on the clusters of these
    seeds.
    """
    result = Result()
    for start in range(0, len(seeds), BATCH):
        losses = [
            loss for seed in seeds[start : start + BATCH] for loss in _losses(lossy_cluster(seed))
        ]
        for loss, answer in zip(
            losses, ask(program, [loss.question() for loss in losses]), strict=True
        ):
            result.invalid += [f"{loss.title}: {pod}" for pod in answer.invalid]
            if not answer.invalid:
                _compare(loss, answer, result)
    return result


def _losses(cluster: LossyCluster) -> Iterator[Loss]:
    """Yield the loss of each node and of two nodes, where they have VMs."""
    snapshot = cluster.snapshot()
    every = [node["metadata"]["name"] for node in cluster.base.nodes]
    for nodes in (*((name,) for name in every), tuple(every[:2])):
        found = outages.outage(dict.fromkeys(nodes), snapshot)
        if found.vms:
            yield Loss(cluster, found)


def _compare(loss: Loss, answer: Answer, result: Result) -> None:
    room = loss.found.room
    if loss.misread:
        result.said["a namespace selector that kube-scheduler misreads"] += 1
        return
    refused = next((reason for reason in answer.bind if reason is not None), None)
    fits = refused is None if room.fits else answer.fits
    result.losses += 1
    result.said[
        (
            f"{SAID[room.fits]}/"
            f"{ {True: 'fits', False: 'does not fit', None: 'too many orders'}[fits] }"
        )
    ] += 1
    if loss.lacks_driver and room.fits is False:
        result.causes["a CSI driver that kube-scheduler does not look for"] += 1
    elif room.fits is not None and fits is not None and room.fits != fits:
        result.failures.append(
            f"{loss.title}: we say {SAID[room.fits]}; kube-scheduler: {refused or fits}"
        )
    if room.fits is None:
        result.causes[
            "a place only after preemption" if "preempt" in room.because else room.because
        ] += 1
    result.failures += _unplaced(loss)
    for vm, refusals, preempted in zip(loss.found.vms, answer.place, answer.preempt, strict=True):
        result.words[str(vm.outcome)] += 1
        open_to = [node for node in _names(loss) if node not in refusals]
        preempts = preempted and not any(words in vm.reason for words in _IN_VAIN)
        if (
            vm.outcome in (LossOutcome.NODE, LossOutcome.ROOM)
            and (open_to or preempts)
            and _is_alone(loss)
        ):
            result.failures.append(
                f"{loss.title}: {vm.vmi.full_name} {vm.outcome}; kube-scheduler takes {open_to}"
            )
        if vm.outcome is LossOutcome.RESTARTS and not open_to and _is_alone(loss):
            result.failures.append(
                f"{loss.title}: {vm.vmi.full_name} {vm.outcome}; kube-scheduler takes no node"
            )


def _unplaced(loss: Loss) -> Iterator[str]:
    """Yield the pods for which the forecast has no node although it says that all of them fit."""
    if loss.found.room.fits:
        for pod in loss.fresh:
            name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            if name not in loss.found.room.placed:
                yield f"{loss.title}: no node for {name} although all fit"


def _is_alone(loss: Loss) -> bool:
    """Return whether no other pod that starts again can open a node to a VM, or take its place."""
    return len(loss.found.vms) + len(loss.found.loss.others) == 1


def _names(loss: Loss) -> list[str]:
    return [each["metadata"]["name"] for each in loss.cluster.without(loss.found.nodes).nodes]
