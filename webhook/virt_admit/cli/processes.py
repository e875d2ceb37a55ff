"""Work that several processes share.

Each starts as a copy of this one, so that nothing has to be sent to it.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from virt_admit.model.in_order import InOrder
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import NOTHING, Cluster, Snapshot, Unseen
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.rule import Rule
from virt_admit.rules import listed_rules

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

T = TypeVar("T")
R = TypeVar("R")

MOST: Final = 8
"""Processes by default. More save little, and a container that may use few processors of a large
node would start many.
"""


def available() -> int:
    """Return how many processes to use: one for each processor that this process may use,
    within reason.
    """
    return min(
        MOST,
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
    )


SMALL: Final = 2000
"""Nodes, pods and VMs up to which one process does all: to copy it and to look up in each copy what
they all need then costs more than they save (measured: 10 nodes with 550 pods, a tenth more)."""


def sharing(cluster: Cluster, jobs: int | None, *known: object) -> InOrder:
    """Return what does work on a cluster with at most so many processes.

    ``jobs``: None: as many as suit the size of the cluster. ``known``: as for ``share``.
    """
    if jobs is None:
        size = sum(len(cluster.known(kind)) for kind in (kinds.NODE, kinds.POD, kinds.VMI))
        jobs = available() if size > SMALL else 1

    def in_order(work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        return share(work, list(items), jobs, cluster, *known)

    return in_order


def share(
    work: Callable[[T], R],
    items: Sequence[T],
    jobs: int | None,
    cluster: Cluster = NOTHING,
    *known: object,
) -> Iterator[R]:
    """Yield ``work(item)`` for each item, in their order, computed by at most so many processes
    (None: as many as are available).

    This process does all the work if there is little of it, if the system cannot copy processes, or
    if a thread runs, which a copy would not have. Results name the cluster, its objects and the
    ``known`` values instead of copying them.

    Raises:
        ClickException: the system ended a process, mostly because memory is short.
    """
    jobs = min(jobs or available(), len(items))
    alone = jobs <= 1 or not hasattr(os, "fork") or threading.active_count() > 1
    known = (cluster, *known)
    copies = [] if alone else _start(work, items, jobs, known)
    if not copies:
        yield from map(work, items)
        return
    try:
        for index in range(len(items)):
            done, result = _Reader(copies[index % jobs][1].recv_bytes(), known).load()
            if not done:
                raise result
            yield result
    except EOFError:
        raise click.ClickException(
            "a process was ended, probably because memory is short. Use -j 1"
        ) from None
    finally:
        _end(copies)


_Copy = tuple["BaseProcess", "Connection"]
"""A process, and the end of its pipe from which its results are read."""


def _start(work: Callable[[T], Any], items: Sequence[T], jobs: int, known: _Known) -> list[_Copy]:
    """Start the processes, each for every n-th item. Return none if the system refuses one.

    Pipes alone: the queues of the standard library need locks, which a process that is ended leaves
    locked.
    """
    import multiprocessing  # noqa: PLC0415 - few runs have so much to do
    import signal  # noqa: PLC0415

    context = multiprocessing.get_context("fork")
    copies: list[_Copy] = []
    # Ctrl-C reaches every process; the copies ignore it, because this one ends them
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        for number in range(jobs):
            reader, writer = context.Pipe(duplex=False)
            readers = [reader, *(each for _, each in copies)]
            process = context.Process(
                target=_do, args=(work, items[number::jobs], known, writer, readers), daemon=True
            )
            process.start()
            writer.close()
            copies.append((process, reader))
    except OSError:
        _end(copies)
        return []
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return copies


def _do(
    work: Callable[[T], Any],
    items: Sequence[T],
    known: _Known,
    writer: Connection,
    readers: Iterable[Connection],
) -> None:
    """In a copy: send whether the work on each item was done, and its result or its exception."""
    for reader in readers:
        # writing fails once the first process is gone, so that the copies never outlive it
        reader.close()
    with contextlib.suppress(OSError):
        for item in items:
            try:
                written = _written((True, work(item)), known)
            except Exception as error:  # raised in the first process
                written = _written((False, error), known)
            writer.send_bytes(written)


def _end(copies: Iterable[_Copy]) -> None:
    for process, reader in copies:
        process.terminate()
        process.join()
        reader.close()


# --- results --------------------------------------------------------------------------------------

_Known = tuple[Any, ...]
"""What each process has since it started: a cluster first."""

_Name = tuple[Any, ...]


def _written(result: Any, known: _Known) -> bytes:
    file = io.BytesIO()
    _Writer(file, known).dump(result)
    return file.getvalue()


class _Writer(pickle.Pickler):
    """Names in a result what each process has: rules, kinds, the objects of the cluster."""

    def __init__(self, file: io.BytesIO, known: _Known) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._cluster: Cluster = known[0]
        self._known = {id(value): index for index, value in enumerate(known)}

    def reducer_override(self, value: Any) -> Any:
        name = self._name(value)
        return NotImplemented if name is None else (_named, name)

    def _name(self, value: Any) -> _Name | None:
        if isinstance(value, Object):
            return self._name_of_object(value)
        if isinstance(value, Rule):
            return "rule", value.id
        if isinstance(value, Kind):
            return "kind", value.resource
        return ("known", self._known[id(value)]) if id(value) in self._known else None

    def _name_of_object(self, obj: Object) -> _Name | None:
        """Return the name of an object of the cluster.

        Others are copied, such as those that were derived from it.

        A live cluster has none to name: it decodes an object each time that it is looked up.
        """
        kind = kinds.of(obj) if isinstance(self._cluster, Snapshot) else None
        try:
            found = kind and self._cluster.get(kind, obj.namespace, obj.name)
        except Unseen:
            return None
        return ("object", kind.resource, obj.namespace, obj.name) if kind and found is obj else None


def _named(*name: str) -> None:
    """Stand in a result for what ``_Reader`` finds by its name."""
    raise TypeError(f"{name} is read by _Reader alone")


class _Reader(pickle.Unpickler):
    """Reads a result of this program, and finds what it names."""

    def __init__(self, written: bytes, known: _Known) -> None:
        super().__init__(io.BytesIO(written))
        self._known = known

    def find_class(self, module: str, name: str) -> Any:
        is_name = (module, name) == (__name__, _named.__name__)
        return self._found if is_name else super().find_class(module, name)

    def _found(self, what: str, *name: Any) -> Any:
        if what == "known":
            return self._known[name[0]]
        if what == "rule":
            return listed_rules().by_id[name[0]]
        kind = kinds.by_resource(name[0])
        if kind is None:
            raise ValueError(f"no kind {name[0]}")
        return kind if what == "kind" else self._known[0].get(kind, *name[1:])
