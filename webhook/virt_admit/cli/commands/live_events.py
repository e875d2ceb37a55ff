"""The warnings about single objects of a live cluster in which not all of them could be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from virt_admit.cli.cluster_source import AnyCluster, connect
from virt_admit.forecasts.drain.drain_plan import NodePlan
from virt_admit.forecasts.drain.states.vm_states_kinds import State
from virt_admit.forecasts.placement import running_launchers
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.events import EVENT
from virt_admit.model.kubernetes.kinds import POD, VMI, Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import vms

if TYPE_CHECKING:
    from virt_admit.cli.options import ClusterOptions
    from virt_admit.kube.cache import ClusterCache

_MOST: Final = 20
"""Objects whose events are read: each read may take seconds."""
_WAITING: Final = frozenset((State.TARGET_PENDING, State.TARGET_NOT_READY, State.STARTING))


def of(cluster: AnyCluster, source: ClusterOptions) -> LiveEvents | None:
    """Return the events of a live cluster; None: all are known. Call it before a forecast."""
    if isinstance(cluster, Snapshot):
        return None
    from virt_admit.kube.bounded_events import BoundedEvents  # noqa: PLC0415 - files need none

    known = cluster.stores.get(EVENT)
    all_known = isinstance(known, BoundedEvents) and not known.missing
    return None if all_known else LiveEvents(cluster, source)


class LiveEvents:
    """The events of a live cluster that are read when a forecast needs them."""

    def __init__(self, cluster: ClusterCache, source: ClusterOptions) -> None:
        # checking files alone needs no cache
        from virt_admit.kube.cache import KindStore  # noqa: PLC0415

        self._cluster, self._source = cluster, source
        self._asked: set[tuple[str, str, str]] = set()
        self._store = cluster.stores.setdefault(EVENT, KindStore(EVENT))

    def read(self, nodes: Iterable[NodePlan]) -> bool:
        """Read the warnings that may say why VMs of these nodes wait.

        Return whether there are any.
        """
        wanted = list(islice(_wanted(nodes, self._cluster), _MOST))
        return bool(wanted) and self._read(wanted)

    def read_about(self, objects: Sequence[Object]) -> None:
        """Read the warnings about the first of these objects."""
        self._read(
            [
                (kinds.guess(obj.api_version, obj.kind), obj.namespace, obj.name)
                for obj in objects[:_MOST]
            ]
        )

    def _read(self, wanted: Sequence[tuple[Kind, str, str]]) -> bool:
        """Read the warnings about objects by kind, namespace and name.

        Return whether there are any.
        """
        from virt_admit.kube.event_reader import EventReader  # noqa: PLC0415

        reader = EventReader(connect(self._source))
        new = [each for each in wanted if (each[0].kind, *each[1:]) not in self._asked]
        self._asked.update((kind.kind, namespace, name) for kind, namespace, name in new)
        found = [
            event
            for kind, namespace, name in new  # those about an object without one are in ``default``
            for event in reader.warnings(kind, namespace or "default", name)
        ]
        for event in found:
            self._store.upsert(dict(event.data))
        return bool(found)


def _wanted(nodes: Iterable[NodePlan], cluster: ClusterCache) -> Iterator[tuple[Kind, str, str]]:
    """Yield kind, namespace and name of what the events may be about."""
    for row in (row for node in nodes for row in (*node.forecasts, *node.visitors)):
        key = vms.namespace_of(row.vmi), row.vmi.name
        if row.state.state is State.NO_TARGET:
            yield VMI, *key
        elif row.state.state in _WAITING:
            for pod in running_launchers.launchers(cluster).by_vmi.get(key, ()):
                if not pod.is_true("Ready"):
                    yield POD, pod.namespace or "default", pod.name
