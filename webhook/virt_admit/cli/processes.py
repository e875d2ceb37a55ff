"""Work that several processes share. Each starts as a copy of this one, so that nothing has to be sent to it."""

from __future__ import annotations

import copyreg
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import click

from virt_admit.model import kinds
from virt_admit.model.kinds import Kind
from virt_admit.rule import Rule
from virt_admit.rules import listed_rules

T = TypeVar("T")
R = TypeVar("R")


def available() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def share(work: Callable[[T], R], items: Sequence[T], jobs: int) -> Iterator[R]:
    """Yield ``work(item)`` for each item, in their order, computed by at most so many processes.

    This process does all the work if there is little of it, if the system cannot copy processes, or if a thread runs,
    which a copy would not have.

    Raises:
        ClickException: the system ended a process, mostly because memory is short.
    """
    jobs = min(jobs, len(items))
    if jobs <= 1 or not hasattr(os, "fork") or threading.active_count() > 1:
        yield from map(work, items)
        return
    import multiprocessing  # noqa: PLC0415 - few runs have so much to do
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415
    from concurrent.futures.process import BrokenProcessPool  # noqa: PLC0415

    copyreg.pickle(Rule, lambda rule: (_rule, (rule.id,)))  # each process has the same rules and kinds
    copyreg.pickle(Kind, lambda kind: (_kind, (kind.resource,)))
    context = multiprocessing.get_context("fork")
    try:
        with ProcessPoolExecutor(jobs, context, _start, (work, items)) as processes:
            yield from processes.map(_do, range(len(items)))
    except BrokenProcessPool:
        raise click.ClickException("a process was ended, probably because memory is short. Use -j 1") from None


def _kind(resource: str) -> Kind:
    found = kinds.by_resource(resource)
    if found is None:
        raise ValueError(f"no kind {resource}")
    return found


def _rule(rule_id: str) -> Rule:
    return listed_rules().by_id[rule_id]


def batches(items: Iterable[T], size: Callable[[T], int], least: int) -> Iterator[list[T]]:
    """Yield consecutive items in batches of at least this size; only the last one may be smaller."""
    batch: list[T] = []
    total = 0
    for item in items:
        batch.append(item)
        total += size(item)
        if total >= least:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch


_task: tuple[Callable[[Any], Any], Sequence[Any]] = id, ()
"""The work and its items, which ``_start`` sets in a copy."""


def _start(work: Callable[[Any], Any], items: Sequence[Any]) -> None:
    global _task  # noqa: PLW0603 - functions and objects need not be sent, because the copy has them
    _task = work, items


def _do(index: int) -> Any:
    work, items = _task
    return work(items[index])
