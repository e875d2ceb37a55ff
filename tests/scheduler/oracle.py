"""kube-scheduler's own filters: the Go program of ``tests/apiserver/oracle``,
asked with one line for each cluster.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.scheduler.random_pods import Manifest


@dataclass(frozen=True)
class Answer:
    """What the filters say about one cluster."""

    invalid: tuple[str, ...]
    """Pods that the API server would reject; then there is no other answer."""
    place: tuple[dict[str, tuple[str, str]], ...]
    """For each pod the nodes that refuse it,
    each with the first plugin that does and its reason.
    """
    preempt: tuple[frozenset[str], ...]
    """For each pod the nodes on which preemption would make room for it."""
    bind: tuple[str | None, ...]
    """For each pod that was placed why its node refuses it; None: it accepts."""
    fits: bool | None
    """Whether some order and some choice of nodes places all pods; None: not asked,
    or too many possibilities.
    """


def ask(program: Path, questions: Iterable[Manifest]) -> list[Answer]:
    """Return the answers of the oracle, one for each question."""
    lines = "".join(f"{json.dumps(question)}\n" for question in questions)
    done = subprocess.run([program], input=lines, check=False, text=True, capture_output=True)
    assert not done.returncode, done.stderr[-4000:]
    return [_answer(json.loads(line)) for line in done.stdout.splitlines()]


def _answer(line: Manifest) -> Answer:
    return Answer(
        tuple(line.get("invalid") or ()),
        tuple(
            {node: (refusal["plugin"], refusal["reason"]) for node, refusal in refusals.items()}
            for refusals in line["place"]
        ),
        tuple(map(frozenset, line["preempt"])),
        tuple(refusal and f"{refusal['plugin']}: {refusal['reason']}" for refusal in line["bind"]),
        line["fits"],
    )
