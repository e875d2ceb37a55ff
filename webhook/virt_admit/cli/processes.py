"""Work that several processes share. Each starts as a copy of this one, so that nothing has to be sent to it."""

from __future__ import annotations

import contextlib
import copyreg
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.rule import Rule
from virt_admit.rules import listed_rules

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

T = TypeVar("T")
R = TypeVar("R")

MOST: Final = 8
"""Processes by default. More save little, and a container that may use few processors of a large node would start many."""


def available() -> int:
    """Return how many processes to use: one for each processor that this process may use, within reason."""
    return min(MOST, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def share(work: Callable[[T], R], items: Sequence[T], jobs: int) -> Iterator[R]:
    """Yield ``work(item)`` for each item, in their order, computed by at most so many processes.

    This process does all the work if there is little of it, if the system cannot copy processes, or if a thread runs,
    which a copy would not have.

    Raises:
        ClickException: the system ended a process, mostly because memory is short.
    """
    jobs = min(jobs, len(items))
    alone = jobs <= 1 or not hasattr(os, "fork") or threading.active_count() > 1
    copies = [] if alone else _start(work, items, jobs)
    if not copies:
        yield from map(work, items)
        return
    try:
        for index in range(len(items)):
            done, result = copies[index % jobs][1].recv()
            if not done:
                raise result
            yield result
    except EOFError:
        raise click.ClickException("a process was ended, probably because memory is short. Use -j 1") from None
    finally:
        _end(copies)


_Copy = tuple["BaseProcess", "Connection"]
"""A process, and the end of its pipe from which its results are read."""


def _start(work: Callable[[T], Any], items: Sequence[T], jobs: int) -> list[_Copy]:
    """Start the processes, each for every n-th item. Return none if the system refuses one.

    Pipes alone: the queues of the standard library need locks, which a process that is ended leaves locked.
    """
    import multiprocessing  # noqa: PLC0415 - few runs have so much to do
    import signal  # noqa: PLC0415

    copyreg.pickle(Rule, lambda rule: (_rule, (rule.id,)))  # each process has the same rules and kinds
    copyreg.pickle(Kind, lambda kind: (_kind, (kind.resource,)))
    context = multiprocessing.get_context("fork")
    copies: list[_Copy] = []
    # Ctrl-C reaches every process; the copies ignore it, because this one ends them
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        for number in range(jobs):
            reader, writer = context.Pipe(duplex=False)
            readers = [reader, *(each for _, each in copies)]
            process = context.Process(target=_do, args=(work, items[number::jobs], writer, readers), daemon=True)
            process.start()
            writer.close()
            copies.append((process, reader))
    except OSError:
        _end(copies)
        return []
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return copies


def _do(work: Callable[[T], Any], items: Sequence[T], writer: Connection, readers: Iterable[Connection]) -> None:
    """In a copy: send whether the work on each item was done, and its result or its exception."""
    for reader in readers:
        reader.close()  # writing fails once the first process is gone, so that the copies never outlive it
    with contextlib.suppress(OSError):
        for item in items:
            try:
                result: tuple[bool, Any] = True, work(item)
            except Exception as error:  # raised in the first process
                result = False, error
            writer.send(result)


def _end(copies: Iterable[_Copy]) -> None:
    for process, reader in copies:
        process.terminate()
        process.join()
        reader.close()


def _kind(resource: str) -> Kind:
    found = kinds.by_resource(resource)
    if found is None:
        raise ValueError(f"no kind {resource}")
    return found


def _rule(rule_id: str) -> Rule:
    return listed_rules().by_id[rule_id]
