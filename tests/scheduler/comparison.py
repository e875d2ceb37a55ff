"""Our model of kube-scheduler against its real filters, over random clusters."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Final

from tests.scheduler.oracle import Answer, ask
from tests.scheduler.random_clusters import RandomCluster, random_cluster
from tests.scheduler.random_pods import REQUIRED, Manifest
from virt_admit.forecasts.placement import candidates
from virt_admit.kube.field_filter import FieldSet
from virt_admit.model.kubernetes import selectors
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.scheduler import pods
from virt_admit.model.scheduler.filters import FilterPipeline
from virt_admit.model.scheduler.packing import Item, Packing, pack
from virt_admit.model.scheduler.pod_placement import Placement
from virt_admit.model.scheduler.preemption import Preemption

ACCEPTED: Final = "accepted"
BATCH: Final = 200


@dataclass(frozen=True)
class Disagreement:
    """A node about which the two sides do not agree, or a set of pods."""

    seed: int
    pod: str
    node: str
    plugin: str
    theirs: str
    ours: str
    unsafe: bool
    """Whether we promise what kube-scheduler refuses."""
    known: bool = False
    """Whether ``docs/verification.md`` describes it."""

    def __str__(self) -> str:
        mark = "UNSAFE " if self.unsafe else "known " if self.known else ""
        where = f"seed {self.seed}, pod {self.pod}, node {self.node}"
        return f"{mark}{where}: kube-scheduler: {self.theirs}; model: {self.ours}"


@dataclass
class Result:
    """What was compared, and the disagreements."""

    placements: int = 0
    equal: int = 0
    """Pods with equal sets of candidates."""
    undetermined: int = 0
    """Pods of which the model says that it cannot know; what it does know agrees."""
    by_plugin: Counter[str] = field(default_factory=Counter)
    """Pairs of pod and node, by the first plugin that refuses."""
    agreed: Counter[str] = field(default_factory=Counter)
    packed: Counter[str] = field(default_factory=Counter)
    """Sets of pods, by what the model and kube-scheduler say about placing them all."""
    preempted: Counter[str] = field(default_factory=Counter)
    """Pairs of pod and node for which one of both sees room after preemption, by what
    kube-scheduler and the model say.
    """
    disagreements: list[Disagreement] = field(default_factory=list)
    invalid: list[str] = field(default_factory=list)

    @property
    def share(self) -> float:
        return (self.equal + self.undetermined) / max(1, self.placements)

    @property
    def failures(self) -> list[Disagreement]:
        """The disagreements that are not on purpose."""
        return [each for each in self.disagreements if not each.known]

    def report(self) -> Iterator[str]:
        """Yield the figures, one line for each plugin."""
        yield (
            f"{self.placements} pods: {self.share:.2%} agree, {self.undetermined} of them "
            "undetermined"
        )
        for plugin, count in sorted(self.by_plugin.items()):
            yield f"  {plugin:<20} {self.agreed[plugin]:>7} of {count:>7} nodes agree"
        yield (
            "preemption: "
            f"{', '.join(f'{said}: {count}' for said, count in sorted(self.preempted.items()))}"
        )
        yield (
            "packing: "
            f"{', '.join(f'{said}: {count}' for said, count in sorted(self.packed.items()))}"
        )


def compare(program: Path, seeds: Sequence[int]) -> Result:
    """Return how far the model agrees with kube-scheduler on the clusters of these seeds."""
    result = Result()
    for start in range(0, len(seeds), BATCH):
        clusters = [random_cluster(seed) for seed in seeds[start : start + BATCH]]
        judged = [_judge(cluster) for cluster in clusters]
        answers = ask(program, map(_question, clusters, judged))
        for cluster, model, answer in zip(clusters, judged, answers, strict=True):
            result.invalid += [f"seed {cluster.seed}: {pod}" for pod in answer.invalid]
            if not answer.invalid:
                _compare_placements(cluster, model.placements, answer, result)
                _compare_packing(cluster, model.packing, answer, result)
                _compare_preemption(cluster, model, answer, result)
    return result


# --- one cluster ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Judged:
    """What the model says about one cluster."""

    placements: list[Placement]
    together: list[Manifest]
    """The pods that are packed."""
    packing: Packing
    preempting: list[frozenset[str]]
    """For each pod the nodes on which preemption would make room for it."""


def _scheduler(cluster: RandomCluster) -> FilterPipeline:
    """Return the model over what an informer retains of the objects:
    the fields in ``room.READS``.
    """
    retained = {kind.kind: FieldSet(paths) for kind, paths in candidates.READS.items()}
    objects = (Object(retained[obj["kind"]].filter(obj)) for obj in cluster.objects)
    return candidates.scheduler(Snapshot(objects, ["*"]))


def _judge(cluster: RandomCluster) -> Judged:
    """Return where the model would place each pod alone, and several of them together."""
    scheduler = _scheduler(cluster)
    new = [pods.read(Object(pod)) for pod in cluster.place]
    placements = [scheduler.place(pod) for pod in new]
    items = [
        Item(pod, placement.candidates, uncertain=placement.certain is None)
        for pod, placement in zip(new, placements, strict=True)
        if _is_packed(pod, placement)
    ]
    together = [item.pod.name for item in items]
    preemption = Preemption(scheduler)
    return Judged(
        placements,
        [pod for pod in cluster.place if pod["metadata"]["name"] in together],
        pack(items, scheduler),
        [
            frozenset(preemption.nodes(pod, placement))
            for pod, placement in zip(new, placements, strict=True)
        ],
    )


def _is_packed(pod: pods.Pod, placement: Placement) -> bool:
    """Return whether a pod takes part in packing:
    one that can never be placed would decide about all.
    """
    return bool(placement.candidates or placement.undetermined or pod.affinity or pod.spread)


def _question(cluster: RandomCluster, judged: Judged) -> Manifest:
    packing = judged.packing
    named = {
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']}": pod for pod in cluster.place
    }
    bind = [
        {**named[name], "spec": {**named[name]["spec"], "nodeName": node}}
        for name, node in packing.placed.items()
        if packing.fits
    ]
    together = None if packing.fits else judged.together
    return cluster.question(place=cluster.place, bind=bind, together=together)


def _compare_placements(
    cluster: RandomCluster, placements: Sequence[Placement], answer: Answer, result: Result
) -> None:
    for pod, placement, refused in zip(cluster.place, placements, answer.place, strict=True):
        found = list(_differences(cluster, pod, placement, refused, result))
        result.disagreements += found
        result.placements += 1
        if not found:
            result.undetermined += placement.certain is None
            result.equal += placement.certain is not None


def _differences(
    cluster: RandomCluster,
    pod: Manifest,
    placement: Placement,
    refused: dict[str, tuple[str, str]],
    result: Result,
) -> Iterator[Disagreement]:
    for node in cluster.nodes:
        name = node["metadata"]["name"]
        plugin, reason = refused.get(name, (ACCEPTED, ""))
        result.by_plugin[plugin] += 1
        refusal = placement.refusals.get(name)
        if name in placement.undetermined or (name in refused) == (refusal is not None):
            result.agreed[plugin] += 1
            continue
        theirs = f"{plugin}: {reason}" if reason else plugin
        unsafe = name in refused
        yield Disagreement(
            cluster.seed,
            pod["metadata"]["name"],
            name,
            plugin,
            theirs,
            refusal or ACCEPTED,
            unsafe,
            known=not unsafe and is_misread(pod, "podAffinity"),
        )


def _compare_packing(
    cluster: RandomCluster, packing: Packing, answer: Answer, result: Result
) -> None:
    said = {True: "fits", False: "does not fit", None: "cannot be determined"}
    refused = next((reason for reason in answer.bind if reason is not None), None)
    fits = refused is None if packing.fits else answer.fits
    result.packed[f"{said[packing.fits]}/{said[fits]}"] += 1
    if packing.fits is not None and fits is not None and packing.fits != fits:
        theirs = refused or said[fits]
        result.disagreements.append(
            Disagreement(
                cluster.seed,
                "all",
                "-",
                "packing",
                theirs,
                said[packing.fits],
                unsafe=packing.fits,
                known=not packing.fits
                and any(is_misread(pod, "podAffinity", "podAntiAffinity") for pod in cluster.place),
            )
        )


_PREEMPTED: Final = {True: "makes room", False: "does not help"}


def _compare_preemption(
    cluster: RandomCluster, model: Judged, answer: Answer, result: Result
) -> None:
    """Compare what preemption would do on the nodes that refuse a pod,
    of which the model knows all that it demands.
    """
    for pod, placement, ours, theirs in zip(
        cluster.place, model.placements, model.preempting, answer.preempt, strict=True
    ):
        if placement.unseen:
            continue
        for node in sorted(ours | (theirs - set(placement.undetermined))):
            they_say, we_say = _PREEMPTED[node in theirs], _PREEMPTED[node in ours]
            if node not in ours and _is_in_vain(cluster, pod, node, placement.refusals[node]):
                they_say = "is in vain"
            result.preempted[f"{they_say}/{we_say}"] += 1
            if they_say in (we_say, "is in vain"):
                continue
            known, name = is_misread(pod, "podAffinity"), pod["metadata"]["name"]
            result.disagreements.append(
                Disagreement(
                    cluster.seed,
                    name,
                    node,
                    "preemption",
                    they_say,
                    we_say,
                    unsafe=False,
                    known=known,
                )
            )


def _is_in_vain(cluster: RandomCluster, pod: Manifest, node: str, refusal: str) -> bool:
    """Return whether kube-scheduler 1.36 may preempt pods on a node without making room, because it
    takes off more than it counted.

    Of a ReadWriteOncePod claim it counts one user, but takes off each victim that mounts a claim of
    that name, in whatever namespace
    (volumerestrictions/volume_restrictions.go#conflictingPVCRefCountForPod). For topology spread it
    counts no pod that is being deleted, but takes it off too
    (podtopologyspread/filtering.go#updateWithPod).
    """
    names = set(_claims(pod))
    users = sum(bool(names.intersection(_claims(other))) for other in cluster.pods)
    ending = any(
        other["spec"]["nodeName"] == node and "deletionTimestamp" in other["metadata"]
        for other in cluster.pods
    )
    return ("allows one pod" in refusal and users > 1) or ("topology spread" in refusal and ending)


def _claims(pod: Manifest) -> Iterator[str]:
    for volume in pod["spec"].get("volumes", ()):
        yield volume["persistentVolumeClaim"]["claimName"]


def is_misread(pod: Manifest, *kinds: str) -> bool:
    """Return whether kube-scheduler 1.36 lets such a term select pods of namespaces that it does
    not name.
    """
    affinity = pod["spec"].get("affinity", {})
    terms = [term for kind in kinds for term in affinity.get(kind, {}).get(REQUIRED, ())]
    chosen = (
        selectors.parse(term["namespaceSelector"]) for term in terms if "namespaceSelector" in term
    )
    return any(not selector.empty and selector.matches({}) for selector in chosen)


# --- to understand a disagreement -----------------------------------------------------------------


def minimised(program: Path, found: Disagreement) -> str:
    """Return the smallest cluster, by leaving out one object after the other,
    that still shows a disagreement.
    """
    cluster = random_cluster(found.seed)
    if found.plugin != "packing":
        cluster = replace(
            cluster, place=[pod for pod in cluster.place if pod["metadata"]["name"] == found.pod]
        )
    smaller = True
    while smaller:
        options = list(_without_one(cluster, found))
        smaller = False
        for option, shows in zip(options, _shows(program, options, found), strict=True):
            if shows:
                cluster, smaller = option, True
                break
    return "\n".join(json.dumps(obj) for obj in (*cluster.objects, *cluster.place))


def _without_one(cluster: RandomCluster, found: Disagreement) -> Iterator[RandomCluster]:
    for each in fields(cluster):
        objects = getattr(cluster, each.name)
        if isinstance(objects, list) and (each.name != "place" or len(objects) > 1):
            for index, obj in enumerate(objects):
                if obj["metadata"]["name"] != found.node:
                    yield replace(cluster, **{each.name: [*objects[:index], *objects[index + 1 :]]})


def _shows(program: Path, clusters: Sequence[RandomCluster], found: Disagreement) -> Iterator[bool]:
    judged = [_judge(cluster) for cluster in clusters]
    answers = ask(program, map(_question, clusters, judged))
    for cluster, model, answer in zip(clusters, judged, answers, strict=True):
        result = Result()
        if not answer.invalid:
            _compare_placements(cluster, model.placements, answer, result)
            _compare_packing(cluster, model.packing, answer, result)
            _compare_preemption(cluster, model, answer, result)
        yield any(
            (each.plugin, each.node, each.unsafe) == (found.plugin, found.node, found.unsafe)
            for each in result.disagreements
        )
