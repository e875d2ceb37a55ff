"""Judging the objects of a cluster: each as if it were created now,
by the rules of the webhook and those for scans.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Protocol

from virt_admit.engine import review
from virt_admit.engine.admission_review import Request, Response
from virt_admit.forecasts.drain.drain_plan import plan
from virt_admit.forecasts.drain.vm_outcomes import VmOutcome
from virt_admit.model.in_order import InOrder, first_alone
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import clones
from virt_admit.model.releases import NO_TARGET, UpgradeTarget
from virt_admit.policy.policy import Policy
from virt_admit.reports.findings.report import Drains, ObjectResult, Report, without_object
from virt_admit.rule import Action, Operation
from virt_admit.rules import Rules


class Swept(Protocol):
    """A cluster after one listing of its objects."""

    @property
    def unreadable(self) -> frozenset[str]:
        """The kinds (``plural.group``) that could not be listed."""


Progress = Callable[[Kind, int], None]
"""Receives a kind and the number of its objects that are judged; 0 at its beginning."""


def judge(
    cluster: Cluster,
    judged_kinds: Sequence[Kind],
    rules: Rules,
    policy: Policy,
    is_selected: Callable[[Object], bool] = lambda _: True,
    progress: Progress = lambda _kind, _count: None,
    target: UpgradeTarget = NO_TARGET,
    label: str = "",
    in_order: InOrder = map,
) -> Report:
    """Return the report on the objects of these kinds, each judged as if it were created now.

    Args:
        cluster: the cluster with the objects.
        judged_kinds: the kinds of the objects.
        rules: the rules.
        policy: the policy.
        is_selected: whether to judge an object.
        progress: receives the numbers of judged objects.
        target: the releases that rules about an upgrade ask for.
        label: a label that the report keeps for each object.
        in_order: judges batches of objects.
    """

    def judged(batch: Sequence[_Key]) -> list[ObjectResult]:
        found = ((kind, cluster.get(kind, namespace, name)) for kind, namespace, name in batch)
        return [
            judge_object(obj, kind, rules, cluster, policy, target, label)
            for kind, obj in found
            if obj
        ]

    results: list[ObjectResult] = []
    done: Counter[Kind] = Counter()
    batches = [
        (kind, batch) for kind in judged_kinds for batch in _batches(kind, cluster, is_selected)
    ]
    shared = first_alone(in_order, judged, [batch for _, batch in batches])
    for (kind, _), found in zip(batches, shared, strict=True):
        progress(kind, done[kind])
        results += found
        done[kind] += len(found)
    return Report(tuple(results))


_Key = tuple[Kind, str, str]
"""The kind, the namespace and the name of an object.
A live cluster is too large to hold its objects in a list.
"""

_BATCH: Final = 50
"""Objects that are judged together: few enough to share them evenly, and to show progress."""


def _batches(
    kind: Kind, cluster: Cluster, is_selected: Callable[[Object], bool]
) -> Iterator[list[_Key]]:
    """Yield the keys of the selected objects of a kind; one empty batch if there is none."""
    default = "default" if kind.namespaced else ""
    found = filter(is_selected, _objects(cluster, kind))
    keys = [(kind, obj.namespace or default, obj.name) for obj in found]
    yield from (keys[start : start + _BATCH] for start in range(0, max(1, len(keys)), _BATCH))


def _objects(cluster: Cluster, kind: Kind) -> Iterator[Object]:
    try:
        yield from cluster.list(kind)
    except Unseen:  # there may be more objects; ``cluster.unreadable`` has the kind
        return


def judge_object(
    obj: Object,
    kind: Kind,
    rules: Rules,
    cluster: Cluster,
    policy: Policy,
    target: UpgradeTarget = NO_TARGET,
    label: str = "",
) -> ObjectResult:
    """Return the result for one object, judged as if it were created now."""
    request = Request(
        Operation.CREATE, kind, obj, name=obj.name, namespace=obj.namespace, target=target
    )
    response = _with_origin(obj, review.review(request, rules, cluster, policy))
    return ObjectResult(without_object(request, label), response)


def _with_origin(obj: Object, response: Response) -> Response:
    """Add to each denial of a VM that KubeVirt itself restored or cloned that no review has seen
    it.
    """
    maker = clones.maker(obj)
    if response.allowed or not maker:
        return response
    origin = f"KubeVirt's controller wrote this VM for a {maker}, and its requests are not reviewed"
    verdicts = (
        verdict._replace(note=". ".join(filter(None, (verdict.note, origin))))
        if verdict.action is Action.DENY
        else verdict
        for verdict in response.verdicts
    )
    return response._replace(verdicts=tuple(verdicts))


def drains(cluster: Cluster, is_selected: Callable[[Object], bool]) -> Drains:
    """Return what drains of all nodes would meet, with the selected VMIs among those that block."""
    planned = plan(cluster)
    verdicts = [node.drainable for node in planned.nodes]
    vms = tuple(row.vmi for row in planned.having(VmOutcome.BLOCKS) if is_selected(row.vmi))
    return Drains(verdicts.count(False), verdicts.count(None), len(verdicts), vms)


def is_complete(report: Report, cluster: Swept, judged_kinds: Iterable[Kind]) -> bool:
    """Return whether every object of these kinds was listed and no rule crashed."""
    resources = (kind.resource for kind in judged_kinds)
    return not report.crashed and cluster.unreadable.isdisjoint(resources)
