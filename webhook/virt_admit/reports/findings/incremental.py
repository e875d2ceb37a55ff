"""The judgement of a cluster that changes:
only what read something that changed is judged again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, zip_longest
from typing import Any, Final

from virt_admit.engine.object_table import ObjectTable
from virt_admit.engine.recorded_cluster import NamedCluster, RecordedCluster, RecordedView, Versions
from virt_admit.engine.recorded_values import Ambient, Read, whole
from virt_admit.kube.field_filter import FieldSet
from virt_admit.kube.frozen_cache import Changes, Name
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.json_codec import identical
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.launcher import vm_ledger
from virt_admit.model.kubevirt.launcher.vm_ledger import VmLedger
from virt_admit.policy.policy import Policy
from virt_admit.reports.findings.judging import judge_object
from virt_admit.reports.findings.report import ObjectResult, Report
from virt_admit.rules import Rules


def _ledger_version(found: VmLedger | Unseen) -> int | str:
    return found.what if isinstance(found, Unseen) else found.generation


_VERSIONS: Final[Versions] = {vm_ledger.read: _ledger_version}


class Judgements:
    """The judgements of a cluster, kept from one round to the next. For one thread."""

    def __init__(
        self,
        cluster: NamedCluster,
        rules: Rules,
        policy: Policy,
        looked_up: Mapping[Kind, FieldSet],
    ) -> None:
        """Make judgements that are all due.

        Args:
            cluster: the cluster, at one moment between two calls of ``change``.
            rules: the rules.
            policy: the policy.
            looked_up: the fields that anything reads of an object, except its own judgement, which
                reads all.
        """
        self._cluster, self._rules, self.policy, self._looked_up = cluster, rules, policy, looked_up
        self._recorded = RecordedCluster(cluster, _VERSIONS)
        self._results: dict[Kind, ObjectTable[ObjectResult | None]] = {
            kind: ObjectTable() for kind in rules.kinds
        }
        self.view: Cluster = self._recorded.view
        """The cluster, with the values that the judgements share."""

    @property
    def computed(self) -> int:
        """A counter of the values that were computed."""
        return self._recorded.computed

    def change(self, changes: Changes, *, time_passed: bool) -> bool:
        """Begin a round: objects have changed, and perhaps so much time has passed that heartbeats
        and the clock count.

        Returns:
            Whether anything has to be judged again.
        """
        reads = chain.from_iterable(
            self._reads(kind, names) for kind, names in changes.items() if names is not None
        )
        whole_kinds = {kind for kind, names in changes.items() if names is None}
        objects = [(kind, *name) for kind, names in changes.items() for name in names or ()]
        stale = self._recorded.change(
            objects, (*reads, *((Ambient.TIME,) if time_passed else ())), whole_kinds
        )
        for kind, names in changes.items():
            for name, (_, after) in (names or {}).items():
                if after is None:
                    self._recorded.forget((kind, *name))
        self._results |= {kind: ObjectTable() for kind in self._results.keys() & whole_kinds}
        for key in (*self._recorded.due, *objects):
            if isinstance(key, tuple) and key[0] in self._results:
                self._results[key[0]].due.add(key[1:])
        pairs = chain.from_iterable((names or {}).values() for names in changes.values())
        came_or_went = any(None in pair for pair in pairs)
        return stale or came_or_went or bool(whole_kinds)

    def report(self) -> Report:
        """Return the report on all objects, equal to that of ``judge``."""
        results = chain.from_iterable(map(self._judged, self._rules.kinds))
        return Report(tuple(filter(None, results)), policy=self.policy.name)

    def _judged(self, kind: Kind) -> Iterable[ObjectResult | None]:
        def judged(name: Name) -> ObjectResult | None:
            return self._recorded.remember((kind, *name), partial(self._judge, kind, name))

        return self._results[kind].values(self._recorded.names(kind), judged)

    def _judge(self, kind: Kind, name: Name, cluster: Cluster) -> ObjectResult | None:
        obj = cluster.whole(kind, *name) if isinstance(cluster, RecordedView) else None
        return (
            judge_object(obj, kind, self._rules, cluster, self.policy) if obj is not None else None
        )

    def _reads(
        self, kind: Kind, changed: Mapping[Name, tuple[Object | None, Object | None]]
    ) -> Iterator[Read]:
        seen: set[Name] = set()
        for name, (before, after) in changed.items():
            if before is None or after is None:
                yield whole(kind, *name)
                seen.add(name)
                continue
            old, new = steady(kind, before.data), steady(kind, after.data)
            if not identical(old, new):
                yield whole(kind, *name)
                if not identical(self._looked_at(kind, old), self._looked_at(kind, new)):
                    seen.add(name)
        yield from _reads_of(kind, seen)

    def _looked_at(self, kind: Kind, obj: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of an object that anything reads besides its own judgement."""
        fields = self._looked_up.get(kind)
        return fields.filter(obj) if fields is not None else {}


def _reads_of(kind: Kind, names: Iterable[Name]) -> Iterator[Read]:
    """Yield the reads that return one of these objects."""
    for namespace, name in names:
        yield kind, namespace, name
        yield kind, namespace, None
        yield kind, None, None


def steady(kind: Kind, obj: dict[str, Any]) -> dict[str, Any]:
    """Return an object without its heartbeats.

    They change all the time, and count only if they fail to appear. What reads a heartbeat compares
    it with the time, so it is computed again when time has passed.
    """
    steps = _HEARTBEATS.get(kind, ())
    for path in steps:
        obj = _without(obj, path)
    return obj


_HEARTBEATS: Final[Mapping[Kind, tuple[tuple[str, ...], ...]]] = {
    kinds.NODE: (
        ("status", "conditions", "lastHeartbeatTime"),
        ("metadata", "annotations", "kubevirt.io/heartbeat"),
    ),
    kinds.LEASE: (("spec", "renewTime"),),
}


def _without(value: Any, path: tuple[str, ...]) -> Any:
    """Return a value without the field at a path, which passes through lists,
    and without maps that are empty then.
    """
    if isinstance(value, list):
        return [_without(item, path) for item in value]
    if not isinstance(value, dict) or path[0] not in value:
        return value
    below = _without(value[path[0]], path[1:]) if path[1:] else {}
    return {
        key: below if key == path[0] else found
        for key, found in value.items()
        if key != path[0] or below
    }


def differences(kept: Report, full: Report) -> int:
    """Return the number of objects whose results are not equal,
    or that one of the reports lacks.
    """
    pairs = zip_longest(kept.results, full.results)
    return sum(one is None or other is None or _shown(one) != _shown(other) for one, other in pairs)


def _shown(result: ObjectResult) -> tuple[object, ...]:
    return result.obj.data, result.response
